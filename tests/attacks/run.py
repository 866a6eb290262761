#!/usr/bin/env python3
"""Runs attacks, one after the other, and prints one table.

    run.py SRU_SERVER MODEL_REPOSITORY [ATTACK...]      all, if none is named

Exit code 77: the one attack that was asked for is not withstood by the transport that SRU_ATTACKS_FLAGS names.
"""

import os
import sys
import time

# These modules have the attacks.
import floods  # noqa: F401
import key_updates  # noqa: F401
import long_words  # noqa: F401
import rows  # noqa: F401
import tricks  # noqa: F401
from harness import HEADER, LIBRARY, ROWS, run

# gRPC's library does not withstand these, or has nothing to attack. Its tests leave them out.
LIBRARY_FAILS = {
    "a_removed_token": "an open stream goes on when its token is taken away",
    "bad_headers": "a bad header ends the connection",
    "continuation_flood": "headers that have not ended are kept",
    "half_closed": "no bound on the number of connections: new ones wait behind those that have not begun",
    "half_handshakes": "no bound on the number of handshakes",
    "handshake_flood": "no bound on the number of handshakes",
    "few_files": "no bound on the number of connections",
    "health_streams": "streams of health calls are in no budget",
    "hpack_integer": "an integer is read from its start at each frame",
    "hostile_json": "its port answers no HTTP",
    "key_updates": "records without data are read as long as they come",
    "large_answers": "its port answers no HTTP",
    "long_words": "its port answers no HTTP",
    "open_messages": "parts of messages that strangers send take the memory of callers' messages",
    "packed_messages": "a message is unpacked whole before its length is checked",
    "rapid_reset": "streams that were reset are kept until they are worked off",
    "silent_connections": "no bound on the number of connections",
    "slow_texts": "an answer that is taken a little at a time keeps its place",
    "unacknowledged_settings": "the bound on streams holds only when the client acknowledges it",
    "unread_lookups": "answers that have not left are not counted",
}

# The native transport does not withstand these yet. Its tests leave them out.
NATIVE_FAILS = {
    "few_files": "connections that have not begun have no place in the table, so others' make way",
    "slow_texts": "an answer that is taken a little at a time keeps its place",
}


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    binary, repository = map(os.path.abspath, sys.argv[1:3])
    names = sys.argv[3:] or sorted(ROWS)
    fails = LIBRARY_FAILS if LIBRARY else NATIVE_FAILS
    if "SRU_ATTACKS_FLAGS" in os.environ and len(names) == 1 and names[0] in fails:
        print("SKIPPED: this is not withstood: " + fails[names[0]])
        return 77
    print("%d cores\n\n%s" % (os.cpu_count(), HEADER), flush=True)
    start = time.monotonic()
    failed = [name for name in names if not run(name, binary, repository)]
    print("\n%d attacks in %.0f s, failed: %s" % (len(names), time.monotonic() - start, " ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
