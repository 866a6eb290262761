// The subcommands of sru_client, in the order in which --help lists them.
#ifndef SRU_CLIENT_COMMANDS_COMMANDS_H_
#define SRU_CLIENT_COMMANDS_COMMANDS_H_

#include "client/commands/command.h"

namespace sru::client {

extern const Command kClassify;
extern const Command kEncode;
extern const Command kScore;
extern const Command kGenerate;
extern const Command kAnswer;
extern const Command kTranslate;
extern const Command kTag;
extern const Command kTokenize;
extern const Command kModels;
extern const Command kHealth;
extern const Command kAdmin;

inline constexpr const Command* kCommands[] = {&kClassify, &kEncode,    &kScore, &kGenerate,
                                               &kAnswer,   &kTranslate, &kTag,   &kTokenize,
                                               &kModels,   &kHealth,    &kAdmin};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_COMMANDS_H_
