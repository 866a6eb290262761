// Messages written as text: the requests of a test, and what it expects of answers.
#ifndef SRU_TESTS_TESTING_PROTOS_H_
#define SRU_TESTS_TESTING_PROTOS_H_

#include <string>
#include <type_traits>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace sru::testing {

// A message by its text format.
template <typename M>
M Message(const std::string& text) {
  M message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// Matches a message that has the fields of a text format, and no others.
MATCHER_P(Sends, text, "") {
  *result_listener << arg.ShortDebugString();
  return google::protobuf::util::MessageDifferencer::Equals(
      arg, Message<std::decay_t<decltype(arg)>>(text));
}

// Matches a message that has the fields of a text format, among others.
MATCHER_P(HasFieldsOf, text, "") {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_scope(google::protobuf::util::MessageDifferencer::PARTIAL);
  differencer.ReportDifferencesToString(&differences);
  const bool contains = differencer.Compare(Message<std::decay_t<decltype(arg)>>(text), arg);
  *result_listener << differences;
  return contains;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_PROTOS_H_
