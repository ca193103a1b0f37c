// Streams whose work is done when a test says so: the order in which a device
// may run what was queued, played out without threads or time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace remat::software {

// Which of the orders that the waits allow.
enum class Order {
  kLazy,          // nothing before the host waits for it, and then only that
  kSideFirst,     // side streams as early, stream 0 as late as can be
  kComputeFirst,  // stream 0 as early, side streams as late as can be
  kRandom,
};

// A point in the work of one stream.
struct Point {
  int stream = 0;
  bool reached = false;
  double seconds = 0;  // when
};

class Scheduler {
 public:
  static constexpr int kStreams = 9;  // 0 computes, the others stand beside it

  // Finishes what is queued; sets clocks and counters to zero.
  void reset(Order order, uint64_t seed);

  // `seconds` count on the clock of the stream, which no real time passes on.
  void push(int stream, double seconds, std::function<void()> task);
  std::shared_ptr<Point> record(int stream);
  void wait(int stream, std::shared_ptr<Point> point);

  bool query(const std::shared_ptr<Point>& point);
  bool query(int stream);

  // The host waits; counted.
  void synchronize(int stream);
  int64_t host_waits() const { return host_waits_; }

  // Everything; not counted. When the last stream was done.
  double finish();

 private:
  struct Task {
    std::function<void()> run = {};     // or
    std::shared_ptr<Point> waits = {};  // or
    std::shared_ptr<Point> marks = {};
    double seconds = 0;
  };
  struct Stream {
    std::deque<Task> tasks;
    double clock = 0;
  };

  void queue(int stream, Task task);
  // One task, if the stream has one whose wait is over.
  bool step(int stream);
  void run_until(const std::shared_ptr<Point>& point);
  void run_all(int stream);
  // What the order lets happen by itself.
  void play();

  std::recursive_mutex mutex_;
  Order order_ = Order::kLazy;
  std::mt19937_64 random_;
  std::vector<Stream> streams_{kStreams};
  int64_t host_waits_ = 0;
};

}  // namespace remat::software
