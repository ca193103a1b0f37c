#include "remat/plan/bounds.h"

#include <algorithm>
#include <vector>

#include "remat/plan/simulator.h"
#include "remat/plan/solvers/rules.h"
#include "remat/plan/solvers/stores.h"

namespace remat::plan {
namespace {

// A way to spend memory on a stage: `seconds` less for `bytes` more.
struct Offer {
  double bytes = 0;
  double seconds = 0;
};

// The lower convex hull of a stage's ways, from "not kept" on, as steps of
// falling worth.
void add_offers(const Stage& stage, std::vector<Offer>& offers,
                double& seconds) {
  struct Point {
    double bytes;
    double seconds;
  };
  std::vector<Point> points = {{0, stage.forward_seconds}};
  points.push_back({static_cast<double>(stage.saved_bytes), 0});
  for (const StageOption& option : stage.options) {
    points.push_back(
        {static_cast<double>(option.saved_bytes),
         option.extra_forward_seconds + option.extra_backward_seconds});
  }
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds;
  });
  std::vector<Point> hull;
  for (const Point& point : points) {
    if (!hull.empty() && point.seconds >= hull.back().seconds) {
      continue;
    }
    while (hull.size() >= 2) {
      const Point& a = hull[hull.size() - 2];
      const Point& b = hull.back();
      // b is above the line from a to the new point.
      if ((b.seconds - a.seconds) * (point.bytes - a.bytes) >=
          (point.seconds - a.seconds) * (b.bytes - a.bytes)) {
        hull.pop_back();
      } else {
        break;
      }
    }
    hull.push_back(point);
  }
  seconds += hull.front().seconds;
  for (size_t i = 1; i < hull.size(); ++i) {
    offers.push_back({hull[i].bytes - hull[i - 1].bytes,
                      hull[i - 1].seconds - hull[i].seconds});
  }
}

}  // namespace

int64_t keep_all_bytes(const Chain& chain) {
  validate(chain);
  return simulate(chain, keep_all(chain.length()), false).peak_bytes;
}

int64_t least_budget(const Chain& chain) {
  validate(chain);
  return least_bytes_in_stores(chain);
}

double least_extra_seconds(const Chain& chain, int64_t budget_bytes) {
  const int64_t input = chain.holds_input ? chain.input_bytes : 0;
  double room = static_cast<double>(budget_bytes - chain.fixed_bytes - input -
                                    chain.value_bytes(chain.length()) -
                                    chain.loss.workspace_bytes);
  std::vector<Offer> offers;
  double seconds = 0;
  for (const Stage& stage : chain.stages) {
    add_offers(stage, offers, seconds);
  }
  // Hulls are convex, so the steps of one stage come in their order.
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return a.seconds * b.bytes > b.seconds * a.bytes;
  });
  for (const Offer& offer : offers) {
    if (room <= 0) {
      break;
    }
    const double share = std::min(1.0, room / offer.bytes);
    seconds -= share * offer.seconds;
    room -= offer.bytes;
  }
  return std::max(seconds, 0.0);
}

}  // namespace remat::plan
