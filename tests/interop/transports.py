"""The transport that a test runs against (SRU_GRPC_TRANSPORT, as sru_interop_server reads it), and what is expected where the two differ."""

import os
import re

LIBRARY = os.environ.get("SRU_GRPC_TRANSPORT") == "library"

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "differences.md")) as page:
    _DIFFERENCES = set(re.findall(r"^\| (.*?) \|", page.read(), re.MULTILINE))


def either(native, library, row):
    """`row`: the first column of the row of differences.md that has the difference, with the reason."""
    if row not in _DIFFERENCES:
        raise AssertionError("tests/interop/differences.md has no row " + repr(row))
    return library if LIBRARY else native
