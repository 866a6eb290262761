// ClientRequest: a body that clients of other servers send, as a call of sru.v1 and what becomes of
// its answer. The readers are pure functions, and errors name the field, also as `param`.
#ifndef SRU_SERVER_REST_CLIENT_REQUEST_H_
#define SRU_SERVER_REST_CLIENT_REQUEST_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/method_info.h"
#include "server/rest/field_reader.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {

struct ClientRequest {
  int max_texts = calls::RequestLimits().max_sequences;  // for the readers

  calls::MethodId method = calls::MethodId::kEncode;
  std::shared_ptr<google::protobuf::Message> request;
  std::shared_ptr<google::protobuf::Message> response;  // of its type, for the answer to be read
  // Makes JSON of `response`, or says why it is not what was asked for.
  std::function<RestError(std::string* json)> append;

  void SetModel(const std::string& name);

  FieldNames names;          // what this API calls the fields of `request`
  absl::string_view advice;  // to who sends a text that is too long
  bool is_list = false;      // texts, not one text
};

using ReadClientRequest = RestError (*)(FieldReader* fields, ClientRequest* request);

// docs/rest.md has the fields and answers of all of these.
//
// OpenAI's POST /v1/embeddings. Token ids are refused: those that clients send are of OpenAI's
// vocabulary, and would be read as other words.
RestError ReadOpenAiEmbeddings(FieldReader* fields, ClientRequest* request);

// text-embeddings-inference's POST /embed, with `model`, which that API lacks.
RestError ReadEmbed(FieldReader* fields, ClientRequest* request);

// vLLM's POST /tokenize and /detokenize. `add_special_tokens` changes nothing, since texts of these
// models get none.
RestError ReadTokenize(FieldReader* fields, ClientRequest* request);
RestError ReadDetokenize(FieldReader* fields, ClientRequest* request);

// A pipeline of Hugging Face's Inference API, as huggingface_hub's InferenceClient(URL) calls it:
// {"inputs", "parameters"}. The task of `model` says which one. Answers have the shapes that the
// client expects: [[{label, score}]] for one text and for many; a list of entities for one text, a
// list of these for many; one answer, or a list if more than one was asked for. start and end count
// code points.
RestError ReadPipeline(const v1::ModelInfo& model, FieldReader* fields, ClientRequest* request);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_CLIENT_REQUEST_H_
