// The copies of a HostStore: what was copied, where, and which of it is still
// on its way.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "remat/store/host_pool.h"
#include "remat/store/host_store.h"
#include "remat/store/side_streams.h"
#include "remat/store/storage_span.h"

namespace remat::detail {

class HostCopies;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// A span of a storage in host memory. Everything but the constants is guarded
// by the lock of its owner.
class HostCopy final : public std::enable_shared_from_this<HostCopy> {
 public:
  HostCopy(std::shared_ptr<HostCopies> owner, const at::Tensor& source);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // The byte of the source with which it begins.
  int64_t begin() const { return span_.begin; }

  // A storage with these bytes, ready for the current stream.
  c10::Storage restore();

 private:
  friend class HostCopies;

  bool is_of(const at::Tensor& tensor) const;

  const std::shared_ptr<HostCopies> owner_;
  const at::Device device_;
  const Span span_;
  // What was copied. A weak reference keeps the StorageImpl's own address from
  // being used again, so that it identifies the storage for as long as this
  // lives; the memory it describes does come back at the same address.
  const WeakStorage source_;
  const c10::StorageImpl* const source_address_;
  const void* const source_data_;
  const c10::VariableVersion version_;
  const uint32_t version_number_;

  uint64_t number_ = 0;
  at::Tensor buffer_;
  Mark out_done_;  // null: copied with waiting

  // What it was copied back to, while somebody holds that.
  std::optional<WeakStorage> restored_;
  std::optional<c10::Stream> restored_on_;  // whose memory it is
  c10::Storage prefetched_;                 // held until it is asked for
  Mark in_done_;
};

class HostCopies final : public std::enable_shared_from_this<HostCopies> {
 public:
  explicit HostCopies(const HostStoreOptions& options);

  // Of a tensor with elements and a plain storage.
  std::shared_ptr<HostCopy> copy_of(const at::Tensor& tensor);
  c10::Storage restore(HostCopy& copy);
  void drop(HostCopy& copy);

  // Counted only. The first returns the bytes.
  int64_t whole_tensor_stored(const at::Tensor& host);
  void whole_tensor_restored(int64_t bytes);
  void whole_tensor_dropped(int64_t bytes);

  HostStoreStatistics statistics();
  void trim();

 private:
  // A source that is kept while it is read.
  struct InFlight {
    c10::Storage source;
    Mark done;
    c10::Stream memory_of;
  };
  struct Device {
    std::unique_ptr<SideStreams> streams;
    std::deque<InFlight> in_flight;
  };
  // Released after the lock: the deleter of a storage may be anybody's.
  using Garbage = std::vector<c10::Storage>;

  Device& device(at::Device which);
  void collect(Garbage& garbage);
  void copy_out(HostCopy& copy, const c10::Storage& source, Garbage& garbage);
  c10::Storage copy_in(HostCopy& copy);
  void prefetch_before(HostCopy& copy);
  void count_live(int64_t bytes);

  const HostStoreOptions options_;
  std::mutex mutex_;
  HostStoreStatistics statistics_;
  std::unordered_map<at::Device, Device> devices_;
  // Those that live; a copy takes itself out.
  std::unordered_map<const c10::StorageImpl*, std::vector<HostCopy*>>
      by_source_;
  std::map<uint64_t, HostCopy*> by_number_;
  uint64_t copies_made_ = 0;
  // Last, so that it dies first: it waits for all copies that are under way,
  // which have given their buffers back when nobody else is left. The sources
  // above and their streams are then free to go.
  HostPool pool_;
};

}  // namespace remat::detail
