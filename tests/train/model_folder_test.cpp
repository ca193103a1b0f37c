#include "remat/train/model_folder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/io/safetensors.h"
#include "tests/train/tiny_model.h"

namespace remat::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

data::Tokenizer tiny_tokenizer() {
  const std::string_view words[] = {"the page", "tells about", "a command",
                                    "and a file", "of the system"};
  std::vector<std::string> texts;
  for (int i = 0; i < 60; ++i) {
    std::string text;
    for (int j = 0; j < 6; ++j) {
      text += std::string(words[(i * 7 + j * j) % 5]) + " ";
    }
    texts.push_back(text);
  }
  data::TokenizerTraining training;
  training.vocabulary = 290;
  return data::Tokenizer::train({texts.begin(), texts.end()}, training);
}

class ModelFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(directory_);
    at::manual_seed(5);
    config_ = tiny_config(2);
    config_.vocab_size = tokenizer_.vocabulary();
    model_ = std::make_unique<nn::BigBirdClassifier>(config_);
    ModelFolderWriter(directory_, tokenizer_).save(*model_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  // The stored weights after a change.
  void rewrite(const std::function<void(NamedTensors&)>& change) {
    NamedTensors tensors = model_->named_parameters();
    change(tensors);
    io::write_safetensors(directory_ / "model.safetensors", tensors);
  }

  std::string refusal() const {
    try {
      load_model_folder(directory_);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  }

  const fs::path directory_ =
      fs::path(::testing::TempDir()) / "remat_model_folder";
  const data::Tokenizer tokenizer_ = tiny_tokenizer();
  nn::BigBirdConfig config_;
  std::unique_ptr<nn::BigBirdClassifier> model_;
};

at::Tensor& find(NamedTensors& tensors, const std::string& name) {
  for (auto& [key, tensor] : tensors) {
    if (key == name) {
      return tensor;
    }
  }
  throw Error(name);
}

TEST_F(ModelFolderTest, IsReadBackAsItWas) {
  const ModelFolder folder = load_model_folder(directory_);
  EXPECT_EQ(folder.model->config().labels, config_.labels);
  const auto expected = model_->named_parameters();
  const auto actual = folder.model->named_parameters();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    EXPECT_TRUE(at::equal(actual[i].second, expected[i].second));
  }
  EXPECT_EQ(folder.tokenizer.encode("the page"), tokenizer_.encode("the page"));
  EXPECT_EQ(io::SafetensorsFile(directory_ / "model.safetensors")
                .metadata()
                .at("format"),
            "pt");
}

TEST_F(ModelFolderTest, MissingFilesAreNamed) {
  for (const char* name :
       {"config.json", "model.safetensors", "spiece.model"}) {
    fs::rename(directory_ / name, directory_ / "away");
    EXPECT_THAT(refusal(), HasSubstr(std::string(name) + " is missing"));
    fs::rename(directory_ / "away", directory_ / name);
  }
  fs::remove_all(directory_);
  EXPECT_THAT(refusal(), HasSubstr("no such directory"));
}

TEST_F(ModelFolderTest, TensorsThatDoNotFitAreListed) {
  rewrite([](NamedTensors& tensors) {
    tensors.erase(tensors.begin() + 1);
    find(tensors, "bert.encoder.layer.0.output.dense.bias") = at::zeros({7});
  });
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("missing: bert.embeddings."),
                    HasSubstr("bert.encoder.layer.0.output.dense.bias is [7] "
                              "where config.json means [32]")));
  rewrite([](NamedTensors& tensors) {
    tensors.emplace_back("bert.encoder.layer.9.extra", at::zeros({2}));
  });
  EXPECT_THAT(refusal(), HasSubstr("unexpected: bert.encoder.layer.9.extra"));
}

TEST_F(ModelFolderTest, BrokenFilesAreNamed) {
  for (const char* name : {"model.safetensors", "config.json"}) {
    const std::string whole = read_file(directory_ / name);
    write_file(directory_ / name, whole.substr(0, whole.size() / 2));
    EXPECT_THAT(refusal(), HasSubstr(name));
    write_file(directory_ / name, whole);
  }
  EXPECT_EQ(refusal(), "accepted");
  write_file(directory_ / "spiece.model", "nonsense");
  EXPECT_THAT(refusal(), HasSubstr("spiece.model"));
}

TEST_F(ModelFolderTest, ABaseModelWithoutPrefixStartsAFreshHead) {
  rewrite([](NamedTensors& tensors) {
    NamedTensors base;
    for (const auto& [name, tensor] : tensors) {
      if (name.starts_with("bert.") && !name.starts_with("bert.pooler.")) {
        base.emplace_back(name.substr(5), tensor);
      }
    }
    base.emplace_back("cls.predictions.bias", at::zeros({3}));
    base.emplace_back("embeddings.position_ids", at::zeros({3}));
    tensors = base;
  });
  at::manual_seed(6);
  nn::BigBirdConfig config = config_;
  config.labels = {"a", "b", "c"};
  nn::BigBirdClassifier fresh(config);
  NamedTensors before;
  for (const auto& [name, tensor] : fresh.named_parameters()) {
    before.emplace_back(name, tensor.detach().clone());
  }
  const WeightsReport report = load_weights(directory_, fresh, true);
  EXPECT_TRUE(report.fresh_head);
  EXPECT_THAT(report.unused, ::testing::ElementsAre("cls.predictions.bias"));
  NamedTensors stored = model_->named_parameters();
  NamedTensors after = fresh.named_parameters();
  for (auto& [name, tensor] : after) {
    const bool is_fresh =
        name.starts_with("classifier.") || name.starts_with("bert.pooler.");
    EXPECT_TRUE(at::equal(tensor, find(is_fresh ? before : stored, name)))
        << name;
  }
  EXPECT_THAT(refusal(), HasSubstr("the classifier is missing"));
}

TEST_F(ModelFolderTest, AFailedSaveKeepsTheModelBefore) {
  ModelFolderWriter writer(directory_, tokenizer_);
  // A directory in the way of the new weights.
  fs::create_directories(directory_ / "model.safetensors.new" / "x");
  at::manual_seed(9);
  EXPECT_THROW(writer.save(nn::BigBirdClassifier(config_)), Error);
  fs::remove_all(directory_ / "model.safetensors.new");
  EXPECT_EQ(refusal(), "accepted");
  writer.save(nn::BigBirdClassifier(config_));
  EXPECT_EQ(refusal(), "accepted");
  EXPECT_FALSE(at::equal(
      load_model_folder(directory_).model->named_parameters()[0].second,
      model_->named_parameters()[0].second));
}

TEST_F(ModelFolderTest, TheRestIsReplacedOnceWhileThereAreNoWeights) {
  int calls = 0;
  ModelFolderWriter writer(directory_, tokenizer_, [&] {
    ++calls;
    EXPECT_FALSE(fs::exists(directory_ / "model.safetensors"));
  });
  EXPECT_EQ(calls, 0);
  writer.save(*model_);
  writer.save(*model_);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(refusal(), "accepted");
}

}  // namespace
}  // namespace remat::train
