// Declares the messages and enums of sru/v1 that the headers of client/ name: a declaration is
// enough to pass them by reference or to declare a function that returns one. Lists the methods of
// InferenceService that take a request and return a response: each is a method of Client.
#ifndef SRU_CLIENT_MESSAGES_FWD_H_
#define SRU_CLIENT_MESSAGES_FWD_H_

// Calls METHOD(name) for each of them.
#define SRU_CLIENT_METHODS(METHOD) \
  METHOD(Classify)                 \
  METHOD(Encode)                   \
  METHOD(Score)                    \
  METHOD(Answer)                   \
  METHOD(Translate)                \
  METHOD(Tag)                      \
  METHOD(Tokenize)                 \
  METHOD(Detokenize)

namespace sru::v1 {

#define SRU_CLIENT_MESSAGES(name) \
  class name##Request;            \
  class name##Response;
SRU_CLIENT_METHODS(SRU_CLIENT_MESSAGES)
#undef SRU_CLIENT_MESSAGES

class EncodeStreamRequest;
class EncodeStreamResponse;
class Encoding;
class GenerateRequest;
class GenerateResponse;
class ListModelsResponse;
class LoadModelResponse;
class ModelInfo;
class Sequence;

enum OutputFormat : int;
enum Priority : int;
enum Unknown : int;

}  // namespace sru::v1

#endif  // SRU_CLIENT_MESSAGES_FWD_H_
