// Labelled texts from JSON lines or CSV.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

struct Record {
  std::string text;
  std::string label;  // empty where labels are not asked for
  int64_t line = 0;   // of the file, from 1 on; 0: unknown
};

struct RecordColumns {
  std::string text = "text";
  std::string label = "label";
  bool need_label = true;
};

// Reads a file by its ending: .jsonl or .json (one object a line), .csv (a
// header line, RFC 4180 quotes). Labels may be strings, whole numbers or
// booleans. Blank lines are passed over. Throws UsageError that names file,
// line and column for: a missing, unreadable or empty file, a broken line, a
// missing column (naming those there are), an empty text, an empty label,
// invalid UTF-8 (with its byte), another ending.
std::vector<Record> read_records(const std::filesystem::path& path,
                                 const RecordColumns& columns);

// The same from text that is already in memory; format is "jsonl" or "csv".
std::vector<Record> parse_records(std::string_view text,
                                  std::string_view format,
                                  std::string_view source,
                                  const RecordColumns& columns);

// The labels of a training set, sorted (numbers by value, then text): the
// class index is the position.
class LabelSet {
 public:
  // Throws UsageError if there are fewer than two labels, naming the one.
  static LabelSet of(const std::vector<Record>& records,
                     std::string_view source);
  explicit LabelSet(std::vector<std::string> names);

  int64_t size() const { return static_cast<int64_t>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }

  // Of the record's label. Throws UsageError naming label, source, line and the
  // known labels.
  int64_t index(const Record& record, std::string_view source) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, int64_t> indices_;
};

}  // namespace remat::data
