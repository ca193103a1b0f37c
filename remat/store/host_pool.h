// Host memory for copies, reused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "remat/store/side_streams.h"

namespace remat::detail {

// Not thread-safe: a store's lock guards it.
class HostPool {
 public:
  explicit HostPool(bool pin_memory) : pin_memory_(pin_memory) {}
  // Waits for the copies from and to buffers that were given back.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // A tensor of bytes, at least as many; at most twice as many.
  at::Tensor take(int64_t bytes);

  // It is handed out again when all marks are reached.
  void give_back(at::Tensor buffer, std::vector<Mark> marks);

  // Of the buffers that are in the pool.
  int64_t bytes() const { return bytes_; }

  // Takes out those that no copy needs any more.
  std::vector<at::Tensor> trim();

 private:
  struct Pending {
    at::Tensor buffer;
    std::vector<Mark> marks;
  };

  void collect();
  at::Tensor allocate(int64_t bytes);

  bool pin_memory_;
  int64_t bytes_ = 0;
  std::multimap<int64_t, at::Tensor> free_;  // by size
  std::deque<Pending> pending_;
};

}  // namespace remat::detail
