#!/usr/bin/env python3
"""Runs attacks, one after the other, and prints one table.

    run.py SRU_SERVER MODEL_REPOSITORY [ATTACK...]                  all, if none is named
    run.py --table=FILE SRU_SERVER MODEL_REPOSITORY [ATTACK...]     on both transports; writes a table of both into FILE

Exit code 77: the one attack that was asked for is among those that gRPC's library does not withstand.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time

from harness import HEADER, LIBRARY, MIB
from rows import ROWS

NO_ATTACKS = {"run", "rows", "harness", "http1", "http2", "http2_test", "flood"}
HERE = os.path.dirname(os.path.abspath(__file__))

# gRPC's library does not withstand these. Its tests leave them out; the table has them.
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
    "key_updates": "records without data are read as long as they come",
    "open_messages": "parts of messages that strangers send take the memory of callers' messages",
    "packed_messages": "a message is unpacked whole before its length is checked",
    "rapid_reset": "streams that were reset are kept until they are worked off",
    "silent_connections": "no bound on the number of connections",
    "slow_texts": "an answer that is taken a little at a time keeps its place",
    "unacknowledged_settings": "the bound on streams holds only when the client acknowledges it",
    "unread_lookups": "answers that have not left are not counted",
}

# The native transport does not withstand these yet. Its tests leave them out; the table has them.
NATIVE_FAILS = {
    "few_files": "connections that have not begun have no place in the table, so others' make way",
    "slow_texts": "an answer that is taken a little at a time keeps its place",
}


def programs():
    names = (os.path.splitext(os.path.basename(path))[0] for path in glob.glob(HERE + "/*.py"))
    return sorted({*names, *ROWS} - NO_ATTACKS)


def attack(name, binary, repository, **environment):
    """The exit code of the attack."""
    command = [os.path.join(HERE, name + ".py"), binary, repository]
    if name in ROWS:
        command = [os.path.join(HERE, "rows.py"), binary, repository, name]
    environment = {**os.environ, "SRU_ATTACKS_NO_HEADER": "1", **environment}
    return subprocess.run([sys.executable, "-B", *command], env=environment, cwd=HERE).returncode


def cells(row):
    """Memory and p99 of a row; the p99 is that on open or on new connections, whichever is more."""
    if row is None:
        return "-", "-"
    memory = "ended" if row["peak_mib"] is None else "%.0f" % max(0, row["peak_mib"])
    if row["budget_mib"] and row["peak_mib"] is not None:
        memory += " of %d" % row["budget_mib"]
    rest, attacked = max(row["p99"].values(), key=lambda times: times[1])
    times = "%.0f / %.0f" % (attacked * 1e3, rest * 1e3) if attacked < 2.9 else "no answer"
    failed = row["failures"] and row["peak_mib"] is not None
    return memory, times + (", fails" if failed else "")


def table(names, binary, repository):
    lines = [
        "| attack | sent, MiB | native: memory, MiB | others' p99, beside / alone, ms | library: memory, MiB | others' p99, ms |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        rows = []
        for transport in ("native", "library"):
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "row")
                attack(
                    name, binary, repository, SRU_ATTACKS_ROW=path, SRU_ATTACKS_FLAGS="--grpc_transport=" + transport
                )
                rows.append(json.load(open(path, encoding="ascii")) if os.path.exists(path) else None)
        sent = rows[0]["sent"] / MIB if rows[0] else 0
        native, library = map(cells, rows)
        lines.append("| `%s` | %s | %s |" % (name, "%.1f" % sent if sent >= 0.05 else "-", " | ".join((*native, *library))))
    return "\n".join(lines)


def main():
    arguments = sys.argv[1:]
    page = arguments.pop(0)[len("--table=") :] if arguments and arguments[0].startswith("--table=") else None
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    binary, repository = (os.path.abspath(path) for path in arguments[:2])
    names = arguments[2:] or programs()
    fails = LIBRARY_FAILS if LIBRARY else NATIVE_FAILS
    if "SRU_ATTACKS_FLAGS" in os.environ and page is None and len(names) == 1 and names[0] in fails:
        print("SKIPPED: this is not withstood: " + fails[names[0]])
        return 77
    print("%d cores\n" % os.cpu_count())
    print(HEADER)
    sys.stdout.flush()
    if page is not None:
        made = table(names, binary, repository)
        with open(page, "w", encoding="utf-8") as file:
            file.write(made + "\n")
        return 0
    start = time.monotonic()
    failed = [name for name in names if attack(name, binary, repository) not in (0, 77)]
    print("\n%d attacks in %.0f s, failed: %s" % (len(names), time.monotonic() - start, " ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
