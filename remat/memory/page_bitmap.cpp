#include "remat/memory/page_bitmap.h"

#include <algorithm>
#include <bit>

namespace remat {
namespace {

constexpr size_t kBits = 64;

// The bits [first, first + count) of one word; count from 1 to 64 - first.
uint64_t mask(size_t first, size_t count) {
  return (~uint64_t{0} >> (kBits - count)) << first;
}

// Calls with (word, mask) for each word that the pages lie in.
template <class Function>
void for_words(size_t first, size_t count, const Function& function) {
  const size_t end = first + count;
  while (first < end) {
    const size_t bit = first % kBits;
    const size_t here = std::min(kBits - bit, end - first);
    function(first / kBits, mask(bit, here));
    first += here;
  }
}

}  // namespace

void PageBitmap::set(size_t first, size_t count) {
  const size_t words = (first + count + kBits - 1) / kBits;
  if (words > words_.size()) {
    words_.resize(words, 0);
  }
  for_words(first, count,
            [this](size_t word, uint64_t bits) { words_[word] |= bits; });
}

void PageBitmap::clear(size_t first, size_t count) {
  for_words(first, count, [this](size_t word, uint64_t bits) {
    if (word < words_.size()) {
      words_[word] &= ~bits;
    }
  });
}

size_t PageBitmap::count_set(size_t first, size_t count) const {
  size_t sum = 0;
  for_words(first, count, [this, &sum](size_t word, uint64_t bits) {
    if (word < words_.size()) {
      sum += static_cast<size_t>(std::popcount(words_[word] & bits));
    }
  });
  return sum;
}

size_t PageBitmap::size() const { return words_.size() * kBits; }

size_t PageBitmap::find(bool is_set, size_t first, size_t end) const {
  while (first < end) {
    const size_t word = first / kBits;
    if (word >= words_.size()) {
      return is_set ? end : first;
    }
    const uint64_t bits = is_set ? words_[word] : ~words_[word];
    const uint64_t ahead = bits >> (first % kBits);
    if (ahead != 0) {
      return std::min(end,
                      first + static_cast<size_t>(std::countr_zero(ahead)));
    }
    first = (word + 1) * kBits;
  }
  return end;
}

PageBitmap::Run PageBitmap::next_run(bool is_set, size_t first,
                                     size_t end) const {
  const size_t begin = find(is_set, first, end);
  return {begin, find(!is_set, begin, end) - begin};
}

}  // namespace remat
