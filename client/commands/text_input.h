// Where requests go and how texts are sent: the flags of the commands that send some.
#ifndef SRU_CLIENT_COMMANDS_TEXT_INPUT_H_
#define SRU_CLIENT_COMMANDS_TEXT_INPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/flags.h"
#include "client/line_input.h"
#include "client/messages_fwd.h"

namespace sru::client {

// The model that a call names, how urgent the call is, and how its text is read.
struct TargetFlags {
  std::string model;
  int64_t version = 0;
  v1::Priority priority{};
  v1::Unknown unknown{};

  void AddTo(Flags* flags);
  // --unknown alone.
  void AddUnknownTo(Flags* flags);

  template <typename Request>
  void SetOn(Request* request) const {
    request->set_model(model);
    request->set_version(version);
    request->set_priority(priority);
    request->set_unknown(unknown);
  }
};

struct InputFlags {
  TargetFlags target;
  bool truncate = false;
  bool skip_empty = false;  // by the server; a blank line then is a text
  int batch = 32;

  // Whether the call has these fields.
  void AddTo(Flags* flags, bool can_truncate = true, bool can_skip_empty = true);

  // A request for these texts, of a call that has the field skip_empty.
  template <typename Request>
  Request RequestFor(const std::vector<LineInput::Item>& items) const {
    Request request;
    target.SetOn(&request);
    request.set_skip_empty(skip_empty);
    for (const LineInput::Item& item : items) {
      request.add_sequences()->set_text(item.text);
    }
    return request;
  }
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_TEXT_INPUT_H_
