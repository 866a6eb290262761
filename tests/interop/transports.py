"""The transport that a test runs against (SRU_GRPC_TRANSPORT, as sru_interop_server reads it), and what is expected where the two differ."""

import os
import re

LIBRARY = os.environ.get("SRU_GRPC_TRANSPORT") == "library"

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/decisions/0003-native-door.md")) as page:
    _DIFFERENCES = set(re.findall(r"^\| (.*?) \|", page.read(), re.MULTILINE))


def either(native, library, row):
    """`row`: the first column of the row of 0003's table "Differences" that has it, with the reason."""
    if row not in _DIFFERENCES:
        raise AssertionError("docs/decisions/0003-native-door.md has no row " + repr(row))
    return library if LIBRARY else native
