"""Runs an attack against a real server and gives the verdict: README.md says what has to hold.

    @row(flags=BUDGETS, budget_mib=8)
    def rapid_reset(target):                # target.port, target.deadline, ...
        ...
        return Outcome("what happened")

The attack runs in a process of its own. Meanwhile two other callers call Classify, on a connection
from before and on new ones; they are measured beside the attack and, before it, at rest.
"""

import collections
import contextlib
import dataclasses
import json
import multiprocessing
import os
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import http2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "testing"))
from sru_server import SruServer  # noqa: E402

SRU, OPEN = "/sru.v1.InferenceService/", "/inference.GRPCInferenceService/"
CLASSIFY, ENCODE, LIST_MODELS = SRU + "Classify", SRU + "Encode", SRU + "ListModels"
GENERATE, SCORE, STREAM = SRU + "Generate", SRU + "Score", SRU + "EncodeStream"
HEALTH, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
TOKEN, OTHER_TOKEN = "kR3vX9mQ2bT7wZ5n", "pL8sD1fG4hJ6kA0c"
ELSEWHERE = "127.0.0.2"  # the attacker's address where it has another one than the other callers

LATENCY_FLOOR_S = 0.25  # a busy machine has such delays by itself
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


def sequence(text):
    return http2.field(1, text.encode())


def classify_request(*texts):
    return b"".join(http2.field(3, sequence(text)) for text in texts)


QUESTION = classify_request("Who wrote Hamlet ?")
POOLING_NONE, RAW_FLOAT32 = 1, 2


def token_vectors(sequences, tokens):
    """An EncodeRequest for one vector per token, 500 times what it takes to ask."""
    one = http2.field(3, http2.field(3, http2.field(1, b"\x05" * tokens)))
    return one * sequences + http2.field(5, POOLING_NONE) + http2.field(7, RAW_FLOAT32)


def bearer(token):
    return [("authorization", "Bearer " + token)]


def answer_bits(answer):
    return [one for one in http2.fields(answer.body) if one[0] != _STAGE_TIMES]


class Outcome:
    """What an attack saw. `closed_after_s`: the age of its oldest connection when the server closed it, or when
    the attack had nothing more to send; None when the server closed none."""

    def __init__(self, text="", closed_after_s=None, failures=()):
        self.text, self.closed_after_s, self.failures = text, closed_after_s, list(failures)


# What a server is given before it starts: each changes a Setting.


class Setting:
    def __init__(self, binary, repository, flags, directory):
        self.binary, self.repository, self.directory = binary, repository, directory
        self.flags = [*flags, *os.environ.get("SRU_ATTACKS_FLAGS", "").split()]
        self.headers, self.tls = (), None  # the ssl.SSLContext of the other callers

    def write(self, name, text, mode=0o600):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="ascii", opener=lambda *one: os.open(*one, mode)) as file:
            file.write(text)
        return path


def tokens(setting):
    setting.tokens_file = setting.write("tokens", "team %s\nothers %s\n" % (TOKEN, OTHER_TOKEN))
    setting.flags.append("--auth_tokens_file=" + setting.tokens_file)
    setting.headers = bearer(TOKEN)


def tls(setting):
    """A certificate of localhost, made by openssl."""
    cert, key = (os.path.join(setting.directory, name) for name in ("cert.pem", "key.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-keyout", key, "-out", cert, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
    )
    setting.flags += ["--tls_cert=" + cert, "--tls_key=" + key]
    setting.tls = ssl.create_default_context(cafile=cert)
    setting.tls.set_alpn_protocols(["h2"])


def state_key(setting):
    setting.flags.append("--state_key_file=" + setting.write("keys", "0123456789abcdef" * 4 + "\n"))


def few_descriptors(setting):
    program = '#!/bin/sh\nulimit -n 256\nexec "%s" "$@"\n' % setting.binary
    setting.binary = setting.write("sru_server", program, 0o700)


def own_repository(setting):
    source, setting.repository = setting.repository, os.path.join(setting.directory, "models")
    shutil.copytree(source, setting.repository)


@dataclasses.dataclass
class Row:
    """An attack. `budget_mib` is how much it may make the server hold of the memory for that, `seconds` is how long it may
    go on, `given` changes the setting, `after(server, outcome)` looks further and returns failures."""

    attack: callable
    given: callable = lambda setting: None
    flags: tuple = ()
    budget_mib: int = 0
    seconds: float = 2.0
    latency: bool = True
    after: callable = lambda server, outcome: []


ROWS = {}


def row(**arguments):
    """Adds a function to the attacks; the arguments are those of Row."""

    def add(attack):
        ROWS[attack.__name__] = Row(attack, **arguments)
        return attack

    return add


class Server(SruServer):
    """With the flags that attacks have in common."""

    def __init__(self, setting):
        super().__init__(
            [
                setting.binary,
                "--model_repository=" + setting.repository,
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                "--http_listen=" + ("127.0.0.1:0" if LIBRARY else ""),
                *setting.flags,
            ]
        )
        self.http_port = self.port_of("HTTP") or self.port

    def limit(self, mib):
        """Lets it take this much more memory that it writes to."""
        most = self.memory("VmData") + mib * MIB
        resource.prlimit(self.pid, resource.RLIMIT_DATA, (most, most))


class Prober:
    """Calls Classify on an existing connection and on new ones, and records how long each took."""

    def __init__(self, port, setting):
        self._port, self._setting = port, setting
        self._stop = threading.Event()
        self.times = {"open": [], "new": []}
        self.errors = collections.Counter()
        self.refused = 0
        self._open = http2.Connection(port, tls=setting.tls)
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

    def share_refused(self):
        return self.refused / max(1, sum(map(len, self.times.values())))

    def _connect(self):
        with contextlib.suppress(http2.Closed):
            return http2.Connection(self._port, tls=self._setting.tls)

    def _call(self, connection, deadline):
        """Calls until it is answered or time is up; returns the code and the connection that was used last."""
        refused = False
        while True:
            left = deadline - time.monotonic()
            code = "CLOSED"
            if connection is not None:
                code = connection.call(CLASSIFY, QUESTION, self._setting.headers, timeout=max(0, left)).code
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

    def _timed(self, kind, connection):
        start = time.monotonic()
        code, connection = self._call(connection or self._connect(), start + CALL_TIMEOUT_S)
        taken = time.monotonic() - start
        if code != "OK":
            self.errors[kind + " " + code] += 1
            taken = max(taken, CALL_TIMEOUT_S)
        self.times[kind].append(taken)
        return code, connection

    def _probe_open(self):
        while not self._stop.is_set():
            code, self._open = self._timed("open", self._open)
            if code == "TIMEOUT" and self._open is not None:
                self._open.close()
                self._open = self._connect()  # which counts as open from now on
            self._stop.wait(0.004)

    def _probe_new(self):
        while not self._stop.is_set():
            _, connection = self._timed("new", None)
            if connection is not None:
                connection.close()
            self._stop.wait(0.015)


def p99(times):
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))] if times else float("inf")


class Target:
    """What an attack is told: the server, as far as it is to be seen, and how long there is."""

    def __init__(self, server, setting, seconds):
        self._server, self.setting, self.deadline = server, setting, time.monotonic() + seconds

    def __getattr__(self, name):
        return getattr(self._server, name)

    def part(self, seconds):
        """The target for a part of the time."""
        return Target(self._server, self.setting, seconds)

    def time_left(self):
        return self.deadline - time.monotonic()

    def settled(self, seconds=0.3):
        """Waits, for attacks whose effect shows while they last."""
        time.sleep(max(0, min(seconds, self.time_left())))


# What attacks are made of.


def counts(codes):
    return ", ".join("%s: %d" % one for one in sorted((str(code), codes.count(code)) for code in set(codes))) or "-"


def only(codes, *allowed):
    wrong = [code for code in codes if code not in allowed]
    return ["answered with " + counts(wrong)] if wrong else []


def more_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count)), hard))


def together(work, arguments):
    """Calls `work` in a thread for each argument; returns what the calls returned, in the order in which they ended."""
    found = []

    def one(argument):
        try:
            found.append(work(argument))
        except http2.Closed:
            found.append("CLOSED")

    threads = [threading.Thread(target=one, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def repeatedly(target, calls):
    """Makes each of the calls, which have names, in a thread again and again until time is up; returns what they returned, by name."""
    found = {name: [] for name in calls}

    def work(name):
        while target.time_left() > 0:
            try:
                found[name].append(calls[name]())
            except http2.Closed:
                found[name].append("CLOSED")

    together(work, calls)
    return found


def keep_calling(target, call, until=0.0, source=None):
    """The codes that `call(connection)` returns, again and again until time is up; a connection that has ended is opened anew."""
    codes = []
    while target.time_left() > until:
        try:
            with http2.Connection(target.port, source=source) as connection:
                code = None
                while code not in ("CLOSED", "TIMEOUT") and target.time_left() > until:
                    code = call(connection)
                    codes.append(code)
        except http2.Closed:
            codes.append("CLOSED")
    return codes


def others(target, count, method, request, token=None, pause=0.05):
    """The codes of this many calls by another caller, each on a connection of its own."""
    codes = []
    for _ in range(count):
        with http2.Connection(target.port) as connection:
            codes.append(connection.call(method, request, bearer(token) if token else ()).code)
        time.sleep(pause)
    return codes


# The verdict.


def _attack_process(row, server, setting, go, result):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    go.recv_bytes()
    try:
        outcome = row.attack(Target(server, setting, row.seconds))
    except Exception:
        outcome = Outcome(failures=[traceback.format_exc()])
    result.send_bytes(json.dumps(vars(outcome)).encode())
    result.close()
    os._exit(0)


def _run_once(row, setting):
    """What happened, as cells of the table, what is wrong, and what was slow."""
    server = Server(setting)
    try:
        with http2.Connection(server.port, tls=setting.tls) as connection:
            for _ in range(20):
                before = connection.call(CLASSIFY, QUESTION, setting.headers)
            if before.code != "OK":
                raise RuntimeError("the server does not answer before the attack: %r" % before)
        with Prober(server.port, setting) as idle:
            time.sleep(0.7)
        context = multiprocessing.get_context("fork")
        go_there, go = context.Pipe(duplex=False)
        result, result_there = context.Pipe(duplex=False)
        child = context.Process(target=_attack_process, args=(row, server, setting, go_there, result_there))
        child.start()
        result_there.close()
        at_rest = server.memory()
        server.reset_peak()
        server.limit(ROOM_MIB)
        outcome = Outcome(failures=["the attack did not end"])
        with Prober(server.port, setting) as probe:
            go.send_bytes(b"go")
            with contextlib.suppress(EOFError):
                if result.poll(ATTACK_LIMIT_S):
                    outcome = Outcome(**json.loads(result.recv_bytes()))
        child.join(2)
        if child.is_alive():
            child.kill()
            child.join()

        failures, peak = outcome.failures, "-"
        most_mib = ROOM_MIB if LIBRARY else row.budget_mib + BEYOND_MIB
        if server.alive():
            peak_mib = (server.memory("VmHWM") - at_rest) / MIB
            peak = "%.0f" % peak_mib
            if peak_mib > most_mib:
                failures.append("memory grew by %.0f MiB, at most %d expected" % (peak_mib, most_mib))
            failures += _as_before(server, before, setting)
        else:
            failures.append("the server ended with %s: %s" % (server.process.returncode, server.log()[-300:]))
        if server.alive():
            failures += row.after(server, outcome)
        what = outcome.text or "-"
        if server.alive() and (floods := server.metric("sru_door_floods_total")):
            what += "; %d connections ended for a flood" % floods
        times = ["%s %.1f->%.0f" % (kind, 1e3 * p99(idle.times[kind]), 1e3 * p99(probe.times[kind])) for kind in probe.times]
        if probe.refused:
            times.append("%.1f%% refused" % (100 * probe.share_refused()))
        was_closed = outcome.closed_after_s is not None and outcome.closed_after_s <= CLOSED_WITHIN_S
        slow = _slow(idle, probe) if row.latency and not was_closed else []
        return [what, peak, ", ".join(times)], failures, slow
    finally:
        server.stop(timeout=10)


def _slow(idle, probe):
    slow = []
    if probe.share_refused() > MOST_REFUSED:
        slow.append("%.0f%% of other callers' calls were refused" % (100 * probe.share_refused()))
    for kind in probe.times:
        rest, attacked = p99(idle.times[kind]), p99(probe.times[kind])
        if attacked > max(10 * rest, LATENCY_FLOOR_S):
            text = "p99 on %s connections %.0f ms, at rest %.1f ms" % (kind, attacked * 1e3, rest * 1e3)
            slow.append(text + (" (%s)" % dict(probe.errors) if probe.errors else ""))
    return slow


def _as_before(server, before, setting):
    deadline = time.monotonic() + 10
    why = "nothing was tried"
    while time.monotonic() < deadline and server.alive():
        try:
            with http2.Connection(server.port, tls=setting.tls) as connection:
                answer = connection.call(CLASSIFY, QUESTION, setting.headers)
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


HEADER = "| attack | what happened | peak MiB | p99 ms (at rest->attacked) | verdict |\n|---|---|---|---|---|"


def run(name, binary, repository):
    """Runs an attack, prints its line of the table and the reasons, and returns whether it passed. A run that fails by latency
    alone is repeated once: the machine may have been busy with something else."""
    row = ROWS[name]
    # Where it may, this process goes before other programs, whose work would count as the attack's; so do the server, the
    # attack and the other callers, as they inherit it.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    with tempfile.TemporaryDirectory() as directory:
        setting = Setting(binary, repository, row.flags, directory)
        row.given(setting)
        cells, failures, slow = _run_once(row, setting)
        if slow and not failures:
            cells, failures, slow = _run_once(row, setting)
    print("| %s |" % " | ".join([name.replace("_", " "), *cells, "FAILED" if failures or slow else "passed"]))
    for failure in failures + slow:
        print("    %s: %s" % (name, failure.strip().replace("\n", "\n        ")))
    sys.stdout.flush()
    return not failures and not slow
