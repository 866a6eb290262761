#include "models/decoding/spans.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checkpoints.h"

namespace sru::models {

// For messages.
void PrintTo(const Span& span, std::ostream* out) {
  *out << "[" << span.first << ", " << span.last << "] " << span.log_score;
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using ::testing::SizeIs;

constexpr float kInf = std::numeric_limits<float>::infinity();

MATCHER(SameSpan, "") {
  const Span& found = std::get<0>(arg);
  const Span& expected = std::get<1>(arg);
  return found.first == expected.first && found.last == expected.last &&
         found.log_score == expected.log_score;
}

SpanOptions Options(int max_length, int top_n, bool no_overlap = false) {
  return {max_length, top_n, no_overlap};
}

std::vector<Span> Best(const std::vector<float>& start, const std::vector<float>& end,
                       const SpanOptions& options, size_t* steps = nullptr) {
  return BestSpans(start.data(), end.data(), start.size(), options, steps);
}

// All spans in order, and then what overlaps is left out: the definition.
std::vector<Span> EverySpan(const std::vector<float>& start, const std::vector<float>& end,
                            const SpanOptions& options) {
  const int n = static_cast<int>(start.size());
  std::vector<Span> all;
  for (int i = 0; i < n; ++i) {
    for (int j = i; j < n && j < i + options.max_length; ++j) {
      Span span;
      span.first = i;
      span.last = j;
      span.log_score = double{start[i]} + double{end[j]};
      if (span.log_score > -kInf) all.push_back(span);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Span& a, const Span& b) { return a.log_score > b.log_score; });
  std::vector<Span> best;
  for (const Span& span : all) {
    if (static_cast<int>(best.size()) == options.top_n) break;
    const bool overlaps = std::any_of(best.begin(), best.end(), [&](const Span& taken) {
      return span.first <= taken.last && taken.first <= span.last;
    });
    if (!options.no_overlap || !overlaps) best.push_back(span);
  }
  return best;
}

TEST(SpansTest, PrefersTheSmallerFirstThenTheSmallerLastToken) {
  const std::vector<float> zeros(3, 0.0f);
  const std::vector<Span> all = Best(zeros, zeros, Options(15, 8));
  ASSERT_THAT(all, SizeIs(6));
  EXPECT_EQ(all[0].last, 0);
  EXPECT_EQ(all[1].last, 1);
  EXPECT_EQ(all[3].first, 1);
  EXPECT_EQ(all[5].first, 2);
  EXPECT_THAT(Best(zeros, zeros, Options(15, 8, /*no_overlap=*/true)), SizeIs(3));
}

TEST(SpansTest, NothingOfNothing) {
  EXPECT_THAT(Best({}, {}, Options(15, 3)), IsEmpty());
  EXPECT_THAT(MergeSpans({}, 3, false), IsEmpty());
  EXPECT_THAT(MergeSpans({{}, {}}, 3, true), IsEmpty());
}

TEST(SpansTest, EqualsTheDefinition) {
  std::mt19937 random(18);
  for (int round = 0; round < 3000; ++round) {
    const int n = 1 + static_cast<int>(random() % 24);
    // Few different values give many equal sums.
    const int values = round % 3 == 0 ? 2 : round % 3 == 1 ? 5 : 1000000;
    std::vector<float> start(n);
    std::vector<float> end(n);
    for (float& value : start) value = static_cast<float>(random() % values) * 0.25f;
    for (float& value : end) value = static_cast<float>(random() % values) * 0.25f;
    if (round % 7 == 0) start[random() % n] = -kInf;
    if (round % 5 == 0) end[random() % n] = -kInf;
    if (round % 11 == 0) end[random() % n] = std::nanf("");
    if (round % 13 == 0) start[random() % n] = std::nanf("");
    for (const bool no_overlap : {false, true}) {
      for (const int top_n : {1, 3, 40, 1000}) {
        const SpanOptions options =
            Options(1 + static_cast<int>(random() % (n + 2)), top_n, no_overlap);
        SCOPED_TRACE(::testing::Message()
                     << "round " << round << ", " << n << " tokens, at most " << options.max_length
                     << ", top " << top_n << (no_overlap ? ", no overlap" : ""));
        ASSERT_THAT(Best(start, end, options),
                    Pointwise(SameSpan(), EverySpan(start, end, options)));
      }
    }
  }
}

TEST(SpansTest, WhatIsInfiniteIsNoTrouble) {
  const auto first = [](const std::vector<float>& start, const std::vector<float>& end) {
    const std::vector<Span> spans = Best(start, end, Options(2, 1));
    return spans.empty() ? std::pair(-1, -1) : std::pair(spans[0].first, spans[0].last);
  };
  // Of infinity and minus infinity there is no sum.
  EXPECT_EQ(first({kInf, 0, 0}, {-kInf, -kInf, 1}), std::pair(1, 2));
  EXPECT_EQ(first({0, 0}, {-kInf, kInf}), std::pair(0, 1));
  EXPECT_EQ(first({-kInf, -kInf}, {0, kInf}), std::pair(-1, -1));
  const std::vector<Span> spans = Best({kInf, 0}, {0, 0}, Options(1, 1));
  ASSERT_THAT(spans, SizeIs(1));
  EXPECT_EQ(spans[0].probability, 0.0f);
}

TEST(SpansTest, ProbabilityIsThatOfBothEnds) {
  const std::vector<float> start = {1, 2, 3};
  const std::vector<float> end = {500, 499, 490};  // exp() of these is infinite in float32
  const auto softmax = [](const std::vector<float>& logits, int index) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit} - logits[index]);
    return 1 / sum;
  };
  double total = 0;
  for (const Span& span : Best(start, end, Options(3, 9))) {
    const double expected = softmax(start, span.first) * softmax(end, span.last);
    EXPECT_NEAR(span.probability, expected, 1e-6 * expected);
    total += span.probability;
  }
  EXPECT_LT(total, 1);  // what would end before it starts is no span
}

// The time depends on the length of a passage alone, whatever the logits and the longest span are.
TEST(SpansTest, TakesLinearTime) {
  std::mt19937 random(7);
  const auto make = [&](size_t n, int kind) {
    std::vector<float> logits(n);
    std::iota(logits.begin(), logits.end(), 0.0f);
    if (kind == 1) std::reverse(logits.begin(), logits.end());
    if (kind == 2) std::fill(logits.begin(), logits.end(), 1.0f);
    if (kind == 3) std::shuffle(logits.begin(), logits.end(), random);
    return logits;
  };
  for (const size_t n : {size_t{500}, size_t{20000}}) {
    for (int kinds = 0; kinds < 16; ++kinds) {
      const std::vector<float> start = make(n, kinds % 4);
      const std::vector<float> end = make(n, kinds / 4);
      for (const int max_length : {1, 15, 300, static_cast<int>(n)}) {
        for (const bool no_overlap : {false, true}) {
          for (const size_t top_n : {1, 20}) {
            size_t steps = 0;
            Best(start, end, Options(max_length, static_cast<int>(top_n), no_overlap), &steps);
            // A pass over the tokens, a tournament, and for each span what it may reach.
            EXPECT_LE(steps, 5 * n + top_n * (6 * static_cast<size_t>(max_length) + 60))
                << n << " tokens of kind " << kinds << ", at most " << max_length << ", top "
                << top_n << (no_overlap ? ", no overlap" : "");
            EXPECT_GE(steps, n);
          }
        }
      }
    }
  }
}

Span WithScore(double log_score, int first = 0) {
  Span span;
  span.first = first;
  span.last = first;
  span.log_score = log_score;
  return span;
}

TEST(SpansTest, MergesPassages) {
  const std::vector<std::vector<Span>> passages = {
      {WithScore(5, 1), WithScore(3, 2)},
      {},
      {WithScore(7, 3), WithScore(5, 4), WithScore(5, 5)},
      {WithScore(3, 6)},
  };
  const auto merge = [&](int top_n, bool one_per_passage) {
    std::vector<std::pair<int, int>> merged;
    for (const PassageSpan& found : MergeSpans(passages, top_n, one_per_passage)) {
      merged.emplace_back(found.passage, found.span.first);
    }
    return merged;
  };
  using P = std::pair<int, int>;
  EXPECT_THAT(merge(9, false), ElementsAre(P(2, 3), P(0, 1), P(2, 4), P(2, 5), P(0, 2), P(3, 6)));
  EXPECT_THAT(merge(2, false), ElementsAre(P(2, 3), P(0, 1)));
  EXPECT_THAT(merge(9, true), ElementsAre(P(2, 3), P(0, 1), P(3, 6)));
}

TEST(SpansTest, DecodesAsTheReference) {
  const std::filesystem::path path =
      sru::testing::CheckpointsDirectory().parent_path() / "golden_systems/reader/decode.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  std::ifstream file(path);
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const nlohmann::json json = nlohmann::json::parse(line);
    std::vector<Span> expected;
    for (const auto& span : json["spans"]) {
      expected.push_back({span[0].get<int>(), span[1].get<int>(), span[2].get<double>(), 0});
    }
    EXPECT_THAT(Best(json["start"].get<std::vector<float>>(), json["end"].get<std::vector<float>>(),
                     Options(json["max_len"].get<int>(), json["top_n"].get<int>())),
                Pointwise(SameSpan(), expected))
        << line;
  }
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace sru::models
