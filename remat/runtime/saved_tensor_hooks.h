// Saved-tensor hooks for C++: what autograd keeps for backward passes through
// functions of the user's, as with torch.autograd.graph.saved_tensors_hooks.
//
//   remat::SavedTensorHooks hooks(
//       [](const at::Tensor& t) { return t.to(at::kHalf); },
//       [](const at::Tensor& packed) { return packed.to(at::kFloat); });
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/runtime/visit_tensors.h"

namespace remat {

// Who else gets the tensors in a packed value.
enum class HookNesting {
  kInnermostOnly,  // nobody: the hooks around are out of play, as in Python
  kThenOuter,      // the hooks around: compress here, offload there
};

namespace detail {

// What a pack function made of one tensor.
class PackedValue {
 public:
  virtual ~PackedValue() = default;
  // The tensors in it, to be read or replaced.
  virtual std::vector<at::Tensor*> tensors() = 0;
  virtual std::unique_ptr<PackedValue> copy() const = 0;
  virtual at::Tensor unpack() const = 0;
};

using PackFunction =
    std::function<std::unique_ptr<PackedValue>(const at::Tensor&)>;

template <class Packed, class Unpack>
class PackedWith final : public PackedValue {
 public:
  PackedWith(Packed packed, std::shared_ptr<Unpack> unpack)
      : packed_(std::move(packed)), unpack_(std::move(unpack)) {}

  std::vector<at::Tensor*> tensors() override {
    std::vector<at::Tensor*> found;
    for_each_tensor(packed_,
                    [&found](at::Tensor& tensor) { found.push_back(&tensor); });
    return found;
  }

  std::unique_ptr<PackedValue> copy() const override {
    return std::make_unique<PackedWith>(packed_, unpack_);
  }

  at::Tensor unpack() const override { return (*unpack_)(packed_); }

 private:
  Packed packed_;
  std::shared_ptr<Unpack> unpack_;
};

}  // namespace detail

// While it lives, each tensor that autograd saves in this thread is given to
// pack(tensor), and what that returns, of any copyable type, is kept in its
// place; unpack(packed) must give back a tensor of the same shape, dtype and
// device, as often as backward asks. Scopes nest; the innermost counts. Other
// threads are not affected.
//
// pack must not change its tensor in place (libtorch refuses that). Tensors
// that it returns are kept without their graph, so no cycle comes from
// returning the tensor itself. Autograd's check that a saved tensor was not
// changed in place does not see what pack keeps. Exceptions of both pass
// through. Both live until the last graph that was built here does.
//
// Throws Error where hooks are disabled; unpack's result is checked in
// backward.
class SavedTensorHooks {
 public:
  template <class Pack, class Unpack>
  SavedTensorHooks(Pack pack, Unpack unpack,
                   HookNesting nesting = HookNesting::kInnermostOnly)
      : SavedTensorHooks(make_pack(std::move(pack), std::move(unpack)),
                         nesting) {}
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

 private:
  SavedTensorHooks(detail::PackFunction pack, HookNesting nesting);

  template <class Pack, class Unpack>
  static detail::PackFunction make_pack(Pack pack, Unpack unpack) {
    using Packed = std::decay_t<std::invoke_result_t<Pack&, const at::Tensor&>>;
    static_assert(std::is_copy_constructible_v<Packed>,
                  "what pack returns must be copyable");
    return [pack = std::make_shared<Pack>(std::move(pack)),
            unpack = std::make_shared<Unpack>(std::move(unpack))](
               const at::Tensor& tensor) {
      return std::make_unique<detail::PackedWith<Packed, Unpack>>(
          (*pack)(tensor), unpack);
    };
  }

  struct State;
  std::unique_ptr<State> state_;
};

// While it lives, SavedTensorHooks and checkpoint() throw Error with this text
// in this thread: for code that hooks would break. Throws Error where hooks
// stand.
class SavedTensorHooksDisabled {
 public:
  explicit SavedTensorHooksDisabled(std::string message);
  ~SavedTensorHooksDisabled();
  SavedTensorHooksDisabled(const SavedTensorHooksDisabled&) = delete;
  SavedTensorHooksDisabled& operator=(const SavedTensorHooksDisabled&) = delete;
};

}  // namespace remat
