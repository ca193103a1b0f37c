#include "remat/data/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <thread>

#include "remat/base/error.h"
#include "remat/base/philox.h"

namespace remat::data {
namespace {

// Calls function(i) for 0 <= i < count; texts differ much in length, so that
// threads take them one after the other.
template <class Function>
void in_threads(size_t count, int64_t threads, const Function& function) {
  std::atomic<size_t> next{0};
  const size_t workers =
      std::max<size_t>(1, std::min(count, static_cast<size_t>(threads)));
  std::vector<std::exception_ptr> failures(workers);
  const auto work = [&](size_t worker) {
    try {
      for (size_t i = next++; i < count; i = next++) {
        function(i);
      }
    } catch (...) {
      failures[worker] = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> pool;
    for (size_t worker = 1; worker < workers; ++worker) {
      pool.emplace_back(work, worker);
    }
    work(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

// Uniform in [0, range): what does not fill a multiple of it is drawn again.
class RandomIndex {
 public:
  explicit RandomIndex(uint64_t seed) : key_(philox_key(seed)) {}

  uint64_t operator()(uint64_t range) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % range;
    while (true) {
      const auto random =
          philox4x32({static_cast<uint32_t>(count_),
                      static_cast<uint32_t>(count_ >> 32), 0, 0},
                     key_);
      ++count_;
      const uint64_t value = random[0] | uint64_t{random[1]} << 32;
      if (value < limit) {
        return value % range;
      }
    }
  }

 private:
  PhiloxKey key_;
  uint64_t count_ = 0;
};

std::vector<std::vector<int64_t>> cut(const std::vector<int64_t>& order,
                                      int64_t batch_size) {
  if (batch_size < 1) {
    fail_usage("data", "the batch size is ", batch_size,
               "; it must be at least 1");
  }
  std::vector<std::vector<int64_t>> batches;
  const auto step = static_cast<size_t>(batch_size);
  for (size_t begin = 0; begin < order.size();) {
    const size_t length = std::min(step, order.size() - begin);
    const auto first = order.begin() + static_cast<ptrdiff_t>(begin);
    batches.emplace_back(first, first + static_cast<ptrdiff_t>(length));
    begin += length;
  }
  return batches;
}

std::vector<int64_t> count_up(int64_t examples) {
  if (examples < 0) {
    fail_usage("data", "the number of examples is ", examples);
  }
  std::vector<int64_t> order(static_cast<size_t>(examples));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

Dataset encode_records(const std::vector<Record>& records,
                       const Tokenizer& tokenizer, const LabelSet* labels,
                       int64_t max_length, int64_t threads,
                       std::string_view source) {
  if (threads < 1) {
    fail_usage("data", "the number of threads is ", threads,
               "; it must be at least 1");
  }
  Dataset dataset;
  dataset.examples.resize(records.size());
  // Before the texts, which take long: an unknown label shows at once.
  for (size_t i = 0; labels != nullptr && i < records.size(); ++i) {
    dataset.examples[i].label = labels->index(records[i], source);
  }
  std::atomic<int64_t> truncated{0};
  in_threads(records.size(), threads, [&](size_t i) {
    bool cut_off = false;
    dataset.examples[i].ids = tokenizer.encode_for_classification(
        records[i].text, max_length, &cut_off);
    truncated += cut_off ? 1 : 0;
  });
  dataset.truncated = truncated;
  return dataset;
}

Batch make_batch(const Dataset& dataset, const std::vector<int64_t>& indices,
                 int64_t pad_id) {
  if (indices.empty()) {
    fail_usage("data", "a batch of no examples");
  }
  const auto examples = static_cast<int64_t>(dataset.examples.size());
  size_t length = 0;
  for (const int64_t index : indices) {
    if (index < 0 || index >= examples) {
      fail_usage("data", "example ", index, " of ", examples);
    }
    length = std::max(length,
                      dataset.examples[static_cast<size_t>(index)].ids.size());
  }
  const auto batch = static_cast<int64_t>(indices.size());
  const auto columns = static_cast<int64_t>(length);
  Batch result;
  result.input_ids = at::full({batch, columns}, pad_id, at::kLong);
  result.attention_mask = at::zeros({batch, columns}, at::kLong);
  result.labels = at::empty({batch}, at::kLong);
  auto* ids = result.input_ids.data_ptr<int64_t>();
  auto* mask = result.attention_mask.data_ptr<int64_t>();
  auto* labels = result.labels.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const Example& example = dataset.examples[static_cast<size_t>(index)];
    if (pad_id < 0 && example.ids.size() < length) {
      fail_usage("data", "the tokenizer has no <pad>, so texts of different ",
                 "lengths cannot stand in one batch; use a batch size of 1");
    }
    std::copy(example.ids.begin(), example.ids.end(), ids);
    std::fill_n(mask, example.ids.size(), 1);
    *labels++ = example.label;
    ids += length;
    mask += length;
    result.tokens += static_cast<int64_t>(example.ids.size());
  }
  return result;
}

std::vector<std::vector<int64_t>> epoch_batches(int64_t examples,
                                                int64_t batch_size,
                                                uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order = count_up(examples);
  RandomIndex random(derive_seed(seed, static_cast<uint64_t>(epoch)));
  for (size_t left = order.size(); left > 1; --left) {  // Fisher and Yates
    std::swap(order[left - 1], order[random(left)]);
  }
  return cut(order, batch_size);
}

std::vector<std::vector<int64_t>> batches_by_length(const Dataset& dataset,
                                                    int64_t batch_size) {
  std::vector<int64_t> order =
      count_up(static_cast<int64_t>(dataset.examples.size()));
  const auto length = [&](int64_t index) {
    return dataset.examples[static_cast<size_t>(index)].ids.size();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length(a) < length(b); });
  return cut(order, batch_size);
}

}  // namespace remat::data
