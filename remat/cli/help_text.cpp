#include "remat/cli/help_text.h"

#include <sstream>

namespace remat::cli {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kTextColumn = 34;

// In lines that begin at kTextColumn; `line` is what stands before the first.
std::string wrapped(std::string line, const std::string& text) {
  const std::string margin(kTextColumn, ' ');
  std::string lines;
  const auto end_line = [&] {
    lines += line + "\n";
    line = margin;
  };
  if (line.size() + 2 > kTextColumn) {
    end_line();
  } else {
    line.resize(kTextColumn, ' ');
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() > kTextColumn) {
      if (line.size() + 1 + word.size() > kColumns) {
        end_line();
      } else {
        line += ' ';
      }
    }
    line += word;
  }
  end_line();
  return lines;
}

}  // namespace

std::string to_text(const HelpText& help) {
  std::string text = help.description + "\n\nUsage: " + help.usage + "\n";
  for (const HelpSection& section : help.sections) {
    text += "\n" + section.heading + ":\n";
    for (const HelpEntry& entry : section.entries) {
      text += wrapped("  " + entry.name, entry.text);
    }
  }
  if (!help.examples.empty()) {
    text += "\n" + help.examples + "\n";
  }
  return text;
}

}  // namespace remat::cli
