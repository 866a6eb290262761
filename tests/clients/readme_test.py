"""README's first calls, as they stand there: curl, Python, Triton's client, the command line."""

import os
import shlex
import sys

import clients_venv

clients_venv.enter("tritonclient.grpc", "numpy")
sys.path.insert(0, os.path.join(clients_venv.ROOT, "scripts"))

import run_page  # noqa: E402

SETUP = """
export PYTHONPATH=%s
build/bin/sru_server --model_repository=models/pretrained >server.log 2>&1 &
until curl -sf localhost:9090/readyz >ready.log; do kill -0 $! || { cat server.log; exit 1; }; sleep 0.1; done
"""


def main():
    build = os.path.dirname(os.path.dirname(sys.argv[1]))
    package = os.path.join(clients_venv.ROOT, "client", "python")
    setup = SETUP % shlex.quote(package)
    page = os.path.join(clients_venv.ROOT, "README.md")
    sys.exit(run_page.follow(page, "A first call", build, ["50051", "8080", "9090"], timeout=60, setup=setup))


if __name__ == "__main__":
    main()
