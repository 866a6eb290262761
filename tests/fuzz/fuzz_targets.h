// The readers of everything that a stranger can send or a file can hold, each as a function of
// bytes. A function aborts if the reader breaks a promise, and otherwise returns for every input.
// The libFuzzer programs and fuzz_corpus_test run the same functions.
#ifndef SRU_TESTS_FUZZ_FUZZ_TARGETS_H_
#define SRU_TESTS_FUZZ_FUZZ_TARGETS_H_

#include <string_view>

namespace sru::fuzz {

// model.safetensors
void FuzzSafetensors(std::string_view bytes);
// config.json
void FuzzConfig(std::string_view bytes);
// vocab.txt; the first byte is the expected number of words
void FuzzVocabulary(std::string_view bytes);
// a text to classify; the first byte is the limit of tokens
void FuzzTokenizer(std::string_view bytes);
// a question and a passage for a reader; the first byte is the question's length
void FuzzReader(std::string_view bytes);
// spm.model, with texts that it cuts up; the first two bytes are the expected number of pieces
void FuzzSentencePiece(std::string_view bytes);
// the message of a Classify or Score call
void FuzzRequest(std::string_view bytes);
// the message of a ModelInfer call
void FuzzInfer(std::string_view bytes);
// the state of a Score call; with an odd first byte, the rows and values of one that is sealed here,
// as random bytes never have the right digest
void FuzzState(std::string_view bytes);
// what a beam search is given: the first eight bytes say how it searches, then each five are a candidate
void FuzzSearch(std::string_view bytes);
// the headers traceparent, x-request-id, authorization and host
void FuzzHeaders(std::string_view bytes);
// the file of tokens
void FuzzTokens(std::string_view bytes);
// the body of POST /try
void FuzzTry(std::string_view bytes);
// the body of POST /v2/models/NAME/infer; the first two bytes are the length of its JSON, 0 = all of it
void FuzzV2(std::string_view bytes);
// the body of a request below /v1; the first byte says which message it is for
void FuzzRest(std::string_view bytes);
// the body of POST /v1/completions
void FuzzCompletions(std::string_view bytes);
// what a client sends on a connection of the HTTP port; the first byte is the size of the pieces
void FuzzHttp(std::string_view bytes);

struct Target {
  const char* name;  // also the directory of its seeds under corpus/
  void (*run)(std::string_view bytes);
};

inline constexpr Target kTargets[] = {
    {"safetensors", FuzzSafetensors},
    {"config", FuzzConfig},
    {"vocabulary", FuzzVocabulary},
    {"tokenizer", FuzzTokenizer},
    {"reader", FuzzReader},
    {"request", FuzzRequest},
    {"infer", FuzzInfer},
    {"state", FuzzState},
    {"search", FuzzSearch},
    {"headers", FuzzHeaders},
    {"tokens", FuzzTokens},
    {"try", FuzzTry},
    {"http", FuzzHttp},
    {"v2", FuzzV2},
    {"rest", FuzzRest},
    {"completions", FuzzCompletions},
    {"sentencepiece", FuzzSentencePiece},
};

}  // namespace sru::fuzz

#endif  // SRU_TESTS_FUZZ_FUZZ_TARGETS_H_
