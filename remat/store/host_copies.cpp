#include "remat/store/host_copies.h"

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace remat::detail {
namespace {

// Whether both count the changes of the same memory. VariableVersion is one
// pointer to the counter, which it does not show.
bool same_counter(const c10::VariableVersion& a,
                  const c10::VariableVersion& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

const c10::VariableVersion& version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter();
}

uint32_t number_of(const c10::VariableVersion& version) {
  // Inference tensors have none; they cannot be changed outside of that mode.
  return version.enabled() ? version.current_version() : 0;
}

// Runs a copy on a side stream. After an error, what was queued before it must
// not run into memory that is then free.
template <class Copy>
void run_on(const c10::Stream& stream, const Copy& copy) {
  const c10::StreamGuard guard(stream);
  try {
    copy();
  } catch (...) {
    try {
      stream.synchronize();
    } catch (const c10::Error&) {
      // The device is lost; the first error says it.
    }
    throw;
  }
}

}  // namespace

HostCopy::HostCopy(std::shared_ptr<HostCopies> owner, const at::Tensor& source)
    : owner_(std::move(owner)),
      device_(source.device()),
      span_(moved_span(source)),
      source_(source.storage().getWeakStorageImpl()),
      source_address_(source.storage().unsafeGetStorageImpl()),
      source_data_(source.storage().data()),
      version_(version_of(source)),
      version_number_(number_of(version_)) {}

HostCopy::~HostCopy() { owner_->drop(*this); }

c10::Storage HostCopy::restore() { return owner_->restore(*this); }

// The storage is alive, as the tensor is.
bool HostCopy::is_of(const at::Tensor& tensor) const {
  const c10::VariableVersion& version = version_of(tensor);
  return source_address_ == tensor.storage().unsafeGetStorageImpl() &&
         source_data_ == tensor.storage().data() &&
         same_counter(version_, version) &&
         version_number_ == number_of(version) &&
         span_.covers(covered_span(tensor));
}

HostCopies::HostCopies(const HostStoreOptions& options)
    : options_(options), pool_(options.pin_memory()) {}

HostCopies::Device& HostCopies::device(at::Device which) {
  const auto [found, is_new] = devices_.try_emplace(which);
  if (is_new && options_.asynchronous()) {
    found->second.streams = make_side_streams(which);
  }
  return found->second;
}

std::shared_ptr<HostCopy> HostCopies::copy_of(const at::Tensor& tensor) {
  Garbage garbage;
  // A copy that fails takes itself out, for which it needs the lock.
  std::shared_ptr<HostCopy> copy;
  const std::lock_guard lock(mutex_);
  collect(garbage);
  ++statistics_.tensors_put;
  const c10::StorageImpl* const source =
      tensor.storage().unsafeGetStorageImpl();
  if (const auto found = by_source_.find(source); found != by_source_.end()) {
    for (HostCopy* const candidate : found->second) {
      if (candidate->is_of(tensor)) {
        copy = candidate->weak_from_this().lock();
        if (copy != nullptr) {
          ++statistics_.tensors_shared;
          return copy;
        }
      }
    }
  }
  copy = std::make_shared<HostCopy>(shared_from_this(), tensor);
  copy_out(*copy, tensor.storage(), garbage);
  copy->number_ = ++copies_made_;
  by_number_.emplace(copy->number_, copy.get());
  by_source_[source].push_back(copy.get());
  return copy;
}

void HostCopies::copy_out(HostCopy& copy, const c10::Storage& source,
                          Garbage& garbage) {
  const int64_t bytes = copy.span_.bytes();
  at::Tensor buffer = pool_.take(bytes);
  const at::Tensor from = byte_tensor(source, copy.span_);
  const at::Tensor to = byte_tensor(buffer.storage(), {0, bytes});
  Device& device = this->device(copy.device_);
  if (device.streams == nullptr) {
    to.copy_(from);
  } else {
    const c10::Stream compute = current_stream(copy.device_);
    const c10::Stream& out = device.streams->out;
    StreamMark(compute).hold(out);
    run_on(out, [&] { to.copy_(from, /*non_blocking=*/true); });
    copy.out_done_ = mark(out);
    device.in_flight.push_back({source, copy.out_done_, compute});
    // What a stream's memory is used for after this comes after the copy, too.
    while (device.in_flight.size() >
           static_cast<size_t>(options_.copies_in_flight())) {
      InFlight& oldest = device.in_flight.front();
      oldest.done->hold(oldest.memory_of);
      garbage.push_back(std::move(oldest.source));
      device.in_flight.pop_front();
    }
  }
  copy.buffer_ = std::move(buffer);
  ++statistics_.copies_out;
  statistics_.bytes_out += bytes;
  count_live(bytes);
}

c10::Storage HostCopies::restore(HostCopy& copy) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  collect(garbage);
  if (device(copy.device_).streams == nullptr) {
    if (copy.restored_.has_value()) {
      if (auto storage = copy.restored_->lock()) {
        return c10::Storage(std::move(storage));
      }
    }
    c10::Storage storage = copy_in(copy);
    copy.restored_ = storage.getWeakStorageImpl();
    return storage;
  }
  const c10::Stream compute = current_stream(copy.device_);
  c10::Storage storage;
  // Memory of another stream might be used again there before this one is done.
  if (copy.restored_.has_value() && *copy.restored_on_ == compute) {
    storage = c10::Storage(copy.restored_->lock());
  }
  if (!storage) {
    storage = copy_in(copy);
  }
  copy.in_done_->hold(compute);
  if (copy.prefetched_) {
    garbage.push_back(std::exchange(copy.prefetched_, c10::Storage()));
  }
  prefetch_before(copy);
  return storage;
}

// Into new memory of the current stream.
c10::Storage HostCopies::copy_in(HostCopy& copy) {
  const int64_t bytes = copy.span_.bytes();
  const at::Tensor from = byte_tensor(copy.buffer_.storage(), {0, bytes});
  const at::Tensor to =
      at::empty({bytes}, at::TensorOptions(at::kByte).device(copy.device_));
  const Device& device = this->device(copy.device_);
  if (device.streams == nullptr) {
    to.copy_(from);
  } else {
    const c10::Stream compute = current_stream(copy.device_);
    const c10::Stream& in = device.streams->in;
    // Work that is queued may still use what this memory was before.
    StreamMark(compute).hold(in);
    copy.out_done_->hold(in);
    run_on(in, [&] { to.copy_(from, /*non_blocking=*/true); });
    if (copy.prefetched_) {
      // On another stream, which nobody waited for: its memory goes back.
      copy.in_done_->hold(*copy.restored_on_);
    }
    copy.in_done_ = mark(in);
    copy.restored_on_ = compute;
  }
  copy.restored_ = to.storage().getWeakStorageImpl();
  ++statistics_.copies_in;
  statistics_.bytes_in += bytes;
  return to.storage();
}

// Backward goes back through what forward saved: while the computation works
// with this copy, the ones before it come.
void HostCopies::prefetch_before(HostCopy& copy) {
  auto place = by_number_.find(copy.number_);
  int64_t left = options_.prefetch();
  while (left > 0 && place != by_number_.begin()) {
    --place;
    HostCopy& other = *place->second;
    if (other.device_ != copy.device_) {
      continue;
    }
    --left;
    if (other.restored_.has_value() && !other.restored_->expired()) {
      continue;
    }
    try {
      other.prefetched_ = copy_in(other);
    } catch (const c10::Error&) {
      // No memory for it yet: whoever asks for it may say so.
      return;
    }
  }
}

void HostCopies::drop(HostCopy& copy) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  if (!copy.buffer_.defined()) {
    return;
  }
  by_number_.erase(copy.number_);
  if (const auto found = by_source_.find(copy.source_address_);
      found != by_source_.end()) {
    std::erase(found->second, &copy);
    if (found->second.empty()) {
      by_source_.erase(found);
    }
  }
  statistics_.live_bytes -= copy.span_.bytes();
  try {
    if (copy.prefetched_) {
      copy.in_done_->hold(*copy.restored_on_);
      garbage.push_back(std::exchange(copy.prefetched_, c10::Storage()));
    }
    std::vector<Mark> marks;
    for (const Mark& mark : {copy.out_done_, copy.in_done_}) {
      if (mark != nullptr) {
        marks.push_back(mark);
      }
    }
    pool_.give_back(std::move(copy.buffer_), std::move(marks));
    collect(garbage);
  } catch (const c10::Error&) {
    // The device is lost, and so are its copies.
  }
}

// Sources that nobody reads any more.
void HostCopies::collect(Garbage& garbage) {
  for (auto& [which, device] : devices_) {
    while (!device.in_flight.empty() &&
           device.in_flight.front().done->reached()) {
      garbage.push_back(std::move(device.in_flight.front().source));
      device.in_flight.pop_front();
    }
  }
}

void HostCopies::count_live(int64_t bytes) {
  statistics_.live_bytes += bytes;
  statistics_.peak_live_bytes =
      std::max(statistics_.peak_live_bytes, statistics_.live_bytes);
}

int64_t HostCopies::whole_tensor_stored(const at::Tensor& host) {
  const int64_t bytes =
      host.is_sparse()
          ? static_cast<int64_t>(host._indices().nbytes() +
                                 host._values().nbytes())
          : host.numel() * static_cast<int64_t>(host.dtype().itemsize());
  const std::lock_guard lock(mutex_);
  ++statistics_.tensors_put;
  ++statistics_.copies_out;
  statistics_.bytes_out += bytes;
  count_live(bytes);
  return bytes;
}

void HostCopies::whole_tensor_restored(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++statistics_.copies_in;
  statistics_.bytes_in += bytes;
}

void HostCopies::whole_tensor_dropped(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  statistics_.live_bytes -= bytes;
}

HostStoreStatistics HostCopies::statistics() {
  const std::lock_guard lock(mutex_);
  HostStoreStatistics statistics = statistics_;
  statistics.pooled_bytes = pool_.bytes();
  return statistics;
}

void HostCopies::trim() {
  std::vector<at::Tensor> buffers;
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  collect(garbage);
  buffers = pool_.trim();
}

}  // namespace remat::detail
