// Comma-separated values by RFC 4180, one record after the other.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

struct CsvField {
  std::string value;
  size_t line = 0;    // where it begins, from 1
  size_t column = 0;  // in bytes from 1
};

// The text must be valid UTF-8 and outlive the reader.
class CsvReader {
 public:
  CsvReader(std::string_view text, std::string_view source);

  // The fields of the next record, or none at the end; blank lines are passed
  // over. Throws UsageError naming source, line and column for a quote that is
  // never closed (where it was opened), text behind a closing quote, a quote
  // within an unquoted field and NUL bytes.
  std::vector<CsvField> next();

 private:
  void quoted(CsvField& field);
  void unquoted(CsvField& field);
  bool at_line_end() const;
  size_t column() const { return next_ - line_start_ + 1; }
  [[noreturn]] void fail_at(size_t line, size_t column,
                            const std::string& message) const;

  std::string_view text_;
  std::string source_;
  size_t next_ = 0;
  size_t line_ = 1;
  size_t line_start_ = 0;
};

}  // namespace remat::data
