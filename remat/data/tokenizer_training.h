// Training of a SentencePiece model in memory, for tokenizer.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "remat/data/tokenizer.h"

namespace remat::data {

// The bytes of a .model file; errors as Tokenizer::train says.
std::string train_sentencepiece(const std::vector<std::string_view>& texts,
                                const TokenizerTraining& options);

// What training looks at: the lines of the texts, each cut at white space or
// between characters so that none is longer than max_line bytes (SentencePiece
// passes over longer ones without an error). If the texts have more than
// max_bytes together, a window of each, in proportion to its length; where it
// begins depends on the seed. Invalid UTF-8 is left out.
std::vector<std::string> training_lines(
    const std::vector<std::string_view>& texts, int64_t max_bytes,
    uint64_t seed, size_t max_line);

}  // namespace remat::data
