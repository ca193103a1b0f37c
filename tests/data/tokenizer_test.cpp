#include "remat/data/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>

#include "remat/base/file.h"
#include "remat/base/philox.h"
#include "remat/data/sentencepiece_model.h"
#include "remat/data/tokenizer_training.h"
#include "tests/data/thrown_text.h"

namespace remat::data {
namespace {

const char* const kFixture = REMAT_GOLDEN_DIR "/tokenizers/spiece.model";

const Tokenizer& fixture() {
  static const Tokenizer tokenizer = Tokenizer::load(kFixture);
  return tokenizer;
}

// Sentences of invented words, enough for a few hundred pieces.
const std::vector<std::string>& training_texts() {
  static const std::vector<std::string> texts = [] {
    constexpr std::string_view kSyllables[] = {"ka",  "lo", "mi",  "ter", "san",
                                               "quo", "ne", "rif", "bu",  "po"};
    std::vector<std::string> result(50);
    for (uint32_t i = 0; i < result.size(); ++i) {
      for (uint32_t word = 0; word < 200; ++word) {
        const auto random = philox4x32({i, word, 0, 0}, philox_key(1));
        for (uint32_t part = 0; part < 1 + random[0] % 3; ++part) {
          result[i] += kSyllables[random[1 + part] % 10];
        }
        result[i] += word % 9 == 8 ? ".\n" : " ";
      }
    }
    return result;
  }();
  return texts;
}

std::vector<std::string_view> views(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

const Tokenizer& trained() {
  static const Tokenizer tokenizer =
      Tokenizer::train(views(training_texts()), {.vocabulary = 320});
  return tokenizer;
}

std::string train_error(const TokenizerTraining& options,
                        const std::vector<std::string_view>& texts) {
  return thrown_text([&] { Tokenizer::train(texts, options); });
}

TEST(Tokenizer, GivesTheIdsOfTheFixture) {
  const auto golden = nlohmann::json::parse(
      read_file(REMAT_GOLDEN_DIR "/tokenizers/expected.json"));
  ASSERT_EQ(golden["texts"].size(), 9u);
  for (size_t i = 0; i < golden["texts"].size(); ++i) {
    const auto text = golden["texts"][i].get<std::string>();
    EXPECT_EQ(fixture().encode(text),
              golden["ids"][i].get<std::vector<int64_t>>())
        << text;
  }
}

TEST(Tokenizer, FindsSpecialTokens) {
  const SpecialTokens& found = fixture().special();
  EXPECT_EQ(found.pad, 0);
  EXPECT_EQ(found.bos, 1);
  EXPECT_EQ(found.eos, 2);
  EXPECT_EQ(found.unknown, 3);
  EXPECT_EQ(found.mask, 4);
  EXPECT_EQ(found.sep, 5);
  EXPECT_EQ(found.cls, 6);
  EXPECT_EQ(fixture().vocabulary(), 600);
}

TEST(Tokenizer, WrittenOutSpecialTokensAreText) {
  for (const Tokenizer* tokenizer : {&fixture(), &trained()}) {
    for (const char* text : {"a [CLS] b", "[SEP][MASK]", "<pad> <s> </s>"}) {
      const SpecialTokens& special = tokenizer->special();
      for (const int64_t id : tokenizer->encode(text)) {
        for (const int64_t never : {special.cls, special.sep, special.mask,
                                    special.pad, special.bos, special.eos}) {
          EXPECT_NE(id, never) << text;
        }
      }
    }
  }
}

TEST(Tokenizer, EncodesForClassification) {
  const std::string text = "The quick brown fox";
  const auto inner = fixture().encode(text);
  const auto size = static_cast<int64_t>(inner.size());
  bool truncated = true;
  auto ids = fixture().encode_for_classification(text, size + 2, &truncated);
  EXPECT_FALSE(truncated);
  EXPECT_EQ(ids.front(), 6);
  EXPECT_EQ(ids.back(), 5);
  EXPECT_EQ(std::vector(ids.begin() + 1, ids.end() - 1), inner);
  ids = fixture().encode_for_classification(text, size + 1, &truncated);
  EXPECT_TRUE(truncated);
  EXPECT_EQ(static_cast<int64_t>(ids.size()), size + 1);
  EXPECT_EQ(ids.back(), 5);
  EXPECT_EQ(fixture().encode_for_classification("", 3, nullptr),
            (std::vector<int64_t>{6, 5}));
}

// A model of the fixture in which pieces have other names.
Tokenizer renamed(const std::vector<std::pair<std::string, std::string>>& names,
                  const TemporaryDirectory& directory) {
  std::string model = read_file(kFixture);
  for (const auto& [from, to] : names) {
    model.replace(model.find(from), from.size(), to);
  }
  write_file(directory.path() / "other.model", model);
  return Tokenizer::load(directory.path() / "other.model");
}

TEST(Tokenizer, FallsBackToBeginAndEndOfSentence) {
  const TemporaryDirectory directory;
  const auto tokenizer =
      renamed({{"[CLS]", "[AAA]"}, {"[SEP]", "[BBB]"}}, directory);
  EXPECT_EQ(tokenizer.special().cls, -1);
  EXPECT_EQ(tokenizer.encode_for_classification("", 8, nullptr),
            (std::vector<int64_t>{1, 2}));
  const auto bare = renamed({{"[CLS]", "[AAA]"}, {"<s>", "<t>"}}, directory);
  EXPECT_EQ(
      thrown_text([&] { bare.encode_for_classification("", 8, nullptr); }),
      "[tokenizer] the model has neither [CLS] nor <s>, which a text to "
      "classify must begin with");
}

TEST(Tokenizer, NamesFilesThatAreNoModels) {
  const TemporaryDirectory directory;
  const auto path = (directory.path() / "x.model").string();
  EXPECT_EQ(thrown_text([&] { Tokenizer::load(path); }),
            "[file] cannot read " + path + ": No such file or directory");
  for (const std::string& content :
       {std::string(), std::string("not a model at all"),
        read_file(kFixture).substr(0, 5000)}) {
    write_file(path, content);
    EXPECT_EQ(thrown_text([&] { Tokenizer::load(path); }),
              "[tokenizer] " + path + " is not a SentencePiece model");
  }
  // Pieces, but none of the type "unknown".
  write_file(path, std::string("\x0A\x03\x0A\x01"
                               "a",
                               5));
  EXPECT_EQ(thrown_text([&] { Tokenizer::load(path); })
                .rfind("[tokenizer] " + path +
                           " is not a usable SentencePiece model: ",
                       0),
            0u);
}

RC_GTEST_PROP(Tokenizer, DamagedModelsNeverCrash, ()) {
  static const std::string whole = read_file(kFixture);
  // The pieces and settings; the table of the normalizer makes up the rest.
  std::string model = whole;
  const auto changes = *rc::gen::container<std::vector<std::pair<int, char>>>(
      rc::gen::pair(rc::gen::inRange(0, 12'000), rc::gen::arbitrary<char>()));
  for (const auto& [offset, byte] : changes) {
    model[static_cast<size_t>(offset)] = byte;
  }
  model_pieces(model);
  RC_ASSERT(with_control_pieces(model).size() == model.size());
  model_pieces(std::string_view(model).substr(
      0, static_cast<size_t>(*rc::gen::inRange(0, 12'000))));
}

TEST(Tokenizer, NamesIdsOutsideTheVocabulary) {
  EXPECT_EQ(thrown_text([] {
              fixture().decode({7, 600});
            }),
            "[tokenizer] there is no piece 600; the vocabulary has 600");
  EXPECT_EQ(thrown_text([] { fixture().decode({-1}); }),
            "[tokenizer] there is no piece -1; the vocabulary has 600");
}

TEST(Training, GivesTheDocumentedPieces) {
  const SpecialTokens& special = trained().special();
  EXPECT_EQ(trained().vocabulary(), 320);
  EXPECT_EQ(special.pad, 0);
  EXPECT_EQ(special.bos, 1);
  EXPECT_EQ(special.eos, 2);
  EXPECT_EQ(special.unknown, 3);
  EXPECT_EQ(special.cls, 4);
  EXPECT_EQ(special.sep, 5);
  EXPECT_EQ(special.mask, 6);
}

TEST(Training, LosesNoCharacterAndOnlyJoinsSpaces) {
  for (const char* text : {"kalo mi.", "日本語 🙂 xyz#",
                           "one\n\n  two\tthree", "[CLS] <s>"}) {
    std::string expected;
    for (const char c : std::string(text)) {
      const char space = c == '\n' || c == '\t' ? ' ' : c;
      if (space != ' ' || expected.back() != ' ') {
        expected += space;
      }
    }
    EXPECT_EQ(trained().decode(trained().encode(text)), expected);
    for (const int64_t id : trained().encode(text)) {
      EXPECT_NE(id, trained().special().unknown);
    }
  }
}

TEST(Training, IsDeterministicAndSaves) {
  const TemporaryDirectory directory;
  const auto again =
      Tokenizer::train(views(training_texts()), {.vocabulary = 320});
  trained().save(directory.path() / "a");
  again.save(directory.path() / "b");
  EXPECT_EQ(read_file(directory.path() / "a"),
            read_file(directory.path() / "b"));
  const auto loaded = Tokenizer::load(directory.path() / "a");
  EXPECT_EQ(loaded.encode(training_texts()[0]),
            trained().encode(training_texts()[0]));
}

TEST(Training, LooksAtNoMoreThanItMay) {
  const std::vector<std::string_view> texts = {"aaaa aaaa aaaa", "bbbb bbbb"};
  size_t bytes = 0;
  for (const auto& line : training_lines(texts, 12, 1, 100)) {
    bytes += line.size();
  }
  EXPECT_LE(bytes, 12u);
  EXPECT_GE(bytes, 8u);
  EXPECT_EQ(training_lines(texts, 100, 1, 100),
            (std::vector<std::string>{"aaaa aaaa aaaa", "bbbb bbbb"}));
}

RC_GTEST_PROP(Training, CutsLinesWithoutLosingAnything, ()) {
  const auto parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "word", " ", "é", "🙂", "\n"));
  const auto longest = static_cast<size_t>(*rc::gen::inRange(4, 20));
  std::string text, expected, found;
  for (const std::string& part : parts) {
    text += part;
    expected += part == " " || part == "\n" ? "" : part;
  }
  for (const std::string& line : training_lines({text}, 1 << 20, 0, longest)) {
    RC_ASSERT(line.size() <= longest);
    for (const char c : line) {
      found += c == ' ' ? "" : std::string(1, c);
    }
  }
  RC_ASSERT(found == expected);
}

TEST(Training, NamesWhatIsWrong) {
  const auto texts = views(training_texts());
  const std::string error = train_error({.vocabulary = 50'000}, texts);
  EXPECT_EQ(
      error.rfind("[tokenizer] a vocabulary of 50000 is too large for ", 0), 0u)
      << error;
  // The number it names is one that works.
  const int64_t largest = std::stoll(error.substr(error.rfind(' ') + 1));
  EXPECT_EQ(Tokenizer::train(texts, {.vocabulary = largest}).vocabulary(),
            largest);
  EXPECT_EQ(train_error({.vocabulary = 4000}, {" \n", ""}),
            "[tokenizer] there is no text to train on");
  EXPECT_EQ(train_error({.vocabulary = 10}, texts),
            "[tokenizer] the vocabulary is 10; it must be between 264 and "
            "1,000,000");
  EXPECT_EQ(train_error({.vocabulary = 2'000'000}, texts),
            "[tokenizer] the vocabulary is 2000000; it must be between 264 "
            "and 1,000,000");
  EXPECT_EQ(train_error({.threads = 0}, texts),
            "[tokenizer] training with 0 threads on at most 4194304 bytes; "
            "both must be at least 1");
  EXPECT_EQ(train_error({.vocabulary = 300}, {"a"})
                .rfind("[tokenizer] a vocabulary of 300 is too large", 0),
            0u);
}

RC_GTEST_PROP(Tokenizer, AnyBytesAreEncoded, (const std::string& text)) {
  for (const Tokenizer* tokenizer : {&fixture(), &trained()}) {
    for (const int64_t id : tokenizer->encode(text)) {
      RC_ASSERT(id >= 0);
      RC_ASSERT(id < tokenizer->vocabulary());
    }
  }
}

}  // namespace
}  // namespace remat::data
