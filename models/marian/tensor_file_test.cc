#include "models/marian/tensor_file.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/marian_files.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using testing::BinFile;
using testing::BinTensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NpyFile;
using testing::ZipEntry;
using testing::ZipFile;

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

const std::string kMatrix = Floats({1, 2, 3, 4, 5, 6});

std::vector<BinTensor> SmallBin() {
  return {{"w", 0x404, {2, 3}, kMatrix},
          {"q", 0x4101, {1, 3}, "\x01\xff\x7f" + Floats({0.5f})},
          {"text", 0x101, {4}, "a: b"}};
}

std::vector<ZipEntry> SmallNpz() {
  return {{"w.npy", NpyFile("<f4", "2, 3", kMatrix)}, {"text.npy", NpyFile("|i1", "4,", "a: b")}};
}

class TensorFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<TensorFile>> Open(const std::string& name,
                                                   const std::string& bytes) {
    return TensorFile::Open(directory_.Write(name, bytes));
  }
  // The error of opening or, if that works, of the first tensor that cannot be read.
  std::string Error(const std::string& name, const std::string& bytes) {
    auto file = Open(name, bytes);
    if (!file.ok()) return std::string(file.status().message());
    for (size_t i = 0; i < (*file)->tensors().size(); ++i) {
      // Exactly as much memory as it may write to.
      const std::unique_ptr<char[]> values(new char[(*file)->tensors()[i].bytes()]);
      const absl::Status status = (*file)->Read(i, values.get());
      if (!status.ok()) return std::string(status.message());
    }
    return "";
  }
  std::string ReadValues(TensorFile& file, size_t index) {
    std::string values(file.tensors()[index].bytes(), '\0');
    const absl::Status status = file.Read(index, values.data());
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  TempDirectory directory_;
};

TEST_F(TensorFileTest, ReadsBothFormatsAndGzip) {
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"model.bin", BinFile(SmallBin())},
           {"model.npz", ZipFile(SmallNpz())},
           {"model.bin.gz", testing::Gzip(BinFile(SmallBin()))},
           {"model.npz.gz", testing::Gzip(ZipFile(SmallNpz()))}}) {
    SCOPED_TRACE(name);
    auto opened = Open(name, bytes);
    ASSERT_TRUE(opened.ok()) << opened.status();
    TensorFile& file = **opened;
    const bool bin = name.find(".bin") != std::string::npos;
    ASSERT_EQ(file.tensors().size(), bin ? 3U : 2U);
    EXPECT_EQ(file.tensors()[0].name, "w");
    EXPECT_EQ(file.tensors()[0].type, MarianTensor::Type::kFloat32);
    EXPECT_THAT(file.tensors()[0].shape, ElementsAre(2, 3));
    EXPECT_EQ(ReadValues(file, 0), kMatrix);
    EXPECT_EQ(ReadValues(file, 0), kMatrix) << "a second time";
    EXPECT_EQ(file.tensors().back().name, "text");
    EXPECT_EQ(file.tensors().back().type, MarianTensor::Type::kBytes);
    EXPECT_EQ(ReadValues(file, file.tensors().size() - 1), "a: b");
    if (!bin) continue;
    EXPECT_EQ(file.tensors()[1].type, MarianTensor::Type::kIntgemm8);
    EXPECT_EQ(ReadValues(file, 1), "\x01\xff\x7f" + Floats({0.5f}));
  }
}

TEST_F(TensorFileTest, RefusesDamagedBinaryFiles) {
  const std::string good = BinFile(SmallBin());
  ASSERT_EQ(Error("model.bin", good), "");
  for (size_t size = 0; size < good.size(); size += size < 256 ? 1 : 31) {
    EXPECT_THAT(Error("model.bin", good.substr(0, size)), HasSubstr("model.bin: ")) << size;
  }
  EXPECT_THAT(Error("model.bin", good + "x"), HasSubstr("belong to no tensor"));
  EXPECT_THAT(Error("model.bin", BinFile(SmallBin(), 2)), HasSubstr("expected version 1, found 2"));
  // Bits of every byte of the head changed: no crash, and no memory beyond the file's size, which a
  // sanitizer would show.
  for (size_t i = 0; i < 512; ++i) {
    std::string bad = good;
    bad[i % 256] = static_cast<char>(bad[i % 256] ^ (i < 256 ? 1 << i % 8 : 0xff));
    Error("model.bin", bad);
  }
}

TEST_F(TensorFileTest, NamesTheTensorOfABinaryFileThatIsWrong) {
  const auto error = [this](const BinTensor& tensor) {
    std::vector<BinTensor> tensors = SmallBin();
    tensors[0] = tensor;
    return Error("model.bin", BinFile(tensors));
  };
  EXPECT_THAT(error({"w", 0x4102, {2, 3}, kMatrix}),
              HasSubstr("model.bin: tensor 'w': expected the type float32 (0x404), int8 (0x101) or "
                        "intgemm8 (0x4101), found 0x4102"));
  EXPECT_THAT(error({"w", 0x404, {2, 100}, kMatrix}), HasSubstr("tensor 'w': expected 800 to "));
  EXPECT_THAT(error({"w", 0x404, {-2, 3}, kMatrix}),
              HasSubstr("tensor 'w': the sizes of its shape"));
  EXPECT_THAT(error({"w", 0x404, {1 << 30, 1 << 30, 1 << 30}, kMatrix}),
              HasSubstr("tensor 'w': the sizes of its shape"));
  EXPECT_THAT(error({"w", 0x404, std::vector<int32_t>(9, 1), kMatrix}),
              HasSubstr("at most 8 dimensions"));
  EXPECT_THAT(error({"text", 0x404, {2, 3}, kMatrix}),
              HasSubstr("tensor 'text': there are two of this name"));
  EXPECT_THAT(error({std::string("w\0x", 3), 0x404, {2, 3}, kMatrix}), HasSubstr("only NUL"));
}

TEST_F(TensorFileTest, RefusesDamagedArchives) {
  const std::string good = ZipFile(SmallNpz());
  ASSERT_EQ(Error("model.npz", good), "");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(Error("model.npz", good.substr(0, size)), HasSubstr("model.npz: ")) << size;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    Error("model.npz", bad);
  }
}

TEST_F(TensorFileTest, NamesTheTensorOfAnArchiveThatIsWrong) {
  const auto error = [this](const ZipEntry& entry) {
    std::vector<ZipEntry> entries = SmallNpz();
    entries[0] = entry;
    return Error("model.npz", ZipFile(entries));
  };
  const std::string npy = NpyFile("<f4", "2, 3", kMatrix);
  EXPECT_THAT(error({"w.txt", npy}), HasSubstr("model.npz: entry 0: expected an array, NAME.npy"));
  EXPECT_THAT(error({"w.npy", npy, 0, -1, /*right_checksum=*/false}),
              HasSubstr("model.npz: tensor 'w': the checksum"));
  EXPECT_THAT(error({"w.npy", npy, 12}), HasSubstr("tensor 'w': expected it stored or deflated"));
  EXPECT_THAT(error({"w.npy", npy, 0, int64_t{3} << 30}),
              HasSubstr("tensor 'w': expected at most "));
  EXPECT_THAT(error({"w.npy", npy, 8, int64_t{3} << 30}),
              HasSubstr("tensor 'w': expected at most 1048576 bytes"))
      << "a bomb";
  EXPECT_THAT(error({"w.npy", "x" + npy}), HasSubstr("tensor 'w': expected an .npy file"));
  EXPECT_THAT(error({"w.npy", npy.substr(0, 9)}), HasSubstr("tensor 'w': "));
  EXPECT_THAT(error({"w.npy", npy.substr(0, npy.size() - 4)}), HasSubstr("tensor 'w': "));
  EXPECT_THAT(error({"w.npy", NpyFile("<f8", "3,", kMatrix)}),
              HasSubstr("tensor 'w': expected float32 (<f4) or bytes, found the type '<f8'"));
  EXPECT_THAT(error({"w.npy", NpyFile(">f4", "2, 3", kMatrix)}), HasSubstr("found the type '>f4'"));
  EXPECT_THAT(error({"w.npy", NpyFile("<f4", "2, 3", kMatrix, "True")}),
              HasSubstr("tensor 'w': expected fortran_order False"));
  EXPECT_THAT(error({"w.npy", NpyFile("<f4", "2, 4", kMatrix)}), HasSubstr("tensor 'w': "));
  EXPECT_THAT(error({"w.npy", NpyFile("<f4", "2, x", kMatrix)}),
              HasSubstr("shape: expected integers, found ' x'"));
  EXPECT_THAT(error({"w.npy", NpyFile("<f4", "-2, -3", kMatrix)}),
              HasSubstr("the sizes of its shape"));
  EXPECT_THAT(error({"w.npy", NpyFile("<f4", "4294967296, 4294967296, 4294967296", kMatrix)}),
              HasSubstr("the sizes of its shape"));
  EXPECT_THAT(error({"text.npy", npy}), HasSubstr("tensor 'text': there are two of this name"));
  EXPECT_THAT(error({"w.npy", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + npy}),
              HasSubstr("expected a header of at most 4096 bytes"));
}

TEST_F(TensorFileTest, SaysWhatIsNoFile) {
  EXPECT_EQ(TensorFile::Open(directory_.path("model.npz")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(Error("model.npz", ""), HasSubstr("model.npz: not an .npz file"));
  EXPECT_THAT(Error("model.bin", ""), HasSubstr("model.bin: ends within the number of tensors"));
}

}  // namespace
}  // namespace sru::models
