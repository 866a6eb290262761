#include "models/student.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/memory_estimate.h"
#include "models/model.h"
#include "models/repository.h"
#include "models/translator.h"
#include "tests/testing/checked.h"
#include "tests/testing/marian_files.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

namespace fs = std::filesystem;
using ::sru::testing::Checked;
using ::testing::HasSubstr;

constexpr char kGolden[] = "tests/golden/student/";

// A copy of a small student's files, of which a test changes some.
class StudentFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::CreateBackend("cpu", {}, &backend_).ok()); }

  void Copy(const std::string& name) {
    for (const auto& entry : fs::directory_iterator(kGolden + name)) {
      directory_.Write(entry.path().filename(), ReadWholeFile(entry.path()));
    }
  }
  absl::StatusOr<std::shared_ptr<const Model>> Load() {
    return Model::Load(directory_.path(), "m", 1, *backend_, {});
  }
  std::string Error() { return std::string(Load().status().message()); }

  // The error after `from` in the file, which is there once, has become `to`.
  std::string ErrorWith(const std::string& name, const std::string& from, const std::string& to) {
    const std::string path = directory_.path(name);
    const std::string good = ReadWholeFile(path);
    const size_t at = good.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::string bad = good;
    directory_.Write(name, bad.replace(at, from.size(), to));
    const std::string error = Error();
    directory_.Write(name, good);
    return error;
  }

  // Where the data of a tensor of a binary file is.
  static size_t DataOf(const std::string& bytes, const std::string& tensor) {
    uint64_t count = 0;
    std::memcpy(&count, &bytes[8], 8);
    size_t at = bytes.size();
    size_t name = 16 + 32 * count;
    std::vector<uint64_t> sizes;
    size_t index = count;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t header[4];
      std::memcpy(header, &bytes[16 + 32 * i], 32);
      if (bytes.compare(name, header[0] - 1, tensor) == 0 && header[0] - 1 == tensor.size())
        index = i;
      name += header[0];
      sizes.push_back(header[3]);
    }
    EXPECT_LT(index, count) << tensor;
    for (size_t i = count; i-- > index;) at -= sizes[i];
    return at;
  }

  TempDirectory directory_;
  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(StudentFilesTest, AreServedAsTheyWerePublished) {
  Copy("shared");
  const auto model = Checked(Load());
  EXPECT_EQ((*model)->task(), Task::kTranslator);
  const TranslatorConfig& config = (*model)->config().translator;
  EXPECT_TRUE(config.student);
  EXPECT_FALSE(config.int8_weights);
  EXPECT_EQ(config.d_model, 16);
  EXPECT_EQ(config.d_ffn, 24);
  EXPECT_EQ(config.source_vocabulary, 330);
  EXPECT_EQ(config.bos_id, kNoToken);
  EXPECT_EQ(config.eos_id, 0);
  EXPECT_EQ(config.source_end_id, 0);
  EXPECT_EQ(config.max_sentence_tokens, 127);
  EXPECT_TRUE(config.search.narrows);
  EXPECT_EQ(config.search.beam_size, 1);
  EXPECT_EQ(config.search.length_penalty, LengthPenalty::kPower);
  EXPECT_EQ(config.search.alpha, 1);
  EXPECT_EQ(config.search.max_length_factor, 2);
  EXPECT_EQ((*model)->target_tokenizer(), (*model)->tokenizer());
  EXPECT_EQ((*model)->As<Translator>()->choices, kernels::kNone);
  // A table, 2 layers of 4 maps and 2 of 6, and feed-forward layers, with their biases and norms.
  EXPECT_EQ((*model)->parameter_count(),
            330 * 16 + 330 + 20 * 256 + 16 * 16 + 2 * 16 + 4 * (2 * 16 * 24 + 24 + 16) + 10 * 32);
}

TEST_F(StudentFilesTest, WithVocabulariesApart) {
  Copy("apart");
  const auto model = Checked(Load());
  EXPECT_EQ((*model)->tokenizer()->size(), 310);
  EXPECT_EQ((*model)->target_tokenizer()->size(), 320);
}

TEST_F(StudentFilesTest, MayAllBeCompressed) {
  for (const char* name : {"shared", "apart", "int8"}) {
    const std::string plain = std::string("plain_") + name;
    const auto write = [&](const std::string& file, const std::string& bytes) {
      directory_.Write(absl::StrCat(plain, "/", file), bytes);
      directory_.Write(absl::StrCat(name, "/", file, ".gz"), testing::Gzip(bytes));
    };
    for (const auto& entry : fs::directory_iterator(std::string(kGolden) + name)) {
      write(entry.path().filename().string(), ReadWholeFile(entry.path()));
    }
    write("config.search.yml", "beam-size: 3\nnormalize: 0.25\nmax-length-break: 64\n");
    const auto model = Checked(Model::Load(directory_.path(name), "m", 1, *backend_, {}));
    const auto original = Checked(Model::Load(directory_.path(plain), "m", 1, *backend_, {}));
    const TranslatorConfig& config = (*model)->config().translator;
    EXPECT_EQ(config.search.beam_size, 3);
    EXPECT_EQ(config.search.alpha, (*original)->config().translator.search.alpha);
    EXPECT_EQ(config.max_sentence_tokens, (*original)->config().translator.max_sentence_tokens);
    EXPECT_EQ((*model)->parameter_count(), (*original)->parameter_count());
    EXPECT_EQ((*model)->As<Translator>()->choices, (*original)->As<Translator>()->choices);
  }
}

TEST_F(StudentFilesTest, ConfigMaySetLanguagesAndSearch) {
  Copy("int8");
  directory_.Write("decoder.yml",
                   "beam-size: 6\nnormalize: 0\nword-penalty: 0.5\nmax-length-break: 64\n");
  auto model = Checked(Load());
  EXPECT_NE((*model)->As<Translator>()->choices, kernels::kNone);
  const auto search = [&] { return (*model)->config().translator.search; };
  EXPECT_EQ(search().beam_size, 6);
  EXPECT_EQ(search().length_penalty, LengthPenalty::kNone);
  EXPECT_EQ(search().word_penalty, 0.5);
  EXPECT_EQ((*model)->config().translator.max_sentence_tokens, 63);
  directory_.Write(
      "config.json",
      R"({"format_version": 1, "description": "d", "source": "en", "target": "de", "beam_size": 4, "normalize": 0.7,
                       "max_length_factor": 3, "shortlist": false})");
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config().description, "d");
  EXPECT_EQ((*model)->config().translator.source_language, "en");
  EXPECT_EQ((*model)->config().translator.target_language, "de");
  EXPECT_EQ(search().beam_size, 4);
  EXPECT_EQ(search().alpha, 0.7);
  EXPECT_EQ(search().word_penalty, 0.5) << "still decoder.yml's";
  EXPECT_EQ(search().max_length_factor, 3);
  EXPECT_EQ((*model)->As<Translator>()->choices, kernels::kNone);

  directory_.Write("config.json",
                   R"({"source": "x", "source_language": "fr", "target_language": "it"})");
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config().translator.source_language, "fr");
  EXPECT_EQ((*model)->config().translator.target_language, "it");

  directory_.Write("config.json", R"({"format_version": 2})");
  EXPECT_THAT(Error(), HasSubstr("key 'format_version': expected an integer from 1 to 1, found 2"));
  directory_.Write("config.json", R"({"format_version": 1, "beamsize": 4})");
  EXPECT_THAT(Error(), HasSubstr("config.json: unknown key 'beamsize'"));
  directory_.Write("config.json", R"({"format_version": 1, "normalize": 11})");
  EXPECT_THAT(Error(), HasSubstr("key 'normalize': expected a number from 0 to 10"));
  fs::remove(directory_.path("config.json"));
  directory_.Write("decoder.yml", "beam-size: many\n");
  EXPECT_THAT(Error(), HasSubstr("decoder.yml: key 'beam-size'"));
  directory_.Write("decoder.yml", "shortlist: [lex.s2t, 50, 50]\n");
  fs::remove(directory_.path("lex.bin"));
  EXPECT_THAT(Error(), HasSubstr("key 'shortlist': expected a binary shortlist"));
}

TEST_F(StudentFilesTest, ErrorsNameTheTensor) {
  Copy("int8");
  constexpr char kWeights[] = "model.intgemm.alphas.bin";
  EXPECT_THAT(ErrorWith(kWeights, "decoder_l1_rnn_bf", "decoder_l1_rnn_xf"),
              HasSubstr("model.intgemm.alphas.bin: tensor 'decoder_l1_rnn_bf' is missing; expected "
                        "shape [1, 16]"));
  EXPECT_THAT(ErrorWith(kWeights, "enc-depth: 2", "enc-depth: 1"),
              HasSubstr("tensor 'encoder_l2_"));
  EXPECT_THAT(ErrorWith(kWeights, "enc-depth: 2", "enc-depth: 1"),
              HasSubstr("is not part of a model with these options"));
  EXPECT_THAT(ErrorWith(kWeights, "transformer-dim-ffn: 24", "transformer-dim-ffn: 25"),
              HasSubstr("expected shape [16, 25], found [16, 24]"));
  EXPECT_THAT(ErrorWith(kWeights, "special:model.yml", "special:model.yxl"),
              HasSubstr("tensor 'special:model.yml' is missing"));
  EXPECT_THAT(ErrorWith(kWeights, "dec-cell: ssru", "dec-cell: gru "),
              HasSubstr("key 'dec-cell': expected 'ssru', found 'gru'"));

  const std::string good = ReadWholeFile(directory_.path(kWeights));
  const auto with_bytes = [&](const std::string& tensor, size_t at, const std::string& bytes) {
    std::string bad = good;
    directory_.Write(kWeights, bad.replace(DataOf(good, tensor) + at, bytes.size(), bytes));
    return Error();
  };
  const std::string nan("\x00\x00\xc0\x7f", 4);
  const std::string zero(4, '\0');
  EXPECT_THAT(
      with_bytes("decoder_l1_rnn_bf", 4, nan),
      HasSubstr("tensor 'decoder_l1_rnn_bf': expected finite values, found nan at element 1"));
  EXPECT_THAT(with_bytes("decoder_l1_rnn_W", 16 * 16, nan),
              HasSubstr("tensor 'decoder_l1_rnn_W': expected a positive multiplier, found nan"));
  EXPECT_THAT(with_bytes("decoder_l1_rnn_W", 16 * 16, zero),
              HasSubstr("expected a positive multiplier, found 0"));
  EXPECT_THAT(with_bytes("decoder_l1_rnn_W_QuantMultA", 0, zero),
              HasSubstr("tensor 'decoder_l1_rnn_W_QuantMultA': expected a positive multiplier"));
  EXPECT_THAT(with_bytes("Wemb", 3, "\x80"),
              HasSubstr("tensor 'Wemb': expected values from -127 to 127, found -128"));
}

TEST_F(StudentFilesTest, ErrorsNameTheVocabularyAndTheShortlist) {
  Copy("int8");
  directory_.Write("vocab.spm", ReadWholeFile(std::string(kGolden) + "apart/trgvocab.spm"));
  EXPECT_THAT(Error(),
              HasSubstr("vocab.spm: expected 330 pieces (dim-vocabs of its weights), found 320"));
  Copy("int8");
  EXPECT_THAT(ErrorWith("lex.bin", std::string("\xF5\x17", 2), "xx"),
              HasSubstr("lex.bin: not a binary shortlist"));
  fs::remove(directory_.path("vocab.spm"));
  EXPECT_THAT(Error(), HasSubstr("expected vocab*.spm"));
}

TEST_F(StudentFilesTest, AModelOfOursComesFirst) {
  WriteSmallModel(directory_, "m");
  directory_.Write("m/model.npz", "not looked at");
  EXPECT_TRUE(Model::Load(directory_.path("m"), "m", 1, *backend_, {}).ok());
}

TEST_F(StudentFilesTest, TheSignatureFollowsAllFiles) {
  Copy("int8");
  std::string last = FileSignature(directory_.path());
  for (const char* name :
       {"model.intgemm.alphas.bin", "vocab.spm", "lex.bin", "config.yml", "config.json"}) {
    directory_.Write(name, "a new file, of another size");
    const std::string now = FileSignature(directory_.path());
    EXPECT_NE(now, last) << name;
    last = now;
  }
  directory_.Write("notes.txt", "no part of the model");
  EXPECT_EQ(FileSignature(directory_.path()), last);
  directory_.Write("lex.2.bin", "one too many");
  EXPECT_NE(FileSignature(directory_.path()), last);
}

TEST_F(StudentFilesTest, TheMemoryEstimateIsWhatTheBackendThenTakes) {
  MemoryUse use;
  use.backend = backend_.get();
  use.bytes = backend_->packed_bytes(kernels::DataType::kFloat32);
  use.workspaces = 3;
  use.max_tokens = 1000;
  use.max_sequences = 50;
  Copy("int8");
  fs::remove(directory_.path("model.intgemm.alphas.bin"));
  fs::remove(directory_.path("expected.jsonl"));
  for (const bool int8 : {false, true}) {
    SCOPED_TRACE(int8);
    directory_.Write("model.bin", testing::StudentBin(96, 320, 4, 3, 2, 330, int8));
    const MemoryEstimate estimate = MemoryNeeds(directory_.path()).With(use);
    int64_t files = 0;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      files += static_cast<int64_t>(entry.file_size());
    }
    EXPECT_EQ(estimate.files, files);
    const auto model = Checked(Load());
    EXPECT_EQ((*model)->config().translator.int8_weights, int8);
    EXPECT_EQ((*model)->dtype(), int8 ? kernels::DataType::kInt8 : kernels::DataType::kFloat32);
    const auto packed = static_cast<double>((*model)->compiled().weight_bytes());
    EXPECT_GT(static_cast<double>(estimate.packed), 0.95 * packed);
    EXPECT_LT(static_cast<double>(estimate.packed), 1.3 * packed);
    std::unique_ptr<kernels::ProgramWorkspace> workspace;
    ASSERT_TRUE(
        (*model)
            ->program()
            .CreateWorkspace(TranslatorLimits(*(*model)->As<Translator>(), use.max_tokens,
                                              use.max_sequences, use.max_tokens, use.max_sequences),
                             &workspace)
            .ok());
    const auto in_workspace = static_cast<double>(workspace->bytes());
    EXPECT_GT(static_cast<double>(estimate.workspaces) / 3, 0.95 * in_workspace);
    EXPECT_LT(static_cast<double>(estimate.workspaces) / 3, 2.5 * in_workspace)
        << "values of one width share memory";
  }
  // Compressed weights are not decompressed for the estimate when there is no memory for it.
  const std::string bytes = ReadWholeFile(directory_.path("model.bin"));
  directory_.Write("model.bin.gz", testing::Gzip(bytes));
  fs::remove(directory_.path("model.bin"));
  const auto size = static_cast<int64_t>(bytes.size());
  const MemoryEstimate fits = MemoryNeeds(directory_.path(), size).With(use);
  EXPECT_GT(fits.packed, size / 2);
  EXPECT_GE(fits.passing, size);
  const MemoryEstimate unread = MemoryNeeds(directory_.path(), size - 1).With(use);
  EXPECT_EQ(unread.total() - unread.margin, size);
  fs::remove(directory_.path("model.bin.gz"));
  // Weights that are fewer than the options say.
  directory_.Write(
      "model.bin",
      testing::BinFile({{"special:model.yml",
                         0x101,
                         {400},
                         testing::MarianOptionsText({{"dim-vocabs", "[16000000, 16000000]"}})}}));
  EXPECT_EQ(MemoryNeeds(directory_.path()).With(use).packed, 0);
}

}  // namespace
}  // namespace sru::models
