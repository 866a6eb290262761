"""Runs servers under load while everything goes wrong, and proves that nothing is lost.

    scripts/chaos.sh [--minutes=60] [--servers=3] [--seed=1] [--build=build] [--out=FILE] ...

N replicas of sru_server serve seven models, each in a control group of 512 MiB, by which it sizes its budgets; one more server has
TLS, tokens, and two devices that can be lost. They are called, all the time, in closed loops of every call that there is (gRPC, Open
Inference, REST), by callers of one server each, by the client library with its own balancing over all replicas, and by the client
library through nginx; and in an open loop at up to 3 times of what the replicas can answer. Every answer is compared to the bit with
what a calm server said before. Meanwhile one fault after the other strikes; from the second round on, sometimes two at once. Which,
where and when is drawn from --seed and printed.

A run fails (exit code 1) if one of these is broken:
  * no answer is wrong;
  * no call that a server has accepted stays without an answer, unless its process was killed;
  * no server crashes, and every drain is complete;
  * no call outlives its deadline by 20 s, and no process its SIGTERM by 40 s;
  * honest callers get no code but those for overload, drain and lost devices;
  * the kernel kills no replica for its memory, and none takes more than its 512 MiB;
  * memory and descriptors of the replica that is never restarted do not grow;
  * every server answers again at its earlier rate within --recovery_s of a fault's end.
What to look at then is said, and the logs stay in --folder.

The page --out (Markdown) is written in any case. Needs python3 with grpcio, protobuf and numpy, openssl,
and for its part of the load nginx. As root the log is on a small file system that is filled; otherwise its file may not grow. Where no
control group can be made, which is said, flags set the budgets and only the run itself looks at the replicas' memory.
"""

import argparse
import collections
import datetime
import glob
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
sys.path.append(os.path.join(HERE, "..", "testing"))

try:
    import google.protobuf  # noqa: F401
    import grpc
    import numpy  # noqa: F401
except ImportError as missing:
    print("SKIPPED: %s (%s)" % (missing, sys.executable))
    sys.exit(77)

import cases  # noqa: E402
import faults  # noqa: E402
import fleet  # noqa: E402
import report  # noqa: E402
from control_group import ControlGroup  # noqa: E402
from fleet import log  # noqa: E402

LEVELS = (0.5, 1, 2, 3)  # times saturation
BASE_S = 3.0  # before a fault, in which the earlier rate is measured
# After arrivals have become fewer: what was sent before is still answered, on one busy core for 2.5 s, and is not the rate from then on.
SETTLE_S = 3.0
RECOVERED = 0.75  # of the earlier rate
CORES = len(os.sched_getaffinity(0))
SHADOW_BYTES = 1 << 42  # only a sanitizer maps as much
FLOOD_DEADLINE_S = 1.0
CALLER_DEADLINE_S = 3.0
# How long after a process was killed callers may learn of it.
AFTERMATH_S = 5.0
# A server closes a connection whose client takes no answer for 30 s (--send_timeout_s). It has to, too, if it was the machine that
# did not run the client: then the last 45 s had at least 10 in which it ran nothing.
STOOD_STILL_S = (10.0, 45.0)
# What the replica that is never restarted may seem to grow by, over the time that is judged.
MEMORY_SLACK = (0.05, 24 << 20)  # of the median, or bytes
DESCRIPTOR_SLACK = 24
FINE = ("OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "REFUSED", "PASSED")


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/chaos.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long it goes on, at least once through all faults fits into 5 (60)")
    parser.add_argument("--servers", type=int, default=3, help="replicas, 2 to 5 (3)")
    parser.add_argument("--library", type=int, default=0, help="how many of the replicas, the last ones, speak gRPC through its library (0)")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule and of all random choices (1)")
    parser.add_argument("--build", default=os.path.join(cases.ROOT, "build"), help="the folder of the build (build)")
    parser.add_argument("--server", help="another sru_server than that of the build")
    parser.add_argument("--out", help="the page to write (FOLDER/chaos.md)")
    parser.add_argument("--folder", help="where logs and all files are kept; without it they are kept only if the run fails")
    parser.add_argument("--faults", help="only these, by name, separated by commas; --list shows them")
    parser.add_argument("--recovery_s", type=float, default=60, help="longest time to recover (60)")
    parser.add_argument("--clock_shift", help="the library libclock_shift.so of the build, found by itself")
    parser.add_argument("--list", action="store_true", help="print the faults and the schedule of the seed, and end")
    args = parser.parse_args()
    if not 2 <= args.servers <= 5:
        parser.error("--servers: expected 2 to 5, found %d" % args.servers)
    if not 0 <= args.library <= args.servers:
        parser.error("--library: expected 0 to %d, found %d" % (args.servers, args.library))
    if args.minutes <= 0:
        parser.error("--minutes: expected more than 0, found %g" % args.minutes)
    args.chosen = list(faults.FAULTS)
    if args.faults:
        names = [name.strip() for name in args.faults.replace("reload, ", "reload/").split(",")]
        names = [name.replace("reload/", "reload, ") for name in names]
        unknown = set(names) - {one.name for one in faults.FAULTS}
        if unknown:
            parser.error("--faults: unknown %s; --list shows them" % ", ".join(sorted(unknown)))
        args.chosen = [one for one in faults.FAULTS if one.name in names]
    args.command = "scripts/chaos.sh " + " ".join(
        one for one in sys.argv[1:] if not one.startswith(("--build=", "--out=", "--folder=", "--clock_shift=", "--server="))
    )
    return args


Planned = collections.namedtuple("Planned", "number level strikes")  # strikes: [(fault, server's name, seed)]


def schedule(seed, chosen, servers):
    """What strikes, in order, for ever."""
    draw = random.Random(seed)
    mortal = ["replica-%d" % i for i in range(1, servers)]
    number = 0
    for round_number in range(10**9):
        order = list(chosen)
        draw.shuffle(order)
        while order:
            level = draw.choice(LEVELS)
            strikes = []
            for fault in order[:2] if round_number and draw.random() < 0.4 else order[:1]:
                where = {"any": ["replica-0"] + mortal, "mortal": mortal, "secure": ["secure"]}[fault.where]
                target = draw.choice(where)
                if target in [one[1] for one in strikes]:
                    break
                strikes.append((fault, target, draw.getrandbits(32)))
            del order[: len(strikes)]
            number += 1
            yield Planned(number, level, strikes)


def describe(planned):
    return "%3d. %gx saturation: %s" % (
        planned.number,
        planned.level,
        " and ".join("%s on %s" % (fault.name, target) for fault, target, _ in planned.strikes),
    )


class World:
    """Everything that runs, and what was seen."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.problems = []
        self.remarks = []
        self.large_calls = collections.Counter()  # of "large calls", by code
        self.is_bounded = True  # the memory of the replicas
        self.kernel_kills = 0
        self.servers = {}
        self.loads = []
        self.floods = []
        self.nginx = None
        self.small_disk = None
        self.kept_logs = os.path.join(folder, "log.kept")
        self.authority = None
        self.token = None
        self.usage = collections.defaultdict(list)  # server -> [[(time, bytes, descriptors)] of each process]
        self.ends = collections.Counter()  # (load's name, kind, end)
        self.broken = []  # (time, load, kind, end, count, what)
        self.oks = collections.defaultdict(collections.Counter)  # server -> {quarter of a second: calls}
        self.struck = []  # (planned number, fault, server, level, begin, end, seconds to recover, remarks)
        self.samples = {}  # (load, kind, end) -> [how many calls, when the first one, what it said]
        self.arrivals = 0.0  # of the open loops, per second
        self.began = time.monotonic()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._monitor_thread = None

    def problem(self, text):
        with self._lock:
            self.problems.append(text)
        log("PROBLEM " + text)

    def remark(self, text):
        with self._lock:
            self.remarks.append(text)
        log(text)

    # --- set-up

    def set_up(self):
        args, folder = self.args, self.folder
        self.small_disk = fleet.small_file_system(os.path.join(folder, "log"))
        if self.small_disk is None:
            log("no file system can be mounted here: a full disk is a log file that may not grow")
        server = args.server or os.path.join(args.build, "bin", "sru_server")
        flood = os.path.join(args.build, "bin", "chaos_flood")
        secure = os.path.join(args.build, "bin", "chaos_server")
        for program in (server, flood, secure):
            if not os.access(program, os.X_OK):
                raise SystemExit("chaos: %s is missing; build it: cmake --build %s --target %s" % (
                    program, args.build, os.path.basename(program)))  # fmt: skip
        small, bundled = cases.models(cases.SMALL), cases.models(cases.BUNDLED)
        replica_cases, rest_cases, small_cases = cases.make_cases(("trec",)), cases.make_rest_cases(), cases.make_cases(())
        log("computing the right answers")
        self._right_answers(server, {**small, **bundled}, (), replica_cases, rest_cases)
        # The bits of another backend are others.
        self._right_answers(server, small, ("--backend=reference",), small_cases, [])
        paths = {name: os.path.join(folder, name) for name in ("flood.cases", "replica.json", "rest.json", "small.json")}
        cases.save_for_flood(replica_cases, paths["flood.cases"])
        cases.save(replica_cases, paths["replica.json"])
        cases.save(rest_cases, paths["rest.json"])
        cases.save(small_cases, paths["small.json"])

        clock_shift = args.clock_shift or next(iter(glob.glob(os.path.join(args.build, "**", "libclock_shift.so"), recursive=True)), None)
        if clock_shift is None:
            args.chosen = [one for one in args.chosen if one.name != "clock steps"]
            self.remark("there is no libclock_shift.so in the build: no clock was stepped")
        replicas = []
        for number in range(args.servers):
            name = "replica-%d" % number
            os.makedirs(os.path.join(folder, name))
            os.symlink(os.path.join(folder, "log"), os.path.join(folder, name, "log"))
            group, flags = self._bound_memory(name)
            if number >= args.servers - args.library:
                flags += (fleet.LIBRARY,)
            one = fleet.Server(
                name, server, os.path.join(folder, name), {**small, **bundled},
                ("--instances=1", "--caller_limits=highest_priority=high", *flags), clock_shift, group
            )
            self.servers[name] = one
            replicas.append(one)
        self._make_secure(secure, small)
        for one in self.servers.values():
            one.start()

        seed, kept = args.seed, lambda name: dict(seed=seed, think_s=0.03, cases="replica", right=paths[name])
        for number, one in enumerate(replicas):
            self.floods.append(
                fleet.flood("flood-%d" % number, one, flood, paths["flood.cases"], seed + number, FLOOD_DEADLINE_S, folder, self.on_report)
            )
            options = dict(kept("replica.json"), addresses=[one.address], balanced=False, threads=3, deadline_s=CALLER_DEADLINE_S)
            options.update(http_port=one.ports["http_port"], rest_right=paths["rest.json"])
            self.loads.append(fleet.caller("direct-%d" % number, one, options, folder, self.on_report))
        shared = dict(kept("replica.json"), balanced=True, threads=3, deadline_s=2 * CALLER_DEADLINE_S)
        addresses = [one.address for one in replicas]
        self.loads.append(fleet.caller("balanced", None, dict(shared, addresses=addresses), folder, self.on_report))
        if shutil.which("nginx"):
            self.nginx = fleet.Nginx(folder, replicas)
            through = dict(shared, addresses=["unix:" + self.nginx.socket])
            self.loads.append(fleet.caller("nginx", None, through, folder, self.on_report))
        else:
            self.remark("nginx is not installed: no calls went through it")
        options = dict(kept("small.json"), cases="small", addresses=[self.servers["secure"].address], balanced=False, threads=3)
        options.update(deadline_s=CALLER_DEADLINE_S, tls_ca=self.authority.certificate, token_file=self.token)
        self.loads.append(fleet.caller("secure", self.servers["secure"], options, folder, self.on_report))
        self._monitor_thread = threading.Thread(target=self._monitor, daemon=True)
        self._monitor_thread.start()

    def _bound_memory(self, name):
        """A control group for a replica, or None and the flags that a server in one would choose by itself."""
        if not self.is_bounded:
            return None, ()
        try:
            return ControlGroup("chaos-" + name, fleet.REPLICA_BYTES), ()
        except OSError as error:
            self.remark("no control group could be made (%s): the kernel bounded no replica's memory" % error.strerror)
            budget = fleet.REPLICA_BYTES // 4 // 10**6
            return None, ("--max_inflight_mb=%d" % budget, "--max_receive_memory_mb=%d" % budget)

    def _right_answers(self, binary, models, flags, grpc_cases, rest_cases):
        answers = {case: [] for case in grpc_cases + rest_cases}
        for odd in (False, True):
            name = "calm-%s-%s" % ("odd" if odd else "even", "reference" if flags else "own")
            os.makedirs(os.path.join(self.folder, name))
            calm = fleet.Server(name, binary, os.path.join(self.folder, name), models, flags)
            for model in models:
                if not odd and model != cases.CONSTANT_MODEL:
                    folder = os.path.join(calm.repository, model)
                    cases.copy_model(models[model], os.path.join(folder, "2"), odd=False)
                    shutil.rmtree(os.path.join(folder, "1"))
            calm.start()
            if self.is_bounded and calm.address_space() > SHADOW_BYTES:
                self.is_bounded = False
                self.remark("a sanitizer's memory cannot be bounded")
            try:
                with grpc.insecure_channel(calm.address) as channel:
                    for case in grpc_cases:
                        answers[case].append(cases.call_calmly(channel, case))
                for case in rest_cases:
                    answers[case].append(cases.call_rest_calmly(calm.ports["http_port"], case))
            finally:
                calm.stop()
                shutil.rmtree(calm.repository)
            self.problems += calm.problems
        for case, right in answers.items():
            case.right = right
        changing = {"Classify", "Encode", "Score", "Answer", "Translate", "ModelInfer", "EncodeStream"}
        differ = {case.kind for case in grpc_cases if case.right[0] != case.right[1]}
        if not changing <= differ:
            raise RuntimeError("both sets of weights give the same answers: %s" % (changing - differ))

    def _make_secure(self, binary, models):
        folder = os.path.join(self.folder, "secure")
        os.makedirs(folder)
        os.symlink(os.path.join(self.folder, "log"), os.path.join(folder, "log"))
        self.authority = _authority(folder)
        pair = self.authority.issue("server")
        tls = [os.path.join(folder, name) for name in ("tls.crt", "tls.key")]
        for source, target in zip(pair, tls):
            shutil.copyfile(source, target)
        token = "%032x" % random.Random(self.args.seed).getrandbits(128)
        self.token, tokens = os.path.join(folder, "token"), os.path.join(folder, "tokens")
        for path, text in ((self.token, token), (tokens, "callers %s\n" % token)):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        # Its log has every call: there one can look up whether the service has seen one that broke.
        flags = ("--instances=0", "--log_requests_per_second=0", "--tls_cert=" + tls[0], "--tls_key=" + tls[1])
        flags += ("--auth_tokens_file=" + tokens,)
        server = fleet.Server("secure", binary, folder, models, flags)
        server.tls, server.tokens = tls, tokens
        self.servers["secure"] = server

    # --- what is seen

    def on_report(self, load, when, ends, events):
        with self._lock:
            for key, number in ends.items():
                if ":" not in key:
                    self.ends[(load.name, "not sent", key)] += number
                    continue
                kind, end = key.rsplit(":", 1)
                self.ends[(load.name, kind, end)] += number
                if end == "OK" and load.target is not None:
                    self.oks[load.target.name][int(when * 4)] += number
                if end not in FINE:
                    what = "; ".join(str(event[3]) for event in events if event[1] == kind and event[2] == end)[:400]
                    self.broken.append((when, load, kind, end, number, what))

    def _monitor(self):
        pids = {}
        while not self._stop.wait(1):
            for server in list(self.servers.values()):
                if server.restart_if_crashed():
                    continue
                usage = server.usage() if server.alive() else None
                if usage is None:
                    continue
                with self._lock:
                    if pids.get(server.name) != server.pid:
                        pids[server.name] = server.pid
                        self.usage[server.name].append([])
                    self.usage[server.name][-1].append((time.monotonic() - self.began, *usage))

    def rate(self, server, begin, end):
        """OK calls per second on one server, by callers of it alone."""
        with self._lock:
            bins = self.oks[server]
            return sum(bins[i] for i in range(int(begin * 4), int(end * 4))) / max(0.25, end - begin)

    # --- what happens

    def set_rate(self, per_second):
        self.arrivals = per_second
        for one in self.floods:
            one.set_rate(per_second / len(self.floods))

    def measure_saturation(self):
        """Calls per second that the replicas answer together when more come than they can answer."""
        names = [one.target.name for one in self.floods]
        rate, best = 500.0, 0.0
        for _ in range(8):
            self.set_rate(rate)
            time.sleep(3)
            now = time.monotonic() - 0.5
            answered = sum(self.rate(name, now - 1.5, now) for name in names)
            best = max(best, answered)
            if best > 0 and answered < 0.8 * rate:
                break
            rate *= 2
        if best == 0:
            raise RuntimeError("no server answers")
        return best

    def _keep_logs(self):
        """Takes what was logged so far off the small file system, which is to be full only as a fault."""
        os.makedirs(self.kept_logs, exist_ok=True)
        for path in glob.glob(os.path.join(self.small_disk, "*.log")):
            with open(path, "r+b") as log_file, open(os.path.join(self.kept_logs, os.path.basename(path)), "ab") as kept:
                shutil.copyfileobj(log_file, kept)
                log_file.truncate(0)  # servers append

    def _earlier_rates(self, arrivals):
        """Sets the rate of arrivals and measures what each server answers of it."""
        settle_s = SETTLE_S if arrivals < self.arrivals else 0
        self.set_rate(arrivals)
        time.sleep(settle_s + BASE_S + 1)
        now = time.monotonic()
        return {name: self.rate(name, now - BASE_S - 0.5, now - 0.5) for name in self.servers}

    def strike(self, planned):
        """One entry of the schedule: the earlier rate, the faults, until all servers are themselves again."""
        if self.small_disk and shutil.disk_usage(self.small_disk).used > fleet.SMALL_BYTES / 4:
            self._keep_logs()
        earlier = self._earlier_rates(planned.level * self.saturation)
        begin = time.monotonic()
        log(describe(planned).strip())
        done = []

        def run(fault, target, seed):
            remarks = len(self.remarks)
            try:
                fault.run(self, self.servers[target], random.Random(seed))
            except Exception as error:  # whatever it is, the servers must not be left as they are
                self.problem("FAULT: %s on %s: %r" % (fault.name, target, error))
            done.append((fault, target, time.monotonic(), self.remarks[remarks:]))

        threads = [threading.Thread(target=run, args=strike) for strike in planned.strikes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for fault, target, end, remarks in done:
            took = self._recovery(target, end, earlier[target])
            if took is None:
                seconds = [self.rate(target, second, second + 1) for second in range(int(begin) - 10, int(time.monotonic()) - 1)]
                log("%s, OK calls in each second from 10 s before the fault on: %s" % (target, " ".join("%.0f" % one for one in seconds)))
                self.problem("RECOVERY: %s did not come back to %.0f calls/s within %g s of %s (%s)" % (
                    target, RECOVERED * earlier[target], self.args.recovery_s, fault.name, self.servers[target].log_path))  # fmt: skip
            self.struck.append((planned.number, fault, target, planned.level, begin, end, took, remarks))

    def _recovery(self, server, end, earlier):
        begin = int(end * 4) + 1
        latest = end + self.args.recovery_s - fleet.STALLS.total()
        while True:
            last = int((time.monotonic() - 0.5) * 4)
            for first in range(begin, last - 3):
                if self.rate(server, first / 4, first / 4 + 1) >= max(1, RECOVERED * earlier):
                    return max(0.0, first / 4 - end)
            if time.monotonic() > latest + fleet.STALLS.total():
                return None
            time.sleep(0.25)

    def progress(self, left_s):
        with self._lock:
            calls = sum(number for (_, kind, _), number in self.ends.items() if kind != "not sent")
            wrong = sum(number for (_, _, end), number in self.ends.items() if end == "WRONG")
        return "%s calls, %d wrong, %d faults, %d problems, %d s left" % (
            report.count(calls), wrong, len(self.struck), len(self.problems), max(0, left_s))  # fmt: skip

    # --- the end

    def quiet_down(self):
        """Ends the load and looks whether anything is left behind in the servers."""
        self.set_rate(0)
        for one in self.floods + self.loads:
            wrong = one.close()
            if wrong:
                self.problem(wrong)
        for server in self.servers.values():
            for metric in ("sru_requests_in_flight", "sru_open_streams", "sru_unsent_answers", "sru_inflight_bytes"):
                try:
                    fleet.await_true(metric, lambda: server.metric(metric) == 0, 30)
                except (TimeoutError, OSError) as error:
                    self.problem("HANG: %s of %s is not 0 after the load has ended (%s)" % (metric, server.name, error))
        self._end_monitor()
        for server in self.servers.values():
            server.stop()

    def _end_monitor(self):
        self._stop.set()
        if self._monitor_thread is not None:
            self._monitor_thread.join()
            self._monitor_thread = None

    def tear_down(self):
        """Ends whatever still runs, however the run has ended."""
        self._end_monitor()
        for one in self.floods + self.loads:
            one.kill()
        if self.nginx is not None:
            self.nginx.stop()
        for server in self.servers.values():
            if server.alive():
                server.process.kill()
                server.process.wait()
            if server.group:
                self.kernel_kills += server.group.remove()
                server.group = None
        if self.small_disk:
            self._keep_logs()
            fleet.unmount(self.small_disk)
            shutil.copytree(self.kept_logs, self.small_disk, dirs_exist_ok=True)  # where messages say that they are
            shutil.rmtree(self.kept_logs)
            self.small_disk = None


def _authority(folder):
    """A certificate authority in a folder, from the tests of TLS."""
    sys.argv[1:4] = ["-", "-", "-"]  # that module reads the command line of its tests
    sys.path.insert(0, os.path.join(cases.ROOT, "tests", "integration"))
    from server_process import Authority

    return Authority(folder, "authority")


class Verdict:
    """What the numbers say. `musts`: (what, found, wanted, whether it holds)."""

    def __init__(self, world):
        self.world = world
        self.musts = []
        self.by_end = collections.Counter()
        self.by_kind = collections.defaultdict(collections.Counter)
        for (_, kind, end), number in world.ends.items():
            if kind != "not sent":
                self.by_end[end] += number
                self.by_kind[kind][end] += number
        self.not_sent = sum(world.ends.values()) - sum(self.by_end.values())
        self.killed = self.lost = self.turned_away = self.http_cut = self.stood_still = self.unusual = 0
        for entry in world.broken:
            self._judge(entry)
        for server in world.servers.values():
            world.problems += server.problems
        self._sanitizers()
        problems = collections.Counter(text.split(":")[0] for text in world.problems)
        self._must("calls", sum(self.by_end.values()), "more than 0", self.by_end["OK"] > 0)
        self._none("wrong answers", self.by_end["WRONG"])
        self._none("accepted calls without an answer", self.lost)
        self._must("the same, on a process that was killed", self.killed, "any", True)
        if self.stood_still:
            self._must("the same, after the machine had not run them for %d of %d s" % STOOD_STILL_S, self.stood_still, "any", True)
        self._none("drains that were not complete", problems["LOST"])
        self._none("crashes", problems["CRASH"])
        self._none("replicas that the kernel killed for their memory", world.kernel_kills)
        if world.is_bounded:
            replicas = [processes for name, processes in world.usage.items() if name.startswith("replica-")]
            most = max((one[1] for processes in replicas for process in processes for one in process), default=0)
            self._must(
                "resident memory of the largest replica", "%d MiB" % (most >> 20),
                "at most %d MiB" % (fleet.REPLICA_BYTES >> 20), most <= fleet.REPLICA_BYTES,
            )  # fmt: skip
        self._none("hangs of calls or processes", self.by_end["HUNG"] + problems["HANG"])
        self._none("answers of a code that is no honest caller's fault", self.unusual)
        other = sum(problems.values()) - sum(problems[name] for name in ("LOST", "CRASH", "HANG", "RECOVERY"))
        self._none("faults whose own check failed", other)
        self._growth()
        self._none("faults from which a server did not recover in %g s" % world.args.recovery_s, problems["RECOVERY"])
        self.holds = all(one[3] for one in self.musts)

    def _must(self, *must):
        self.musts.append(must)

    def _none(self, what, found):
        self._must(what, found, 0, found == 0)

    def _judge(self, entry):
        when, load, kind, end, number, what = entry
        targets = [load.target] if load.target is not None else list(self.world.servers.values())
        if end in ("WRONG", "HUNG"):
            self._keep(entry)
            return
        in_window = lambda spans: any(  # noqa: E731
            begin - 1 <= when <= (ended or when) + AFTERMATH_S + fleet.STALLS.within(begin, when)
            for one in targets
            for begin, ended in spans(one)
        )
        if end == "CANCELLED" and in_window(lambda one: one.stopping if one.has_library else []):
            self.turned_away += number
        elif end in ("BROKEN", "CANCELLED"):
            if in_window(lambda one: one.killed):
                self.killed += number
            elif kind.startswith("REST") and in_window(lambda one: one.stopping):
                self.http_cut += number
            elif fleet.STALLS.within(when - STOOD_STILL_S[1], when) >= STOOD_STILL_S[0]:
                self.stood_still += number
            else:
                self.lost += number
                self._keep(entry)
        else:
            self.unusual += number
            self._keep(entry)

    def _keep(self, entry):
        when, load, kind, end, number, what = entry
        kept = self.world.samples.setdefault((load.name, kind, end), [0, when - self.world.began, what])
        kept[0] += number

    def _sanitizers(self):
        for path in glob.glob(os.path.join(self.world.folder, "log", "*.log")):
            with open(path, encoding="utf-8", errors="replace") as file:
                if "Sanitizer" in file.read():
                    self.world.problems.append("CRASH: a sanitizer's report in " + path)

    def _growth(self):
        """Of the replica that is never restarted, after the first fifth of the run."""
        processes = self.world.usage.get("replica-0") or [[]]
        samples = processes[-1]
        since = samples[0][0] + 0.2 * (samples[-1][0] - samples[0][0]) if samples else 0
        judged = [one for one in samples if one[0] >= since]
        if len(judged) < 20:
            self._must("memory and descriptors of a replica that is never restarted", "too short a run", "–", True)
            return
        memory, median = report.growth([(one[0], one[1]) for one in judged])
        slack = max(MEMORY_SLACK[0] * median, MEMORY_SLACK[1])
        minutes = (judged[-1][0] - judged[0][0]) / 60
        self._must(
            "growth of resident memory in %.0f min, replica-0 (median %d MiB)" % (minutes, int(median) >> 20),
            "%.1f MiB" % (memory / 2**20), "at most %d MiB" % (slack / 2**20), memory <= slack,
        )  # fmt: skip
        descriptors, median = report.growth([(one[0], one[2]) for one in judged])
        self._must(
            "growth of open descriptors, replica-0 (median %d)" % median,
            "%.1f" % descriptors, "at most %d" % DESCRIPTOR_SLACK, descriptors <= DESCRIPTOR_SLACK,
        )  # fmt: skip

    def page(self):
        world, args = self.world, self.world.args
        seconds = world.ended - world.began
        lines = [
            "# Chaos",
            "",
            "Written by `%s`, which ran for %.0f minutes: %d replicas, of which %d speak gRPC through its library, and one server with TLS,"
            % (args.command.strip(), seconds / 60, args.servers, args.library),
            "tokens and devices that are lost, on %s together with their callers. Date: %s. Backend cpu. Verdict: **%s**."
            % ("%d core%s" % (CORES, "" if CORES == 1 else "s"), datetime.date.today().isoformat(), "nothing was lost" if self.holds else "BROKEN"),
            "Saturation of the replicas together: %s calls/s with these callers beside them; arrivals of the open loop are %s times as many."
            % (report.count(round(world.saturation)), ", ".join("%g" % level for level in LEVELS)),
            "",
            report.table(
                ("", "found", "wanted"),
                [(what, found if holds else "**%s**" % found, wanted) for what, found, wanted, holds in
                 [(w, report.count(f) if isinstance(f, int) else f, x, h) for w, f, x, h in self.musts]],
            ),
            "",
            "## Calls",
            "",
        ]
        ends = sorted(self.by_end, key=lambda end: (end != "OK", end))
        rows = [
            [kind] + [report.count(self.by_kind[kind][end]) if self.by_kind[kind][end] else "" for end in ends]
            for kind in sorted(self.by_kind)
        ]
        rows.append(["**all**"] + ["**%s**" % report.count(self.by_end[end]) for end in ends])
        lines += [
            report.table(["call"] + ends, rows),
            "",
            "A code is the server's own word; `tests/chaos/caller.py` says what the other ends mean. BROKEN or CANCELLED were %s calls on processes that were"
            % report.count(self.killed),
            "killed, %s that gRPC's library cancelled between its stop and its `GOAWAY`, %s over HTTP/1.1 while a server ended, which cannot say which"
            % (report.count(self.turned_away), report.count(self.http_cut)),
            "requests on a connection that closes were taken, and %s others. %s arrivals of the open loop were not sent, since their connection had as many"
            % (report.count(self.lost), report.count(self.not_sent)),
            "calls open as it may.",
            "",
            "## Faults",
            "",
        ]
        by_fault = collections.defaultdict(list)
        for one in world.struck:
            by_fault[(one[1].name, one[1].what)].append(one)
        lines += [
            report.table(
                ("fault", "what", "times", "lasted", "recovered in"),
                [
                    (name, what, len(group), report.spread([one[5] - one[4] for one in group]),
                     report.spread([one[6] for one in group if one[6] is not None]))
                    for (name, what), group in sorted(by_fault.items())
                ],
            ),
            "",
            "Recovered: from the fault's end until the server answers, over one second, at least three quarters of the calls per second of the 3 s before",
            "the fault (0.0 s: at once). Seconds are counted in quarters.",
            "",
        ]
        if world.large_calls:
            world.remarks.append("the large calls got %s" % dict(sorted(world.large_calls.items())))
        if fleet.STALLS.total() > 5:
            world.remarks.append("the machine did not run this program for %d s altogether" % fleet.STALLS.total())
        missed = {one.name for one in args.chosen} - {one[1].name for one in world.struck}
        if missed:
            world.remarks.append("there was no time for " + ", ".join(sorted(missed)))
        if world.remarks:
            lines += ["Remarks: " + "; ".join(sorted(set(world.remarks))) + ".", ""]
        if world.problems or world.samples:
            lines += ["## What was broken", ""]
            lines += ["* " + text.replace(world.folder, "FOLDER") for text in world.problems[:50]]
            lines += ["* " + text for text in _sample_lines(world)]
            lines += [""]
        lines += [
            "## The schedule",
            "",
            "Drawn from seed %d; `scripts/chaos.sh --list --seed=%d --servers=%d` prints it without running it." % (args.seed, args.seed, args.servers),
            "",
            "```",
        ]
        lines += [describe(planned) for planned in world.done[:60]]
        lines += ["```", ""] if len(world.done) <= 60 else ["... and so on, %d in all" % len(world.done), "```", ""]
        return "\n".join(lines)


def _sample_lines(world):
    return [
        "%s, %s: %s, %d times, the first one after %.1f s: %s" % (*key, number, when, what[:300])
        for key, (number, when, what) in list(world.samples.items())[:40]
    ]


def run(args, folder):
    world = World(args, folder)
    world.done = []
    world.saturation = 0
    terminal = sys.stdout.isatty()
    try:
        world.set_up()
        log("measuring saturation")
        time.sleep(2)
        world.saturation = world.measure_saturation()
        log("saturation: %.0f calls/s" % world.saturation)
        end = time.monotonic() + 60 * args.minutes
        told, stalled = time.monotonic(), fleet.STALLS.total()
        progress = threading.Event()

        def tell():
            while not progress.wait(5 if terminal else 60):
                log(world.progress(end - time.monotonic()))

        threading.Thread(target=tell, daemon=True).start()
        for planned in schedule(args.seed, args.chosen, args.servers):
            # What would not be over in time is not begun; a fault lasts 12 s or so with what is before and after it.
            grace = min(fleet.STALLS.total() - stalled, 30 * args.minutes)
            if time.monotonic() + 12 > end + grace and world.done:
                break
            world.strike(planned)
            world.done.append(planned)
        progress.set()
        world.quiet_down()
        log("ended after %.0f s" % (time.monotonic() - told))
    finally:
        world.ended = time.monotonic()
        world.tear_down()
    verdict = Verdict(world)
    out = args.out or os.path.join(folder, "chaos.md")
    with open(out, "w", encoding="utf-8") as file:
        file.write(verdict.page())
    for what, found, wanted, holds in verdict.musts:
        log("%s %s: %s (wanted: %s)" % ("  " if holds else "!!", what, found, wanted))
    for text in world.problems:
        log("!! " + text)
    for text in _sample_lines(world):
        log("!! " + text)
    log("written: %s" % out)
    return verdict.holds


def main():
    args = parse_arguments()
    print("seed %d, %d replicas, %g minutes" % (args.seed, args.servers, args.minutes))
    planned = schedule(args.seed, args.chosen, args.servers)
    shown = [next(planned) for _ in range(2 * len(args.chosen) if args.list else max(len(args.chosen), int(args.minutes * 6)))]
    print("\n".join(describe(one) for one in shown), flush=True)
    if args.list:
        print("\n" + "\n".join("%-22s %s" % (one.name, one.what) for one in faults.FAULTS))
        return 0
    if shutil.which("openssl") is None:
        print("SKIPPED: there is no program openssl")
        return 77
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    # A path of nginx' socket must be short.
    folder = os.path.abspath(args.folder) if args.folder else tempfile.mkdtemp(prefix="sru-chaos-")
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        print("chaos: --folder: %s is not empty" % folder, file=sys.stderr)
        return 2
    holds = False
    try:
        holds = run(args, folder)
    except KeyboardInterrupt:
        log("interrupted")
        return 130
    finally:
        if holds and not args.folder:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            log("logs and files: %s" % folder)
    log("nothing was lost" if holds else "BROKEN, see above")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
