// The processes of one training run, and what they tell each other.
//
//   auto group = remat::distributed::ProcessGroup::connect(
//       remat::distributed::rendezvous_from_environment());
//
// On libtorch's c10d with Gloo: tensors on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace remat::distributed {

namespace detail {
struct GroupState;
}

// Where this process stands among the others, and where they meet.
struct Rendezvous {
  int rank = 0;                              // 0 .. world_size - 1, each once
  int world_size = 1;                        // the number of processes
  std::string master_address = "127.0.0.1";  // name or address of rank 0's host
  uint16_t master_port = 29500;              // free on that host

  // True: rank 0 keeps the store in which the ranks find each other. False:
  // somebody else does, as torchrun's agent.
  bool rank_0_hosts = true;

  // Which attempt of a run that was started again; the attempts share a store.
  int64_t attempt = 0;

  // The network interface of the connections, such as "eth0". Default empty:
  // that to which this host's name belongs.
  std::string interface = {};

  // How long a rank waits for the others, when connecting and in each
  // collective operation. A rank that died is noticed at once where its
  // connection breaks.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them and
// anybody may by hand; of torchrun TORCHELASTIC_USE_AGENT_STORE and
// TORCHELASTIC_RESTART_COUNT as well; GLOO_SOCKET_IFNAME for the interface.
// Throws UsageError naming the variable, its value and what it should be.
Rendezvous rendezvous_from_environment();

// A handle; copies are the same group. Each operation is collective: all ranks
// call the same ones in the same order, from one thread at a time. They throw
// Error where another rank is gone or does not answer within the timeout.
class ProcessGroup {
 public:
  // Returns when all ranks are there. Throws UsageError for a rendezvous that
  // cannot be, Error where the others are not found within the timeout.
  static ProcessGroup connect(const Rendezvous& rendezvous);

  int rank() const;
  int size() const;

  // Each tensor in place becomes that of `root`. Shapes and dtypes must agree.
  void broadcast(const std::vector<at::Tensor>& tensors, int root = 0);

  // In place the sum over the ranks, the same bits on each.
  void all_reduce_sum(at::Tensor tensor);

  // Every rank's tensor, by rank. Shapes and dtypes must agree.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor);

  // Returns when all ranks have called it.
  void barrier();

  // For DataParallel.
  const std::shared_ptr<detail::GroupState>& state() const { return state_; }

 private:
  explicit ProcessGroup(std::shared_ptr<detail::GroupState> state);

  std::shared_ptr<detail::GroupState> state_;
};

}  // namespace remat::distributed
