#include "models/translator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/stack_builder.h"
#include "models/tensor_reader.h"

namespace sru::models {

namespace ops = kernels::ops;

namespace {

using kernels::FieldId;
using kernels::kNone;
using kernels::ValueId;

constexpr float kNormEpsilon = 1e-6f;

// The most choices of a batch, unless one sentence has more.
constexpr int kMostChoices = 1 << 18;

// The SRU layer of a layer.
EncoderConfig FeedForwardEncoder(const TranslatorConfig& config, bool bidirectional) {
  EncoderConfig sru;
  sru.input_size = config.d_model;
  sru.bidirectional = bidirectional;
  sru.hidden_size = config.d_sru / sru.directions();
  sru.num_layers = 1;
  sru.has_skip_term = false;
  return sru;
}

// Takes tensors by their names in OpenNMT-py and adds the operations that they are the weights of.
class Builder {
 public:
  Builder(const TranslatorConfig& config, const SafetensorsFile& tensors, Translator* model)
      : config_(config), reader_(tensors), model_(model), program_(model->program) {}

  absl::Status Build() {
    const kernels::FloatView source_table = Table("encoder.embeddings", config_.source_vocabulary);
    const kernels::FloatView target_table =
        config_.shared_embeddings ? source_table
                                  : Table("decoder.embeddings", config_.target_vocabulary);
    AddTranslatorInputs(config_, model_);
    AddTranslatorStates(config_, /*self_attention=*/true, model_);
    const ValueId memory = Encode(source_table);
    model_->encoder_output = program_.AddOutput("encoder output", memory);
    KeepContext(memory);
    Predict(Decode(target_table));
    return reader_.Finish();
  }

 private:
  kernels::FloatView Table(const std::string& embeddings, int vocabulary) {
    return reader_.Take(embeddings + ".make_embedding.emb_luts.0.weight",
                        {vocabulary, config_.d_model});
  }

  ValueId Embed(kernels::InputId ids, const kernels::FloatView& table, int vocabulary,
                FieldId position_field) {
    ops::Embed embed;
    embed.ids = ids;
    embed.table = table;
    embed.vocabulary_size = vocabulary;
    embed.width = config_.d_model;
    embed.scale = std::sqrt(static_cast<float>(config_.d_model));
    embed.positions = ops::Positions::kInterleaved;
    embed.position_field = position_field;
    return program_.Apply(embed);
  }

  ValueId Norm(ValueId x, const std::string& name) {
    ops::Normalize norm;
    norm.x = x;
    norm.weight = reader_.Take(name + ".weight", {config_.d_model});
    norm.bias = reader_.Take(name + ".bias", {config_.d_model});
    norm.epsilon = kNormEpsilon;
    return program_.Apply(norm);
  }

  // d_model outputs.
  ValueId Linear(ValueId x, const std::string& name, int inputs) {
    ops::Linear linear;
    linear.x = x;
    linear.width = config_.d_model;
    linear.weight = reader_.Take(name + ".weight", {config_.d_model, inputs});
    linear.bias = reader_.Take(name + ".bias", {config_.d_model});
    return program_.Apply(linear);
  }

  ValueId Projection(ValueId x, const std::string& name) {
    return Linear(x, name, config_.d_model);
  }

  ValueId Add(ValueId a, ValueId b) { return program_.Apply(ops::Add{a, b}); }
  ValueId Append(ValueId x, FieldId field) { return program_.Apply(ops::Append{x, field}); }

  // With what it attends to still to be set.
  ops::Attend Attention(ValueId query, const std::string& name) {
    return TranslatorAttention(config_, Projection(query, name + ".linear_query"));
  }

  // x and what the sublayer makes of it.
  ValueId AddAttention(ValueId x, ValueId attention, const std::string& name) {
    return Add(x, Projection(attention, name + ".final_linear"));
  }

  // x + W2 SRU(LN(x)) + b2.
  ValueId FeedForward(ValueId x, const std::string& name, int directions, FieldId state) {
    kernels::LayerSpec layer = LayerSizes(FeedForwardEncoder(config_, directions == 2), 0);
    const int64_t outputs = layer.output_size();
    layer.weight =
        reader_.Take(name + ".sru.weight", {config_.d_model, outputs * layer.num_matrices});
    layer.weight_c = reader_.Take(name + ".sru.weight_c", {2 * outputs});
    layer.bias = reader_.Take(name + ".sru.bias", {2 * outputs});
    ops::Stack stack;
    stack.x = Norm(x, name + ".layer_norm");
    stack.spec.input_size = config_.d_model;
    stack.spec.layers.push_back(layer);
    stack.state = state;
    const ValueId h = program_.Apply(std::move(stack));
    return Add(x, Linear(h, name + ".w_2", config_.d_sru));
  }

  ValueId Encode(const kernels::FloatView& table) {
    ValueId x = Embed(model_->source_ids, table, config_.source_vocabulary, kNone);
    for (int i = 0; i < config_.encoder_layers; ++i) {
      const std::string name = absl::StrCat("encoder.transformer.", i);
      const std::string self = name + ".self_attn";
      const ValueId n = Norm(x, name + ".layer_norm");
      ops::Attend attend = Attention(n, self);
      attend.keys = Projection(n, self + ".linear_keys");
      attend.values = Projection(n, self + ".linear_values");
      x = AddAttention(x, program_.Apply(attend), self);
      x = FeedForward(x, name + ".feed_forward", config_.bidirectional_encoder ? 2 : 1, kNone);
    }
    return Norm(x, "encoder.layer_norm");
  }

  static std::string DecoderLayer(int i) { return absl::StrCat("decoder.transformer_layers.", i); }

  void KeepContext(ValueId memory) {
    for (int i = 0; i < config_.decoder_layers; ++i) {
      const std::string name = DecoderLayer(i) + ".context_attn";
      Append(Projection(memory, name + ".linear_keys"), model_->layers[i].context_keys);
      Append(Projection(memory, name + ".linear_values"), model_->layers[i].context_values);
    }
  }

  ValueId Decode(const kernels::FloatView& table) {
    ValueId x = Embed(model_->target_ids, table, config_.target_vocabulary,
                      model_->layers.front().self_keys);
    for (int i = 0; i < config_.decoder_layers; ++i) {
      const Translator::Layer& fields = model_->layers[i];
      const std::string name = DecoderLayer(i);
      const std::string self = name + ".self_attn";
      const ValueId n = Norm(x, name + ".layer_norm_1");
      ops::Attend attend = Attention(n, self);
      Append(Projection(n, self + ".linear_keys"), fields.self_keys);
      Append(Projection(n, self + ".linear_values"), fields.self_values);
      attend.key_field = fields.self_keys;
      attend.value_field = fields.self_values;
      attend.causal = true;
      x = AddAttention(x, program_.Apply(attend), self);

      const std::string context = name + ".context_attn";
      ops::Attend across = Attention(Norm(x, name + ".layer_norm_2"), context);
      across.key_field = fields.context_keys;
      across.value_field = fields.context_values;
      const ValueId attended = program_.Apply(across);
      if (i + 1 == config_.decoder_layers) {
        model_->alignment =
            program_.AddOutput("alignment", attended, kernels::OutputType::kAttention);
      }
      x = AddAttention(x, attended, context);
      x = FeedForward(x, name + ".feed_forward", /*directions=*/1, fields.c);
    }
    return Norm(x, "decoder.layer_norm");
  }

  void Predict(ValueId x) {
    ops::Predict predict;
    predict.x = x;
    predict.weight =
        reader_.Take("generator.0.weight", {config_.target_vocabulary, config_.d_model});
    predict.bias = reader_.Take("generator.0.bias", {config_.target_vocabulary});
    AddPrediction(config_, std::move(predict), model_);
  }

  const TranslatorConfig& config_;
  TensorReader reader_;
  Translator* const model_;
  kernels::Program& program_;
};

}  // namespace

kernels::ProgramLimits TranslatorLimits(const Translator& model, int max_source_tokens,
                                        int max_sources, int max_target_tokens, int max_targets) {
  kernels::ProgramLimits limits;
  limits.axes.resize(model.program.axes.size());
  limits.axes[model.source] = {max_source_tokens, max_sources};
  limits.axes[model.target] = {max_target_tokens, max_targets};
  if (model.choices != kNone) {
    const int words = model.program.inputs[model.choice_ids].limit;
    limits.axes[model.choices] = {std::max(kMostChoices, words), max_targets};
  }
  return limits;
}

int64_t TableWords(const TranslatorConfig& config) {
  return config.source_vocabulary + (config.shared_embeddings ? 0 : config.target_vocabulary);
}

int64_t TranslatorRow(const TranslatorConfig& config, int64_t inner_width) {
  const int64_t width = config.d_model;
  return 2 * (width + std::max(4 * width, width + inner_width));
}

void AddTranslatorInputs(const TranslatorConfig& config, Translator* model) {
  kernels::Program& program = model->program;
  const int begin = config.bos_id == kNoToken ? kNoToken : 0;
  model->source = program.AddAxis("source");
  model->target = program.AddAxis("target");
  model->source_ids = program.AddIds("source ids", model->source, 0, config.source_vocabulary);
  model->target_ids = program.AddIds("target ids", model->target, begin, config.target_vocabulary);
  model->targets = program.AddIds("targets", model->target, -1, config.target_vocabulary);
  model->max_candidates = std::min(kMaxBeam, config.target_vocabulary);
  model->counts = program.AddIds("candidates", model->target, 0, model->max_candidates + 1);
}

void AddTranslatorStates(const TranslatorConfig& config, bool self_attention, Translator* model) {
  for (int i = 0; i < config.decoder_layers; ++i) {
    const auto add = [&](const char* name, int width, bool grows) {
      return model->program.AddField(absl::StrCat("layer ", i, " ", name), width, grows);
    };
    Translator::Layer& layer = model->layers.emplace_back();
    layer.context_keys = add("context keys", config.d_model, /*grows=*/true);
    layer.context_values = add("context values", config.d_model, /*grows=*/true);
    if (self_attention) {
      layer.self_keys = add("keys", config.d_model, /*grows=*/true);
      layer.self_values = add("values", config.d_model, /*grows=*/true);
    }
    layer.c = add("c", config.d_sru, /*grows=*/false);
  }
}

ops::Attend TranslatorAttention(const TranslatorConfig& config, ValueId q) {
  ops::Attend attend;
  attend.q = q;
  attend.heads = config.heads;
  const int width = config.d_model / config.heads;
  attend.scale = 1 / std::sqrt(static_cast<float>(width));
  return attend;
}

void AddPrediction(const TranslatorConfig& config, ops::Predict predict, Translator* model) {
  predict.vocabulary_size = config.target_vocabulary;
  predict.targets = model->targets;
  predict.counts = model->counts;
  predict.max_candidates = model->max_candidates;
  kernels::Program& program = model->program;
  const ValueId predicted = program.Apply(std::move(predict));
  model->log_probs = program.AddOutput("log_probs", predicted, kernels::OutputType::kLogProb);
  model->candidates = program.AddOutput("candidates", predicted, kernels::OutputType::kCandidates);
}

BuiltProgram BuildTranslator(const ModelConfig& config, const SafetensorsFile& tensors) {
  auto model = std::make_unique<Translator>();
  SRU_RETURN_UNLESS_OK(Builder(config.translator, tensors, model.get()).Build());
  return model;
}

// Each SRU layer is a stack of its own; the values between them are in one workspace.
kernels::ModelSizes TranslatorSizes(const ModelConfig& model) {
  const TranslatorConfig& config = model.translator;
  kernels::ModelSizes sizes;
  const int64_t width = config.d_model;
  const auto linear = [&sizes](int64_t inputs, int64_t outputs) {
    const int64_t packed = kernels::AddLinear(inputs, outputs, &sizes);
    const int64_t block = std::min<int64_t>(kernels::kProgramBlocks.columns, outputs);
    sizes.passing = std::max(sizes.passing, inputs * outputs + packed * block / outputs);
  };
  const auto layers = [&](int count, int attentions, bool bidirectional) {
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < 4 * attentions; ++j) linear(width, width);
      AddStack(StackShape(FeedForwardEncoder(config, bidirectional)), &sizes);
      linear(config.d_sru, width);
    }
  };
  layers(config.encoder_layers, 1, config.bidirectional_encoder);
  layers(config.decoder_layers, 2, false);
  linear(width, config.target_vocabulary);
  sizes.embedding = TableWords(config) * width;
  sizes.in_file += sizes.embedding;
  // The sinusoids of the first positions, with each table.
  sizes.constants +=
      (config.shared_embeddings ? 1 : 2) * kernels::kProgramBlocks.sinusoid_rows * width;
  sizes.stacks = config.encoder_layers + config.decoder_layers;
  sizes.program_row = TranslatorRow(config, config.d_sru);
  return sizes;
}

}  // namespace sru::models
