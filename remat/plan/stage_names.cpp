#include "remat/plan/stage_names.h"

#include <algorithm>
#include <cstddef>

namespace remat::plan {
namespace {

constexpr const char* kDigits = "0123456789";
// A longer one is no count of stages.
constexpr size_t kMostDigits = 9;

// "layer 12 attention" -> {"layer ", " attention", {12}}
struct Family {
  std::string before, after;
  std::vector<int> numbers;  // none: the name has none

  bool is_same(const Family& other) const {
    return before == other.before && after == other.after &&
           numbers.empty() == other.numbers.empty();
  }
};

Family family_of(const std::string& name) {
  const size_t begin = name.find_first_of(kDigits);
  if (begin == std::string::npos) {
    return {name, "", {}};
  }
  const size_t end =
      std::min(name.find_first_not_of(kDigits, begin), name.size());
  if (end - begin > kMostDigits) {
    return {name, "", {}};
  }
  return {name.substr(0, begin),
          name.substr(end),
          {std::stoi(name.substr(begin, end - begin))}};
}

// {0, 1, 2, 5} -> "0-2, 5"
std::string ranges_of(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (end - i > 1) {
      text += (end - i > 2 ? "-" : ", ") + std::to_string(numbers[end - 1]);
    }
    i = end;
  }
  return text;
}

}  // namespace

std::string join_stage_names(const std::vector<std::string>& names) {
  std::vector<Family> families;
  for (const std::string& name : names) {
    const Family family = family_of(name);
    const auto known =
        std::find_if(families.begin(), families.end(),
                     [&](const Family& f) { return f.is_same(family); });
    if (known == families.end()) {
      families.push_back(family);
    } else {
      known->numbers.insert(known->numbers.end(), family.numbers.begin(),
                            family.numbers.end());
    }
  }
  std::string text;
  for (size_t i = 0; i < families.size(); ++i) {
    if (i > 0) {
      text += i + 1 == families.size() ? " and " : ", ";
    }
    text +=
        families[i].before + ranges_of(families[i].numbers) + families[i].after;
  }
  return text;
}

}  // namespace remat::plan
