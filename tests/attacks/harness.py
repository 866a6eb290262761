"""Runs one attack against a real server and reports the outcome.

An attack is a function that runs in a process of its own:

    def attack(target):                     # target.port, target.deadline, ...
        ...
        return Outcome("what happened")

    if __name__ == "__main__":
        run("rapid reset", attack, budget_mib=16)

`run` starts a server with the bundled models on ports of the system's choice and with room for ROOM_MIB more than it
has then (RLIMIT_DATA), learns what a caller sees of it at rest, lets the attack go, and meanwhile calls Classify on a
connection from before and on new ones. It passes when

  * the p99 of both stays below ten times that at rest, or below LATENCY_FLOOR_S where that is more (a busy
    machine has such delays by itself) - or the server closed every connection of the attack within 2 s;
  * the server's resident memory never grew by more than BEYOND_MIB over the budgets that the attack may fill
    (`budget_mib`); gRPC's library only has to stay in the room;
  * afterwards the process lives, no call is in flight, and a call gets the same bits as before;
  * the attack itself has nothing to complain of (Outcome.failures).

Exit code 0 for passed, 1 for failed, 77 for skipped.

    ATTACK.py SRU_SERVER MODEL_REPOSITORY

The environment variable SRU_ATTACKS_FLAGS has more flags for the server; SRU_ATTACKS_ROW names a file that gets the row of
the table as JSON.
"""

import collections
import contextlib
import json
import multiprocessing
import os
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import http2

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
from sru_server import SruServer  # noqa: E402

CLASSIFY = "/sru.v1.InferenceService/Classify"
ENCODE = "/sru.v1.InferenceService/Encode"
LIST_MODELS = "/sru.v1.InferenceService/ListModels"
HEALTH = "/grpc.health.v1.Health/Check"

LATENCY_FLOOR_S = 0.25
CLOSED_WITHIN_S = 2.0
CALL_TIMEOUT_S = 3.0
# The share of others' calls that may be refused at once, while there is no memory to receive with. They
# are tried again, and that counts in the time that they take.
MOST_REFUSED = 0.05
ATTACK_LIMIT_S = 20.0  # an attack that has not ended by then is killed, and fails

MIB = 1 << 20
ROOM_MIB = 256
BEYOND_MIB = 16
LIBRARY = "--grpc_transport=library" in os.environ.get("SRU_ATTACKS_FLAGS", "")

# The bounds on arriving messages and on what calls hold are proportional to the machine; for attacks on other memory
# the tests make both small.
BUDGETS = ("--max_receive_memory_mb=64", "--max_inflight_mb=64")
BUDGET_MIB = 2 * 64 * 10**6 // MIB  # both of them full
_STAGE_TIMES = 4  # the one field of an answer that differs from call to call


def classify_request(*texts):
    return b"".join(http2.field(3, http2.field(1, text.encode())) for text in texts)


QUESTION = classify_request("Who wrote Hamlet ?")

class Outcome:
    """What an attack saw. `closed_after_s`: the age of its oldest connection when the server closed it, or when
    the attack had nothing more to send; None when the server closed none. `sent` is in bytes."""

    def __init__(self, text="", closed_after_s=None, failures=(), sent=0):
        self.text, self.closed_after_s, self.failures, self.sent = text, closed_after_s, list(failures), sent


def answer_bits(answer):
    return [one for one in http2.fields(answer.body) if one[0] != _STAGE_TIMES]


class TlsFiles:
    """A certificate of localhost, made by openssl, in files that exist as long as the object."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory()
        cert, key = (os.path.join(self._directory.name, name) for name in ("cert.pem", "key.pem"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
            + ["-keyout", key, "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
            check=True,
            capture_output=True,
        )
        self.flags = ["--tls_cert=" + cert, "--tls_key=" + key]
        self.context = ssl.create_default_context(cafile=cert)
        self.context.set_alpn_protocols(["h2"])


class Server(SruServer):
    """With the flags that attacks have in common."""

    def __init__(self, binary, repository, flags=()):
        super().__init__(
            [
                binary,
                "--model_repository=" + repository,
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                "--http_listen=" + ("127.0.0.1:0" if LIBRARY else ""),
                *flags,
                *os.environ.get("SRU_ATTACKS_FLAGS", "").split(),
            ]
        )
        self.http_port = self.port_of("HTTP") or self.port

    def limit(self, mib):
        """Lets it take this much more memory that it writes to."""
        most = self.memory("VmData") + mib * MIB
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (most, most))


class Prober:
    """Calls Classify on an existing connection and on new ones, and records how long each took."""

    def __init__(self, port, headers=(), tls=None):
        self._port, self._headers, self._tls = port, headers, tls
        self._stop = threading.Event()
        self.times = {"open": [], "new": []}
        self.errors = collections.Counter()
        self.refused = 0
        self._open = http2.Connection(port, tls=tls)
        self._call(self._open, time.monotonic() + CALL_TIMEOUT_S)
        self._threads = [threading.Thread(target=self._probe_open), threading.Thread(target=self._probe_new)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._open is not None:
            self._open.close()

    def _connect(self):
        try:
            return http2.Connection(self._port, tls=self._tls)
        except http2.Closed:
            return None

    def _call(self, connection, deadline):
        """Calls until it is answered or time is up; returns the code and the connection that was used last."""
        refused = False
        while True:
            left = deadline - time.monotonic()
            code = "CLOSED"
            if connection is not None:
                code = connection.call(CLASSIFY, QUESTION, self._headers, timeout=max(0, left)).code
            if code not in ("CLOSED", "RST_STREAM") or left <= 0:
                self.refused += refused
                return code, connection
            # With a GOAWAY the server has asked for another connection, as it may.
            refused |= code == "RST_STREAM" or connection is None or connection.goaway is None
            if code == "CLOSED":
                if connection is not None:
                    connection.close()
                connection = self._connect()
            self._stop.wait(0.01)

    def _probe_open(self):
        while not self._stop.is_set():
            start = time.monotonic()
            code, self._open = self._call(self._open, start + CALL_TIMEOUT_S)
            self._note("open", start, code)
            if code == "TIMEOUT" and self._open is not None:
                self._open.close()
                self._open = self._connect()  # which counts as open from now on
            self._stop.wait(0.004)

    def _probe_new(self):
        while not self._stop.is_set():
            start = time.monotonic()
            code, connection = self._call(self._connect(), start + CALL_TIMEOUT_S)
            self._note("new", start, code)
            if connection is not None:
                connection.close()
            self._stop.wait(0.015)

    def _note(self, kind, start, code):
        taken = time.monotonic() - start
        if code != "OK":
            self.errors[kind + " " + code] += 1
            taken = max(taken, CALL_TIMEOUT_S)
        self.times[kind].append(taken)


def p99(times):
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))] if times else float("inf")


class Target:
    """What an attack is told."""

    def __init__(self, server, deadline):
        self.port, self.metrics_port, self.http_port, self.pid = (
            server.port,
            server.metrics_port,
            server.http_port,
            server.pid,
        )
        self.deadline = deadline
        self.metric, self.page, self.memory = server.metric, server.page, server.memory

    def time_left(self):
        return self.deadline - time.monotonic()

    def settled(self, seconds=0.3):
        """Waits, for attacks whose effect shows while they last."""
        time.sleep(max(0, min(seconds, self.time_left())))


def _attack_process(attack, server, seconds, go, result):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    go.recv_bytes()
    try:
        http2.Traffic.sent = 0
        outcome = attack(Target(server, time.monotonic() + seconds))
        outcome.sent = http2.Traffic.sent
        result.send_bytes(json.dumps(vars(outcome)).encode())
    except Exception:
        result.send_bytes(json.dumps(vars(Outcome(failures=[traceback.format_exc()]))).encode())
    finally:
        result.close()
        os._exit(0)


def _go_first():
    """Where it may, this process goes before other programs, whose work would count as the attack's; so do the server, the
    attack and the other callers, as they inherit it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)


def _run_once(binary, repository, attack, seconds, budget_mib, flags, latency, headers, after, tls):
    server = Server(binary, repository, flags)
    failures = []
    try:
        with http2.Connection(server.port, tls=tls) as connection:
            for _ in range(20):
                before = connection.call(CLASSIFY, QUESTION, headers)
            if before.code != "OK":
                raise RuntimeError("the server does not answer before the attack: %r" % before)
        with Prober(server.port, headers, tls) as idle:
            time.sleep(0.7)
        context = multiprocessing.get_context("fork")
        go_there, go = context.Pipe(duplex=False)
        result, result_there = context.Pipe(duplex=False)
        arguments = (attack, server, seconds, go_there, result_there)
        child = context.Process(target=_attack_process, args=arguments)
        child.start()
        result_there.close()
        at_rest = server.memory()
        server.reset_peak()
        server.limit(ROOM_MIB)
        with Prober(server.port, headers, tls) as probe:
            go.send_bytes(b"go")
            outcome = Outcome(failures=["the attack did not end"])
            if result.poll(ATTACK_LIMIT_S):
                try:
                    outcome = Outcome(**json.loads(result.recv_bytes()))
                except EOFError:
                    pass
        if child.is_alive():
            child.join(2)
        if child.is_alive():
            child.kill()
            child.join()
        failures += outcome.failures

        most_mib = ROOM_MIB if LIBRARY else budget_mib + BEYOND_MIB
        row = {"what": outcome.text, "peak_mib": None, "budget_mib": budget_mib, "sent": outcome.sent}
        if not server.alive():
            code = server.process.returncode
            failures.append("the server ended with %s: %s" % (code, server.log()[-300:]))
        else:
            row["peak_mib"] = (server.memory("VmHWM") - at_rest) / MIB
            if row["peak_mib"] > most_mib:
                failures.append("memory grew by %.0f MiB, at most %d expected" % (row["peak_mib"], most_mib))
            failures += _as_before(server, before, headers, tls)
        row["p99"] = {kind: (p99(idle.times[kind]), p99(probe.times[kind])) for kind in probe.times}
        row["refused"] = probe.refused / max(1, sum(map(len, probe.times.values())))
        if after is not None and server.alive():
            failures += after(server, outcome)
            row["what"] = outcome.text
        if server.alive():
            floods = server.metric("sru_door_floods_total")
            if floods:
                row["what"] += "; %d connections ended for a flood" % floods
        slow = []
        if latency and (outcome.closed_after_s is None or outcome.closed_after_s > CLOSED_WITHIN_S):
            if row["refused"] > MOST_REFUSED:
                slow.append("%.0f%% of other callers' calls were refused" % (100 * row["refused"]))
            for kind, (rest, attacked) in row["p99"].items():
                if attacked > _most_latency(rest):
                    text = "p99 on %s connections %.0f ms, at rest %.1f ms" % (kind, attacked * 1e3, rest * 1e3)
                    slow.append(text + (" (%s)" % dict(probe.errors) if probe.errors else ""))
        return row, failures, slow
    finally:
        server.stop(timeout=10)


def _most_latency(at_rest):
    return max(10 * at_rest, LATENCY_FLOOR_S)


def _as_before(server, before, headers, tls):
    deadline = time.monotonic() + 10
    why = "nothing was tried"
    while time.monotonic() < deadline and server.alive():
        try:
            with http2.Connection(server.port, tls=tls) as connection:
                answer = connection.call(CLASSIFY, QUESTION, headers)
            in_flight = server.metric("sru_requests_in_flight")
        except (http2.Closed, OSError) as error:
            why = str(error)
            continue
        if answer.code == "OK" and answer_bits(answer) != answer_bits(before):
            return ["a call after the attack gets other bits than before"]
        if answer.code == "OK" and in_flight == 0:
            return []
        why = "a call got %r, %s are in flight" % (answer, in_flight)
        time.sleep(0.05)
    return ["10 s after the attack: " + (why if server.alive() else "the server has ended")]


def report(name, row, failures, slow):
    """Prints a line of the table, and the reasons; returns whether it failed."""
    failed = bool(failures or slow)
    times = ", ".join(
        "%s %.1f->%.0f" % (kind, rest * 1e3, attacked * 1e3) for kind, (rest, attacked) in row["p99"].items()
    )
    if row["refused"]:
        times += ", %.1f%% refused" % (100 * row["refused"])
    peak = "-" if row["peak_mib"] is None else "%.0f" % row["peak_mib"]
    print("| %s | %s | %s | %s | %s |" % (name, row["what"] or "-", peak, times, "FAILED" if failed else "passed"))
    for failure in failures + slow:
        print("    %s: %s" % (name, failure.strip().replace("\n", "\n        ")))
    sys.stdout.flush()
    return failed


HEADER = "| attack | what happened | peak MiB | p99 ms (at rest->attacked) | verdict |\n|---|---|---|---|---|"


def run(
    name,
    attack,
    budget_mib=0,
    seconds=2.0,
    flags=(),
    latency=True,
    headers=(),
    after=None,
    tls=None,
):
    """Runs the attack with the server and the models that the command line names, and exits.

    `budget_mib` is how much the attack may make the server hold of the memory for that, `seconds` is how long the attack
    may go on, `after(server, outcome)` looks further and returns failures, `tls` is the ssl.SSLContext of the other callers
    (see TlsFiles). A run that fails by latency alone is repeated once: the machine may have been busy with something
    else.
    """
    if len(sys.argv) < 3:
        print("usage: %s SRU_SERVER MODEL_REPOSITORY" % os.path.basename(sys.argv[0]), file=sys.stderr)
        sys.exit(2)
    binary, repository = sys.argv[1:3]
    _go_first()
    arguments = (seconds, budget_mib, flags, latency, headers, after, tls)
    if not os.environ.get("SRU_ATTACKS_NO_HEADER"):
        print(HEADER)
    row, failures, slow = _run_once(binary, repository, attack, *arguments)
    if slow and not failures:
        row, failures, slow = _run_once(binary, repository, attack, *arguments)
    failed = report(name, row, failures, slow)
    if "SRU_ATTACKS_ROW" in os.environ:
        with open(os.environ["SRU_ATTACKS_ROW"], "w", encoding="ascii") as file:
            json.dump({"name": name, "failures": failures + slow, **row}, file)
    sys.exit(1 if failed else 0)
