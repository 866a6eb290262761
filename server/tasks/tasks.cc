#include "server/tasks/tasks.h"

#include "server/tasks/answer/answer.h"
#include "server/tasks/classify/classify.h"
#include "server/tasks/encode/encode.h"
#include "server/tasks/generate/generate.h"
#include "server/tasks/score/score.h"
#include "server/tasks/translate/translate.h"

namespace sru::server::tasks {

std::vector<calls::Method> TaskMethods(const calls::ServiceContext& context) {
  return {ClassifyMethod(context), EncodeMethod(context), EncodeStreamMethod(context),
          ScoreMethod(context),    AnswerMethod(context), TranslateMethod(context),
          GenerateMethod(context)};
}

}  // namespace sru::server::tasks
