// The mutex of base/, which every room of the server uses.
#ifndef SRU_SERVER_BASE_MUTEX_H_
#define SRU_SERVER_BASE_MUTEX_H_

#include "base/mutex.h"

#endif  // SRU_SERVER_BASE_MUTEX_H_
