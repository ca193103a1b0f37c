#include "remat/data/records.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/data/csv.h"
#include "remat/data/json_line.h"
#include "remat/data/utf8.h"

namespace remat::data {
namespace {

constexpr size_t kListed = 20;  // names in one message

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) {
    text += str(i == 0 ? "" : ", ", '"', names[i], '"');
  }
  if (names.size() > kListed) {
    text += str(" and ", names.size() - kListed, " more");
  }
  return text;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

// Where in the file a value stands, for messages.
struct Position {
  std::string_view source;
  size_t line = 0;

  [[noreturn]] void fail(size_t column, const std::string& message) const {
    fail_usage("data", source, ":", line, ": column ", column, ": ", message);
  }
};

void check_utf8(std::string_view text, std::string_view source) {
  const size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) {
    return;
  }
  const auto before = text.substr(0, bad);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  Position{source, static_cast<size_t>(line)}.fail(
      bad - line_start + 1,
      str("the byte ", describe_character(text, bad), " is not valid UTF-8"));
}

std::string wanted_object(const RecordColumns& columns) {
  return str("The line must be one JSON object with \"", columns.text, "\"",
             columns.need_label ? " and \"" + columns.label + "\"" : "", ".");
}

std::string label_of(const JsonMember& member, const Position& position) {
  switch (member.kind) {
    case JsonKind::kString:
    case JsonKind::kBoolean:
      return member.value;
    case JsonKind::kNumber:
      if (member.value.find_first_of(".eE") == std::string::npos) {
        return member.value == "-0" ? "0" : member.value;
      }
      position.fail(member.column,
                    str("the label is ", member.value,
                        "; it must be a string, a whole number or a boolean"));
    default:
      position.fail(member.column,
                    str("the label is ", describe(member.kind),
                        "; it must be a string, a whole number or a boolean"));
  }
}

void check_filled(std::string_view what, std::string_view value,
                  const Position& position, size_t column) {
  if (is_blank(value)) {
    position.fail(column, str("the ", what, " is empty"));
  }
}

Record record_of(std::string_view line, const Position& position,
                 const RecordColumns& columns) {
  std::vector<JsonMember> members;
  try {
    members = parse_json_line(line);
  } catch (const JsonLineError& error) {
    position.fail(error.column(),
                  str(error.what(), ". ", wanted_object(columns)));
  }
  const auto find = [&](const std::string& name) -> JsonMember& {
    for (JsonMember& member : members) {
      if (member.name == name) {
        return member;
      }
    }
    std::vector<std::string> names;
    for (const JsonMember& member : members) {
      names.push_back(member.name);
    }
    fail_usage("data", position.source, ":", position.line, ": no \"", name,
               "\"; the line has ",
               names.empty() ? "no fields" : quoted_list(names), ". ",
               wanted_object(columns));
  };
  Record record;
  record.line = static_cast<int64_t>(position.line);
  JsonMember& text = find(columns.text);
  if (text.kind != JsonKind::kString) {
    position.fail(text.column,
                  str("\"", columns.text, "\" is ", describe(text.kind),
                      "; it must be a string"));
  }
  check_filled("text", text.value, position, text.column);
  if (columns.need_label) {
    const JsonMember& label = find(columns.label);
    record.label = label_of(label, position);
    check_filled("label", record.label, position, label.column);
  }
  record.text = std::move(text.value);
  return record;
}

std::vector<Record> parse_jsonl(std::string_view text, std::string_view source,
                                const RecordColumns& columns) {
  std::vector<Record> records;
  Position position{source};
  while (!text.empty()) {
    ++position.line;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    if (!is_blank(line)) {
      records.push_back(record_of(line, position, columns));
    }
  }
  return records;
}

// The place of a column in the header of a CSV file.
size_t find_column(const std::vector<CsvField>& header, const std::string& name,
                   std::string_view source) {
  std::vector<std::string> names;
  for (size_t i = 0; i < header.size(); ++i) {
    if (header[i].value == name) {
      return i;
    }
    names.push_back(header[i].value);
  }
  fail_usage("data", source, ":", header[0].line, ": no column \"", name,
             "\"; the header has ", quoted_list(names));
}

std::vector<Record> parse_csv(std::string_view text, std::string_view source,
                              const RecordColumns& columns) {
  CsvReader reader(text, source);
  const std::vector<CsvField> header = reader.next();
  if (header.empty()) {
    return {};
  }
  std::set<std::string> seen;
  for (const CsvField& field : header) {
    // Nameless columns occur (an exported row number) and cannot be asked for.
    if (!field.value.empty() && !seen.insert(field.value).second) {
      Position{source, field.line}.fail(
          field.column, str("the column \"", field.value, "\" stands twice"));
    }
  }
  const size_t text_column = find_column(header, columns.text, source);
  const size_t label_column =
      columns.need_label ? find_column(header, columns.label, source) : 0;
  std::vector<Record> records;
  for (auto fields = reader.next(); !fields.empty(); fields = reader.next()) {
    if (fields.size() != header.size()) {
      fail_usage("data", source, ":", fields[0].line, ": ", fields.size(),
                 fields.size() == 1 ? " field" : " fields",
                 ", but the header has ", header.size());
    }
    const auto check = [&](std::string_view what, const CsvField& field) {
      check_filled(what, field.value, {source, field.line}, field.column);
    };
    Record record;
    record.line = static_cast<int64_t>(fields[0].line);
    check("text", fields[text_column]);
    if (columns.need_label) {
      check("label", fields[label_column]);
      record.label = fields[label_column].value;
    }
    record.text = std::move(fields[text_column].value);
    records.push_back(std::move(record));
  }
  return records;
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    return std::nullopt;
  }
  return value;
}

bool label_less(const std::string& a, const std::string& b) {
  const auto x = whole_number(a), y = whole_number(b);
  if (x.has_value() != y.has_value()) {
    return x.has_value();
  }
  return x != y ? *x < *y : a < b;
}

}  // namespace

std::vector<Record> parse_records(std::string_view text,
                                  std::string_view format,
                                  std::string_view source,
                                  const RecordColumns& columns) {
  if (format != "jsonl" && format != "csv") {
    fail_usage("data", source, ": unknown format \"", format,
               "\"; it must be jsonl or csv");
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  check_utf8(text, source);
  auto records = format == "csv" ? parse_csv(text, source, columns)
                                 : parse_jsonl(text, source, columns);
  if (records.empty()) {
    fail_usage("data", source, ": ",
               is_blank(text) ? "the file is empty"
                              : "there is a header, but no record");
  }
  return records;
}

std::vector<Record> read_records(const std::filesystem::path& path,
                                 const RecordColumns& columns) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (ending != ".jsonl" && ending != ".json" && ending != ".csv") {
    fail_usage("data", path.string(), ": the name must end in .jsonl, .json ",
               "(one object a line) or .csv, so that its format is known");
  }
  return parse_records(read_file(path), ending == ".csv" ? "csv" : "jsonl",
                       path.string(), columns);
}

LabelSet LabelSet::of(const std::vector<Record>& records,
                      std::string_view source) {
  std::set<std::string> seen;
  for (const Record& record : records) {
    seen.insert(record.label);
  }
  std::vector<std::string> names(seen.begin(), seen.end());
  if (names.size() < 2) {
    fail_usage("data", source, ": ",
               names.empty() ? "there is no label"
                             : str("the only label is \"", names[0], "\""),
               "; a classifier needs at least two");
  }
  std::sort(names.begin(), names.end(), label_less);
  return LabelSet(std::move(names));
}

LabelSet::LabelSet(std::vector<std::string> names) : names_(std::move(names)) {
  for (const std::string& name : names_) {
    if (!indices_.emplace(name, static_cast<int64_t>(indices_.size())).second) {
      fail_usage("data", "the label \"", name, "\" stands twice in the list");
    }
  }
}

int64_t LabelSet::index(const Record& record, std::string_view source) const {
  const auto found = indices_.find(record.label);
  if (found == indices_.end()) {
    const std::string line = record.line > 0 ? str(":", record.line) : "";
    fail_usage("data", source, line, ": the label \"", record.label,
               "\" does not occur in training; the known labels are ",
               quoted_list(names_));
  }
  return found->second;
}

}  // namespace remat::data
