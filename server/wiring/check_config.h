// --check_config: what a start would find wrong, all of it at once and without opening a port.
#ifndef SRU_SERVER_WIRING_CHECK_CONFIG_H_
#define SRU_SERVER_WIRING_CHECK_CONFIG_H_

#include <string>
#include <vector>

#include "server/options.h"

namespace sru::server::wiring {

// Checks the files that the options name (certificates, tokens with their limits, state keys) and
// the versions of models that would be served: loads each of them, one after the other, which also
// verifies what checksums their files have, and adds up the memory that all need together. Returns
// a line for each thing that is wrong, and sets `checked` to a line of what was looked at. Rules
// about flags are OptionErrors(); models are left out if a flag about them is wrong.
std::vector<std::string> CheckConfig(const Options& options, std::string* checked);

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_CHECK_CONFIG_H_
