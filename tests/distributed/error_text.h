// What an action says as it fails.
#pragma once

#include <functional>
#include <string>

namespace remat::distributed {

template <class Exception>
std::string text_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "no such exception";
}

}  // namespace remat::distributed
