// Offloading: what autograd saves of device tensors waits in host memory.
//
//   auto store = remat::host_store();            // once
//   {
//     remat::SaveOnCpu offload(remat::SaveOnCpuOptions().store(store));
//     loss = model->forward(batch);
//   }
//   loss.backward();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "remat/runtime/saved_tensor_hooks.h"
#include "remat/store/host_store.h"

namespace remat {

// Options of a SaveOnCpu.
class SaveOnCpuOptions {
 public:
  // Where the tensors wait. One store over many steps reuses its host memory
  // and counts what it does. Default: a new store with its default options.
  SaveOnCpuOptions& store(std::shared_ptr<HostStore> value) {
    store_ = std::move(value);
    return *this;
  }
  const std::shared_ptr<HostStore>& store() const { return store_; }

  // Tensors that cover fewer bytes of memory stay on the device: each costs two
  // copies and some events. Default: 1024; 0 moves all.
  SaveOnCpuOptions& min_bytes(int64_t value);
  int64_t min_bytes() const { return min_bytes_; }

  // Whether leaves that require gradients, and views of their memory, stay on
  // the device: whoever wants their gradients holds them anyway, and a copy
  // would free nothing. Default: true.
  SaveOnCpuOptions& skip_parameters(bool value) {
    skip_parameters_ = value;
    return *this;
  }
  bool skip_parameters() const { return skip_parameters_; }

  // Further tensors whose memory stays on the device, with all views of it:
  // frozen weights, which look like any other value. Default: none.
  SaveOnCpuOptions& stay(std::vector<at::Tensor> tensors) {
    stay_ = std::move(tensors);
    return *this;
  }
  const std::vector<at::Tensor>& stay() const { return stay_; }

 private:
  std::shared_ptr<HostStore> store_;
  int64_t min_bytes_ = 1024;
  bool skip_parameters_ = true;
  std::vector<at::Tensor> stay_;
};

// While it lives, what autograd saves in this thread of tensors on devices
// other than the CPU is moved to a HostStore and comes back to its device, with
// its strides, when backward asks for it. Neither waits for the copies where
// the device has streams; see HostStore. Tensors of the CPU stay as they are.
// Nests with regions and other hooks as SavedTensorHooks do.
//
// A saved tensor that is changed in place before backward is an error there, as
// without offloading. Throws Error where hooks are disabled.
// (Shown on a simulated device; no GPU has run this.)
class SaveOnCpu {
 public:
  explicit SaveOnCpu(SaveOnCpuOptions options = {});
  // With a store of its own.
  explicit SaveOnCpu(bool pin_memory);

  const std::shared_ptr<HostStore>& store() const;
  // How many of the tensors that autograd saved so far were not moved.
  int64_t tensors_stayed() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  SavedTensorHooks hooks_;
};

}  // namespace remat
