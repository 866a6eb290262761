"""Runs a test in the virtual environment that scripts/deps.sh clients makes.

    import clients_venv
    clients_venv.enter("tritonclient.grpc")

goes on in that environment if this Python does not have the module, and ends with "skipped" if there is no such environment. `venv="bulk"`: in that of scripts/deps.sh bulk.
Then the modules of tests/integration and tests/interop can be imported.
"""

import importlib
import os
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TOKEN = "0123456789abcdef0123456789abcdef"
PYTHON = os.path.join(ROOT, ".cache", "clients-venv", "bin", "python")


def enter(*modules, venv="clients"):
    python = PYTHON.replace("clients-venv", venv + "-venv")
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as error:
        if not os.path.exists(python) or os.environ.get("SRU_IN_VENV"):
            print("SKIPPED: %s (scripts/deps.sh %s)" % (error, venv))
            sys.exit(77)
        os.environ["SRU_IN_VENV"] = "1"
        os.execv(python, [python, "-B"] + sys.argv)
    sys.path[:0] = [os.path.join(ROOT, "tests", folder) for folder in ("integration", "interop")]


def tokens_file(folder, *lines):
    """The path of a file for --auth_tokens_file: a caller with TOKEN, and who `lines` add."""
    path = os.path.join(folder, "tokens")
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in ("tester " + TOKEN, *lines)))
    os.chmod(path, 0o600)
    return path
