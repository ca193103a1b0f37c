// What of c10d differs between the versions of libtorch, told apart by what
// compiles where that tells. For the sources of remat/distributed.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace remat::distributed {

namespace detail {
// Members die last first: connections before the store.
struct GroupState {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};
}  // namespace detail

namespace compat {

// Before 2.1 the reducer does not see the gradients of a no_sync session: of a
// parameter that got one there, and none in the step that reduces, it reduces
// nothing.
inline constexpr bool kReducerSeesNoSync =
    TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR >= 201;

// Debian builds newer libtorch without the event library of its default.
template <class Options>
void avoid_libuv(Options& options) {
  if constexpr (requires { options.useLibUV = false; }) {
    options.useLibUV = false;
  }
}

// Gloo is itself a process group, or since 2.0 one of the backends of one.
template <class Group>
c10::intrusive_ptr<Group> as_process_group(
    const c10::intrusive_ptr<c10d::ProcessGroupGloo>& gloo,
    const c10::intrusive_ptr<c10d::Store>& store) {
  if constexpr (std::is_base_of_v<Group, c10d::ProcessGroupGloo>) {
    return gloo;
  } else {
    const auto make = [&] {
      if constexpr (std::is_constructible_v<
                        Group, const c10::intrusive_ptr<c10d::Store>&, int,
                        int>) {
        return c10::make_intrusive<Group>(store, gloo->getRank(),
                                          gloo->getSize());
      } else {
        return c10::make_intrusive<Group>(gloo->getRank(), gloo->getSize());
      }
    };
    auto group = make();
    group->setBackend(c10::DeviceType::CPU, Group::BackendType::GLOO, gloo);
    if constexpr (requires {
                    group->setDefaultBackend(Group::BackendType::GLOO);
                  }) {
      group->setDefaultBackend(Group::BackendType::GLOO);
    }
    return group;
  }
}

struct ReducerArguments {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<size_t>> buckets;
  std::vector<size_t> bucket_limits;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int64_t bucket_bytes;
  int64_t first_bucket_bytes;
  bool find_unused_parameters;
};

template <class Reducer>
std::shared_ptr<Reducer> make_reducer(const ReducerArguments& arguments) {
  using Names = std::unordered_map<size_t, std::string>;
  const auto& [parameters, buckets, limits, group, bytes, first_bytes, unused] =
      arguments;
  const std::vector<bool> sparse(parameters.size(), false);
  constexpr bool kGradientAsBucketView = false;
  // Every later version dropped the limits; some added arguments at the end.
  if constexpr (std::is_constructible_v<
                    Reducer, std::vector<at::Tensor>,
                    std::vector<std::vector<size_t>>, std::vector<size_t>,
                    c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>,
                    int64_t, bool, bool, Names, int64_t>) {
    return std::make_shared<Reducer>(parameters, buckets, limits, group, sparse,
                                     bytes, unused, kGradientAsBucketView,
                                     Names{}, first_bytes);
  } else if constexpr (std::is_constructible_v<
                           Reducer, std::vector<at::Tensor>,
                           std::vector<std::vector<size_t>>,
                           c10::intrusive_ptr<c10d::ProcessGroup>,
                           std::vector<bool>, int64_t, bool, bool, Names,
                           int64_t>) {
    return std::make_shared<Reducer>(parameters, buckets, group, sparse, bytes,
                                     unused, kGradientAsBucketView, Names{},
                                     first_bytes);
  } else if constexpr (std::is_constructible_v<
                           Reducer, std::vector<at::Tensor>,
                           std::vector<std::vector<size_t>>,
                           c10::intrusive_ptr<c10d::ProcessGroup>,
                           std::vector<bool>, int64_t, bool, bool, Names,
                           int64_t, bool, bool>) {
    return std::make_shared<Reducer>(parameters, buckets, group, sparse, bytes,
                                     unused, kGradientAsBucketView, Names{},
                                     first_bytes, false, false);
  } else {
    return std::make_shared<Reducer>(
        parameters, buckets, group, sparse, bytes, unused,
        kGradientAsBucketView, Names{}, first_bytes,
        /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false,
        /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  }
}

}  // namespace compat
}  // namespace remat::distributed
