// The commands: each takes the arguments after its name and returns the exit
// code. Errors are exceptions.
#pragma once

#include <string>
#include <vector>

namespace remat::cli {

int train_command(const std::vector<std::string>& arguments);
int evaluate_command(const std::vector<std::string>& arguments);
int predict_command(const std::vector<std::string>& arguments);
int profile_command(const std::vector<std::string>& arguments);
int plan_command(const std::vector<std::string>& arguments);

}  // namespace remat::cli
