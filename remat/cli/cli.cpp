#include "remat/cli/cli.h"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "remat/base/error.h"
#include "remat/base/suggest.h"
#include "remat/base/version.h"
#include "remat/cli/commands.h"

namespace remat::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments);
};

constexpr Command kCommands[] = {
    {"train", "fine-tune a classifier of long texts", train_command},
    {"evaluate", "measure a trained classifier on labelled texts",
     evaluate_command},
    {"predict", "classify texts", predict_command},
    {"profile", "measure what each stage of a model costs", profile_command},
    {"plan", "tell whether training fits into a memory, and how", plan_command},
};

void print_help() {
  std::printf(
      "remat %s: trains longer sequences and deeper models in the memory "
      "there is\n\nUsage: remat COMMAND [FLAGS]\n\n",
      version());
  for (const Command& command : kCommands) {
    std::printf("  %-10s %s\n", command.name, command.summary);
  }
  std::printf(
      "\n  --help     print this; remat COMMAND --help tells a command's "
      "flags\n"
      "  --version  print the versions of remat and libtorch\n\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration,\n"
      "3 no plan fits the memory, 4 the memory is used up,\n130 interrupted "
      "after the model was saved.\n");
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    print_help();
    return 2;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return 0;
  }
  if (name == "--version") {
    std::printf("remat %s (libtorch %s)\n", version(), TORCH_VERSION);
    return 0;
  }
  std::vector<std::string> known;
  for (const Command& command : kCommands) {
    if (name == command.name) {
      return command.run({arguments.begin() + 1, arguments.end()});
    }
    known.push_back(command.name);
  }
  if (name.starts_with('-')) {
    known = {"--help", "--version"};
  }
  fail_usage("remat", "unknown command ", name, did_you_mean(name, known),
             " See remat --help.");
}

int fail_with(int code, const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return code;
}

int run_and_report(const std::vector<std::string>& arguments) {
  try {
    return dispatch(arguments);
  } catch (const UsageError& error) {
    return fail_with(2, error.what());
  } catch (const NoPlanError& error) {
    return fail_with(3, error.what());
  } catch (const BudgetError& error) {
    return fail_with(4, error.what());
  } catch (const Error& error) {
    return fail_with(1, error.what());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    // What ATen's CPU allocator says has no type of its own.
    return text.find("llocate memory") != std::string::npos
               ? fail_with(1, "[remat] out of memory: " + text)
               : fail_with(1, "[remat] libtorch failed: " + text);
  } catch (const std::bad_alloc&) {
    return fail_with(1, "[remat] out of memory");
  } catch (const std::exception& error) {
    return fail_with(1, str("[remat] ", error.what()));
  }
}

}  // namespace

int run(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    arguments.emplace_back(argv[i]);
  }
  const int code = run_and_report(arguments);
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == 0) {
    return fail_with(
        1, str("[remat] cannot write standard output: ", std::strerror(errno)));
  }
  return code;
}

}  // namespace remat::cli
