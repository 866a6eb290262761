// Declares the messages and enums of sru/v1 that the headers of client/ name: a declaration is
// enough to pass them by reference or to declare a function that returns one.
#ifndef SRU_CLIENT_MESSAGES_FWD_H_
#define SRU_CLIENT_MESSAGES_FWD_H_

namespace sru::v1 {

class AnswerRequest;
class AnswerResponse;
class ClassifyRequest;
class ClassifyResponse;
class EncodeRequest;
class EncodeResponse;
class EncodeStreamRequest;
class EncodeStreamResponse;
class Encoding;
class GenerateRequest;
class GenerateResponse;
class Hypothesis;
class ListModelsResponse;
class LoadModelResponse;
class ModelInfo;
class Score;
class ScoreRequest;
class ScoreResponse;
class Sequence;
class StageTimes;
class TagRequest;
class TagResponse;
class TranslateRequest;
class TranslateResponse;
class Translation;

enum LengthPenalty_Form : int;
enum ModelStatus_State : int;
enum OutputFormat : int;
enum Pooling : int;
enum Priority : int;

}  // namespace sru::v1

#endif  // SRU_CLIENT_MESSAGES_FWD_H_
