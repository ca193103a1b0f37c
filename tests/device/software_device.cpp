#include "tests/device/software_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "remat/runtime/torch_compat.h"
#include "tests/device/memory.h"

#if REMAT_TORCH_VERSION >= 209
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#endif

namespace remat::software {
namespace {

thread_local int stream_of_thread = 0;

struct Block {
  void* memory;
  size_t bytes;
  int stream;
};

// As caching allocators do it: a block goes back to the stream that it was
// allocated for, whose further work comes after what it has queued; what other
// streams do with it is not this allocator's affair.
class Allocator final : public c10::Allocator {
 public:
#if REMAT_TORCH_VERSION >= 203
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override {
    return const_cast<Allocator*>(this)->take(bytes);
  }
#endif

  int64_t live_bytes() const { return live_bytes_; }
  int64_t reused() const { return reused_; }
  void count_from_zero() { reused_ = 0; }

 private:
  c10::DataPtr take(size_t bytes) {
    if (bytes == 0) {
      return {nullptr, kDevice};
    }
    const std::lock_guard lock(mutex_);
    auto& free = free_[{stream_of_thread, bytes}];
    Block* block = nullptr;
    if (free.empty()) {
      // Aligned as on devices: kernels may choose by it.
      block = new Block{std::aligned_alloc(256, (bytes + 255) / 256 * 256),
                        bytes, stream_of_thread};
    } else {
      block = free.back();
      free.pop_back();
      ++reused_;
    }
    live_bytes_ += static_cast<int64_t>(bytes);
    return {block->memory, block, give_back, kDevice};
  }

  static void give_back(void* context);

  std::mutex mutex_;
  std::map<std::pair<int, size_t>, std::vector<Block*>> free_;
  std::atomic<int64_t> live_bytes_{0};
  std::atomic<int64_t> reused_{0};
};

Allocator& own_allocator() {
  // Never destroyed, as tensors may live until the process ends.
  static auto* const allocator = new Allocator();
  return *allocator;
}

void Allocator::give_back(void* context) {
  auto* const block = static_cast<Block*>(context);
  scheduler().push(block->stream, 0, [block] {
    std::memset(block->memory, 0xff, block->bytes);  // not a number
  });
  Allocator& self = own_allocator();
  const std::lock_guard lock(self.mutex_);
  self.live_bytes_ -= static_cast<int64_t>(block->bytes);
  self.free_[{block->stream, block->bytes}].push_back(block);
}

// c10's events: each record() is a point of its own, which later waits mean.
using Event = std::shared_ptr<Point>;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return at::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const noexcept override {
    return stream(stream_of_thread);
  }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static std::atomic<unsigned> next{0};
    return stream(1 + static_cast<int>(next++ % (Scheduler::kStreams - 1)));
  }
  c10::Stream exchangeStream(c10::Stream to) const noexcept override {
    return stream(std::exchange(stream_of_thread, id(to)));
  }

  void record(void** event, const c10::Stream& on, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event();
    }
    *static_cast<Event*>(*event) = scheduler().record(id(on));
  }
  void block(void* event, const c10::Stream& waiting) const override {
    scheduler().wait(id(waiting), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override {
    return scheduler().query(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event,
                    const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  bool queryStream(const c10::Stream& which) const override {
    return scheduler().query(id(which));
  }
  void synchronizeStream(const c10::Stream& which) const override {
    scheduler().synchronize(id(which));
  }

 private:
  static c10::Stream stream(int id) {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
  }
  static int id(const c10::Stream& stream) {
    return static_cast<int>(stream.id());
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

#if REMAT_TORCH_VERSION >= 209
// Autograd of newer libtorchs asks whether the device is there.
class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  // For at::manual_seed(), which seeds all devices.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override {
    return 0;
  }
};

void register_hooks() {
  c10::register_privateuse1_backend("software");
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}
#else
void register_hooks() {}
#endif

const bool is_registered = [] {
  c10::SetAllocator(at::kPrivateUse1, &own_allocator());
  register_hooks();
  return true;
}();

std::atomic<int64_t> copies_until_failure{-1};

}  // namespace

Scheduler& scheduler() {
  static auto* const scheduler = new Scheduler();
  return *scheduler;
}

c10::Allocator* allocator() { return &own_allocator(); }

int current_stream() { return stream_of_thread; }

Costs& costs() {
  static Costs costs;
  return costs;
}

void count_copy() {
  if (copies_until_failure >= 0 && copies_until_failure-- == 0) {
    TORCH_CHECK(false, "software device: this copy fails");
  }
}

void reset(Order order, uint64_t seed) {
  scheduler().reset(order, seed);
  own_allocator().count_from_zero();
  costs() = {};
  copies_until_failure = -1;
}

void set_costs(double seconds_of_operator, double seconds_of_copied_byte) {
  costs() = {seconds_of_operator, seconds_of_copied_byte};
}

double finish() { return scheduler().finish(); }
int64_t host_waits() { return scheduler().host_waits(); }
int64_t live_bytes() { return own_allocator().live_bytes(); }
int64_t reused_blocks() { return own_allocator().reused(); }
void fail_copy_after(int64_t copies) { copies_until_failure = copies; }

}  // namespace remat::software
