#include "models/translator.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/language_model.h"
#include "models/model.h"
#include "models/reader.h"
#include "tests/testing/checked.h"
#include "tests/testing/translator_files.h"

namespace sru::models {
namespace {

using ::sru::testing::Checked;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Rows = std::vector<std::vector<double>>;

// The equations of translator.h, written down as they are: whole sequences, no states, no backend.
class PlainTranslator {
 public:
  PlainTranslator(const nlohmann::json& config, const TestTensors& tensors)
      : config_(config["translator"]), tensors_(tensors) {}

  // [target tokens][target vocabulary]; the weights of head 0 of the last attention to the source
  // go to `alignment`.
  Rows LogProbs(const std::vector<int32_t>& source, const std::vector<int32_t>& target,
                Rows* alignment) const {
    const bool shared = config_["shared_embeddings"];
    Rows memory = Embed("encoder", source);
    for (int i = 0; i < config_["encoder_layers"]; ++i) {
      const std::string layer = "encoder.transformer." + std::to_string(i);
      const Rows n = Norm(memory, layer + ".layer_norm");
      Add(Attend(layer + ".self_attn", n, n, /*causal=*/false, nullptr), &memory);
      FeedForward(layer + ".feed_forward", config_["bidirectional_encoder"], &memory);
    }
    memory = Norm(memory, "encoder.layer_norm");
    Rows x = Embed(shared ? "encoder" : "decoder", target);
    for (int i = 0; i < config_["decoder_layers"]; ++i) {
      const std::string layer = "decoder.transformer_layers." + std::to_string(i);
      const Rows n = Norm(x, layer + ".layer_norm_1");
      Add(Attend(layer + ".self_attn", n, n, /*causal=*/true, nullptr), &x);
      Add(Attend(layer + ".context_attn", Norm(x, layer + ".layer_norm_2"), memory,
                 /*causal=*/false, alignment),
          &x);
      FeedForward(layer + ".feed_forward", /*bidirectional=*/false, &x);
    }
    Rows log_probs = Linear("generator.0", Norm(x, "decoder.layer_norm"));
    for (std::vector<double>& row : log_probs) {
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit);
      for (double& logit : row) logit -= std::log(sum);
    }
    return log_probs;
  }

 private:
  const std::vector<float>& Values(const std::string& name) const {
    return tensors_.at(name).values;
  }

  static void Add(const Rows& from, Rows* to) {
    for (size_t t = 0; t < from.size(); ++t) {
      for (size_t i = 0; i < from[t].size(); ++i) (*to)[t][i] += from[t][i];
    }
  }

  Rows Embed(const std::string& side, const std::vector<int32_t>& ids) const {
    const auto& table = Values(side + ".embeddings.make_embedding.emb_luts.0.weight");
    const size_t width = config_["d_model"];
    Rows rows(ids.size(), std::vector<double>(width));
    for (size_t t = 0; t < ids.size(); ++t) {
      for (size_t i = 0; i < width; ++i) {
        const auto even = static_cast<double>(i - i % 2);
        const double angle =
            static_cast<double>(t) / std::pow(10000.0, even / static_cast<double>(width));
        rows[t][i] = std::sqrt(static_cast<double>(width)) * table[ids[t] * width + i] +
                     (i % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    }
    return rows;
  }

  Rows Norm(const Rows& x, const std::string& name) const {
    Rows rows = x;
    for (std::vector<double>& row : rows) {
      const auto width = static_cast<double>(row.size());
      double mean = 0, variance = 0;
      for (const double value : row) mean += value / width;
      for (const double value : row) variance += (value - mean) * (value - mean) / width;
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = (row[i] - mean) / std::sqrt(variance + 1e-6) * Values(name + ".weight")[i] +
                 Values(name + ".bias")[i];
      }
    }
    return rows;
  }

  Rows Linear(const std::string& name, const Rows& x) const {
    const std::vector<float>& weight = Values(name + ".weight");
    const std::vector<float>& bias = Values(name + ".bias");
    Rows rows(x.size(), std::vector<double>(bias.begin(), bias.end()));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t o = 0; o < bias.size(); ++o) {
        for (size_t i = 0; i < x[t].size(); ++i) {
          rows[t][o] += x[t][i] * weight[o * x[t].size() + i];
        }
      }
    }
    return rows;
  }

  Rows Attend(const std::string& name, const Rows& query, const Rows& memory, bool causal,
              Rows* first_head) const {
    const Rows q = Linear(name + ".linear_query", query);
    const Rows k = Linear(name + ".linear_keys", memory);
    const Rows v = Linear(name + ".linear_values", memory);
    const size_t heads = config_["heads"];
    const size_t width = q[0].size() / heads;
    Rows attended(q.size(), std::vector<double>(q[0].size(), 0));
    if (first_head != nullptr) first_head->assign(q.size(), {});
    for (size_t t = 0; t < q.size(); ++t) {
      const size_t seen = causal ? t + 1 : k.size();
      for (size_t head = 0; head < heads; ++head) {
        std::vector<double> weights(seen);
        double sum = 0;
        for (size_t s = 0; s < seen; ++s) {
          double dot = 0;
          for (size_t i = head * width; i < (head + 1) * width; ++i) dot += q[t][i] * k[s][i];
          sum += weights[s] = std::exp(dot / std::sqrt(static_cast<double>(width)));
        }
        for (size_t s = 0; s < seen; ++s) {
          weights[s] /= sum;
          for (size_t i = head * width; i < (head + 1) * width; ++i) {
            attended[t][i] += weights[s] * v[s][i];
          }
        }
        if (head == 0 && first_head != nullptr) (*first_head)[t] = weights;
      }
    }
    return Linear(name + ".final_linear", attended);
  }

  void FeedForward(const std::string& name, bool bidirectional, Rows* x) const {
    const Rows n = Norm(*x, name + ".layer_norm");
    const size_t outputs = config_["d_sru"];
    const size_t hidden = outputs / (bidirectional ? 2 : 1);
    const std::vector<float>& weight = Values(name + ".sru.weight");
    const std::vector<float>& v = Values(name + ".sru.weight_c");
    const std::vector<float>& b = Values(name + ".sru.bias");
    const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
    Rows h(n.size(), std::vector<double>(outputs));
    for (size_t j = 0; j < outputs; ++j) {
      double c = 0;
      for (size_t step = 0; step < n.size(); ++step) {
        const size_t t = j >= hidden ? n.size() - 1 - step : step;
        double u[3] = {0, 0, 0};
        for (size_t i = 0; i < n[t].size(); ++i) {
          for (int m = 0; m < 3; ++m) u[m] += n[t][i] * weight[(i * outputs + j) * 3 + m];
        }
        const double forget = sigmoid(u[1] + v[j] * c + b[j]);
        const double reset = sigmoid(u[2] + v[outputs + j] * c + b[outputs + j]);
        c = forget * c + (1 - forget) * u[0];
        h[t][j] = reset * c;
      }
    }
    Add(Linear(name + ".w_2", h), x);
  }

  const nlohmann::json& config_;
  const TestTensors& tensors_;
};

class TranslatorTest : public ::testing::Test {
 protected:
  TranslatorTest() { EXPECT_TRUE(kernels::CreateBackend("reference", &backend_).ok()); }

  absl::StatusOr<std::shared_ptr<const Model>> Load() {
    WriteTranslator(directory_, "m", config_, tensors_);
    if (!pieces_.empty()) directory_.Write("m/spm.model", pieces_);
    return Model::Load(directory_.path("m"), "m", 3, *backend_, kernels::CompileOptions());
  }

  std::string Error() {
    auto model = Load();
    return model.ok() ? "" : std::string(model.status().message());
  }

  struct Found {
    std::vector<float> log_probs;  // [target tokens][vocabulary]
    std::vector<float> alignment;  // [target tokens][source tokens]
  };

  // Encodes the source in one run and feeds the target in another.
  static Found Run(const Model& model, const std::vector<int32_t>& source,
                   const std::vector<int32_t>& target) {
    const Translator& translator = *model.As<Translator>();
    const auto vocabulary = static_cast<size_t>(translator.max_candidates);
    const auto sources = static_cast<int32_t>(source.size());
    const auto targets = static_cast<int32_t>(target.size());
    Found found;
    found.log_probs.resize(vocabulary * targets);
    found.alignment.resize(static_cast<size_t>(sources) * targets);
    kernels::ProgramLimits limits = TranslatorLimits(translator, sources, 1, targets, 1);
    limits.max_attention_values = static_cast<int64_t>(found.alignment.size());
    std::unique_ptr<kernels::ProgramWorkspace> workspace;
    EXPECT_TRUE(model.program().CreateWorkspace(limits, &workspace).ok());
    kernels::ArenaOptions options;
    options.budget_bytes = size_t{1} << 20;
    std::unique_ptr<kernels::StateArena> arena;
    EXPECT_TRUE(model.program().CreateArena(options, &arena).ok());
    kernels::StateArena::Slot slot = kernels::StateArena::kNoSlot;
    EXPECT_TRUE(arena->Allocate(&slot).ok());

    std::vector<kernels::AxisBatch> axes(translator.program.axes.size());
    std::vector<kernels::InputBatch> inputs(translator.program.inputs.size());
    std::vector<kernels::OutputBatch> outputs(translator.program.outputs.size());
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = arena.get();
    const std::vector<int32_t> source_offsets = {0, sources};
    axes[translator.source] = {1, source_offsets.data(), &slot};
    inputs[translator.source_ids].ids = source.data();
    EXPECT_TRUE(model.program().Run(batch, outputs.data(), *workspace).ok());

    axes[translator.source] = {};
    const std::vector<int32_t> target_offsets = {0, targets};
    axes[translator.target] = {1, target_offsets.data(), &slot};
    inputs[translator.target_ids].ids = target.data();
    const std::vector<int32_t> counts(targets, translator.max_candidates);
    inputs[translator.counts].ids = counts.data();
    std::vector<kernels::Candidate> candidates(found.log_probs.size());
    outputs[translator.candidates].candidates = candidates.data();
    outputs[translator.alignment].values = found.alignment.data();
    EXPECT_TRUE(model.program().Run(batch, outputs.data(), *workspace).ok());
    for (size_t i = 0; i < candidates.size(); ++i) {
      found.log_probs[i / vocabulary * vocabulary + candidates[i].id] = candidates[i].log_prob;
    }
    return found;
  }

  TempDirectory directory_;
  nlohmann::json config_ = SmallTranslatorConfig();
  TestTensors tensors_ = TranslatorTensors(SmallTranslatorConfig());
  std::string pieces_;  // in place of SmallTranslatorPieces()
  std::unique_ptr<kernels::Backend> backend_;
};

// Weights of a linear map.
int64_t Linear(int64_t outputs, int64_t inputs) { return outputs * inputs + outputs; }

TEST_F(TranslatorTest, Loads) {
  auto loaded = Checked(Load());
  const Model& model = **loaded;
  EXPECT_EQ(model.task(), Task::kTranslator);
  EXPECT_FALSE(model.is_unidirectional());
  EXPECT_EQ(model.As<LanguageModel>(), nullptr);
  EXPECT_EQ(model.As<Reader>(), nullptr);
  ASSERT_NE(model.As<Translator>(), nullptr);
  const Translator& translator = *model.As<Translator>();
  EXPECT_EQ(translator.max_candidates, 11);
  EXPECT_EQ(translator.layers.size(), 1u);
  EXPECT_EQ(translator.program.fields[translator.layers[0].c].width, 12);
  EXPECT_FALSE(translator.program.fields[translator.layers[0].c].grows);
  EXPECT_TRUE(translator.program.fields[translator.layers[0].context_keys].grows);
  ASSERT_NE(model.tokenizer(), nullptr);
  EXPECT_NE(model.tokenizer()->detokenizer(), nullptr);
  const int64_t attention = 4 * Linear(8, 8);
  const int64_t feed_forward = 16 + 8 * 36 + 24 + 24 + Linear(8, 12);
  EXPECT_EQ(model.parameter_count(), 11 * 8 + 2 * (16 + attention + feed_forward) + 2 * 16 +
                                         (32 + 2 * attention + feed_forward) + Linear(11, 8));
}

TEST_F(TranslatorTest, HasEveryOption) {
  config_["translator"]["encoder_layers"] = 1;
  config_["translator"]["decoder_layers"] = 3;
  config_["translator"]["bidirectional_encoder"] = true;
  config_["translator"]["shared_embeddings"] = false;
  config_["translator"]["target_vocabulary"] = 90;
  config_.erase("preprocessing");
  tensors_ = TranslatorTensors(config_);
  auto loaded = Checked(Load());
  EXPECT_EQ((*loaded)->tokenizer(), nullptr);
  EXPECT_EQ((*loaded)->As<Translator>()->layers.size(), 3u);
  EXPECT_EQ((*loaded)->As<Translator>()->max_candidates, kMaxBeam);
}

TEST_F(TranslatorTest, EqualsThePlainEquations) {
  for (const bool bidirectional : {false, true}) {
    config_ = SmallTranslatorConfig();
    nlohmann::json& translator = config_["translator"];
    translator["bidirectional_encoder"] = bidirectional;
    translator["shared_embeddings"] = !bidirectional;
    translator["decoder_layers"] = bidirectional ? 3 : 1;
    if (bidirectional) {
      config_.erase("preprocessing");
      translator["target_vocabulary"] = 17;
    }
    tensors_ = TranslatorTensors(config_, /*seed=*/5);
    auto loaded = Checked(Load());
    const Model& model = **loaded;
    const std::vector<int32_t> source = {4, 9, 1, 4, 10};
    const std::vector<int32_t> target = {2, 5, 8, 8, 0, 3, 7};
    Rows alignment;
    const Rows expected = PlainTranslator(config_, tensors_).LogProbs(source, target, &alignment);
    const Found found = Run(model, source, target);
    const auto vocabulary = static_cast<size_t>(translator["target_vocabulary"]);
    for (size_t t = 0; t < target.size(); ++t) {
      for (size_t v = 0; v < vocabulary; ++v) {
        EXPECT_NEAR(found.log_probs[t * vocabulary + v], expected[t][v], 1e-5) << t << ", " << v;
      }
      for (size_t s = 0; s < source.size(); ++s) {
        EXPECT_NEAR(found.alignment[t * source.size() + s], alignment[t][s], 1e-5);
      }
    }
  }
}

TEST_F(TranslatorTest, NamesTheTensorThatIsWrong) {
  const TestTensors tensors = tensors_;
  tensors_.erase("decoder.transformer_layers.0.context_attn.linear_query.bias");
  EXPECT_THAT(Error(), HasSubstr("decoder.transformer_layers.0.context_attn.linear_query.bias"));
  tensors_ = tensors;
  tensors_["generator.0.weight"] = MakeTensor({8, 11});
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("generator.0.weight"), HasSubstr("[11, 8]"), HasSubstr("[8, 11]")));
  tensors_ = tensors;
  tensors_["encoder.embeddings.make_embedding.emb_luts.0.weight"] = MakeTensor({12, 8});
  EXPECT_THAT(Error(), HasSubstr("encoder.embeddings.make_embedding.emb_luts.0.weight"));
  tensors_ = tensors;
  // A second table beside shared ones, and a layer too many.
  tensors_["decoder.embeddings.make_embedding.emb_luts.0.weight"] = MakeTensor({11, 8});
  EXPECT_THAT(Error(), HasSubstr("'decoder.embeddings.make_embedding.emb_luts.0.weight' of shape "
                                 "[11, 8] is not part of a model with this config.json"));
  tensors_ = tensors;
  tensors_["encoder.transformer.2.layer_norm.bias"] = MakeTensor({8});
  EXPECT_THAT(Error(), HasSubstr("encoder.transformer.2.layer_norm.bias"));
}

TEST_F(TranslatorTest, ThePiecesAreThoseOfTheModel) {
  testing::SentencePieceFile pieces = SmallTranslatorPieces();
  pieces.pieces.push_back({"bb", -7.0f});
  pieces_ = pieces.bytes();
  EXPECT_THAT(Error(), HasSubstr("m/spm.model: expected 11 pieces (translator.source_vocabulary in "
                                 "config.json), found 12"));
  pieces = SmallTranslatorPieces();
  std::swap(pieces.pieces[0], pieces.pieces[1]);
  pieces_ = pieces.bytes();
  EXPECT_THAT(Error(), HasSubstr("m/spm.model: expected the unknown piece with the id 1 "
                                 "(translator.unk_id in config.json), found '<pad>'"));
  pieces = SmallTranslatorPieces();
  pieces.pieces[3] = {"ca", -5.0f};
  pieces_ = pieces.bytes();
  EXPECT_THAT(Error(), HasSubstr("expected a control piece with the id 3 (translator.eos_id in "
                                 "config.json), found 'ca'"));
  pieces_ = "text";
  EXPECT_THAT(Error(), HasSubstr("m/spm.model: "));
}

TEST_F(TranslatorTest, NeedsTheFileOfThePieces) {
  WriteSmallTranslator(directory_, "n");
  ASSERT_EQ(unlink(directory_.path("n/spm.model").c_str()), 0);
  const auto model =
      Model::Load(directory_.path("n"), "n", 1, *backend_, kernels::CompileOptions());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("n/spm.model"));
}

}  // namespace
}  // namespace sru::models
