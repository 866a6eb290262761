// The readers of everything that a stranger can send or a file can hold, each as a function of
// bytes. A function aborts if the reader breaks a promise, and otherwise returns for every input.
// The fuzzers (CMakeLists.txt) and fuzz_corpus_test run the same functions, in the project's root.
#ifndef SRU_TESTS_FUZZ_FUZZ_TARGETS_H_
#define SRU_TESTS_FUZZ_FUZZ_TARGETS_H_

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sru::fuzz {

// model.safetensors
void FuzzSafetensors(std::string_view bytes);
// config.json
void FuzzConfig(std::string_view bytes);
// vocab.txt, and the file of tokens; the first byte is the expected number of words
void FuzzLines(std::string_view bytes);
// spm.model, with texts that it cuts up; the first two bytes are the expected number of pieces
void FuzzSentencePiece(std::string_view bytes);
// a student's files: the first line says which (fuzz_marian.cc)
void FuzzMarian(std::string_view bytes);
// a text for every tokenizer; the first byte is the limit of tokens, and the length of the question
// if the text is one for a reader
void FuzzText(std::string_view bytes);
// the message of each call of sru.v1.InferenceService
void FuzzRequest(std::string_view bytes);
// the message of a ModelInfer call
void FuzzInfer(std::string_view bytes);
// the state of a Score call; with an odd first byte, the rows and values of one that is sealed
// here, as random bytes never have the right digest
void FuzzState(std::string_view bytes);
// what a beam search is given: the first eight bytes say how it searches, then each five are a
// candidate
void FuzzSearch(std::string_view bytes);
// the headers of a call: traceparent, x-request-id, x-sru-passed-peer, authorization and host
void FuzzHeaders(std::string_view bytes);
// what a client sends on a connection of the HTTP port; the first byte is the size of the pieces
void FuzzHttp(std::string_view bytes);
// the body of POST /v2/models/NAME/infer; the first two bytes are the length of its JSON, 0 = all
// of it
void FuzzV2(std::string_view bytes);
// messages as gRPC frames them, which may be packed; the first byte is the size of the pieces
void FuzzMessages(std::string_view bytes);
// the body of a request to one of the gateway's routes, which are all targets: the first line is
// "POST /v1/classify", or * for every route
void FuzzRest(std::string_view bytes);
// Returns the routes that take a body and that no input of "rest" or "gateway" names.
std::set<std::string> RoutesWithout(const std::vector<std::string>& inputs);
// a text for every kind of document, and the fields of a form and of JSON; the first line says
// which (fuzz_texts.cc)
void FuzzTexts(std::string_view bytes);

// a small model of each task as the exporter wrote it, some of its files' bytes changed: the first
// line names the model, then comes which file, where and how (fuzz_model.cc)
void FuzzModel(std::string_view bytes);
// On connections of a whole server with small models, which lives as long as the process does
// (fuzz_server.cc).
// frames and calls on a connection of the gRPC port
void FuzzHttp2(std::string_view bytes);
// on a connection of the native transport with a service of puppets; the first byte is the size of
// the pieces (fuzz_door.cc)
void FuzzDoor(std::string_view bytes);
// a request to the HTTP port: the request line, headers, an empty line, the body
void FuzzGateway(std::string_view bytes);

struct Target {
  const char* name;  // also the directory of its seeds under corpus/
  void (*run)(std::string_view bytes);
  bool has_name = false;  // the first line of an input names what is fuzzed, and stays as it is

  // How many of the first bytes no mutation may change.
  size_t NameBytes(std::string_view bytes) const { return has_name ? bytes.find('\n') + 1 : 0; }
};

// What libFuzzer runs: readers of bytes, without a thread.
inline constexpr Target kReaderTargets[] = {
    {"safetensors", FuzzSafetensors},
    {"config", FuzzConfig},
    {"lines", FuzzLines},
    {"sentencepiece", FuzzSentencePiece},
    {"marian", FuzzMarian, true},
    {"text", FuzzText},
    {"request", FuzzRequest},
    {"infer", FuzzInfer},
    {"state", FuzzState},
    {"search", FuzzSearch},
    {"headers", FuzzHeaders},
    {"http", FuzzHttp},
    {"v2", FuzzV2},
    {"rest", FuzzRest, true},
    {"messages", FuzzMessages},
    {"texts", FuzzTexts, true},
};

// What needs a backend or the whole server.
inline constexpr Target kWholeTargets[] = {
    {"model", FuzzModel, true},
    {"http2", FuzzHttp2},
    {"gateway", FuzzGateway},
    {"door", FuzzDoor},
};

}  // namespace sru::fuzz

#endif  // SRU_TESTS_FUZZ_FUZZ_TARGETS_H_
