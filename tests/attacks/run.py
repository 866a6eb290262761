#!/usr/bin/env python3
"""Runs all attacks, one after the other, and prints one table.

    run.py SRU_SERVER MODEL_REPOSITORY [ATTACK...]

An attack that failed is repeated by its own program: rapid_reset.py SRU_SERVER MODEL_REPOSITORY.
"""

import glob
import os
import subprocess
import sys
import time

from harness import HEADER

NO_ATTACKS = {"run", "harness", "http2", "http2_test", "flood"}


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.abspath(__file__))
    binary, repository = (os.path.abspath(path) for path in sys.argv[1:3])
    names = sys.argv[3:] or sorted(
        name
        for name in (os.path.splitext(os.path.basename(path))[0] for path in glob.glob(here + "/*.py"))
        if name not in NO_ATTACKS
    )
    print("%d cores\n" % os.cpu_count())
    print(HEADER)
    sys.stdout.flush()
    start = time.monotonic()
    failed = []
    for name in names:
        command = [sys.executable, "-B", os.path.join(here, name + ".py"), binary, repository]
        environment = dict(os.environ, SRU_ATTACKS_NO_HEADER="1")
        if subprocess.run(command, env=environment, cwd=here).returncode not in (0, 77):
            failed.append(name)
    print("\n%d attacks in %.0f s, failed: %s" % (len(names), time.monotonic() - start, " ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
