// Encode's token vectors for a ragged batch equal those of the reference backend.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/integration/server_fixture.h"

namespace sru::testing {
namespace {

TEST(EncodeReferenceTest, RaggedTokenVectors) {
  constexpr int kSequences = 64;
  constexpr int kMaxLength = 300;
  std::mt19937 random(20180904);
  std::vector<std::vector<int32_t>> sequences(kSequences);
  for (int i = 0; i < kSequences; ++i) {
    const int length = i == 0   ? 1
                       : i == 1 ? kMaxLength
                                : std::uniform_int_distribution<int>(1, kMaxLength)(random);
    for (int t = 0; t < length; ++t) {
      sequences[i].push_back(std::uniform_int_distribution<int32_t>(0, 8758)(random));
    }
  }

  RunningServer server(TestOptions(kBundledRepository));
  v1::EncodeRequest request;
  request.set_pooling(v1::POOLING_NONE);
  for (const std::vector<int32_t>& ids : sequences) {
    request.add_sequences()->mutable_token_ids()->mutable_values()->Add(ids.begin(), ids.end());
  }
  v1::EncodeResponse response;
  const grpc::Status status = server.Call(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.encodings_size(), kSequences);

  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(kernels::CreateBackend("reference", &backend).ok());
  const auto model = models::Model::Load(std::string(kBundledRepository) + "/trec/1", "trec", 1,
                                         *backend, kernels::CompileOptions());
  ASSERT_TRUE(model.ok()) << model.status();
  std::unique_ptr<kernels::Workspace> workspace;
  ASSERT_TRUE((*model)->executable().CreateWorkspace({kMaxLength, 1}, &workspace).ok());
  const int width = (*model)->spec().output_size();
  float worst = 0;
  for (int i = 0; i < kSequences; ++i) {
    const auto length = static_cast<int>(sequences[i].size());
    const int32_t offsets[2] = {0, length};
    kernels::RaggedBatch batch;
    batch.num_sequences = 1;
    batch.offsets = offsets;
    batch.token_ids = sequences[i].data();
    std::vector<float> expected(static_cast<size_t>(length) * width);
    kernels::SequenceOutput output;
    output.token_vectors = expected.data();
    const kernels::Status ran = (*model)->executable().Run(batch, &output, *workspace);
    ASSERT_TRUE(ran.ok()) << ran.message();

    const v1::Encoding& encoding = response.encodings(i);
    ASSERT_EQ(encoding.token_count(), length);
    ASSERT_EQ(encoding.shape_size(), 2);
    ASSERT_EQ(encoding.shape(0), length);
    ASSERT_EQ(encoding.shape(1), width);
    ASSERT_EQ(encoding.values_size(), length * width);
    // The states of a sequence grow to tens while its outputs stay about 1, and float32 rounds at
    // the size of the states: the tolerance is 1e-5 of the largest output of the sequence.
    float largest = 1;
    for (const float value : expected) largest = std::max(largest, std::fabs(value));
    for (int k = 0; k < length * width; ++k) {
      worst = std::max(worst, std::fabs(encoding.values(k) - expected[k]) / largest);
      ASSERT_NEAR(encoding.values(k), expected[k], 1e-5 * largest)
          << "sequence " << i << ", value " << k;
    }
  }
  RecordProperty("largest_relative_difference", std::to_string(worst));
}

}  // namespace
}  // namespace sru::testing
