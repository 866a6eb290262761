#include "models/state_codec.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/digest.h"

namespace sru::models {
namespace {

using kernels::StateArena;
using ::testing::HasSubstr;

StateOwner Owner() {
  StateOwner owner;
  owner.model = "lm";
  owner.version = 3;
  owner.weights_digest = DigestOf("weights");
  return owner;
}

std::vector<kernels::FieldSpec> Fields() { return {{"c", 3, false}, {"keys", 2, true}}; }

StateArena::State SomeState() {
  StateArena::State state;
  state.rows = {1, 2};
  state.values = {1.5f, -2.0f, 0.0f, 4.0f, 5.0f, 6.0f, 7.0f};
  return state;
}

std::string ErrorOf(const StateCodec& codec, std::string_view bytes) {
  StateArena::State state;
  const absl::Status status = codec.Decode(bytes, &state);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(StateCodecTest, GivesBackWhatItTook) {
  const StateCodec codec(Owner(), Fields());
  const std::string bytes = codec.Encode(SomeState());
  StateArena::State state;
  ASSERT_TRUE(codec.Decode(bytes, &state).ok());
  EXPECT_EQ(state.rows, SomeState().rows);
  EXPECT_EQ(state.values, SomeState().values);
  // The same bytes on any replica.
  EXPECT_EQ(StateCodec(Owner(), Fields()).Encode(SomeState()), bytes);
}

TEST(StateCodecTest, KnowsItsSize) {
  StateArena::State empty_cache;
  empty_cache.rows = {1, 0};
  empty_cache.values = {1, 2, 3};
  const StateCodec codec(Owner(), Fields());
  EXPECT_EQ(codec.Encode(empty_cache).size(), codec.bytes());
}

TEST(StateCodecTest, RefusesEveryCutAndEveryFlippedBit) {
  const StateCodec codec(Owner(), Fields());
  const std::string bytes = codec.Encode(SomeState());
  StateArena::State state;
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of its own, so that reading past the end is found.
    const std::string cut = bytes.substr(0, size);
    EXPECT_FALSE(codec.Decode(cut, &state).ok()) << size;
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(codec.Decode(flipped, &state).ok()) << bit;
  }
  EXPECT_FALSE(codec.Decode(bytes + "x", &state).ok());
  EXPECT_THAT(ErrorOf(codec, bytes.substr(0, bytes.size() - 4)), HasSubstr("cut or changed"));
  EXPECT_THAT(ErrorOf(codec, "hello"),
              HasSubstr("5 bytes that are not a state, expected what Score returned, 92 bytes"));
}

TEST(StateCodecTest, SaysWhoseStateItIs) {
  const StateCodec codec(Owner(), Fields());
  StateOwner other = Owner();
  other.model = "ml";
  EXPECT_THAT(ErrorOf(codec, StateCodec(other, Fields()).Encode(SomeState())),
              HasSubstr("the state of another model, expected one of 'lm'"));
  other = Owner();
  other.version = 2;
  EXPECT_THAT(ErrorOf(codec, StateCodec(other, Fields()).Encode(SomeState())),
              HasSubstr("version 2 of the model, expected one of version 3"));
  other = Owner();
  other.weights_digest = DigestOf("retrained");
  EXPECT_THAT(ErrorOf(codec, StateCodec(other, Fields()).Encode(SomeState())),
              HasSubstr("other weights of the same version of 'lm'"));
  other = Owner();
  other.dtype = kernels::DataType::kBFloat16;
  EXPECT_THAT(ErrorOf(codec, StateCodec(other, Fields()).Encode(SomeState())),
              HasSubstr("in bfloat16, expected float32"));
}

TEST(StateCodecTest, RefusesFieldsThatDoNotAgree) {
  const StateCodec codec(Owner(), Fields());
  StateArena::State state = SomeState();
  state.rows = {1, 1};
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state)), HasSubstr("has 7 values"));
  state.rows = {2, 0};  // a fixed field has one row at most
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state)), HasSubstr("has 7 values"));
  state.rows = {1, std::numeric_limits<int32_t>::max()};
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state)), HasSubstr("has 7 values"));
  state.rows = {-1, 5};
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state)), HasSubstr("has 7 values"));
}

TEST(StateCodecTest, RefusesWhatIsNotANumber) {
  const StateCodec codec(Owner(), Fields());
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    StateArena::State state = SomeState();
    state.values[4] = value;
    EXPECT_THAT(ErrorOf(codec, codec.Encode(state)), HasSubstr("value 4 of the state is"));
  }
}

}  // namespace
}  // namespace sru::models
