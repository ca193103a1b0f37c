#include "remat/store/host_pool.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "remat/base/log.h"

namespace remat::detail {

HostPool::~HostPool() {
  for (const Pending& pending : pending_) {
    for (const Mark& mark : pending.marks) {
      try {
        if (!mark->reached()) {
          mark->wait();
        }
      } catch (const c10::Error&) {
        // The device is lost, and so are its copies.
      }
    }
  }
}

at::Tensor HostPool::take(int64_t bytes) {
  collect();
  const auto found = free_.lower_bound(bytes);
  if (found == free_.end() || found->first / 2 > bytes) {
    return allocate(bytes);
  }
  at::Tensor buffer = std::move(found->second);
  free_.erase(found);
  bytes_ -= buffer.numel();
  return buffer;
}

void HostPool::give_back(at::Tensor buffer, std::vector<Mark> marks) {
  bytes_ += buffer.numel();
  pending_.push_back({std::move(buffer), std::move(marks)});
  collect();
}

std::vector<at::Tensor> HostPool::trim() {
  collect();
  std::vector<at::Tensor> buffers;
  for (auto& [size, buffer] : free_) {
    bytes_ -= size;
    buffers.push_back(std::move(buffer));
  }
  free_.clear();
  return buffers;
}

// In the order of giving back, which is about that of the copies: an event
// that is asked for too early costs as much as one that is reached.
void HostPool::collect() {
  const auto reached = [](const Mark& mark) { return mark->reached(); };
  while (!pending_.empty() &&
         std::all_of(pending_.front().marks.begin(),
                     pending_.front().marks.end(), reached)) {
    at::Tensor buffer = std::move(pending_.front().buffer);
    pending_.pop_front();
    const int64_t size = buffer.numel();
    free_.emplace(size, std::move(buffer));
  }
}

at::Tensor HostPool::allocate(int64_t bytes) {
  const auto options = at::TensorOptions(at::kByte);
  if (pin_memory_) {
    try {
      return at::empty({bytes}, options.pinned_memory(true));
    } catch (const c10::Error&) {
      pin_memory_ = false;
      say_once("save_on_cpu",
               "there is no page-locked memory to be had; ordinary host memory "
               "is used");
    }
  }
  return at::empty({bytes}, options);
}

}  // namespace remat::detail
