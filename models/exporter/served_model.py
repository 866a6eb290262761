"""Starts sru_server with one model for --verify and --check, and calls it over HTTP."""

import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

from .common import ExportError, Progress

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


class ServedModel:
    """A server on a free port that has only the model in `directory`, under the name of `out`, until the end of the
    `with`."""

    def __init__(self, program, directory, out):
        self._program, self._model = program, directory
        self.name = os.path.basename(os.path.dirname(out))

    def __enter__(self):
        self._directory = tempfile.TemporaryDirectory()
        os.symlink(self._model, os.path.join(self._directory.name, "model"))  # its own path may have a comma
        self._process = None
        try:
            with Progress("starting sru_server"):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        log = os.path.join(self._directory.name, "log")
        try:
            with open(log, "wb") as output:
                self._process = subprocess.Popen(
                    [self._program, f"--model={self.name}:{self._directory.name}/model", "--listen=127.0.0.1:0",
                     "--metrics_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0"],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        except OSError as error:
            raise ExportError(f"cannot start {self._program}: {error.strerror}") from error
        deadline = time.monotonic() + START_S
        while True:
            ended = self._process.poll() is not None or time.monotonic() > deadline
            with open(log, encoding="utf-8", errors="replace") as file:
                said = file.read()
            match = re.search(r"listening on .*, HTTP on (\S+?)[,\s]", said)
            if match is not None:
                self._address = match.group(1)
                return
            if ended:
                last = (said.strip().splitlines() or ["nothing"])[-1].strip()
                raise ExportError(f"{self._program} did not start; it said: {last}")
            time.sleep(0.05)

    def call(self, method, **request):
        """The answer's message, as JSON has it."""
        connection = http.client.HTTPConnection(self._address, timeout=CALL_S)
        try:
            connection.request("POST", f"/v1/{method}", json.dumps({"model": self.name, **request}))
            answer = json.load(connection.getresponse())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ExportError(f"sru_server did not answer {method}: {error}") from error
        finally:
            connection.close()
        if "error" in answer:
            raise ExportError("sru_server refused {}: {code}: {message}".format(method, **answer["error"]))
        return answer

    def __exit__(self, *_):
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._directory.cleanup()
