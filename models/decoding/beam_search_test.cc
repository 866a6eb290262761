#include "models/decoding/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/enum_names.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kBos = 2;
constexpr int32_t kEos = 3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The log-probabilities of every token after these, BOS first.
using Table = std::function<std::vector<float>(const std::vector<int32_t>& tokens)>;

// Log-probabilities that have nothing to do with one another, the same for the same tokens. They
// are multiples of 1/`steps`, so that sums are exact and many are equal.
Table RandomTable(int vocabulary, int steps, uint32_t seed) {
  return [=](const std::vector<int32_t>& tokens) {
    std::seed_seq sequence(tokens.begin(), tokens.end());
    std::vector<uint32_t> mixed(1);
    sequence.generate(mixed.begin(), mixed.end());
    std::minstd_rand random(mixed[0] ^ seed);
    std::vector<float> row(vocabulary);
    for (float& value : row) {
      value = -static_cast<float>(random() % (4 * steps)) / static_cast<float>(steps);
    }
    return row;
  };
}

// A hypothesis of PlainSearch(), for which a row of the model is named by the tokens that it
// follows.
struct PlainHypothesis {
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> rows;  // [tokens]
  bool finished = false;
  double log_prob = 0;
  double score = 0;
};

std::vector<int32_t> WithBos(std::vector<int32_t> tokens) {
  tokens.insert(tokens.begin(), kBos);
  return tokens;
}

double PlainScore(const SearchOptions& options, double log_prob, double n) {
  log_prob -= options.word_penalty * n;
  if (options.length_penalty == LengthPenalty::kGnmt) {
    return log_prob / std::pow((6 + n) / 6, options.alpha);
  }
  if (options.length_penalty == LengthPenalty::kPower) return log_prob / std::pow(n, options.alpha);
  return log_prob;
}

// The rules as the reference writes them down: whole hypotheses are copied, and all extensions of a
// step sorted.
std::vector<PlainHypothesis> PlainSearch(const Table& table, const SearchOptions& options,
                                         const std::vector<int32_t>& prefix) {
  PlainHypothesis first;
  for (const int32_t token : prefix) {
    const std::vector<int32_t> before = WithBos(first.tokens);
    first.log_prob += table(before)[token];
    first.tokens.push_back(token);
    first.rows.push_back(before);
  }
  std::vector<PlainHypothesis> live = {first};
  std::vector<PlainHypothesis> finished;
  bool eos_was_best = false;
  for (int length = static_cast<int>(prefix.size()) + 1; length <= options.max_length; ++length) {
    std::vector<std::tuple<double, int, int>> totals;  // negated, place, token
    for (size_t place = 0; place < live.size(); ++place) {
      const std::vector<float> row = table(WithBos(live[place].tokens));
      for (size_t token = 0; token < row.size(); ++token) {
        totals.emplace_back(-(live[place].log_prob + row[token]), place, token);
      }
    }
    std::sort(totals.begin(), totals.end());
    std::vector<PlainHypothesis> next;
    for (size_t i = 0; i < totals.size() && i < static_cast<size_t>(options.beam_size); ++i) {
      const auto& [negated, place, token] = totals[i];
      PlainHypothesis child = live[place];
      child.log_prob = -negated;
      child.score = PlainScore(options, child.log_prob, length);
      if (token == kEos) {
        child.finished = true;
        finished.push_back(child);
        if (i == 0) eos_was_best = true;
      } else {
        child.rows.push_back(WithBos(child.tokens));
        child.tokens.push_back(token);
        next.push_back(child);
      }
    }
    live = next;
    if (eos_was_best && finished.size() >= static_cast<size_t>(options.num_hypotheses)) break;
  }
  for (const PlainHypothesis& hypothesis : live) {
    if (finished.size() >= static_cast<size_t>(options.num_hypotheses)) break;
    finished.push_back(hypothesis);
  }
  std::stable_sort(
      finished.begin(), finished.end(),
      [](const PlainHypothesis& a, const PlainHypothesis& b) { return a.score > b.score; });
  if (finished.size() > static_cast<size_t>(options.num_hypotheses)) {
    finished.resize(options.num_hypotheses);
  }
  return finished;
}

// Marian's rules, by recursion over its steps: `live` are extended, and those that end are taken
// out of the width of the next step.
void PlainNarrowingSteps(const Table& table, const SearchOptions& options, size_t width,
                         const std::vector<PlainHypothesis>& live,
                         std::vector<PlainHypothesis>* finished) {
  std::vector<PlainHypothesis> all;
  for (const PlainHypothesis& hypothesis : live) {
    const std::vector<int32_t> before = WithBos(hypothesis.tokens);
    const std::vector<float> row = table(before);
    for (size_t token = 0; token < row.size(); ++token) {
      PlainHypothesis& child = all.emplace_back(hypothesis);
      child.tokens.push_back(static_cast<int32_t>(token));
      child.rows.push_back(before);
      child.log_prob += row[token];
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const PlainHypothesis& a, const PlainHypothesis& b) {
    return a.log_prob > b.log_prob;
  });
  if (all.size() > width) all.resize(width);
  const auto going_on = std::stable_partition(
      all.begin(), all.end(), [](const PlainHypothesis& h) { return h.tokens.back() == kEos; });
  for (auto child = all.begin(); child != all.end(); ++child) {
    const size_t n = child->tokens.size();
    child->score = PlainScore(options, child->log_prob, static_cast<double>(n));
    child->finished = child < going_on;
    if (child->finished || n == static_cast<size_t>(options.max_length)) {
      PlainHypothesis& end = finished->emplace_back(*child);
      if (end.finished) {
        end.tokens.pop_back();
        end.rows.pop_back();
      }
    }
  }
  const std::vector<PlainHypothesis> next(going_on, all.end());
  if (next.empty() || next[0].tokens.size() == static_cast<size_t>(options.max_length)) return;
  PlainNarrowingSteps(table, options, next.size(), next, finished);
}

std::vector<PlainHypothesis> PlainNarrowingSearch(const Table& table, const SearchOptions& options,
                                                  const std::vector<int32_t>& prefix) {
  PlainHypothesis first;
  for (const int32_t token : prefix) {
    first.rows.push_back(WithBos(first.tokens));
    first.log_prob += table(first.rows.back())[token];
    first.tokens.push_back(token);
  }
  std::vector<PlainHypothesis> finished;
  PlainNarrowingSteps(table, options, options.beam_size, {first}, &finished);
  std::stable_sort(
      finished.begin(), finished.end(),
      [](const PlainHypothesis& a, const PlainHypothesis& b) { return a.score > b.score; });
  const auto wanted = static_cast<size_t>(options.num_hypotheses);
  if (finished.size() > wanted) finished.resize(wanted);
  return finished;
}

// The best `count` of a row as Predict gives them.
std::vector<kernels::Candidate> Best(const std::vector<float>& row, int count) {
  std::vector<kernels::Candidate> all;
  for (size_t token = 0; token < row.size(); ++token) {
    all.push_back({static_cast<int32_t>(token), row[token]});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.log_prob > b.log_prob; });
  all.resize(count);
  return all;
}

// Runs a search as its owner does: it keeps the tokens of the live hypotheses, by parents() alone.
class Search {
 public:
  Search(const Table& table, const SearchOptions& options, const std::vector<int32_t>& prefix)
      : search_(options, kBos, kEos, prefix), live_(1, WithBos(prefix)), prefix_(prefix) {
    std::vector<float> log_probs;
    for (size_t i = 0; i < prefix.size(); ++i) {
      std::vector<int32_t> before(live_[0].begin(),
                                  live_[0].begin() + static_cast<std::ptrdiff_t>(i) + 1);
      log_probs.push_back(table(before)[prefix[i]]);
      prefix_rows_.push_back(before);
    }
    search_.SetPrefixLogProbs(log_probs);
    while (!search_.done()) Step(table);
    found_ = search_.Take(/*with_rows=*/true);
  }

  const std::vector<FoundHypothesis>& found() const { return found_; }
  int steps() const { return search_.steps(); }

  // The tokens that the row follows from which token i of a hypothesis was chosen.
  const std::vector<int32_t>& RowOf(const FoundHypothesis& hypothesis, size_t i) const {
    const ChoiceRow& row = hypothesis.rows[i];
    return row.step == ChoiceRow::kPrefixStep ? prefix_rows_[row.row] : rows_[row.step][row.row];
  }

 private:
  void Step(const Table& table) {
    rows_.push_back(live_);
    const int live = search_.live();
    ASSERT_EQ(static_cast<size_t>(live), live_.size());
    std::vector<kernels::Candidate> candidates;
    const int vocabulary = static_cast<int>(table(live_[0]).size());
    const int count = std::min(vocabulary, search_.candidates_wanted());
    const int stride = count + 3;
    for (int place = 0; place < live; ++place) {
      EXPECT_EQ(search_.last_token(place), live_[place].back());
      const auto best = Best(table(live_[place]), count);
      candidates.insert(candidates.end(), best.begin(), best.end());
      candidates.insert(candidates.end(), stride - count, {7, 100.0f});  // are not read
    }
    search_.Step(candidates.data(), count, stride);
    std::vector<std::vector<int32_t>> next;
    for (int place = 0; place < search_.live(); ++place) {
      next.push_back(live_[search_.parents()[place]]);
      next.back().push_back(search_.last_token(place));
    }
    live_ = std::move(next);
  }

  BeamSearch search_;
  std::vector<std::vector<int32_t>> live_;  // [place]: its tokens, BOS first
  const std::vector<int32_t> prefix_;
  std::vector<std::vector<int32_t>> prefix_rows_;
  std::vector<std::vector<std::vector<int32_t>>> rows_;  // [step][place]: the tokens before it
  std::vector<FoundHypothesis> found_;
};

void ExpectEqual(const Search& search, const std::vector<PlainHypothesis>& expected) {
  const std::vector<FoundHypothesis>& found = search.found();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].finished, expected[i].finished) << i;
    EXPECT_EQ(found[i].log_prob, expected[i].log_prob) << i;
    EXPECT_DOUBLE_EQ(found[i].score, expected[i].score) << i;
    ASSERT_EQ(found[i].rows.size(), expected[i].rows.size()) << i;
    for (size_t t = 0; t < found[i].rows.size(); ++t) {
      EXPECT_EQ(search.RowOf(found[i], t), expected[i].rows[t]) << i << " token " << t;
    }
  }
}

TEST(BeamSearchTest, EqualsAPlainSearchOnRandomTables) {
  std::minstd_rand random(1);
  const auto up_to = [&random](int most) { return 1 + static_cast<int>(random() % most); };
  for (int trial = 0; trial < 3000; ++trial) {
    const int vocabulary = 3 + up_to(9);
    SearchOptions options;
    options.beam_size = up_to(7);
    options.num_hypotheses = up_to(options.beam_size);
    options.length_penalty = kernels::AllNamed<LengthPenaltyName>()[random() % 3];
    options.alpha = std::vector<double>{0, 0.5, 0.6, 1, 2}[random() % 5];
    options.max_length = up_to(9);
    options.narrows = random() % 2 == 0;
    options.word_penalty = std::vector<double>{0, 0.25, -1}[random() % 3];
    std::vector<int32_t> prefix;
    if (random() % 3 == 0 && options.max_length > 1) {
      prefix.resize(up_to(options.max_length - 1));
      for (int32_t& token : prefix) token = static_cast<int32_t>(random() % vocabulary);
    }
    // Few steps: many ties.
    const Table table = RandomTable(vocabulary, trial % 2 == 0 ? 4 : 1 << 12, trial);
    SCOPED_TRACE(testing::Message()
                 << "trial " << trial << ", vocabulary " << vocabulary << ", beam "
                 << options.beam_size << ", n " << options.num_hypotheses << ", "
                 << LengthPenaltyName(options.length_penalty) << " " << options.alpha << ", length "
                 << options.max_length << ", prefix " << prefix.size() << ", narrows "
                 << options.narrows << ", word penalty " << options.word_penalty);
    ExpectEqual(Search(table, options, prefix), options.narrows
                                                    ? PlainNarrowingSearch(table, options, prefix)
                                                    : PlainSearch(table, options, prefix));
    if (HasFailure()) return;
  }
}

TEST(BeamSearchTest, BeamOneTakesTheBestTokenOfEachStep) {
  for (int trial = 0; trial < 200; ++trial) {
    const Table table = RandomTable(9, 4, trial);
    std::vector<int32_t> tokens = {kBos};
    double log_prob = 0;
    bool finished = false;
    while (!finished && tokens.size() <= 8) {
      const kernels::Candidate best = Best(table(tokens), 1).front();
      log_prob += best.log_prob;
      finished = best.id == kEos;
      if (!finished) tokens.push_back(best.id);
    }
    const Search search(table, {1, 1, LengthPenalty::kNone, 0, 8}, {});
    ASSERT_EQ(search.found().size(), 1u);
    const FoundHypothesis& found = search.found().front();
    EXPECT_EQ(WithBos(found.tokens), tokens);
    EXPECT_EQ(found.finished, finished);
    EXPECT_EQ(found.log_prob, log_prob);
    EXPECT_EQ(found.score, log_prob);
  }
}

// Rows that depend on the last token alone: `rows` of it, or that of 0.
Table ByLastToken(std::vector<std::vector<float>> rows) {
  return [rows](const std::vector<int32_t>& tokens) {
    return static_cast<size_t>(tokens.back()) < rows.size() && !rows[tokens.back()].empty()
               ? rows[tokens.back()]
               : rows[0];
  };
}

TEST(BeamSearchTest, OfEqualsTheLowerPlaceAndThenTheSmallerTokenIsKept) {
  // Everything is equally probable: place 0 gives all children.
  const Search search(ByLastToken({{-1, -1, -1, -9, -1}}), {2, 2, LengthPenalty::kNone, 0, 3}, {});
  ASSERT_EQ(search.found().size(), 2u);
  EXPECT_THAT(search.found()[0].tokens, ElementsAre(0, 0, 0));
  EXPECT_THAT(search.found()[1].tokens, ElementsAre(0, 0, 1));
  EXPECT_FALSE(search.found()[0].finished);
}

TEST(BeamSearchTest, AnEndCostsItsPlaceInItsStepOnly) {
  //            0   1   2   3 (EOS)
  const Table table = ByLastToken({{-1, -2, -9, -8},    // after 0
                                   {-1, -2, -9, -8},    // after 1
                                   {-1, -3, -9, -2}});  // after BOS: 0, EOS
  BeamSearch search({2, 2, LengthPenalty::kNone, 0, 5}, kBos, kEos, {});
  const auto step = [&](const std::vector<std::vector<float>>& rows) {
    std::vector<kernels::Candidate> candidates;
    for (const std::vector<float>& row : rows) {
      const auto best = Best(row, 2);
      candidates.insert(candidates.end(), best.begin(), best.end());
    }
    search.Step(candidates.data(), 2, 2);
  };
  step({table({kBos})});
  EXPECT_EQ(search.live(), 1);
  EXPECT_EQ(search.last_token(0), 0);
  step({table({kBos, 0})});
  EXPECT_EQ(search.live(), 2);
  EXPECT_THAT(search.parents(), ElementsAre(0, 0));
  EXPECT_EQ(search.last_token(1), 1);
}

TEST(BeamSearchTest, ByMariansRulesAnEndNarrowsTheBeam) {
  // After BOS: 0 (-1), EOS (-1.5); after 0: 0 (-1), 1 (-1.5), EOS (-9).
  const Table table = ByLastToken({{-1, -1.5f, -9, -9}, {-9, -9, -9, -0.5f}, {-1, -3, -9, -1.5f}});
  SearchOptions options{3, 3, LengthPenalty::kPower, 1, 4};
  options.narrows = true;
  const Search search(table, options, {});
  // Step 1 leaves 0 and 1 of three; step 2 takes (0, 0) and (0, 1) before (1, EOS), which would be
  // kept by a beam that has three places again. Step 3 ends (0, 1), so that one is left.
  EXPECT_EQ(search.steps(), 4);
  ASSERT_EQ(search.found().size(), 3u);
  EXPECT_THAT(search.found()[0].tokens, ElementsAre(0, 1));
  EXPECT_EQ(search.found()[0].score, -3.0 / 3);
  EXPECT_THAT(search.found()[1].tokens, ElementsAre(0, 0, 0, 0));
  EXPECT_FALSE(search.found()[1].finished);
  EXPECT_EQ(search.found()[1].score, -4.0 / 4);
  EXPECT_THAT(search.found()[2].tokens, IsEmpty());
  EXPECT_EQ(search.found()[2].score, -1.5);
}

TEST(BeamSearchTest, AWordPenaltyIsTakenForEachTokenAndTheEnd) {
  // Either ends at once, or after ten tokens, which cost as much as the end.
  const Table table = ByLastToken({{-0.125f, -9, -9, -9}, {}, {-0.5f, -9, -9, -0.5f}});
  SearchOptions options{2, 2, LengthPenalty::kNone, 0, 10};
  options.narrows = true;
  options.word_penalty = -1;
  const Search longer(table, options, {});
  ASSERT_EQ(longer.found().size(), 2u);
  EXPECT_EQ(longer.found()[0].tokens.size(), 10u);
  EXPECT_EQ(longer.found()[0].score, longer.found()[0].log_prob + 10);
  options.word_penalty = 0.5;
  const Search shorter(table, options, {});
  ASSERT_EQ(shorter.found().size(), 2u);
  EXPECT_THAT(shorter.found()[0].tokens, IsEmpty());
  EXPECT_EQ(shorter.found()[0].score, -0.5 - 0.5);
}

TEST(BeamSearchTest, PlacesWithoutACandidateAreNone) {
  SearchOptions options{3, 3, LengthPenalty::kPower, 1, 9};
  options.narrows = true;
  BeamSearch search(options, kernels::kNone, kEos, {});
  EXPECT_EQ(search.last_token(0), kernels::kNone);
  const kernels::Candidate some[] = {{5, -1.0f}, {kernels::kNone, 0.0f}, {kernels::kNone, 0.0f}};
  search.Step(some, 3, 3);
  EXPECT_EQ(search.live(), 1);
  search.Step(some + 1, 2, 2);
  EXPECT_TRUE(search.done());
  const std::vector<FoundHypothesis> found = search.Take(/*with_rows=*/true);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].tokens, ElementsAre(5));
  EXPECT_FALSE(found[0].finished);
  EXPECT_EQ(found[0].log_prob, -1);
}

TEST(BeamSearchTest, StopsOnceTheBestExtensionHasEndedAndThereAreEnough) {
  // After BOS: 0 (-1), EOS (-2); after 0: EOS (-0.5), 0 (-1).
  const Table table = ByLastToken({{-1, -9, -9, -0.5f}, {}, {-1, -9, -9, -2}});
  {
    // One is finished in step 1, which was not the best extension. Step 2 ends with EOS in place 0.
    const Search search(table, {2, 1, LengthPenalty::kNone, 0, 10}, {});
    EXPECT_EQ(search.steps(), 2);
    ASSERT_EQ(search.found().size(), 1u);
    EXPECT_THAT(search.found()[0].tokens, ElementsAre(0));
    EXPECT_EQ(search.found()[0].log_prob, -1.5);
  }
  {
    // Two are wanted, and finished in step 2. The first is finished later, and is better.
    const Search search(table, {2, 2, LengthPenalty::kNone, 0, 10}, {});
    EXPECT_EQ(search.steps(), 2);
    ASSERT_EQ(search.found().size(), 2u);
    EXPECT_THAT(search.found()[0].tokens, ElementsAre(0));
    EXPECT_THAT(search.found()[1].tokens, IsEmpty());
    EXPECT_TRUE(search.found()[1].finished);
    EXPECT_EQ(search.found()[1].log_prob, -2);
  }
}

TEST(BeamSearchTest, AskingForMoreMayChangeTheFirst) {
  // Longer translations gain by the penalty: the one that is finished in step 2 is beaten later.
  const Table table = ByLastToken({{-0.1f, -9, -9, -0.05f}, {}, {-1, -9, -9, -0.6f}});
  const Search one(table, {2, 1, LengthPenalty::kPower, 1, 10}, {});
  const Search two(table, {2, 2, LengthPenalty::kPower, 1, 10}, {});
  ASSERT_EQ(one.found().size(), 1u);
  ASSERT_EQ(two.found().size(), 2u);
  EXPECT_NE(one.found()[0].tokens, two.found()[0].tokens);
}

TEST(BeamSearchTest, LiveHypothesesCompleteTheAnswerAtTheLongestLength) {
  // EOS never comes but for the first step.
  const Table table = ByLastToken({{-1, -2, -90, -90}, {}, {-1, -9, -9, -3}});
  const Search search(table, {3, 3, LengthPenalty::kGnmt, 1, 3}, {});
  ASSERT_EQ(search.found().size(), 3u);
  int finished = 0;
  for (const FoundHypothesis& found : search.found()) {
    finished += found.finished ? 1 : 0;
    EXPECT_EQ(found.tokens.size(), found.finished ? 0u : 3u);
    const double n = found.finished ? 1 : 3;
    EXPECT_DOUBLE_EQ(found.score, found.log_prob / ((6 + n) / 6));
  }
  EXPECT_EQ(finished, 1);
}

TEST(BeamSearchTest, APrefixCountsInLengthAndLogProb) {
  BeamSearch search({1, 1, LengthPenalty::kPower, 1, 4}, kBos, kEos, {5, 6});
  search.SetPrefixLogProbs({-2, -0.5f});
  EXPECT_EQ(search.live(), 1);
  EXPECT_EQ(search.last_token(0), 6);
  const kernels::Candidate seven = {7, -0.5f};
  search.Step(&seven, 1, 1);
  EXPECT_FALSE(search.done());
  search.Step(&seven, 1, 1);
  EXPECT_TRUE(search.done());
  EXPECT_EQ(search.live(), 0);
  const std::vector<FoundHypothesis> found = search.Take(/*with_rows=*/false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].tokens, ElementsAre(5, 6, 7, 7));
  EXPECT_THAT(found[0].rows, IsEmpty());
  EXPECT_THAT(found[0].log_probs, ElementsAre(-2, -0.5f, -0.5f, -0.5f));
  EXPECT_EQ(found[0].log_prob, -3.5);
  EXPECT_EQ(found[0].score, -3.5 / 4);
}

TEST(BeamSearchTest, APrefixOfTheLongestLengthIsTheAnswer) {
  BeamSearch search({2, 1, LengthPenalty::kNone, 0, 2}, kBos, kEos, {5, 6});
  search.SetPrefixLogProbs({-2, -0.5f});
  EXPECT_TRUE(search.done());
  const std::vector<FoundHypothesis> found = search.Take(/*with_rows=*/true);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].tokens, ElementsAre(5, 6));
  EXPECT_FALSE(found[0].finished);
  EXPECT_EQ(found[0].log_prob, -2.5);
}

TEST(BeamSearchTest, EndsWhenNothingIsLive) {
  // A vocabulary of EOS alone: one is finished, and nothing is left to complete the answer with.
  BeamSearch search({4, 3, LengthPenalty::kNone, 0, 9}, kBos, kEos, {});
  const kernels::Candidate end = {kEos, 0.0f};
  search.Step(&end, 1, 1);
  EXPECT_TRUE(search.done());
  EXPECT_EQ(search.Take(/*with_rows=*/true).size(), 1u);
}

TEST(BeamSearchTest, WhatIsNotANumberIsTheWorst) {
  BeamSearch search({3, 3, LengthPenalty::kGnmt, 0.6, 1}, kBos, kEos, {});
  const kernels::Candidate candidates[] = {{5, kNan}, {6, -kInfinity}, {7, -2.0f}};
  search.Step(candidates, 3, 3);
  const std::vector<FoundHypothesis> found = search.Take(/*with_rows=*/true);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_THAT(found[0].tokens, ElementsAre(7));
  EXPECT_THAT(found[1].tokens, ElementsAre(5));
  EXPECT_EQ(found[1].log_prob, -std::numeric_limits<double>::infinity());
  EXPECT_THAT(found[2].tokens, ElementsAre(6));
}

TEST(BeamSearchTest, ACopyGoesOnByItself) {
  BeamSearch search({1, 1, LengthPenalty::kNone, 0, 2}, kBos, kEos, {});
  const kernels::Candidate five = {5, -1.0f};
  const kernels::Candidate end = {kEos, -1.0f};
  search.Step(&five, 1, 1);
  BeamSearch copy = search;
  search.Step(&five, 1, 1);
  copy.Step(&end, 1, 1);
  EXPECT_THAT(search.Take(false)[0].tokens, ElementsAre(5, 5));
  EXPECT_THAT(copy.Take(false)[0].tokens, ElementsAre(5));
}

}  // namespace
}  // namespace sru::models
