#include "remat/memory/owner.h"

#include <functional>
#include <mutex>
#include <set>

namespace remat {
namespace {

thread_local MemoryOwner current;

const std::string* kept_text(std::string_view text) {
  if (text.empty()) {
    return nullptr;
  }
  static std::mutex mutex;
  // Never destroyed: blocks that name them may outlive every static object.
  static auto* const texts = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  const auto known = texts->find(text);
  return known != texts->end() ? &*known : &*texts->emplace(text).first;
}

}  // namespace

const char* name_of(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kWeights:
      return "weights";
    case MemoryTag::kGradients:
      return "gradients";
    case MemoryTag::kOptimizer:
      return "optimizer";
    case MemoryTag::kActivations:
      return "activations";
    case MemoryTag::kBackward:
      return "backward";
    case MemoryTag::kOther:
      break;
  }
  return "other";
}

MemoryOwner memory_owner(MemoryTag tag, std::string_view part) {
  return {tag, kept_text(part)};
}

MemoryScope::MemoryScope(MemoryTag tag, std::string_view part)
    : before_(current) {
  current = {tag, part.empty() ? before_.part : kept_text(part)};
}

MemoryScope::~MemoryScope() { current = before_; }

MemoryOwner current_memory_owner() { return current; }

}  // namespace remat
