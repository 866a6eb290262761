#include "models/state_codec.h"

#include <cmath>
#include <limits>
#include <memory>
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

DecodingMemo SomeMemo() {
  DecodingMemo memo;
  memo.position = int64_t{1} << 40;
  memo.text_position.at_start = false;
  memo.counts = {{0, 3}, {99, std::numeric_limits<int32_t>::max()}};
  memo.prompt_ids = {5, 6, 98};
  memo.pending_text = std::string("\xE2\x82\0E", 4);
  return memo;
}

StateCodec Codec(const StateOwner& owner = Owner()) { return {owner, Fields(), 100}; }

std::string ErrorOf(const StateCodec& codec, std::string_view bytes) {
  SequenceState state;
  const absl::Status status = codec.Decode(bytes, &state);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(StateCodecTest, GivesBackWhatItTook) {
  const StateCodec codec = Codec();
  for (const DecodingMemo& memo : {DecodingMemo(), SomeMemo()}) {
    const std::string bytes = codec.Encode(SomeState(), memo);
    SequenceState state;
    state.memo.counts = {{1, 1}};  // which is replaced
    ASSERT_TRUE(codec.Decode(bytes, &state).ok());
    EXPECT_EQ(state.state.rows, SomeState().rows);
    EXPECT_EQ(state.state.values, SomeState().values);
    EXPECT_TRUE(state.memo == memo);
    // The same bytes on any replica.
    EXPECT_EQ(Codec().Encode(SomeState(), memo), bytes);
  }
}

TEST(StateCodecTest, KnowsItsSize) {
  StateArena::State empty_cache;
  empty_cache.rows = {1, 0};
  empty_cache.values = {1, 2, 3};
  const StateCodec codec = Codec();
  EXPECT_EQ(codec.Encode(empty_cache, {}).size(), codec.bytes());
  EXPECT_EQ(codec.Encode(empty_cache, SomeMemo()).size(),
            codec.bytes() + StateCodec::MemoBytes(SomeMemo()));
}

TEST(StateCodecTest, RefusesEveryCutAndEveryFlippedBit) {
  const StateCodec codec = Codec();
  const std::string bytes = codec.Encode(SomeState(), SomeMemo());
  SequenceState state;
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
  EXPECT_THAT(
      ErrorOf(codec, "hello"),
      HasSubstr("5 bytes that are not a state, expected what an earlier call returned, at least "
                "116 bytes"));
}

TEST(StateCodecTest, SaysWhoseStateItIs) {
  const StateCodec codec = Codec();
  StateOwner other = Owner();
  other.model = "ml";
  EXPECT_THAT(ErrorOf(codec, Codec(other).Encode(SomeState(), {})),
              HasSubstr("the state of another model, expected one of 'lm'"));
  other = Owner();
  other.version = 2;
  EXPECT_THAT(ErrorOf(codec, Codec(other).Encode(SomeState(), {})),
              HasSubstr("version 2 of the model, expected one of version 3"));
  other = Owner();
  other.weights_digest = DigestOf("retrained");
  EXPECT_THAT(ErrorOf(codec, Codec(other).Encode(SomeState(), {})),
              HasSubstr("other weights of the same version of 'lm'"));
  other = Owner();
  other.dtype = kernels::DataType::kBFloat16;
  EXPECT_THAT(ErrorOf(codec, Codec(other).Encode(SomeState(), {})),
              HasSubstr("in bfloat16, expected float32"));
}

TEST(StateCodecTest, RefusesFieldsThatDoNotAgree) {
  const StateCodec codec = Codec();
  StateArena::State state = SomeState();
  state.rows = {1, 1};
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state, {})), HasSubstr("has 7 values"));
  state.rows = {2, 0};  // a fixed field has one row at most
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state, {})), HasSubstr("has 7 values"));
  state.rows = {1, std::numeric_limits<int32_t>::max()};
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state, {})), HasSubstr("has 7 values"));
  state.rows = {-1, 5};
  EXPECT_THAT(ErrorOf(codec, codec.Encode(state, {})), HasSubstr("has 7 values"));
  const StateCodec two_layers(Owner(), {{"c", 3, false}, {"d", 4, false}}, 100);
  state.rows = {1, 1};
  SequenceState decoded;
  EXPECT_TRUE(two_layers.Decode(two_layers.Encode(state, {}), &decoded).ok());
  state.rows = {1, 0};
  state.values.resize(3);
  EXPECT_THAT(ErrorOf(two_layers, two_layers.Encode(state, {})), HasSubstr("has 3 values"));
}

TEST(StateCodecTest, RefusesWhatIsNotANumber) {
  const StateCodec codec = Codec();
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    StateArena::State state = SomeState();
    state.values[4] = value;
    EXPECT_THAT(ErrorOf(codec, codec.Encode(state, {})), HasSubstr("value 4 of the state is"));
  }
}

TEST(StateCodecTest, RefusesMemosThatNoTextHas) {
  const StateCodec codec = Codec();
  const auto error_of = [&codec](const DecodingMemo& memo) {
    return ErrorOf(codec, codec.Encode(SomeState(), memo));
  };
  DecodingMemo memo;
  memo.position = -1;
  EXPECT_THAT(error_of(memo), HasSubstr("position in the text is -1"));
  memo.position = kMaxPosition + 1;
  EXPECT_THAT(error_of(memo), HasSubstr("position in the text is"));
  memo = DecodingMemo();
  memo.counts = {{1, 0}};
  EXPECT_THAT(error_of(memo), HasSubstr("counts token id 1 0 times, expected 1 or more"));
  memo.counts = {{100, 1}};
  EXPECT_THAT(error_of(memo), HasSubstr("generated tokens have token id 100 after -1, expected "
                                        "ascending ids below 100"));
  memo.counts = {{-1, 1}};
  EXPECT_THAT(error_of(memo), HasSubstr("token id -1 after -1"));
  memo.counts = {{4, 1}, {4, 1}};
  EXPECT_THAT(error_of(memo), HasSubstr("token id 4 after 4"));
  memo = DecodingMemo();
  memo.prompt_ids = {7, 3};
  EXPECT_THAT(error_of(memo), HasSubstr("prompt tokens have token id 3 after 7"));
  memo.prompt_ids = {100};
  EXPECT_THAT(error_of(memo), HasSubstr("prompt tokens have token id 100 after -1"));
  memo = DecodingMemo();
  memo.pending_text = std::string(kMaxPendingTextBytes + 1, 'x');
  EXPECT_THAT(error_of(memo), HasSubstr("2049 bytes of pending text, expected at most 2048"));
}

// Sizes that do not agree with the bytes that there are, in a state whose digest is right.
TEST(StateCodecTest, RefusesSizesOfAMemoThatDoNotAgree) {
  const StateCodec codec = Codec();
  const std::string bytes = codec.Encode(SomeState(), SomeMemo());
  for (const size_t offset : {84, 88, 92}) {
    for (const uint32_t size : {0u, 1u, 5u, 1u << 20, 1u << 31, ~0u}) {
      std::string changed = bytes;
      changed.replace(offset, 4, reinterpret_cast<const char*>(&size), 4);
      changed.replace(56, 16, DigestOf(changed.substr(0, 56) + changed.substr(72)).substr(0, 16));
      EXPECT_NE(ErrorOf(codec, changed), "") << offset << " " << size;
    }
  }
}

// The key is all that a server need have in common with the one that made the state.
TEST(StateCodecTest, WithKeysTakesOnlyWhatOneOfThemSigned) {
  const std::string a(32, 'a');
  const std::string b(32, 'b');
  const auto with = [](const StateKeys::List& list) {
    return StateCodec(Owner(), Fields(), 100, std::make_shared<StateKeys>(list));
  };
  const auto takes = [](const StateCodec& codec, const std::string& bytes) {
    SequenceState state;
    return codec.Decode(bytes, &state).ok();
  };
  const std::string of_a = with({a}).Encode(SomeState(), SomeMemo());
  const std::string of_b = with({b, a}).Encode(SomeState(), SomeMemo());
  const std::string plain = Codec().Encode(SomeState(), SomeMemo());
  EXPECT_EQ(of_a.size(), plain.size());
  EXPECT_TRUE(takes(with({a}), of_a));
  EXPECT_TRUE(takes(with({b, a}), of_a));
  EXPECT_TRUE(takes(with({a, b}), of_b));
  EXPECT_FALSE(takes(with({a}), of_b));
  EXPECT_FALSE(takes(with({a, b}), plain));
  EXPECT_FALSE(takes(Codec(), of_a));
  EXPECT_THAT(ErrorOf(with({a}), plain), HasSubstr("--state_key_file"));
  for (size_t i = 0; i < of_a.size(); ++i) {
    std::string changed = of_a;
    changed[i] ^= 1;
    EXPECT_FALSE(takes(with({a}), changed)) << i;
  }
}

// A fleet replaces its key while it serves: every replica knows the new one before the first signs
// by it.
TEST(StateCodecTest, KeysMayChangeWhileTheyAreInUse) {
  const std::string a(32, 'a');
  const std::string b(32, 'b');
  const auto keys = std::make_shared<StateKeys>(StateKeys::List{a});
  const StateCodec codec(Owner(), Fields(), 100, keys);
  const std::string of_a = codec.Encode(SomeState(), {});
  SequenceState state;
  keys->Use({a, b});
  EXPECT_EQ(codec.Encode(SomeState(), {}), of_a);
  keys->Use({b, a});
  EXPECT_TRUE(codec.Decode(of_a, &state).ok());
  EXPECT_NE(codec.Encode(SomeState(), {}), of_a);
  keys->Use({b});
  EXPECT_FALSE(codec.Decode(of_a, &state).ok());
}

}  // namespace
}  // namespace sru::models
