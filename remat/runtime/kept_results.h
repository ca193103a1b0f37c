// The results that a region's policy keeps: found in forward, put in place of
// their operators in the recomputation.
#pragma once

#include <c10/core/Storage.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/runtime/operator_scope.h"
#include "remat/runtime/policy.h"

namespace remat::detail {

// Operators are known by their number in the region's forward.
class KeptResults {
 public:
  // A kept tensor went through the hooks around the region, as its inputs did:
  // it may be offloaded, or be a slot of an enclosing region.
  struct Output {
    torch::autograd::SavedVariable saved;
    bool defined = false;
  };
  struct Result {
    std::string name;
    std::vector<Output> outputs;
    // Of the defined outputs; changes in place raise the first.
    std::vector<c10::VariableVersion> versions;
    std::vector<uint32_t> version_numbers;

    bool was_changed() const;
  };

  // The tensors of one result, for one recomputation.
  struct Unpacked {
    std::string name;
    std::vector<at::Tensor> outputs;
  };

  // hook_depth: how many entries of the hook stack lie around the region.
  KeptResults(Policy policy, size_t hook_depth)
      : policy_(std::move(policy)), hook_depth_(hook_depth) {}

  const Policy& policy() const { return policy_; }

  // In forward. Kept without their graph; the first of a number counts.
  void add(size_t number, std::string name,
           const std::vector<at::Tensor>& outputs);

  // All results that were not changed since, by number. Not later, one by one:
  // inside an operator no enclosing region could be recomputed.
  std::map<size_t, Unpacked> unpack() const;

  int64_t bytes() const { return bytes_; }

 private:
  const Policy policy_;
  const size_t hook_depth_;
  std::map<size_t, Result> results_;
  int64_t bytes_ = 0;
};

// A region's forward.
class ResultRecorder final : public OperatorInterceptor {
 public:
  explicit ResultRecorder(KeptResults& kept) : kept_(kept) {}

  bool replace(const c10::OperatorHandle&, torch::jit::Stack&) override {
    return false;
  }
  void ran(const c10::OperatorHandle& op,
           const torch::jit::Stack& stack) override;
  void named(std::string_view name, const at::Tensor& tensor) override;

 private:
  // An operator's only output, for names that come later.
  struct Computed {
    size_t number;
    std::string name;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
    at::TensorOptions options;
    c10::VariableVersion version;
    uint32_t version_number;
  };

  void remember(size_t number, const std::string& name,
                const at::Tensor& output);

  KeptResults& kept_;
  size_t operators_ = 0;
  std::unordered_map<const c10::StorageImpl*, Computed> computed_;
};

// A recomputation. Throws CheckpointError where another operator runs in the
// place of one that was kept.
class ResultReplay final : public OperatorInterceptor {
 public:
  ResultReplay(const KeptResults& kept, std::string region)
      : results_(kept.unpack()), region_(std::move(region)) {}

  bool replace(const c10::OperatorHandle& op,
               torch::jit::Stack& stack) override;
  void ran(const c10::OperatorHandle&, const torch::jit::Stack&) override {}
  void named(std::string_view, const at::Tensor&) override {}

 private:
  std::map<size_t, KeptResults::Unpacked> results_;
  const std::string region_;
  size_t operators_ = 0;
};

}  // namespace remat::detail
