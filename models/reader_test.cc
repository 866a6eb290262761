#include "models/reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/language_model.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checked.h"
#include "tests/testing/random_reader.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using nlohmann::json;
using ::sru::testing::Checked;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<RandomReader> Variants() {
  std::vector<RandomReader> variants(7);
  variants[0].name = "plain";
  variants[1].name = "without_aligned_question";
  variants[1].use_qemb = false;
  variants[1].features = {"exact", "lower", "tf"};
  variants[2].name = "without_features";
  variants[2].features.clear();
  variants[3].name = "tags";
  variants[3].pos = true;
  variants[4].name = "concatenated_layers";
  variants[4].concat = true;
  variants[4].question_layers = 3;
  variants[5].name = "mean_question";
  variants[5].self_attention = false;
  variants[6].name = "highway_without_a_product";
  variants[6].use_qemb = false;
  variants[6].hidden = 3;  // the output is as wide as the input
  return variants;
}

struct Pair {
  std::vector<int32_t> passage;
  std::vector<int32_t> question;
  std::vector<float> features;
  std::vector<int32_t> pos;
};

Pair MakePair(const RandomReader& variant, int passage_size, int question_size, uint32_t seed) {
  std::mt19937 random(seed);
  Pair pair;
  for (int i = 0; i < passage_size; ++i) {
    pair.passage.push_back(static_cast<int32_t>(random() % variant.words));
    pair.pos.push_back(static_cast<int32_t>(random() % variant.pos_size));
    for (size_t k = 0; k < variant.features.size(); ++k) {
      pair.features.push_back(static_cast<float>(random() % 5) * 0.25f);
    }
  }
  for (int i = 0; i < question_size; ++i) {
    pair.question.push_back(static_cast<int32_t>(random() % variant.words));
  }
  return pair;
}

struct StartAndEnd {
  std::vector<double> start;
  std::vector<double> end;
};

// The equations at the top of reader.h, one after the other in float64, on rows of values.
class PlainReader {
 public:
  PlainReader(const RandomReader& variant, const TestTensors& tensors)
      : variant_(variant), tensors_(tensors) {}

  StartAndEnd Read(const Pair& pair) const {
    Rows x = Embed("embedding.weight", variant_.dim, pair.passage);
    const Rows question = Embed("embedding.weight", variant_.dim, pair.question);
    const size_t num_features = variant_.features.size();
    const Rows aligned = variant_.use_qemb ? Align(x, question) : Rows();
    const Rows pos =
        variant_.pos ? Embed("pos_embedding.weight", variant_.pos_dim, pair.pos) : Rows();
    for (size_t i = 0; i < x.size(); ++i) {
      x[i].insert(x[i].end(), pair.features.begin() + i * num_features,
                  pair.features.begin() + (i + 1) * num_features);
      if (variant_.use_qemb) x[i].insert(x[i].end(), aligned[i].begin(), aligned[i].end());
      if (variant_.pos) x[i].insert(x[i].end(), pos[i].begin(), pos[i].end());
    }
    const Rows d = Stack("doc_rnn.rnns.", variant_.layers, x);
    const Rows h = Stack("question_rnn.rnns.", variant_.question_layers, question);
    Row weights(h.size(), 0.0);
    if (variant_.self_attention) {
      for (size_t j = 0; j < h.size(); ++j) weights[j] = Linear("self_attn", h[j])[0];
    }
    const Row v = WeightedSum(Softmax(weights), h);
    StartAndEnd logits;
    const Row start = Linear("start_attn", v);
    const Row end = Linear("end_attn", v);
    for (const Row& row : d) {
      logits.start.push_back(Dot(row, start));
      logits.end.push_back(Dot(row, end));
    }
    return logits;
  }

 private:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  const std::vector<float>& Values(const std::string& name) const {
    return tensors_.at(name).values;
  }

  Rows Embed(const std::string& name, int width, const std::vector<int32_t>& ids) const {
    Rows rows;
    for (const int32_t id : ids) {
      const auto from = Values(name).begin() + id * width;
      rows.emplace_back(from, from + width);
    }
    return rows;
  }

  Row Linear(const std::string& module, const Row& x) const {
    const std::vector<float>& bias = Values(module + ".linear.bias");
    const std::vector<float>& weight = Values(module + ".linear.weight");
    Row y(bias.begin(), bias.end());
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t k = 0; k < x.size(); ++k) y[i] += weight[i * x.size() + k] * x[k];
    }
    return y;
  }

  static double Dot(const Row& a, const Row& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  static Row Softmax(Row values) {
    double sum = 0;
    for (double& value : values) sum += value = std::exp(value);
    for (double& value : values) value /= sum;
    return values;
  }

  static Row WeightedSum(const Row& weights, const Rows& rows) {
    Row sum(rows[0].size(), 0.0);
    for (size_t j = 0; j < rows.size(); ++j) {
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += weights[j] * rows[j][k];
    }
    return sum;
  }

  Row Match(const Row& x) const {
    Row y = Linear("qemb_match", x);
    for (double& value : y) value = std::max(value, 0.0);
    return y;
  }

  Rows Align(const Rows& passage, const Rows& question) const {
    Rows aligned;
    for (const Row& p : passage) {
      Row scores;
      for (const Row& q : question) scores.push_back(Dot(Match(p), Match(q)));
      aligned.push_back(WeightedSum(Softmax(scores), question));
    }
    return aligned;
  }

  Rows Stack(const std::string& prefix, int layers, Rows x) const {
    Rows all(x.size());
    for (int i = 0; i < layers; ++i) {
      x = Layer(prefix + std::to_string(i) + ".", x);
      for (size_t t = 0; t < x.size(); ++t) all[t].insert(all[t].end(), x[t].begin(), x[t].end());
    }
    return variant_.concat ? all : x;
  }

  // A layer of bidirectional SRU.
  Rows Layer(const std::string& name, const Rows& x) const {
    const int hidden = variant_.hidden;
    const int output = 2 * hidden;
    const std::vector<float>& weight = Values(name + "weight");
    const std::vector<float>& weight_c = Values(name + "weight_c");
    const std::vector<float>& bias = Values(name + "bias");
    const double scale_x = Values(name + "scale_x")[0];
    const int k = static_cast<int>(x[0].size()) == output ? 3 : 4;
    const auto sigmoid = [](double value) { return 1 / (1 + std::exp(-value)); };
    Rows y(x.size(), Row(output));
    for (int column = 0; column < output; ++column) {  // direction, then dimension
      double c = 0;
      for (size_t step = 0; step < x.size(); ++step) {
        const size_t t = column < hidden ? step : x.size() - 1 - step;
        double u[4] = {0, 0, 0, 0};
        for (size_t i = 0; i < x[t].size(); ++i) {
          for (int m = 0; m < k; ++m) u[m] += x[t][i] * weight[(i * output + column) * k + m];
        }
        const double forget = sigmoid(u[1] + weight_c[column] * c + bias[column]);
        const double reset = sigmoid(u[2] + weight_c[output + column] * c + bias[output + column]);
        c = forget * c + (1 - forget) * u[0];
        const double highway = k == 4 ? u[3] : x[t][column] * scale_x;
        y[t][column] = reset * c + (1 - reset) * highway;
      }
    }
    return y;
  }

  const RandomReader& variant_;
  const TestTensors& tensors_;
};

class ReaderTest : public ::testing::Test {
 protected:
  ReaderTest() { EXPECT_TRUE(kernels::CreateBackend("reference", &backend_).ok()); }

  // Builds the variant's reader, with `tensors`.
  absl::StatusOr<Reader> Build(const RandomReader& variant, const TestTensors& tensors,
                               size_t max_match_table_bytes = kMaxMatchTableBytes) {
    auto config = ParseModelConfig(variant.Config().dump(), "c.json");
    if (!config.ok()) return config.status();
    bytes_ = Safetensors(tensors);
    auto file = SafetensorsFile::Parse(bytes_, "m.safetensors");
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
    return BuildReader(*config, *file_, max_match_table_bytes);
  }

  // Each pair by itself, all in one batch.
  std::vector<StartAndEnd> Run(const Reader& reader, const std::vector<Pair>& pairs) {
    std::unique_ptr<kernels::ProgramExecutable> executable;
    kernels::CompileOptions options;
    options.weights = file_->weights();
    kernels::Status status = backend_->Compile(reader.program, options, &executable);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return {};
    std::vector<int32_t> passage_offsets = {0}, question_offsets = {0}, passage_ids, question_ids,
                         of, pos;
    std::vector<float> features;
    for (const Pair& pair : pairs) {
      of.push_back(static_cast<int32_t>(of.size()));
      passage_ids.insert(passage_ids.end(), pair.passage.begin(), pair.passage.end());
      question_ids.insert(question_ids.end(), pair.question.begin(), pair.question.end());
      features.insert(features.end(), pair.features.begin(), pair.features.end());
      pos.insert(pos.end(), pair.pos.begin(), pair.pos.end());
      passage_offsets.push_back(static_cast<int32_t>(passage_ids.size()));
      question_offsets.push_back(static_cast<int32_t>(question_ids.size()));
    }
    std::unique_ptr<kernels::ProgramWorkspace> workspace;
    const auto num_pairs = static_cast<int>(pairs.size());
    status = executable->CreateWorkspace(
        ReaderLimits(reader, static_cast<int>(std::max(passage_ids.size(), question_ids.size())),
                     num_pairs),
        &workspace);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<kernels::AxisBatch> axes(reader.program.axes.size());
    axes[reader.passage].num_sequences = num_pairs;
    axes[reader.passage].offsets = passage_offsets.data();
    axes[reader.question].num_sequences = num_pairs;
    axes[reader.question].offsets = question_offsets.data();
    std::vector<kernels::InputBatch> inputs(reader.program.inputs.size());
    inputs[reader.passage_ids].ids = passage_ids.data();
    inputs[reader.question_ids].ids = question_ids.data();
    inputs[reader.question_of].ids = of.data();
    if (reader.passage_features != kernels::kNone) {
      inputs[reader.passage_features].values = features.data();
    }
    if (reader.pos_ids != kernels::kNone) inputs[reader.pos_ids].ids = pos.data();
    std::vector<float> start(passage_ids.size());
    std::vector<float> end(passage_ids.size());
    std::vector<kernels::OutputBatch> outputs(reader.program.outputs.size());
    outputs[reader.start_logits].values = start.data();
    outputs[reader.end_logits].values = end.data();
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    status = executable->Run(batch, outputs.data(), *workspace);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<StartAndEnd> logits;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const int32_t from = passage_offsets[i];
      const int32_t to = passage_offsets[i + 1];
      logits.push_back(
          {{start.begin() + from, start.begin() + to}, {end.begin() + from, end.begin() + to}});
    }
    return logits;
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::string bytes_;
  std::unique_ptr<SafetensorsFile> file_;
};

std::vector<Pair> SomePairs(const RandomReader& variant) {
  return {MakePair(variant, 7, 3, 1), MakePair(variant, 1, 1, 2), MakePair(variant, 4, 6, 3)};
}

void ExpectNear(const std::vector<double>& expected, const std::vector<double>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], found[i], 1e-5) << i;
}

TEST_F(ReaderTest, EqualsThePlainEquations) {
  for (const RandomReader& variant : Variants()) {
    SCOPED_TRACE(variant.name);
    const TestTensors tensors = variant.Tensors();
    const PlainReader plain(variant, tensors);
    const std::vector<Pair> pairs = SomePairs(variant);
    // With the table of matches and without.
    for (const size_t max_table : {kMaxMatchTableBytes, size_t{0}}) {
      const auto reader = Checked(Build(variant, tensors, max_table));
      EXPECT_EQ(reader->values != nullptr, variant.use_qemb && max_table > 0);
      const std::vector<StartAndEnd> found = Run(*reader, pairs);
      ASSERT_EQ(found.size(), pairs.size());
      for (size_t i = 0; i < pairs.size(); ++i) {
        const StartAndEnd expected = plain.Read(pairs[i]);
        ExpectNear(expected.start, found[i].start);
        ExpectNear(expected.end, found[i].end);
      }
    }
  }
}

// The table is as large as the embedding.
TEST_F(ReaderTest, ATableThatIsTooLargeIsNotMade) {
  const RandomReader variant = Variants()[0];
  const size_t bytes = sizeof(float) * variant.words * variant.dim;
  EXPECT_NE(Build(variant, variant.Tensors(), bytes)->values, nullptr);
  EXPECT_EQ(Build(variant, variant.Tensors(), bytes - 1)->values, nullptr);
}

TEST_F(ReaderTest, ErrorsNameTheTensor) {
  const RandomReader variant = Variants()[3];
  const auto error = [&](const TestTensors& tensors) {
    return std::string(Build(variant, tensors).status().message());
  };
  for (const char* name :
       {"embedding.weight", "qemb_match.linear.bias", "doc_rnn.rnns.1.weight_c",
        "question_rnn.rnns.0.scale_x", "self_attn.linear.weight", "start_attn.linear.bias",
        "end_attn.linear.weight", "pos_embedding.weight"}) {
    TestTensors tensors = variant.Tensors();
    tensors[name] = MakeTensor({7, 7});
    EXPECT_THAT(error(tensors),
                AllOf(HasSubstr("m.safetensors"), HasSubstr(name), HasSubstr("[7, 7]")));
    tensors.erase(name);
    EXPECT_EQ(Build(variant, tensors).status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(error(tensors), HasSubstr(name));
  }
  TestTensors tensors = variant.Tensors();
  tensors["fixed_embedding"] = MakeTensor({3, 4});
  EXPECT_THAT(error(tensors), AllOf(HasSubstr("fixed_embedding"), HasSubstr("is not part of")));
}

TEST_F(ReaderTest, AModelHasIt) {
  const RandomReader variant = Variants()[0];
  TempDirectory directory;
  json config = variant.Config();
  TestTensors tensors = variant.Tensors();
  directory.Write("m/1/config.json", config.dump());
  directory.Write("m/1/model.safetensors", Safetensors(tensors));
  const auto without_words = Checked(Model::Load(directory.path("m/1"), "m", 1, *backend_, {}));
  EXPECT_EQ((*without_words)->tokenizer(), nullptr);

  config["embedding"]["oov_id"] = 1;
  config["preprocessing"] = {{"type", "unicode_words"}, {"lowercase", true}};
  directory.Write("m/1/config.json", config.dump());
  std::string words;
  for (int i = 0; i < variant.words; ++i) words += "word" + std::to_string(i) + "\n";
  directory.Write("m/1/vocab.txt", words);
  for (const std::string& name : kernels::AvailableBackends()) {
    std::unique_ptr<kernels::Backend> backend;
    if (!kernels::CreateBackend(name, &backend).ok()) continue;
    const auto loaded = Checked(Model::Load(directory.path("m/1"), "m", 1, *backend, {}));
    const Model& model = **loaded;
    EXPECT_EQ(model.task(), Task::kReader);
    EXPECT_NE(model.tokenizer(), nullptr);
    EXPECT_EQ(model.As<LanguageModel>(), nullptr);
    EXPECT_FALSE(model.is_unidirectional());
    ASSERT_NE(model.As<Reader>(), nullptr);
    // The backend has the weights.
    EXPECT_EQ(model.As<Reader>()->values, nullptr);
    const auto& embed = std::get<kernels::ops::Embed>(model.As<Reader>()->program.operations[0]);
    EXPECT_EQ(embed.table.data, nullptr);
    EXPECT_EQ(embed.table.size, static_cast<size_t>(variant.words * variant.dim));
    // What is in the file, but for constants; the table of matches is not.
    size_t weights = 0;
    for (const auto& [tensor, contents] : tensors) {
      if (tensor.find("scale_x") == std::string::npos) weights += contents.values.size();
    }
    EXPECT_EQ(model.parameter_count(), static_cast<int64_t>(weights));
  }

  // A value that is no number, in what only the table is made of.
  tensors["qemb_match.linear.weight"].values[5] = NAN;
  directory.Write("m/1/model.safetensors", Safetensors(tensors));
  EXPECT_THAT(Model::Load(directory.path("m/1"), "m", 1, *backend_, {}).status().message(),
              AllOf(HasSubstr("qemb_match.linear.weight"), HasSubstr("finite")));
}

}  // namespace
}  // namespace sru::models
