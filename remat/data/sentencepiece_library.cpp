#include "remat/data/sentencepiece_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "remat/base/error.h"

namespace remat::data {
namespace {

namespace fs = std::filesystem;

// Beside the program where it was installed or moved to, else where the build
// put it.
std::vector<fs::path> candidates() {
  constexpr const char* kName = "remat_sentencepiece.so";
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return {program.parent_path().parent_path() / REMAT_LIBDIR / "remat" / kName,
          fs::path(REMAT_FULL_LIBDIR) / "remat" / kName,
          fs::path(REMAT_BUILD_MODULE_DIR) / kName};
}

// The sanitizers' runtimes refuse RTLD_DEEPBIND, and without it the module
// would meet the wrong protocol buffers where they are bundled.
constexpr int kOwnScope = RTLD_NOW | RTLD_LOCAL
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
                          | RTLD_DEEPBIND
#endif
    ;

void* open_module() {
  std::string tried;
  for (const fs::path& path : candidates()) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      tried += str("\n  ", path.string(), ": there is no such file");
      continue;
    }
    if (void* const module = dlopen(path.c_str(), kOwnScope)) {
      return module;
    }
    tried += str("\n  ", path.string(), ": ", dlerror());
  }
  fail("tokenizer", "the SentencePiece module cannot be loaded:", tried,
       "\nIt is installed with remat and needs Debian's libsentencepiece0.");
}

template <class Function>
Function* find_function(const char* name) {
  static void* const module = open_module();
  auto* const function = reinterpret_cast<Function*>(dlsym(module, name));
  if (function == nullptr) {
    fail("tokenizer", "the SentencePiece module has no ", name,
         ": it belongs to another version of remat");
  }
  return function;
}

}  // namespace

std::unique_ptr<SentencePiece> load_sentencepiece(const std::string& model,
                                                  std::string* error) {
  static auto* const load =
      find_function<RematLoadSentencePiece>("remat_load_sentencepiece");
  return std::unique_ptr<SentencePiece>(load(model, error));
}

std::string run_sentencepiece_trainer(
    const std::unordered_map<std::string, std::string>& arguments,
    const std::vector<std::string>& lines, std::string* model) {
  static auto* const train =
      find_function<RematTrainSentencePiece>("remat_train_sentencepiece");
  std::string error;
  train(arguments, lines, model, &error);
  return error;
}

}  // namespace remat::data
