#include "remat/data/csv.h"

#include "remat/base/error.h"
#include "remat/data/utf8.h"

namespace remat::data {

CsvReader::CsvReader(std::string_view text, std::string_view source)
    : text_(text), source_(source) {}

void CsvReader::fail_at(size_t line, size_t column,
                        const std::string& message) const {
  fail_usage("data", source_, ":", line, ": column ", column, ": ", message);
}

bool CsvReader::at_line_end() const {
  return next_ >= text_.size() || text_[next_] == '\n' ||
         text_.substr(next_, 2) == "\r\n";
}

std::vector<CsvField> CsvReader::next() {
  while (next_ < text_.size()) {
    std::vector<CsvField> fields;
    while (true) {
      CsvField field;
      field.line = line_;
      field.column = column();
      const bool has_quotes = next_ < text_.size() && text_[next_] == '"';
      has_quotes ? quoted(field) : unquoted(field);
      const bool blank = fields.empty() && !has_quotes && field.value.empty();
      fields.push_back(std::move(field));
      if (!at_line_end()) {
        ++next_;  // the comma
        continue;
      }
      next_ += next_ < text_.size() && text_[next_] == '\r' ? 2 : 1;
      ++line_;
      line_start_ = next_;
      if (blank) {
        break;
      }
      return fields;
    }
  }
  return {};
}

void CsvReader::quoted(CsvField& field) {
  ++next_;
  while (true) {
    const size_t stop =
        text_.find_first_of(std::string_view("\"\n\0", 3), next_);
    if (stop == std::string_view::npos) {
      fail_at(field.line, field.column,
              "the quote that is opened here is never closed");
    }
    field.value.append(text_.substr(next_, stop - next_));
    next_ = stop + 1;
    if (text_[stop] == '\0') {
      fail_at(line_, stop - line_start_ + 1, "a NUL byte; is this text?");
    }
    if (text_[stop] == '\n') {
      field.value += '\n';
      ++line_;
      line_start_ = next_;
    } else if (next_ < text_.size() && text_[next_] == '"') {
      field.value += '"';
      ++next_;
    } else {
      break;
    }
  }
  if (!at_line_end() && text_[next_] != ',') {
    fail_at(line_, column(),
            str("expected ',' or the end of the line after a closing quote, "
                "found ",
                describe_character(text_, next_)));
  }
}

void CsvReader::unquoted(CsvField& field) {
  const size_t start = next_;
  while (!at_line_end() && text_[next_] != ',') {
    if (text_[next_] == '"') {
      fail_at(line_, column(),
              "a quote within an unquoted field; put the whole field in quotes "
              "and double those inside");
    }
    if (text_[next_] == '\0') {
      fail_at(line_, column(), "a NUL byte; is this text?");
    }
    ++next_;
  }
  field.value = text_.substr(start, next_ - start);
}

}  // namespace remat::data
