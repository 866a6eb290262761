// Translates with a translator's program, one Run() per step, for tests of whole models: a plain
// stand-in for the server's scheduler.
#ifndef SRU_TESTS_TESTING_TRANSLATION_H_
#define SRU_TESTS_TESTING_TRANSLATION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/program_executable.h"
#include "models/decoding/beam_search.h"
#include "models/translator.h"
#include "models/translator_config.h"

namespace sru::testing {

struct Sentence {
  std::vector<int32_t> source;  // at least one token
  models::SearchOptions search;
  std::vector<int32_t> prefix;
};

struct Translation {
  std::vector<models::FoundHypothesis> hypotheses;
  std::vector<std::vector<float>> alignments;  // [hypothesis], each [tokens][source tokens]
};

// Not thread-safe. Errors are failures of the test.
class TranslationDriver {
 public:
  using StateArena = kernels::StateArena;
  using Slot = StateArena::Slot;

  TranslationDriver(const kernels::ProgramExecutable& executable, const models::Translator& model,
                    const models::TranslatorConfig& config, kernels::StateArena* arena,
                    kernels::ProgramWorkspace* workspace)
      : executable_(executable),
        model_(model),
        config_(config),
        arena_(arena),
        workspace_(workspace) {}

  // Sentence i is encoded in step i * stagger, together with what the ones before it decode; all of
  // them at once with 0.
  std::vector<Translation> Translate(const std::vector<Sentence>& sentences, int stagger) {
    searches_.clear();
    for (const Sentence& sentence : sentences) {
      searches_.push_back(std::make_unique<Search>(sentence, config_));
    }
    for (size_t step = 0; !IsDone(); ++step) {
      std::vector<Search*> encoded;
      std::vector<Search*> decoded;
      for (size_t i = 0; i < searches_.size(); ++i) {
        Search& search = *searches_[i];
        if (search.is_encoded) {
          if (!search.beam.done()) decoded.push_back(&search);
        } else if (step >= i * stagger) {
          encoded.push_back(&search);
        }
      }
      if (!encoded.empty() || !decoded.empty()) RunStep(encoded, decoded);
      if (::testing::Test::HasFatalFailure()) return {};
    }
    std::vector<Translation> translations;
    for (const auto& search : searches_) translations.push_back(Finish(*search));
    return translations;
  }

 private:
  struct Search {
    Search(const Sentence& sentence, const models::TranslatorConfig& config)
        : source(sentence.source),
          fed(1, config.bos_id),
          prefix(sentence.prefix),
          beam(sentence.search, config.bos_id, config.eos_id, sentence.prefix) {
      fed.insert(fed.end(), prefix.begin(), prefix.end());
    }

    const std::vector<int32_t>& source;
    std::vector<int32_t> fed;  // BOS and the prefix
    std::vector<int32_t> choices;
    const std::vector<int32_t> prefix;
    models::BeamSearch beam;
    bool is_encoded = false;
    std::vector<Slot> slots;  // [live place]
    // Attention: of the rows of the prefix, then [step][place].
    std::vector<std::vector<float>> prefix_rows;
    std::vector<std::vector<std::vector<float>>> step_rows;
  };

  bool IsDone() const {
    return std::all_of(searches_.begin(), searches_.end(), [](const auto& search) {
      return search->is_encoded && search->beam.done();
    });
  }

  // The rows of one axis of a step.
  struct Rows {
    std::vector<int32_t> offsets = {0};
    std::vector<int32_t> ids;
    std::vector<Slot> slots;

    void Add(const std::vector<int32_t>& tokens, Slot slot) {
      ids.insert(ids.end(), tokens.begin(), tokens.end());
      offsets.push_back(static_cast<int32_t>(ids.size()));
      slots.push_back(slot);
    }
    kernels::AxisBatch batch() const {
      kernels::AxisBatch axis;
      axis.num_sequences = static_cast<int>(slots.size());
      axis.offsets = offsets.data();
      axis.slots = slots.data();
      return axis;
    }
  };

  void RunStep(const std::vector<Search*>& encoded, const std::vector<Search*>& decoded) {
    Rows source;
    for (Search* search : encoded) {
      search->slots.resize(1);
      ASSERT_TRUE(arena_->Allocate(&search->slots[0]).ok());
      source.Add(search->source, search->slots[0]);
      search->is_encoded = true;
    }
    Rows target;
    Rows choices;  // each hypothesis has its own list
    std::vector<int32_t> positions;
    std::vector<int32_t> targets;
    std::vector<int32_t> counts;
    size_t attention = 0;
    for (Search* search : decoded) {
      const int wanted = std::min(search->beam.candidates_wanted(), model_.max_candidates);
      if (search->beam.steps() == 0) {
        target.Add(search->fed, search->slots[0]);
        choices.Add(Choices(search), StateArena::kNoSlot);
        for (size_t i = 0; i < search->fed.size(); ++i) positions.push_back(static_cast<int>(i));
        targets.insert(targets.end(), search->prefix.begin(), search->prefix.end());
        counts.insert(counts.end(), search->prefix.size(), 0);
        targets.push_back(-1);
        counts.push_back(wanted);
        attention += search->fed.size() * search->source.size();
        continue;
      }
      for (int place = 0; place < search->beam.live(); ++place) {
        target.Add({search->beam.last_token(place)}, search->slots[place]);
        choices.Add(Choices(search), StateArena::kNoSlot);
        positions.push_back(static_cast<int>(search->prefix.size()) + search->beam.steps());
        targets.push_back(-1);
        counts.push_back(wanted);
        attention += search->source.size();
      }
    }
    std::vector<float> log_probs(target.ids.size());
    std::vector<kernels::Candidate> candidates(target.ids.size() * model_.max_candidates);
    std::vector<float> weights(attention);

    std::vector<kernels::AxisBatch> axes(model_.program.axes.size());
    axes[model_.source] = source.batch();
    axes[model_.target] = target.batch();
    std::vector<kernels::InputBatch> inputs(model_.program.inputs.size());
    std::vector<kernels::OutputBatch> outputs(model_.program.outputs.size());
    inputs[model_.source_ids].ids = source.ids.data();
    std::vector<int32_t> choice_map(target.slots.size());
    std::iota(choice_map.begin(), choice_map.end(), 0);
    if (!decoded.empty()) {
      if (model_.choices != kernels::kNone) {
        axes[model_.choices] = choices.batch();
        inputs[model_.choice_ids].ids = choices.ids.data();
        inputs[model_.choice_map].ids = choice_map.data();
      }
      if (model_.target_positions != kernels::kNone) {
        inputs[model_.target_positions].ids = positions.data();
      }
      inputs[model_.target_ids].ids = target.ids.data();
      inputs[model_.targets].ids = targets.data();
      inputs[model_.counts].ids = counts.data();
      outputs[model_.log_probs].values = log_probs.data();
      outputs[model_.candidates].candidates = candidates.data();
      outputs[model_.alignment].values = weights.data();
    }
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = arena_;
    const kernels::Status status = executable_.Run(batch, outputs.data(), *workspace_);
    ASSERT_TRUE(status.ok()) << status.message();

    size_t row = 0;
    const float* next_weights = weights.data();
    for (Search* search : decoded) {
      row += Advance(search, log_probs.data() + row,
                     candidates.data() + row * model_.max_candidates, &next_weights);
    }
  }

  // The words that its translation may have, if the model lists them.
  const std::vector<int32_t>& Choices(Search* search) const {
    if (model_.choices != kernels::kNone && search->choices.empty()) {
      const std::vector<int32_t> list = model_.shortlist(search->source);
      std::set<int32_t> words(list.begin(), list.end());
      words.insert(config_.eos_id);
      words.insert(search->prefix.begin(), search->prefix.end());
      search->choices.assign(words.begin(), words.end());
    }
    return search->choices;
  }

  // Takes the results of a sentence's rows; returns how many there were.
  size_t Advance(Search* search, const float* log_probs, const kernels::Candidate* candidates,
                 const float** weights) {
    const auto next_row = [&] {
      const float* const begin = *weights;
      *weights += search->source.size();
      return std::vector<float>(begin, *weights);
    };
    models::BeamSearch& beam = search->beam;
    size_t skipped = 0;
    if (beam.steps() == 0) {
      for (; skipped < search->prefix.size(); ++skipped) {
        search->prefix_rows.push_back(next_row());
      }
      beam.SetPrefixLogProbs(std::vector<float>(log_probs, log_probs + skipped));
    }
    const int live = beam.live();
    std::vector<std::vector<float>> rows(live);
    for (std::vector<float>& row : rows) row = next_row();
    search->step_rows.push_back(std::move(rows));
    beam.Step(candidates + skipped * model_.max_candidates,
              std::min(beam.candidates_wanted(), model_.max_candidates), model_.max_candidates);
    MoveSlots(search);
    return skipped + live;
  }

  // A hypothesis has the slot of the one that it goes on from, or a copy for all but the first of
  // several.
  void MoveSlots(Search* search) {
    std::vector<Slot> slots;
    std::vector<bool> taken(search->slots.size(), false);
    for (int place = 0; place < search->beam.live(); ++place) {
      const int parent = search->beam.parents()[place];
      Slot slot = search->slots[parent];
      if (taken[parent]) {
        ASSERT_TRUE(arena_->Copy(search->slots[parent], &slot).ok());
      }
      taken[parent] = true;
      slots.push_back(slot);
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      if (!taken[i]) arena_->Free(search->slots[i]);
    }
    search->slots = std::move(slots);
  }

  static Translation Finish(Search& search) {
    Translation translation;
    translation.hypotheses = search.beam.Take(/*with_rows=*/true);
    for (const models::FoundHypothesis& hypothesis : translation.hypotheses) {
      std::vector<float>& alignment = translation.alignments.emplace_back();
      for (const models::ChoiceRow& choice : hypothesis.rows) {
        const std::vector<float>& row = choice.step == models::ChoiceRow::kPrefixStep
                                            ? search.prefix_rows[choice.row]
                                            : search.step_rows[choice.step][choice.row];
        alignment.insert(alignment.end(), row.begin(), row.end());
      }
    }
    return translation;
  }

  const kernels::ProgramExecutable& executable_;
  const models::Translator& model_;
  const models::TranslatorConfig& config_;
  kernels::StateArena* const arena_;
  kernels::ProgramWorkspace* const workspace_;
  std::vector<std::unique_ptr<Search>> searches_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_TRANSLATION_H_
