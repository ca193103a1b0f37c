// Profiles that were measured before.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "remat/profile/profile_stages.h"

namespace remat {

// A directory with a file for each profile, named by what was measured: the
// model and its input, as the caller says, and what times and bytes depend on
// besides: processor, threads, versions of remat and libtorch.
class ProfileCache {
 public:
  explicit ProfileCache(std::filesystem::path directory);

  // $XDG_CACHE_HOME/remat/profiles, or that in ~/.cache; empty where neither is
  // known.
  static std::filesystem::path default_directory();

  // The profile of `subject`, a text that names model and input in full: from
  // its file, or measured and written there. Says which it was. A file that is
  // broken or another version's is measured anew; a directory that cannot be
  // written is said, and no error.
  Profile get(std::string_view subject,
              const std::function<Profile()>& measure) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace remat
