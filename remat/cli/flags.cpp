#include "remat/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "remat/base/error.h"
#include "remat/base/suggest.h"
#include "remat/cli/config_file.h"
#include "remat/cli/help_text.h"

namespace remat::cli {
namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

std::string dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string shortest(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

// The value as text; "" where there is none, and for a switch that is off.
std::string text_of(const FlagTarget& target) {
  return std::visit(
      Overloaded{
          [](const bool* value) { return std::string(*value ? "true" : ""); },
          [](const int64_t* value) { return std::to_string(*value); },
          [](const double* value) { return shortest(*value); },
          [](const std::string* value) { return *value; },
          [](const std::optional<int64_t>* value) {
            return value->has_value() ? std::to_string(**value) : "";
          }},
      target);
}

template <class T>
T parse_number(const std::string& where, const std::string& text,
               const char* wanted) {
  T value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec == std::errc::result_out_of_range) {
    throw UsageError(str(where, " is ", text, "; that is too large."));
  }
  if (result.ec != std::errc() || result.ptr != end) {
    throw UsageError(
        str(where, " is \"", text, "\"; it must be ", wanted, "."));
  }
  return value;
}

bool parse_switch(const std::string& where, const std::string& text) {
  std::string lower = text;
  for (char& c : lower) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (lower == "true" || lower == "1") {
    return true;
  }
  if (lower == "false" || lower == "0") {
    return false;
  }
  throw UsageError(str(where, " is \"", text, "\"; it must be true or false."));
}

}  // namespace

struct Flags::Flag {
  std::string name;
  FlagTarget target;
  CLI::Option* option = nullptr;
  std::string text;
  bool is_given = false;

  // where: "[train] --max-steps" or "[train] run.toml:3: max-steps".
  void set(const std::string& where, const std::string& value) {
    std::visit(
        Overloaded{[&](bool* to) { *to = parse_switch(where, value); },
                   [&](int64_t* to) {
                     *to =
                         parse_number<int64_t>(where, value, "a whole number");
                   },
                   [&](double* to) {
                     *to = parse_number<double>(where, value, "a number");
                   },
                   [&](std::string* to) { *to = value; },
                   [&](std::optional<int64_t>* to) {
                     *to =
                         parse_number<int64_t>(where, value, "a whole number");
                   }},
        target);
    is_given = true;
  }

  const char* wanted() const {
    switch (target.index()) {
      case 0:
        return "true or false";
      case 2:
        return "a number";
      case 3:
        return "a string in quotes";
      default:
        return "a whole number";
    }
  }

  bool accepts(ValueKind kind) const {
    switch (target.index()) {
      case 0:
        return kind == ValueKind::kBoolean;
      case 2:
        return kind == ValueKind::kNumber || kind == ValueKind::kInteger;
      case 3:
        return kind == ValueKind::kString;
      default:
        return kind == ValueKind::kInteger;
    }
  }
};

struct Flags::Impl {
  explicit Impl(const std::string& description, const std::string& command)
      : app(description, "remat " + command),
        help{description, "remat " + command + " [OPTIONS]", {}, ""} {
    help.sections.push_back({"Options", {}});
  }

  CLI::App app;
  // CLI11's own looks different in every version.
  HelpText help;
  std::deque<Flag> flags;  // addresses stay
  std::map<std::string, std::string> aliases;

  // Dashes for underscores, and the flag that an alias stands for.
  std::string canonical(const std::string& name) const {
    const std::string dashed = dashes(name);
    const auto alias = aliases.find(dashed);
    return alias == aliases.end() ? dashed : alias->second;
  }
};

Flags::Flags(std::string command, std::string description)
    : command_(std::move(command)),
      impl_(std::make_unique<Impl>(description, command_)) {
  impl_->app.set_help_flag("-h,--help");
  impl_->help.sections.back().entries.push_back(
      {"-h, --help", "Print this and stop"});
  add("config", &config_, "FILE", "TOML file with any of these flags");
}

Flags::~Flags() = default;

void Flags::group(std::string heading) {
  impl_->help.sections.push_back({std::move(heading), {}});
}

void Flags::add(const std::string& name, FlagTarget target,
                const std::string& unit, const std::string& help) {
  Flag& flag = impl_->flags.emplace_back();
  flag.name = name;
  flag.target = target;
  const std::string standard = text_of(target);
  const std::string text =
      standard.empty() ? help : help + " (default " + standard + ")";
  if (std::holds_alternative<bool*>(target)) {
    flag.option = impl_->app.add_flag("--" + name);
  } else {
    flag.option = impl_->app.add_option("--" + name, flag.text)
                      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  impl_->help.sections.back().entries.push_back(
      {str("--", name, unit.empty() ? "" : " ", unit), text});
}

void Flags::add_alias(const std::string& alias, const std::string& name) {
  impl_->aliases[alias] = name;
}

void Flags::add_argument(const std::string& name, std::string* target,
                         const std::string& help) {
  impl_->app.add_option(name, *target);
  impl_->help.usage += " [" + name + "]";
  impl_->help.sections.front().entries.push_back({name, help});
}

void Flags::set_examples(const std::string& text) {
  impl_->help.examples = text;
}

bool Flags::parse(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    // From here on they are files, whatever they look like.
    if (argument == "--") {
      break;
    }
    if (argument.starts_with("--")) {
      const size_t end = std::min(argument.find('='), argument.size());
      argument = "--" + impl_->canonical(argument.substr(2, end - 2)) +
                 argument.substr(end);
    }
  }
  // CLI11 takes them from the back.
  std::reverse(arguments.begin(), arguments.end());
  try {
    impl_->app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::fputs(to_text(impl_->help).c_str(), stdout);
    return false;
  } catch (const CLI::ExtrasError&) {
    for (const std::string& extra : impl_->app.remaining()) {
      if (extra.size() > 1 && extra[0] == '-') {
        const std::string name = extra.substr(0, extra.find('='));
        std::vector<std::string> known = names();
        known.insert(known.end(), {"config", "help"});
        fail_usage(command_, "unknown flag ", name,
                   did_you_mean(name.substr(std::min(
                                    name.find_first_not_of('-'), name.size())),
                                known, "--"),
                   " See remat ", command_, " --help.");
      }
    }
    fail_usage(command_, "unexpected argument ", impl_->app.remaining().front(),
               ". See remat ", command_, " --help.");
  } catch (const CLI::ParseError& error) {
    fail_usage(command_, error.what(), ". See remat ", command_, " --help.");
  }
  for (Flag& flag : impl_->flags) {
    if (flag.option->count() > 0) {
      flag.set(str("[", command_, "] --", flag.name),
               flag.option->results().back());
    }
  }
  if (is_given("config")) {
    if (config_.empty()) {
      fail_usage(command_, "--config is \"\"; it must name a TOML file.");
    }
    read_config(config_);
  }
  return true;
}

void Flags::require(std::string_view name, std::string_view what_for) const {
  if (text_of(find(name)->target).empty()) {
    fail_usage(command_, "--", name, " is missing: ", what_for);
  }
}

bool Flags::is_given(std::string_view name) const {
  return find(name)->is_given;
}

std::string Flags::to_toml(const std::vector<std::string>& omitted) const {
  std::string toml;
  for (const Flag& flag : impl_->flags) {
    const std::string text = text_of(flag.target);
    if (text.empty() || flag.name == "config" ||
        std::find(omitted.begin(), omitted.end(), flag.name) != omitted.end()) {
      continue;
    }
    // JSON's escapes are TOML's too.
    toml += flag.name + " = " +
            (std::holds_alternative<std::string*>(flag.target)
                 ? nlohmann::json(text).dump(
                       -1, ' ', false, nlohmann::json::error_handler_t::replace)
                 : text) +
            "\n";
  }
  return toml;
}

Flags::Flag* Flags::find(std::string_view name) const {
  for (Flag& flag : impl_->flags) {
    if (flag.name == name) {
      return &flag;
    }
  }
  return nullptr;
}

std::vector<std::string> Flags::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : impl_->flags) {
    if (flag.name != "config") {
      names.push_back(flag.name);
    }
  }
  return names;
}

void Flags::read_config(const std::string& path) {
  std::map<std::string, int> lines;
  for (const ConfigEntry& entry : read_config_file(command_, path)) {
    const std::string where =
        str("[", command_, "] ", path, ":", entry.line, ": ");
    const std::string name = impl_->canonical(entry.key);
    Flag* flag = find(name);
    if (flag == nullptr || name == "config") {
      throw UsageError(str(where, "unknown option ", entry.key,
                           did_you_mean(name, names()),
                           " The options are those of remat ", command_,
                           " --help, without the dashes in front."));
    }
    // max-steps and max_steps are one.
    const auto [first, is_new] = lines.emplace(name, entry.line);
    if (!is_new) {
      throw UsageError(str(where, entry.key, " stands in line ", first->second,
                           " already."));
    }
    if (flag->option->count() > 0) {
      continue;
    }
    if (!flag->accepts(entry.kind)) {
      throw UsageError(str(where, entry.key, " is ",
                           entry.text.empty() ? "of another type" : entry.text,
                           "; it must be ", flag->wanted(), "."));
    }
    flag->set(where + entry.key, entry.text);
  }
}

}  // namespace remat::cli
