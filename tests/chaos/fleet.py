"""The processes: servers on fixed ports that can be killed and started again, nginx, floods and callers."""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import cases

HERE = os.path.dirname(os.path.abspath(__file__))
DRAIN_TIMEOUT_S = 20
# A process that has not ended this long after a SIGTERM, of which DRAIN_TIMEOUT_S may be a drain, hangs.
STOP_GRACE_S = 20
START_S = 60
SMALL_BYTES = 64 << 20  # of the file system under the logs
REPLICA_BYTES = 512 << 20  # of memory that a replica may take
FLAGS = (
    "--listen=127.0.0.1:{port}",
    "--http_listen=127.0.0.1:{http_port}",
    "--metrics_listen=127.0.0.1:{metrics_port}",
    "--model_control=poll",
    "--poll_interval_s=0.3",
    "--credentials_poll_interval_s=0.3",
    "--drain_timeout_s=%d" % DRAIN_TIMEOUT_S,
    "--log_requests=all",
    "--max_queue_tokens=8192",  # so that it fills up
)


LIBRARY = "--grpc_transport=library"


def log(text):
    print("[%s] %s" % (time.strftime("%H:%M:%S"), text), flush=True)


class Stalls:
    """How long this machine has not run what should have run, in seconds since the start: a bound on time does not count
    what nobody had. A thread sleeps and looks by how much it oversleeps."""

    def __init__(self):
        self._total = 0.0
        self._spans = []  # (begin, end) of each
        self._due = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            self._due = time.monotonic() + 0.1
            time.sleep(0.1)
            late = time.monotonic() - self._due
            if late > 0.2:
                self._total += late
                self._spans.append((self._due, self._due + late))

    def within(self, begin, end):
        return sum(max(0, min(end, last) - max(begin, first)) for first, last in list(self._spans))

    def total(self):
        """Whoever asks may run again before the thread does."""
        late = time.monotonic() - self._due
        return self._total + (late if late > 0.2 else 0)


STALLS = Stalls()


def await_true(what, condition, timeout):
    """Raises TimeoutError. The condition may raise OSError while there is no server."""
    end = time.monotonic() + timeout - STALLS.total()
    while not condition():
        if time.monotonic() > end + STALLS.total():
            raise TimeoutError("not within %d s: %s" % (timeout, what))
        time.sleep(0.05)


def free_ports(count):
    """Ports that stay free while their server is down: not of those that the system gives to connections of clients."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    found = []
    while len(found) < count:
        port = random.randrange(max(1024, first // 2), first)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class Server:
    """A server, through all of its processes. `ends` has how each ended: (pid, exit code, what it was told)."""

    def __init__(self, name, binary, folder, models, flags=(), clock_shift=None, group=None):
        self.name, self.binary, self.folder = name, binary, folder
        self.repository = os.path.join(folder, "models")
        os.makedirs(self.repository)
        self.sources = models
        for model, source in models.items():
            cases.copy_model(source, os.path.join(self.repository, model, "1"), odd=True)
        self.flags = flags
        self.has_library = LIBRARY in flags
        self.group = group
        self.clock_file = None
        self._environment = dict(os.environ)
        if clock_shift:
            self.clock_file = os.path.join(folder, "clock")
            self.step_clock(0)
            self._environment.update(LD_PRELOAD=clock_shift, CLOCK_SHIFT_FILE=self.clock_file)
        self.ports = None
        self.process = None
        self.log_path = None
        self.starts = 0
        self.ends = []
        self.problems = []  # crashes and hangs, in words
        self.killed = []  # when, CLOCK_MONOTONIC
        self.stopping = []  # [when it was told to stop, when it ended]
        self._told = None
        self._lock = threading.Lock()

    def step_clock(self, seconds):
        with open(self.clock_file, "r+b" if os.path.exists(self.clock_file) else "w+b") as file:
            file.write(int(seconds * 10**9).to_bytes(8, "little", signed=True))

    def start(self):
        with self._lock:
            self._start()

    def _start(self):
        if self.ports is None:
            self.ports = dict(zip(("port", "http_port", "metrics_port"), free_ports(3)))
        self.starts += 1
        self._told = None
        self.log_path = os.path.join(self.folder, "log", "%s-%d.log" % (self.name, self.starts))
        os.makedirs(os.path.dirname(self.log_path), exist_ok=True)
        command = [self.binary, "--model_repository=" + self.repository]
        command += [flag.format(**self.ports) for flag in FLAGS] + list(self.flags)
        with open(self.log_path, "ab") as err:
            self.process = subprocess.Popen(
                self.group.within(command) if self.group else command,
                stdout=subprocess.PIPE,
                stderr=err,
                env=self._environment,
                text=True,
                start_new_session=True,  # Ctrl-C is for chaos.py
                restore_signals=False,  # SIGXFSZ stays ignored, so that a log can be limited (faults.FullLog)
            )
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError("%s did not start: %s" % (self.name, self.log_tail()))
        self.process.stdout.close()
        log("%s serves, process %d" % (self.name, self.process.pid))

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        return "127.0.0.1:%d" % self.ports["port"]

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def log_tail(self, size=600):
        with open(self.log_path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode(errors="replace")

    def tell(self, number):
        """A signal that is to end it."""
        with self._lock:
            self._told = number
            (self.killed if number == signal.SIGKILL else self.stopping).append([time.monotonic(), None])
            self.process.send_signal(number)

    def await_end(self):
        """Waits for what tell() has asked for, and records how it went."""
        told = self._told
        try:
            self.process.wait(DRAIN_TIMEOUT_S + STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self.problems.append("HANG: %s did not end %d s after SIGTERM" % (self.name, DRAIN_TIMEOUT_S + STOP_GRACE_S))
            self.process.kill()
            self.process.wait()
        (self.killed if told == signal.SIGKILL else self.stopping)[-1][1] = time.monotonic()
        self._record(told)

    def _record(self, told):
        code = self.process.returncode
        self.ends.append((self.process.pid, code, told))
        if told == signal.SIGKILL:
            return
        if told is None or code < 0:
            self.problems.append("CRASH: %s ended with %d (%s)" % (self.name, code, self.log_path))
        elif code != 0:
            self.problems.append("LOST: the drain of %s was not complete, exit code %d (%s)" % (self.name, code, self.log_path))

    def restart_if_crashed(self):
        """For the monitor. Returns whether it had."""
        with self._lock:
            if self.process is None or self._told is not None or self.process.poll() is None:
                return False
            self._record(None)
            self.killed.append([time.monotonic(), time.monotonic()])
            log("%s CRASHED: %d\n%s" % (self.name, self.process.returncode, self.log_tail()))
            self._start()
            return True

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.tell(signal.SIGTERM)
            self.await_end()

    def page(self, path, timeout=10):
        url = "http://127.0.0.1:%d%s" % (self.ports["metrics_port"], path)
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.read().decode()

    def metric(self, name, *labels):
        """The sum of the series that have these labels."""
        found = re.findall(r"^%s(?:\{([^}]*)\})? (\S+)$" % re.escape(name), self.page("/metrics"), re.MULTILINE)
        return sum(float(value) for series, value in found if all(label in series for label in labels))

    def usage(self):
        """(resident bytes, descriptors), None if the process has ended."""
        try:
            with open("/proc/%d/status" % self.pid, encoding="ascii") as file:
                resident = int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024
            return resident, len(os.listdir("/proc/%d/fd" % self.pid))
        except (OSError, AttributeError):
            return None

    def address_space(self):
        with open("/proc/%d/status" % self.pid, encoding="ascii") as file:
            return int(re.search(r"VmSize:\s+(\d+) kB", file.read()).group(1)) * 1024

    def limit(self, which, soft):
        """Sets a limit of the running process; None lifts it. The hard limit stays, so that it can be lifted."""
        hard = resource.prlimit(self.pid, which)[1]
        resource.prlimit(self.pid, which, (hard if soft is None else soft, hard))

    def versions(self, model):
        return sorted(int(name) for name in os.listdir(os.path.join(self.repository, model)) if name.isdigit())


class Nginx:
    """The shipped configuration in front of the servers, on a socket of the folder."""

    def __init__(self, folder, servers):
        self.folder = os.path.join(folder, "nginx")
        os.makedirs(self.folder)
        with open(os.path.join(cases.ROOT, "deploy", "nginx", "sru.conf"), encoding="utf-8") as file:
            site = file.read()
        upstream = "".join("    server %s max_fails=1 fail_timeout=1s;\n" % one.address for one in servers)
        site, replaced = re.subn(r"(    server 127\.0\.0\.1:\d+ max_fails=1 fail_timeout=1s;\n)+", upstream, site)
        # A path of a socket has at most 107 bytes.
        self.socket = os.path.join(folder, "nginx.socket")
        site, listens = re.subn(r"listen 50050 http2;", "listen unix:%s http2;" % self.socket, site)
        if replaced != 1 or listens != 1:
            raise RuntimeError("deploy/nginx/sru.conf has another form than expected")
        with open(os.path.join(self.folder, "nginx.conf"), "w", encoding="utf-8") as file:
            file.write("worker_processes 1;\npid %s/pid;\nerror_log %s/error.log;\n" % (self.folder, self.folder))
            file.write("events { worker_connections 4096; }\nhttp {\naccess_log off;\n")
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
                file.write("%s_temp_path %s/%s;\n" % (name, self.folder, name))
            file.write(site + "}\n")
        self.process = subprocess.Popen(
            ["nginx", "-p", self.folder, "-c", os.path.join(self.folder, "nginx.conf"), "-g", "daemon off;"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await_true("nginx listens", lambda: os.path.exists(self.socket), 20)
        except TimeoutError:
            self.stop()
            raise

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Load:
    """A process that makes calls and reports their ends, chaos_flood or caller.py. `target`: the server that it calls
    alone, None for those that call any. on_report(load, time, {kind:end: count}, events) is called from a thread."""

    def __init__(self, name, target, command, folder, on_report):
        self.name, self.target = name, target
        self._on_report = on_report
        self._errors_path = os.path.join(folder, name + ".err")
        with open(self._errors_path, "ab") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                if line.startswith("{"):
                    report = json.loads(line)
                    self._on_report(self, report["t"], report["ends"], report["events"])
                else:
                    words = line.split()
                    ends = dict(word.rsplit("=", 1) for word in words[1:]) if words else {}
                    self._on_report(self, float(words[0]), {end: int(count) for end, count in ends.items()}, [])
            except (ValueError, KeyError, IndexError):
                log("%s said: %s" % (self.name, line.rstrip()))

    def set_rate(self, rate):
        try:
            self.process.stdin.write("%.3f\n" % rate)
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, which close() reports

    def close(self, timeout=120):
        """Returns what is wrong, or an empty string."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "HANG: %s did not end" % self.name
        self._thread.join(10)
        if code != 0:
            with open(self._errors_path, encoding="utf-8", errors="replace") as file:
                return "%s ended with %d: %s" % (self.name, code, file.read()[-500:])
        return ""

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def flood(name, server, binary, cases_path, seed, deadline_s, folder, on_report):
    command = [binary, server.address, cases_path, str(seed), str(int(deadline_s * 1000)), "20000"]
    return Load(name, server, command, folder, on_report)


def caller(name, server, options, folder, on_report):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(dict(options, name=name), file)
    command = [sys.executable, "-B", os.path.join(HERE, "caller.py"), path]
    return Load(name, server, command, folder, on_report)


def small_file_system(folder):
    """A file system of a few megabytes, if this process may mount one; else None."""
    os.makedirs(folder, exist_ok=True)
    if shutil.which("mount") is None:
        return None
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=%d" % SMALL_BYTES, "none", folder], stderr=subprocess.DEVNULL, check=False
    )
    return folder if done.returncode == 0 else None


def unmount(folder):
    subprocess.run(["umount", folder], stderr=subprocess.DEVNULL, check=False)
