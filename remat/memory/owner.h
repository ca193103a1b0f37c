// What memory is for, said by the code that allocates it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace remat {

enum class MemoryTag : uint8_t {
  kOther,
  kWeights,
  kGradients,  // of parameters
  kOptimizer,
  kActivations,  // what forward computes, recomputed or not
  kBackward,     // what backward computes but the gradients of parameters
};
inline constexpr size_t kMemoryTags = 6;

// "activations" and the like.
const char* name_of(MemoryTag tag);

struct MemoryOwner {
  MemoryTag tag = MemoryTag::kOther;
  // The part of the model ("layer 3"), of a text that stays for good; null:
  // none was named. Equal texts are the same pointer.
  const std::string* part = nullptr;

  bool operator==(const MemoryOwner&) const = default;
};

// The part is kept for good: give it names of which there are few.
MemoryOwner memory_owner(MemoryTag tag, std::string_view part = {});

// While it lives, what this thread allocates has this owner. Scopes nest.
class MemoryScope {
 public:
  // Without a part, the part is that of the scope around.
  explicit MemoryScope(MemoryTag tag, std::string_view part = {});
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const MemoryOwner before_;
};

// Of this thread's innermost scope.
MemoryOwner current_memory_owner();

}  // namespace remat
