#include "server/rest/client_request.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/rest/json_message.h"

namespace sru::server::rest {
namespace {

using calls::MethodId;
using nlohmann::json;

constexpr int kMost = 1 << 20;
constexpr char kNoIds[] =
    ": they would be those of another vocabulary, and stand for other words here; send the texts "
    "(OpenAIEmbeddings of LangChain: check_embedding_ctx_length=False)";

template <typename Request, typename Response>
std::pair<Request*, const Response*> Call(MethodId method, ClientRequest* request) {
  const auto message = std::make_shared<Request>();
  const auto response = std::make_shared<Response>();
  request->method = method;
  request->request = message;
  request->response = response;
  return {message.get(), response.get()};
}

// Appends [item,...].
template <typename Items, typename Append>
void AppendList(const Items& items, std::string* json, const Append& append) {
  *json += '[';
  bool is_first = true;
  for (const auto& item : items) {
    if (!std::exchange(is_first, false)) *json += ',';
    append(item);
  }
  *json += ']';
}

void AppendScore(float score, std::string* json) {
  *json += ",\"score\":";
  AppendJsonNumber(score, json);
}

template <typename Message>
void ReadTexts(const char* name, absl::string_view no_ids, FieldReader* fields,
               ClientRequest* request, Message* message) {
  const auto most = static_cast<size_t>(request->max_texts);
  for (std::string& text : fields->Texts(name, most, no_ids, &request->is_list)) {
    message->add_sequences()->set_text(std::move(text));
  }
  request->names.insert(request->names.begin(), {"sequences", name});
}

// Embeddings.

// The values of a vector, or of token vectors as a list of such lists.
void AppendVector(const v1::Encoding& encoding, std::string* json) {
  std::vector<float> values(encoding.data().size() / sizeof(float));
  std::memcpy(values.data(), encoding.data().data(), values.size() * sizeof(float));
  const bool has_rows = encoding.shape_size() == 2;
  const auto width = has_rows ? static_cast<size_t>(encoding.shape(1)) : values.size();
  *json += has_rows ? "[[" : "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) *json += i % width == 0 ? "],[" : ",";
    AppendJsonNumber(values[i], json);
  }
  *json += has_rows ? "]]" : "]";
}

// Refuses an answer without one vector for each text, of `dimensions` unless they are 0.
RestError CheckVectors(const v1::EncodeResponse& response, int64_t dimensions) {
  if (response.encodings().empty()) return {};
  const v1::Encoding& first = response.encodings(0);
  RestError error;
  if (first.shape_size() == 2) {
    error.status = absl::FailedPreconditionError(
        absl::StrCat("model: '", response.model(), "' has no pooling, and so one vector for each ",
                     "token; POST /v1/encode has a pooling for every model"));
    error.param = "model";
  } else if (dimensions != 0 && first.shape_size() == 1 && dimensions != first.shape(0)) {
    error.status = InvalidArgument("dimensions: expected ", first.shape(0), ", the model's, found ",
                                   dimensions);
    error.param = "dimensions";
  }
  return error;
}

// The request of Encode for the texts of this field.
std::pair<v1::EncodeRequest*, const v1::EncodeResponse*> EncodeCall(const char* name,
                                                                    FieldReader* fields,
                                                                    ClientRequest* request) {
  const auto call = Call<v1::EncodeRequest, v1::EncodeResponse>(MethodId::kEncode, request);
  ReadTexts(name, kNoIds, fields, request, call.first);
  call.first->set_output_format(v1::OUTPUT_FORMAT_RAW_FLOAT32);
  call.first->set_normalize(true);
  return call;
}

int32_t ReadDimensions(FieldReader* fields) { return fields->Integer("dimensions", 0, 1); }

// What /embed and the pipeline of an encoder have in common.
v1::EncodeRequest* ReadInputs(FieldReader* fields, bool takes_token_vectors,
                              ClientRequest* request) {
  const auto [encode, response] = EncodeCall("inputs", fields, request);
  encode->set_normalize(fields->Boolean("normalize", true));
  encode->set_truncate(fields->Boolean("truncate"));
  fields->RefuseUnless("truncation_direction", {"right", "Right"});
  fields->RefuseUnless("prompt_name", {""});
  fields->RefuseUnless("encoding_format", {"float"});
  request->advice = "shorten the text or set truncate";
  request->append = [response = response, takes_token_vectors,
                     dimensions = ReadDimensions(fields)](std::string* json) {
    RestError error = CheckVectors(*response, dimensions);
    if (!error.status.ok() && (!takes_token_vectors || error.param != "model")) return error;
    AppendList(response->encodings(), json,
               [json](const v1::Encoding& encoding) { AppendVector(encoding, json); });
    return RestError();
  };
  return encode;
}

// Pipelines.

void ReadLabels(FieldReader* fields, FieldReader* parameters, ClientRequest* request) {
  const auto [classify, response] =
      Call<v1::ClassifyRequest, v1::ClassifyResponse>(MethodId::kClassify, request);
  ReadTexts("inputs", "", fields, request, classify);
  classify->set_top_k(parameters->Integer("top_k", 0, 1, kMost));
  classify->set_truncate(parameters->Boolean("truncation"));
  parameters->RefuseUnless("function_to_apply", {"softmax"});
  request->append = [response = response](std::string* json) {
    AppendList(response->classifications(), json, [json](const v1::Classification& one) {
      AppendList(one.labels(), json, [json](const v1::Label& label) {
        AppendJsonText("{\"label\":", label.name(), json);
        AppendScore(label.probability(), json);
        *json += '}';
      });
    });
    return RestError();
  };
}

// Neighbouring tokens of a text that are one entity.
struct Entity {
  absl::string_view name;  // of the label, without B- and I- if tokens are grouped
  int first = 0;
  int last = 0;
  double score = 0;  // sum
};

std::vector<Entity> EntitiesOf(const v1::Tagging& tagging, bool is_grouped,
                               const std::vector<std::string>& ignored) {
  std::vector<Entity> entities;
  for (int i = 0; i < tagging.tokens_size(); ++i) {
    if (tagging.tokens(i).labels().empty()) continue;
    const v1::TagLabel& label = tagging.tokens(i).labels(0);
    absl::string_view name = label.name();
    const bool begins = !is_grouped || absl::ConsumePrefix(&name, "B-");
    if (!begins) absl::ConsumePrefix(&name, "I-");
    if (begins || entities.empty() || entities.back().name != name) {
      entities.push_back({name, i, i, 0});
    }
    entities.back().last = i;
    entities.back().score += label.probability();
  }
  const auto is_ignored = [&](const Entity& entity) {
    return std::find(ignored.begin(), ignored.end(), entity.name) != ignored.end();
  };
  entities.erase(std::remove_if(entities.begin(), entities.end(), is_ignored), entities.end());
  return entities;
}

void AppendEntity(const std::string& text, const v1::Tagging& tagging, const Entity& entity,
                  bool is_grouped, std::string* json) {
  const v1::TokenTags& first = tagging.tokens(entity.first);
  const v1::TokenTags& last = tagging.tokens(entity.last);
  AppendJsonText(is_grouped ? "{\"entity_group\":" : "{\"entity\":", entity.name, json);
  AppendScore(static_cast<float>(entity.score / (entity.last - entity.first + 1)), json);
  const auto begin = static_cast<size_t>(first.start_byte());
  const auto end = static_cast<size_t>(last.end_byte());
  const bool is_in_text = begin < end && end <= text.size();
  AppendJsonText(",\"word\":", is_in_text ? text.substr(begin, end - begin) : first.token(), json);
  absl::StrAppend(json, ",\"start\":", first.start_char(), ",\"end\":", last.end_char(), "}");
}

void ReadEntities(FieldReader* fields, FieldReader* parameters, ClientRequest* request) {
  const auto [tag, response] = Call<v1::TagRequest, v1::TagResponse>(MethodId::kTag, request);
  ReadTexts("inputs", "", fields, request, tag);
  tag->set_truncate(parameters->Boolean("truncation"));
  const std::string strategy = parameters->OneOf("aggregation_strategy", {"simple", "none"});
  std::vector<std::string> ignored = {"O"};
  if (const json* const labels = parameters->Take("ignore_labels")) {
    ignored.clear();
    for (const json& label : labels->is_array() ? *labels : json::array()) {
      if (label.is_string()) ignored.push_back(label.get<std::string>());
    }
    if (!labels->is_array() || ignored.size() != labels->size()) {
      parameters->Wrong("ignore_labels", "a list of strings", *labels);
    }
  }
  request->append = [tag = tag, response = response, is_list = request->is_list,
                     is_grouped = strategy == "simple", ignored](std::string* json) {
    int index = 0;
    const auto append = [&](const v1::Tagging& tagging) {
      const std::string& text = tag->sequences(index++).text();
      AppendList(EntitiesOf(tagging, is_grouped, ignored), json, [&](const Entity& entity) {
        AppendEntity(text, tagging, entity, is_grouped, json);
      });
    };
    if (is_list) {
      AppendList(response->taggings(), json, append);
    } else {
      append(response->taggings().empty() ? v1::Tagging() : response->taggings(0));
    }
    return RestError();
  };
}

// A language of the model: another one would silently be this.
void CheckLanguage(const char* name, const std::string& language, FieldReader* parameters) {
  const std::string asked = parameters->String(name);
  if (asked.empty() || asked == language) return;
  parameters->Wrong(name, absl::StrCat("the model's, '", language, "'"), asked);
}

void ReadTranslation(const v1::TranslatorInfo& model, FieldReader* fields, FieldReader* parameters,
                     ClientRequest* request) {
  const auto [translate, response] =
      Call<v1::TranslateRequest, v1::TranslateResponse>(MethodId::kTranslate, request);
  ReadTexts("inputs", "", fields, request, translate);
  CheckLanguage("src_lang", model.source_language(), parameters);
  CheckLanguage("tgt_lang", model.target_language(), parameters);
  translate->set_truncate(parameters->OneOf("truncation", {"do_not_truncate", "longest_first",
                                                           "only_first"}) != "do_not_truncate");
  parameters->RefuseUnless("clean_up_tokenization_spaces", {false});
  FieldReader generate = parameters->Object("generate_parameters");
  translate->set_beam_size(generate.Integer("num_beams", 0, 1, kMost));
  translate->set_max_new_tokens(generate.Integer("max_new_tokens", 0, 1, kMost));
  parameters->Adopt(&generate);
  request->append = [response = response](std::string* json) {
    AppendList(response->translations(), json, [json](const v1::Translation& one) {
      const bool is_empty = one.hypotheses().empty();
      AppendJsonText("{\"translation_text\":", is_empty ? "" : one.hypotheses(0).text(), json);
      *json += '}';
    });
    return RestError();
  };
}

void AppendAnswer(const v1::SpanAnswer& answer, std::string* json) {
  AppendJsonText("{\"answer\":", answer.text(), json);
  AppendScore(answer.probability(), json);
  absl::StrAppend(json, ",\"start\":", answer.start_char(), ",\"end\":", answer.end_char(), "}");
}

void ReadQuestion(FieldReader* fields, FieldReader* parameters, ClientRequest* request) {
  const auto [answer, response] =
      Call<v1::AnswerRequest, v1::AnswerResponse>(MethodId::kAnswer, request);
  FieldReader inputs = fields->Object("inputs");
  answer->add_queries()->set_question(inputs.Needed("question"));
  answer->mutable_queries(0)->add_passages(inputs.Needed("context"));
  fields->Adopt(&inputs);
  answer->set_top_n(parameters->Integer("top_k", 1, 1, kMost));
  answer->set_max_answer_tokens(parameters->Integer("max_answer_len", 0, 1, kMost));
  parameters->RefuseUnless("align_to_words", {true});
  parameters->RefuseUnless("handle_impossible_answer", {false});
  request->append = [answer = answer, response = response](std::string* json) {
    v1::QueryAnswers found;
    if (!response->results().empty()) found = response->results(0);
    if (answer->top_n() == 1) {
      AppendAnswer(found.answers().empty() ? v1::SpanAnswer() : found.answers(0), json);
    } else {
      AppendList(found.answers(), json,
                 [json](const v1::SpanAnswer& one) { AppendAnswer(one, json); });
    }
    return RestError();
  };
}

}  // namespace

void ClientRequest::SetModel(const std::string& name) {
  const google::protobuf::FieldDescriptor* const field =
      request->GetDescriptor()->FindFieldByName("model");
  request->GetReflection()->SetString(request.get(), field, name);
}

RestError ReadOpenAiEmbeddings(FieldReader* fields, ClientRequest* request) {
  const auto [encode, response] = EncodeCall("input", fields, request);
  encode->set_model(fields->String("model"));
  const bool is_base64 = fields->OneOf("encoding_format", {"float", "base64"}) == "base64";
  fields->Take("user");
  request->advice = "shorten the text";
  request->append = [response = response, is_base64,
                     dimensions = ReadDimensions(fields)](std::string* json) {
    const RestError error = CheckVectors(*response, dimensions);
    if (!error.status.ok()) return error;
    int64_t tokens = 0;
    int index = 0;
    *json += R"({"object":"list","data":)";
    AppendList(response->encodings(), json, [&](const v1::Encoding& encoding) {
      absl::StrAppend(json, R"({"object":"embedding","index":)", index++, ",\"embedding\":");
      if (is_base64) {
        absl::StrAppend(json, "\"", absl::Base64Escape(encoding.data()), "\"");
      } else {
        AppendVector(encoding, json);
      }
      *json += '}';
      tokens += encoding.token_count();
    });
    AppendJsonText(",\"model\":", response->model(), json);
    absl::StrAppend(json, ",\"usage\":{\"prompt_tokens\":", tokens, ",\"total_tokens\":", tokens,
                    "}}");
    return error;
  };
  return fields->End();
}

RestError ReadEmbed(FieldReader* fields, ClientRequest* request) {
  ReadInputs(fields, /*takes_token_vectors=*/false, request)->set_model(fields->String("model"));
  return fields->End();
}

RestError ReadTokenize(FieldReader* fields, ClientRequest* request) {
  const auto [tokenize, response] =
      Call<v1::TokenizeRequest, v1::TokenizeResponse>(MethodId::kTokenize, request);
  tokenize->set_model(fields->String("model"));
  tokenize->add_sequences()->set_text(fields->Needed("prompt"));
  fields->Boolean("add_special_tokens");
  request->names = {{"sequences", "prompt"}};
  request->append = [response = response,
                     has_texts = fields->Boolean("return_token_strs")](std::string* json) {
    v1::Tokenization found;
    if (!response->tokenizations().empty()) found = response->tokenizations(0);
    absl::StrAppend(json, "{\"count\":", found.tokens_size(),
                    ",\"max_model_len\":", response->max_sequence_tokens(), ",\"tokens\":");
    AppendList(found.tokens(), json,
               [json](const v1::Token& token) { absl::StrAppend(json, token.id()); });
    *json += ",\"token_strs\":";
    if (has_texts) {
      AppendList(found.tokens(), json,
                 [json](const v1::Token& token) { AppendJsonString(token.text(), json); });
    } else {
      *json += "null";
    }
    *json += '}';
    return RestError();
  };
  return fields->End();
}

RestError ReadDetokenize(FieldReader* fields, ClientRequest* request) {
  const auto [detokenize, response] =
      Call<v1::DetokenizeRequest, v1::DetokenizeResponse>(MethodId::kDetokenize, request);
  detokenize->set_model(fields->String("model"));
  v1::TokenIds* const ids = detokenize->add_sequences();
  const json* const tokens = fields->Take("tokens");
  const bool is_list = tokens != nullptr && tokens->is_array();
  if (!is_list) fields->Wrong("tokens", "a list of token ids", tokens ? *tokens : json());
  for (const json& token : is_list ? *tokens : json::array()) {
    if (IsTokenId(token)) {
      ids->add_values(token.get<int32_t>());
    } else {
      fields->Wrong("tokens", "a list of token ids", token);
    }
  }
  request->names = {{"sequences[0].values", "tokens"}, {"sequences", "tokens"}};
  request->is_list = true;
  request->append = [response = response](std::string* json) {
    AppendJsonText("{\"prompt\":", response->texts().empty() ? "" : response->texts(0), json);
    *json += '}';
    return RestError();
  };
  return fields->End();
}

RestError ReadPipeline(const v1::ModelInfo& model, FieldReader* fields, ClientRequest* request) {
  FieldReader parameters = fields->Object("parameters");
  fields->Take("options");  // use_cache, wait_for_model: there is no cache, the model is loaded
  request->advice = "shorten the text";
  request->names = {{"queries[0].question", "inputs.question"},
                    {"queries[0].passages", "inputs.context"},
                    {"top_k", "parameters.top_k"},
                    {"top_n", "parameters.top_k"},
                    {"max_answer_tokens", "parameters.max_answer_len"},
                    {"beam_size", "parameters.generate_parameters.num_beams"},
                    {"max_new_tokens", "parameters.generate_parameters.max_new_tokens"}};
  const std::string& task = model.task();
  if (task == "encoder") {
    ReadInputs(fields, /*takes_token_vectors=*/true, request);
  } else if (task == "classifier") {
    ReadLabels(fields, &parameters, request);
  } else if (task == "tagger") {
    ReadEntities(fields, &parameters, request);
  } else if (task == "translator") {
    ReadTranslation(model.translator(), fields, &parameters, request);
  } else if (task == "reader") {
    ReadQuestion(fields, &parameters, request);
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("model: '", model.name(), "' is a ", task,
                     ", for which there is no pipeline; POST /v1/completions continues texts"));
  }
  request->SetModel(model.name());
  fields->Adopt(&parameters);
  return fields->End();
}

}  // namespace sru::server::rest
