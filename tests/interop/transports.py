"""The server that a test runs against, on the transport that SRU_GRPC_TRANSPORT says, and what is
expected where the two differ. After this, modules of tests/attacks can be imported."""

import contextlib
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "attacks"))

LIBRARY = os.environ.get("SRU_GRPC_TRANSPORT") == "library"

with open(os.path.join(HERE, "differences.md")) as page:
    _DIFFERENCES = set(re.findall(r"^\| (.*?) \|", page.read(), re.MULTILINE))


def either(native, library, row):
    """`row`: the first column of the row of differences.md that has the difference, with the reason."""
    if row not in _DIFFERENCES:
        raise AssertionError("tests/interop/differences.md has no row " + repr(row))
    return library if LIBRARY else native


@contextlib.contextmanager
def interop_server(program, *flags, quiet=False):
    """The port of an sru_interop_server, which ends: no test has left a call behind."""
    stderr = subprocess.DEVNULL if quiet else None
    command = [program, "--listen=127.0.0.1:0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as server:
        try:
            yield int(re.search(r":(\d+)$", server.stdout.readline()).group(1))
        finally:
            server.terminate()
            code = server.wait(timeout=30)
    assert code == 0, "the server ended with %d" % code
