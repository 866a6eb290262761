"""README's first calls, as they stand there: curl, Python, grpcurl where it is installed, C++, the command line.

In place of the environment that the page makes, which needs a network, .venv/bin/python is this Python with the checkout's package."""

import os
import shlex
import sys

import clients_venv

clients_venv.enter("grpc", "google.protobuf", "numpy")
sys.path.insert(0, os.path.join(clients_venv.ROOT, "scripts"))

import run_page  # noqa: E402

SETUP = """
export PYTHONPATH=%s
mkdir -p .venv/bin && printf '#!/bin/sh\\nexec %%s "$@"\\n' %s >.venv/bin/python && chmod +x .venv/bin/python
"""


def main():
    build = os.path.dirname(os.path.dirname(sys.argv[1]))
    package = os.path.join(clients_venv.ROOT, "client", "python")
    setup = SETUP % (shlex.quote(package), shlex.quote(sys.executable)) + run_page.SERVE
    page = os.path.join(clients_venv.ROOT, "README.md")
    sys.exit(run_page.follow(page, "A first call", build, ["50051", "8080", "9090"], timeout=120, setup=setup))


if __name__ == "__main__":
    main()
