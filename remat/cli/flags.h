// The flags of one command: from the command line, from a TOML file, and back
// into one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace remat::cli {

// Where a flag's value goes; what is there before is the default. A bool is a
// switch; an empty string or optional means "not given".
using FlagTarget = std::variant<bool*, int64_t*, double*, std::string*,
                                std::optional<int64_t>*>;

class Flags {
 public:
  // command stands in brackets before errors. There is a --help, and a
  // --config FILE that holds any of the other flags.
  Flags(std::string command, std::string description);
  ~Flags();

  // The flags added after this stand under the heading in the help.
  void group(std::string heading);

  // name without dashes; unit is what stands for the value in the help. The
  // target must outlive this object.
  void add(const std::string& name, FlagTarget target, const std::string& unit,
           const std::string& help);

  // Another name of a flag that is there, without a line in the help.
  void add_alias(const std::string& alias, const std::string& name);

  // One argument that is no flag; may be left out.
  void add_argument(const std::string& name, std::string* target,
                    const std::string& help);

  void set_examples(const std::string& text);

  // Underscores in a flag's name count as dashes, the last of a repeated flag
  // counts, and the command line wins over the file. Throws UsageError naming
  // flag and value, with a suggestion for a mistyped name. Returns false if
  // the help was asked for: it is on standard output then.
  bool parse(std::vector<std::string> arguments);

  // Throws UsageError with the remedy unless the flag has a value.
  void require(std::string_view name, std::string_view what_for) const;

  // True if the flag came from the command line or the file.
  bool is_given(std::string_view name) const;

  // What --config reads: all values but those not given, and but `omitted`.
  std::string to_toml(const std::vector<std::string>& omitted) const;

 private:
  struct Flag;
  struct Impl;

  Flag* find(std::string_view name) const;
  std::vector<std::string> names() const;
  void read_config(const std::string& path);

  std::string command_;
  std::string config_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat::cli
