#include "models/tensor_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using kernels::FloatView;
using ::testing::HasSubstr;

class TensorPagesTest : public ::testing::Test {
 protected:
  // A file with one odd byte before each tensor.
  void Write(const std::vector<std::vector<float>>& tensors) {
    std::string bytes;
    for (const std::vector<float>& values : tensors) {
      bytes += '#';
      TensorPages::Place place;
      place.name = "t" + std::to_string(places_.size());
      place.offset = bytes.size();
      place.bytes = values.size() * sizeof(float);
      bytes.append(reinterpret_cast<const char*>(values.data()), place.bytes);
      places_.push_back(place);
    }
    path_ = directory_.Write("f", bytes);
  }

  std::unique_ptr<TensorPages> Open() {
    auto file = OpenFile::Open(path_, 1 << 30);
    EXPECT_TRUE(file.ok()) << file.status();
    auto pages = TensorPages::Create(*std::move(file), places_);
    EXPECT_TRUE(pages.ok()) << pages.status();
    return *std::move(pages);
  }

  static std::vector<float> Counting(size_t size) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(i);
    return values;
  }

  TempDirectory directory_;
  std::string path_;
  std::vector<TensorPages::Place> places_;
};

TEST_F(TensorPagesTest, ReadsTensorsAndPartsAsOftenAsAskedFor) {
  const std::vector<std::vector<float>> tensors = {Counting(3000), {}, {7.0f}, Counting(5)};
  Write(tensors);
  const auto pages = Open();
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (size_t i : {3, 0, 2}) {
      const FloatView whole{pages->data(i), tensors[i].size()};
      const kernels::ReadWeights readable(pages.get(), whole);
      EXPECT_TRUE(std::equal(tensors[i].begin(), tensors[i].end(), whole.data)) << i;
    }
    const FloatView part = FloatView{pages->data(0), 3000}.Part(1001, 900);
    const kernels::ReadWeights readable(pages.get(), part);
    EXPECT_EQ(part.data[0], 1001.0f);
    EXPECT_EQ(part.data[899], 1900.0f);
  }
  EXPECT_TRUE(pages->CheckAllRead().ok()) << pages->CheckAllRead();
}

TEST_F(TensorPagesTest, LeavesValuesAloneThatAreNotInTheFile) {
  Write({Counting(5)});
  const auto pages = Open();
  const std::vector<float> computed = {1.0f, 2.0f};
  { const kernels::ReadWeights readable(pages.get(), {computed.data(), computed.size()}); }
  EXPECT_EQ(computed, (std::vector<float>{1.0f, 2.0f}));
  EXPECT_TRUE(pages->status().ok()) << pages->status();
  EXPECT_FALSE(pages->CheckAllRead().ok());
}

// In pages of memory.
size_t ResidentPages(const float* data, size_t bytes) {
  const size_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<float*>(data), bytes, resident.data()), 0);
  return std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; });
}

TEST_F(TensorPagesTest, GivesTheMemoryBack) {
  constexpr size_t kSize = 100'001;
  Write({{1.0f}, Counting(kSize), {2.0f}});
  const auto pages = Open();
  const FloatView tensor{pages->data(1), kSize};
  const size_t bytes = kSize * sizeof(float);
  EXPECT_EQ(ResidentPages(tensor.data, bytes), 0u);
  pages->Read(tensor);
  EXPECT_GT(ResidentPages(tensor.data, bytes), 90u);
  pages->Release(tensor);
  EXPECT_EQ(ResidentPages(tensor.data, bytes), 0u);
  // In parts all goes but the pages where two parts meet.
  int parts = 0;
  for (size_t begin = 0; begin < kSize; begin += 30'000, ++parts) {
    const FloatView part = tensor.Part(begin, std::min<size_t>(30'000, kSize - begin));
    const kernels::ReadWeights readable(pages.get(), part);
    EXPECT_EQ(part.data[part.size - 1], static_cast<float>(begin + part.size - 1));
  }
  EXPECT_LT(ResidentPages(tensor.data, bytes), static_cast<size_t>(parts));
}

TEST_F(TensorPagesTest, RemembersTheFirstValueThatIsNotFinite) {
  std::vector<float> values = Counting(70);
  values[69] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> worse = Counting(70);
  worse[3] = std::numeric_limits<float>::infinity();
  Write({Counting(3), values, worse});
  const auto pages = Open();
  pages->Read({pages->data(0), 3});
  EXPECT_TRUE(pages->status().ok());
  for (int tensor : {1, 2}) {
    const FloatView part{pages->data(tensor), 70};
    pages->Read(part.Part(2, 68));
    EXPECT_EQ(part.data[2], 0.0f);
    EXPECT_EQ(part.data[69], 0.0f);
  }
  EXPECT_EQ(pages->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pages->status().message(),
            path_ + ": tensor 't1': expected finite values, found nan at element 69");
  EXPECT_EQ(pages->CheckAllRead(), pages->status());
}

TEST_F(TensorPagesTest, NamesATensorThatWasNotReadWhole) {
  Write({Counting(10), Counting(20)});
  const auto pages = Open();
  pages->Read({pages->data(0), 10});
  pages->Read({pages->data(1), 19});
  const absl::Status status = pages->CheckAllRead();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), path_ + ": tensor 't1': the backend has read 76 bytes of 80");
}

TEST_F(TensorPagesTest, FilesThatAreCutOrWrittenToMeanwhileAreAborted) {
  Write({Counting(10'000), Counting(10)});
  for (const bool cut : {true, false}) {
    SCOPED_TRACE(cut);
    std::filesystem::last_write_time(path_, std::filesystem::file_time_type());
    const auto pages = Open();
    pages->Read({pages->data(1), 10});
    if (cut) {
      std::filesystem::resize_file(path_, 5000);
    } else {
      std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary) << "other";
    }
    const FloatView first{pages->data(0), 10'000};
    pages->Read(first);
    const absl::Status status = pages->CheckAllRead();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(cut ? "was cut to 5000 bytes, from 40042, while it was read"
                              : "was changed while it was read"));
    if (cut) {
      EXPECT_EQ(first.data[1], 0.0f);
    }
    places_.clear();
    Write({Counting(10'000), Counting(10)});
  }
}

TEST_F(TensorPagesTest, TakesAFileWithoutValues) {
  Write({{}, {}});
  EXPECT_TRUE(Open()->CheckAllRead().ok());
  places_.clear();
  EXPECT_TRUE(Open()->CheckAllRead().ok());
}

}  // namespace
}  // namespace sru::models
