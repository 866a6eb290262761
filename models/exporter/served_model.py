"""Starts sru_server with one model for --verify and --check, and calls it over HTTP."""

import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from .common import ExportError, progress

START_S = 60.0
CALL_S = 60.0


def find_server(given):
    """The program: --server, build/bin beside this folder's project, or PATH."""
    if given is not None:
        try:
            said = subprocess.run([given, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  errors="replace", timeout=START_S).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ExportError(f"--server {given}: is not a program that can be run ({error})") from error
        if not said.startswith("sru_server "):
            raise ExportError(f"--server {given}: is not sru_server; asked for its --version, it said '{said.strip()[:80]}'")
        return given
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    built = os.path.join(root, "build", "bin", "sru_server")
    found = built if os.access(built, os.X_OK) else shutil.which("sru_server")
    if found is None:
        raise ExportError("--verify and --check need the program sru_server: build it (make build), put it into PATH or name it "
                          "with --server")
    return found


@contextlib.contextmanager
def served_model(program, directory, out):
    """A server on a free port that has only the model in `directory`, under the name of `out`, until the end of the `with`.
    Yields a function that calls it."""
    name = os.path.basename(os.path.dirname(out))
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "wb") as log:
        os.symlink(directory, os.path.join(folder, "model"))  # its own path may have a comma
        try:
            process = subprocess.Popen(
                [program, f"--model={name}:{folder}/model", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                 "--http_listen=127.0.0.1:0"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        except OSError as error:
            raise ExportError(f"cannot start {program}: {error.strerror}") from error
        try:
            with progress("starting sru_server"):
                address = address_of(program, process, log.name)
            yield functools.partial(call, address, name)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def address_of(program, process, log):
    """Where the server has HTTP, once it listens."""
    deadline = time.monotonic() + START_S
    while True:
        ended = process.poll() is not None or time.monotonic() > deadline
        said = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
        match = re.search(r"listening on .*, HTTP on (\S+?)[,\s]", said)
        if match is not None:
            return match.group(1)
        if ended:
            last = (said.strip().splitlines() or ["nothing"])[-1].strip()
            raise ExportError(f"{program} did not start; it said: {last}")
        time.sleep(0.05)


def call(address, model, method, **request):
    """The answer's message, as JSON has it."""
    connection = http.client.HTTPConnection(address, timeout=CALL_S)
    try:
        connection.request("POST", f"/v1/{method}", json.dumps({"model": model, **request}))
        answer = json.load(connection.getresponse())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExportError(f"sru_server did not answer {method}: {error}") from error
    finally:
        connection.close()
    if "error" in answer:
        raise ExportError("sru_server refused {}: {code}: {message}".format(method, **answer["error"]))
    return answer
