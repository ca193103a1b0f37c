// The help of one command, 80 columns wide.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

struct HelpEntry {
  std::string name;  // "--seed N"
  std::string text;  // wrapped where the line ends
};

struct HelpSection {
  std::string heading;
  std::vector<HelpEntry> entries;
};

struct HelpText {
  std::string description;  // as it is
  std::string usage;        // "remat train [OPTIONS]"
  std::vector<HelpSection> sections;
  std::string examples;  // as it is
};

std::string to_text(const HelpText& help);

}  // namespace remat::cli
