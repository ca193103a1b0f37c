#include "remat/distributed/process_group.h"

#include <charconv>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "remat/base/error.h"
#include "remat/distributed/c10d_compat.h"

namespace remat::distributed {
namespace {

constexpr std::string_view kOperation = "process_group";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string required(const char* name) {
  std::string value = variable(name);
  if (value.empty()) {
    fail_usage(kOperation, "the environment has no ", name,
               "; start the ranks with torchrun --no-python, or set RANK, "
               "WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each");
  }
  return value;
}

int64_t number(const char* name, const std::string& text, int64_t least,
               int64_t most) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most) {
    fail_usage(kOperation, name, " is \"", text,
               "\"; it must be a number from ", least, " to ", most);
  }
  return value;
}

// The first line of what libtorch says; stack traces follow it.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

void check(const Rendezvous& rendezvous) {
  if (rendezvous.world_size < 1) {
    fail_usage(kOperation, "world_size is ", rendezvous.world_size,
               "; it must be the number of processes, 1 or more");
  }
  if (rendezvous.rank < 0 || rendezvous.rank >= rendezvous.world_size) {
    fail_usage(kOperation, "rank is ", rendezvous.rank, "; of ",
               rendezvous.world_size, " processes it must be 0 to ",
               rendezvous.world_size - 1);
  }
  if (rendezvous.master_address.empty() || rendezvous.master_port == 0) {
    fail_usage(kOperation, "the master is \"", rendezvous.master_address, ":",
               rendezvous.master_port,
               "\"; it must be the host of rank 0 and a free port of it");
  }
}

detail::GroupState open(const Rendezvous& rendezvous) {
  c10d::TCPStoreOptions options;
  options.port = rendezvous.master_port;
  options.isServer = rendezvous.rank_0_hosts && rendezvous.rank == 0;
  options.timeout = rendezvous.timeout;
  if (rendezvous.rank_0_hosts) {
    options.numWorkers = static_cast<size_t>(rendezvous.world_size);
  } else {
    options.waitWorkers = false;
  }
  compat::avoid_libuv(options);
  detail::GroupState state;
  state.store = c10::make_intrusive<c10d::PrefixStore>(
      remat::str("remat/", rendezvous.attempt),
      c10::make_intrusive<c10d::TCPStore>(rendezvous.master_address, options));
  state.store->setTimeout(rendezvous.timeout);
  auto gloo_options = c10d::ProcessGroupGloo::Options::create();
  gloo_options->timeout = rendezvous.timeout;
  gloo_options->threads = 2;
  gloo_options->devices.push_back(
      rendezvous.interface.empty()
          ? c10d::ProcessGroupGloo::createDefaultDevice()
          : c10d::ProcessGroupGloo::createDeviceForInterface(
                rendezvous.interface));
  state.group = compat::as_process_group<c10d::ProcessGroup>(
      c10::make_intrusive<c10d::ProcessGroupGloo>(
          state.store, rendezvous.rank, rendezvous.world_size, gloo_options),
      state.store);
  return state;
}

// Runs a collective operation; its errors get our words.
void collective(const ProcessGroup& group, std::string_view what,
                const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    fail(kOperation, what, " on rank ", group.rank(), " of ", group.size(),
         " failed; another rank has probably ended, its own output says why: ",
         first_line(error));
  }
}

}  // namespace

Rendezvous rendezvous_from_environment() {
  Rendezvous rendezvous;
  rendezvous.world_size = static_cast<int>(
      number("WORLD_SIZE", required("WORLD_SIZE"), 1, 1 << 20));
  rendezvous.rank = static_cast<int>(
      number("RANK", required("RANK"), 0, rendezvous.world_size - 1));
  rendezvous.master_address = required("MASTER_ADDR");
  rendezvous.master_port =
      static_cast<uint16_t>(number("MASTER_PORT", required("MASTER_PORT"), 1,
                                   std::numeric_limits<uint16_t>::max()));
  if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    rendezvous.rank_0_hosts = false;
    if (const std::string count = variable("TORCHELASTIC_RESTART_COUNT");
        !count.empty()) {
      rendezvous.attempt = number("TORCHELASTIC_RESTART_COUNT", count, 0,
                                  std::numeric_limits<int32_t>::max());
    }
  }
  rendezvous.interface = variable("GLOO_SOCKET_IFNAME");
  return rendezvous;
}

ProcessGroup::ProcessGroup(std::shared_ptr<detail::GroupState> state)
    : state_(std::move(state)) {}

ProcessGroup ProcessGroup::connect(const Rendezvous& rendezvous) {
  check(rendezvous);
  try {
    return ProcessGroup(std::make_shared<detail::GroupState>(open(rendezvous)));
  } catch (const std::exception& error) {
    fail(kOperation, "rank ", rendezvous.rank, " of ", rendezvous.world_size,
         " did not find the others at ", rendezvous.master_address, ":",
         rendezvous.master_port, " within ",
         std::chrono::duration<double>(rendezvous.timeout).count(),
         " s; all ranks must be started, with the same MASTER_ADDR and "
         "MASTER_PORT, and reach each other: ",
         first_line(error));
  }
}

int ProcessGroup::rank() const { return state_->group->getRank(); }

int ProcessGroup::size() const { return state_->group->getSize(); }

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, int root) {
  if (root < 0 || root >= size()) {
    fail_usage(kOperation, "broadcast: root is ", root, "; it must be 0 to ",
               size() - 1);
  }
  if (tensors.empty()) {
    return;
  }
  constexpr size_t kBytesAtOnce = size_t{250} << 20;
  const at::NoGradGuard no_grad;
  collective(*this, "broadcast", [&] {
    c10d::broadcast_coalesced(state_->group, tensors, kBytesAtOnce, root);
  });
}

void ProcessGroup::all_reduce_sum(at::Tensor tensor) {
  std::vector<at::Tensor> tensors{tensor.detach()};
  collective(*this, "all_reduce_sum",
             [&] { state_->group->allreduce(tensors)->wait(); });
}

std::vector<at::Tensor> ProcessGroup::all_gather(const at::Tensor& tensor) {
  std::vector<at::Tensor> inputs{tensor.detach().contiguous()};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < size(); ++rank) {
    outputs[0].push_back(at::empty_like(inputs[0]));
  }
  collective(*this, "all_gather",
             [&] { state_->group->allgather(outputs, inputs)->wait(); });
  return outputs[0];
}

void ProcessGroup::barrier() {
  collective(*this, "barrier", [&] { state_->group->barrier()->wait(); });
}

}  // namespace remat::distributed
