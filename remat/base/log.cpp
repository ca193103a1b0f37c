#include "remat/base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>

namespace remat {
namespace {

std::atomic<LogLevel> current_level{LogLevel::kNormal};
std::mutex log_mutex;

}  // namespace

void set_log_level(LogLevel level) { current_level = level; }

LogLevel log_level() { return current_level; }

void say(std::string_view topic, std::string_view text) {
  if (log_level() == LogLevel::kQuiet) {
    return;
  }
  const std::lock_guard lock(log_mutex);
  std::fprintf(stderr, "[%.*s] %.*s\n", static_cast<int>(topic.size()),
               topic.data(), static_cast<int>(text.size()), text.data());
}

void say_once(std::string_view topic, const std::string& text) {
  {
    static std::set<std::string> said;
    const std::lock_guard lock(log_mutex);
    if (!said.insert(text).second) {
      return;
    }
  }
  say(topic, text);
}

}  // namespace remat
