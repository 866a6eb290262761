#include "client/commands/model_statuses.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/commands/json_output.h"
#include "client/text_table.h"

namespace sru::client {

void PrintStatuses(const google::protobuf::RepeatedPtrField<v1::ModelStatus>& statuses, bool json) {
  if (json) {
    for (const v1::ModelStatus& status : statuses) {
      std::cout << Dump({{"name", status.model()},
                         {"version", status.version()},
                         {"state", v1::ModelStatus::State_Name(status.state())},
                         {"message", status.message()}})
                << "\n";
    }
    return;
  }
  TextTable table({{"NAME"}, {"VERSION", true}, {"STATE"}, {"MESSAGE"}}, &std::cout);
  for (const v1::ModelStatus& status : statuses) {
    table.AddRow({status.model(), status.version() == 0 ? "-" : absl::StrCat(status.version()),
                  v1::ModelStatus::State_Name(status.state()), status.message()});
  }
  table.Flush();
}

}  // namespace sru::client
