#include "remat/profile/profile_cache.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/log.h"
#include "remat/base/version.h"
#include "remat/memory/process.h"

namespace remat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "remat-profile/1";

std::string full_key(std::string_view subject) {
  Json key;
  key["subject"] = subject;
  key["processor"] = processor_name();
  key["threads"] = at::get_num_threads();
  key["remat"] = version();
  key["libtorch"] = TORCH_VERSION;
  return key.dump();
}

// 64-bit FNV-1a, for a file name; the key in the file decides.
std::string file_name(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : key) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%016llx.json",
                static_cast<unsigned long long>(hash));
  return text;
}

std::string to_text(const std::string& key, const Profile& profile) {
  Json json;
  json["schema"] = kSchema;
  json["key"] = key;
  json["chain"] = Json::parse(plan::to_json(profile.chain));
  json["gradient_bytes"] = profile.gradient_bytes;
  json["shared_bytes"] = profile.shared_bytes;
  return json.dump(1) + "\n";
}

// Nothing where the file is not what it was written as.
std::optional<Profile> read_profile(const fs::path& path,
                                    const std::string& key) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return std::nullopt;
  }
  try {
    const Json json = Json::parse(read_file(path));
    if (json.at("schema") != kSchema || json.at("key") != key) {
      return std::nullopt;
    }
    Profile profile;
    profile.chain =
        plan::chain_from_json(json.at("chain").dump(), path.string());
    json.at("gradient_bytes").get_to(profile.gradient_bytes);
    json.at("shared_bytes").get_to(profile.shared_bytes);
    if (profile.shared_bytes < 0 ||
        profile.gradient_bytes.size() != profile.chain.stages.size()) {
      return std::nullopt;
    }
    return profile;
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

ProfileCache::ProfileCache(fs::path directory)
    : directory_(std::move(directory)) {}

fs::path ProfileCache::default_directory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME");
      cache != nullptr && *cache == '/') {
    return fs::path(cache) / "remat" / "profiles";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return fs::path(home) / ".cache" / "remat" / "profiles";
  }
  return {};
}

Profile ProfileCache::get(std::string_view subject,
                          const std::function<Profile()>& measure) const {
  const std::string key = full_key(subject);
  const fs::path path = directory_ / file_name(key);
  if (std::optional<Profile> known = read_profile(path, key)) {
    say("profile", "measured before: " + path.string());
    return *std::move(known);
  }
  Profile profile = measure();
  try {
    make_directories(directory_);
    write_file(path, to_text(key, profile));
    say("profile", "measured, and kept for the next run in " + path.string());
  } catch (const Error& error) {
    say("profile", str("measured; it cannot be kept: ", error.what()));
  }
  return profile;
}

}  // namespace remat
