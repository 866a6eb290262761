"""Starts what the tests of deploy/ need: a server with some load, and a Prometheus that scrapes it.

Every port is chosen by the system, nothing is left behind, and waiting means asking until a deadline.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
from sru_server import SruServer  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(ROOT, "models", "pretrained")
SKIPPED = 77  # CTest shows this exit code as skipped
DEADLINE_S = 60


def skip(reason):
    print("SKIPPED: " + reason)
    sys.exit(SKIPPED)


def need_command(*names):
    for name in names:
        if shutil.which(name) is None:
            skip("%s is not installed (scripts/deps.sh deploy)" % name)


def need_module(name):
    try:
        return __import__(name)
    except ImportError:
        skip("this Python has no module %s (%s; scripts/deps.sh deploy)" % (name, sys.executable))


def in_venv(name):
    """The module of the virtual environment that scripts/deps.sh deploy makes, in which the test starts again; skips without it."""
    venv = os.path.join(ROOT, ".cache", "deploy-venv", "bin", "python")
    try:
        return __import__(name)
    except ImportError:
        if not os.path.exists(venv) or os.environ.get("SRU_IN_VENV"):
            skip("no %s in .cache/deploy-venv (scripts/deps.sh deploy)" % name)
    os.environ["SRU_IN_VENV"] = "1"
    os.execv(venv, [venv, "-B"] + sys.argv)


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def wait_for(what, condition, deadline_s=DEADLINE_S):
    """The first true value of condition(); an exception counts as not yet."""
    end = time.monotonic() + deadline_s
    error = None
    while True:
        try:
            value = condition()
            if value:
                return value
        except (OSError, ValueError) as caught:
            error = caught
        if time.monotonic() > end:
            raise RuntimeError("gave up after %d s waiting for %s (%s)" % (deadline_s, what, error))
        time.sleep(0.05)


def get(url, timeout=10):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read().decode()


def stop(process):
    process.terminate()
    try:
        return process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def run(*command, **options):
    """The end of a program: its code and, as text, its standard output and errors."""
    return subprocess.run(command, **{
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": DEADLINE_S,
        "check": False, **options,
    })


def server_help(binaries):
    return run(os.path.join(binaries, "sru_server"), "--help=all", check=True).stdout


class Server(SruServer):
    """sru_server of the folder `binaries`, on the bundled model unless `environment` says otherwise."""

    def __init__(self, binaries, environment=None):
        self.binaries = binaries
        variables = {
            "SRU_MODEL_REPOSITORY": MODELS,
            "SRU_LISTEN": "127.0.0.1:0",
            "SRU_METRICS_LISTEN": "127.0.0.1:0",
            "SRU_HTTP_LISTEN": "127.0.0.1:0",
        }
        variables.update(environment or {})
        super().__init__([os.path.join(binaries, "sru_server")], variables)
        self.address, self.metrics_address = re.match(
            r"listening on (\S+), metrics on ([^,\s]+)", self.first_line
        ).groups()

    def __exit__(self, *_):
        if self.stop() == -signal.SIGKILL:
            raise RuntimeError("the server did not end")

    def client(self, *arguments):
        """Runs sru_client and returns its exit code."""
        program = os.path.join(self.binaries, "sru_client")
        return run(program, arguments[0], "--address=" + self.address, *arguments[1:]).returncode

    def load(self):
        """Calls every method; some of the calls are errors."""
        texts = ["How many moons does Jupiter have ?", "Who wrote Hamlet ?", "Where is Samarkand ?"]
        assert self.client("classify", "--batch=1", *texts) == 0
        assert self.client("encode", "--batch=1", *texts) == 0
        assert self.client("score", "--batch=1", *texts) == 0  # so that every bundled model has calls
        assert self.client("generate", "--max_new_tokens=20", "The prince") == 0
        assert self.client("models") == 0
        assert self.client("classify", "--model=unknown", "text") == 1
        assert self.client("classify", "--model=trec", "") == 1

    def metrics(self):
        """{series name: set of label names} of /metrics."""
        return parse_metrics(get("http://%s/metrics" % self.metrics_address))


def parse_metrics(text):
    series = {}
    for line in text.splitlines():
        found = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", line)
        if line.startswith("#") or not found:
            continue
        labels = re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', found.group(2) or "")
        series.setdefault(found.group(1), set()).update(labels)
    return series


class Prometheus:
    """A Prometheus that scrapes `targets` four times a second with the project's rules. A context manager."""

    def __init__(self, targets, labels=None, rules=("recording.yaml", "alerts.yaml")):
        self.folder = tempfile.mkdtemp(prefix="sru-prometheus-")
        config = {
            "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
            "rule_files": [os.path.join(ROOT, "deploy", "prometheus", rule) for rule in rules],
            "scrape_configs": [
                {
                    "job_name": "sru-server",
                    "static_configs": [{"targets": list(targets), "labels": labels or {}}],
                }
            ],
        }
        path = os.path.join(self.folder, "prometheus.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)  # JSON is YAML
        self.log_path = os.path.join(self.folder, "log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["prometheus", "--config.file=" + path, "--web.listen-address=127.0.0.1:0",
                 "--storage.tsdb.path=" + os.path.join(self.folder, "data")], stdout=log, stderr=log)
        try:
            self.url = "http://" + wait_for("Prometheus' address", self._listening)
            wait_for("Prometheus", lambda: get(self.url + "/-/ready"))
        except BaseException:
            self.__exit__()
            raise

    def _listening(self):
        with open(self.log_path, encoding="utf-8") as log:
            text = log.read()
        if self.process.poll() is not None:
            raise RuntimeError("Prometheus ended: " + text)
        # It logs the requested address first, then the one that it got.
        found = [a for a in re.findall(r"address=(127\.0\.0\.1:\d+)", text) if not a.endswith(":0")]
        return found[-1] if found else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            stop(self.process)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def api(self, path, **parameters):
        """The field data of an answer; ValueError with Prometheus' own words if it refuses."""
        try:
            text = get(self.url + "/api/v1/" + path + "?" + urllib.parse.urlencode(parameters))
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from error
        return json.loads(text)["data"]

    def query(self, expression):
        """[(labels, value)] of an instant query."""
        result = self.api("query", query=expression)
        if result["resultType"] == "scalar":
            return [({}, float(result["result"][1]))]
        return [(row["metric"], float(row["value"][1])) for row in result["result"]]
