// Lines on standard error: what a run says besides its results.
#pragma once

#include <string>
#include <string_view>

namespace remat {

enum class LogLevel { kQuiet, kNormal, kVerbose };

// For the whole process; kNormal to begin with.
void set_log_level(LogLevel level);
LogLevel log_level();

// Prints "[topic] text" unless the level is kQuiet. Thread-safe.
void say(std::string_view topic, std::string_view text);

// As say, but a text that was said before is not said again: for what is
// changed on the user's behalf.
void say_once(std::string_view topic, const std::string& text);

}  // namespace remat
