// Where saved device tensors wait in host memory between forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace remat {

namespace detail {
class HostCopies;
}

// Options of a HostStore.
class HostStoreOptions {
 public:
  // Whether copies wait in page-locked memory: without it most devices copy at
  // half the speed, and the host waits for them. It cannot be swapped out.
  // Default: true; where this libtorch has none, ordinary memory is used, which
  // is said once.
  HostStoreOptions& pin_memory(bool value) {
    pin_memory_ = value;
    return *this;
  }
  bool pin_memory() const { return pin_memory_; }

  // Whether copies run on streams of their own beside the computation. Without
  // it the host waits for each copy. Default: true; a device without streams
  // and events is copied with waiting.
  HostStoreOptions& asynchronous(bool value) {
    asynchronous_ = value;
    return *this;
  }
  bool asynchronous() const { return asynchronous_; }

  // How many tensors that are being copied out may hold their device memory.
  // At the next one the computation (not the host) waits for the oldest. More
  // hide uneven layers and cost that much device memory. Default: 4.
  HostStoreOptions& copies_in_flight(int64_t count);
  int64_t copies_in_flight() const { return copies_in_flight_; }

  // How many copies, backwards from the one asked for, are brought back before
  // they are asked for. Costs that much device memory; without, the computation
  // waits for each copy. Default: 2.
  HostStoreOptions& prefetch(int64_t count);
  int64_t prefetch() const { return prefetch_; }

 private:
  bool pin_memory_ = true;
  bool asynchronous_ = true;
  int64_t copies_in_flight_ = 4;
  int64_t prefetch_ = 2;
};

// What a HostStore did since it was made.
struct HostStoreStatistics {
  int64_t tensors_put = 0;
  // Those that found their memory already copied.
  int64_t tensors_shared = 0;
  int64_t copies_out = 0;
  int64_t copies_in = 0;
  int64_t bytes_out = 0;
  int64_t bytes_in = 0;
  // Host memory now: copies that somebody still holds, and buffers that wait
  // for the next.
  int64_t live_bytes = 0;
  int64_t peak_live_bytes = 0;
  int64_t pooled_bytes = 0;
};

// One tensor in a store; the host memory is free for others with the last of
// them. Outlives its store. Thread-safe.
class StoredTensor {
 public:
  virtual ~StoredTensor() = default;

  // A tensor on the device that it came from, with its sizes, strides, type and
  // values, without a graph; ready for what the calling thread's current stream
  // of that device does next. Not copied again while what an earlier call
  // returned is alive: tensors of one storage come back in one storage.
  virtual at::Tensor get() const = 0;
};

// Moves tensors to host memory and back. Thread-safe.
//
// Of a storage, the span of bytes that the tensor covers is copied, or all of
// it where that is half of it or more (so that interleaved views share one
// copy); a storage is not copied again while it is alive, unchanged by
// its version counter and covered by a copy that somebody holds. Tensors
// without a plain storage (sparse, quantized) are copied whole, with waiting.
//
// A source must not be changed in place while its StoredTensor is used, as for
// any tensor that autograd saves. Memory is taken to belong to the stream that
// is current in the call of put(), as it does unless a program hands tensors
// from stream to stream.
class HostStore {
 public:
  explicit HostStore(HostStoreOptions options = {});
  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Starts to copy; does not wait for it, unless the options or the device say
  // so. Device memory that only this copy needs is free after it.
  std::shared_ptr<const StoredTensor> put(const at::Tensor& tensor);

  HostStoreStatistics statistics() const;

  // Gives the buffers that wait for reuse back to the system.
  void trim();

 private:
  std::shared_ptr<detail::HostCopies> copies_;
};

// A store to be held over many steps, whose buffers are then reused.
std::shared_ptr<HostStore> host_store(HostStoreOptions options = {});

}  // namespace remat
