#include "tests/device/scheduler.h"

#include <algorithm>
#include <utility>

namespace remat::software {

void Scheduler::reset(Order order, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  finish();
  order_ = order;
  random_.seed(seed);
  streams_ = std::vector<Stream>(kStreams);
  host_waits_ = 0;
}

void Scheduler::push(int stream, double seconds, std::function<void()> task) {
  queue(stream, {.run = std::move(task), .seconds = seconds});
}

std::shared_ptr<Point> Scheduler::record(int stream) {
  auto point = std::make_shared<Point>(Point{.stream = stream});
  queue(stream, {.marks = point});
  return point;
}

void Scheduler::wait(int stream, std::shared_ptr<Point> point) {
  queue(stream, {.waits = std::move(point)});
}

void Scheduler::queue(int stream, Task task) {
  const std::lock_guard lock(mutex_);
  streams_[stream].tasks.push_back(std::move(task));
  play();
}

bool Scheduler::step(int stream) {
  Stream& self = streams_[stream];
  if (self.tasks.empty() ||
      (self.tasks.front().waits && !self.tasks.front().waits->reached)) {
    return false;
  }
  const Task task = std::move(self.tasks.front());
  self.tasks.pop_front();
  if (task.waits != nullptr) {
    self.clock = std::max(self.clock, task.waits->seconds);
  } else if (task.marks != nullptr) {
    task.marks->reached = true;
    task.marks->seconds = self.clock;
  } else {
    self.clock += task.seconds;
    task.run();
  }
  return true;
}

void Scheduler::run_until(const std::shared_ptr<Point>& point) {
  while (!point->reached) {
    if (!step(point->stream)) {
      // Waits lead to what was queued before: never in a circle.
      run_until(streams_[point->stream].tasks.front().waits);
    }
  }
}

void Scheduler::run_all(int stream) {
  while (!streams_[stream].tasks.empty()) {
    if (!step(stream)) {
      run_until(streams_[stream].tasks.front().waits);
    }
  }
}

void Scheduler::play() {
  switch (order_) {
    case Order::kLazy:
      return;
    case Order::kSideFirst:
      for (int stream = 1; stream < kStreams; ++stream) {
        while (step(stream)) {
        }
      }
      return;
    case Order::kComputeFirst:
      while (step(0)) {
      }
      return;
    case Order::kRandom:
      for (uint64_t left = random_() % 4; left > 0; --left) {
        // Half of the steps for the first stream, which has most of the work.
        const int stream =
            static_cast<int>(random_() % (2 * (kStreams - 1))) + 1;
        step(stream < kStreams ? stream : 0);
      }
      return;
  }
}

bool Scheduler::query(const std::shared_ptr<Point>& point) {
  const std::lock_guard lock(mutex_);
  play();
  return point->reached;
}

bool Scheduler::query(int stream) {
  const std::lock_guard lock(mutex_);
  play();
  return streams_[stream].tasks.empty();
}

void Scheduler::synchronize(int stream) {
  const std::lock_guard lock(mutex_);
  ++host_waits_;
  run_all(stream);
}

double Scheduler::finish() {
  const std::lock_guard lock(mutex_);
  double seconds = 0;
  for (int stream = 0; stream < kStreams; ++stream) {
    run_all(stream);
    seconds = std::max(seconds, streams_[stream].clock);
  }
  return seconds;
}

}  // namespace remat::software
