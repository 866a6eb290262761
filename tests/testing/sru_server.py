"""sru_server as a process of a test, and what can be seen of it from outside. Uses the standard library only."""

import os
import re
import subprocess
import tempfile
import urllib.request


class SruServer:
    """A server that says in its first line where it listens. Its log goes to a file, or to `stderr`, a file or descriptor. Raises
    RuntimeError, with the log, if it does not start. A context manager."""

    def __init__(self, command, env=None, stderr=None):
        self._directory = tempfile.TemporaryDirectory()
        self._log_path = os.path.join(self._directory.name, "stderr")
        self._closed_log = None
        with open(self._log_path, "wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                text=True,
                env={**os.environ, **(env or {})},
            )
        self.pid = self.process.pid
        self.first_line = self.process.stdout.readline()
        self.port = self.port_of("listening")
        self.metrics_port = self.port_of("metrics")
        if self.port is None or self.metrics_port is None:
            self.stop()
            raise RuntimeError("the server did not start: " + self.log())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def port_of(self, what):
        """Of "listening", "metrics", "HTTP" or "admin"; None if there is no such listener."""
        found = re.search(r"\b%s on [^ ]+:(\d+)" % what, self.first_line)
        return int(found.group(1)) if found else None

    def alive(self):
        return self.process.poll() is None

    def stop(self, timeout=30):
        """Sends SIGTERM, and SIGKILL if it has not ended in time. Returns the exit code."""
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(timeout=timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self._closed_log = self.log()
        self._directory.cleanup()
        return self.process.returncode

    def log(self):
        if self._closed_log is not None:
            return self._closed_log
        with open(self._log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def page(self, path, timeout=10):
        """What the metrics port answers."""
        url = "http://127.0.0.1:%d%s" % (self.metrics_port, path)
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.read().decode()

    def metric(self, series, timeout=10):
        """The value of a series, or the sum over its labels; None if there is none."""
        values = re.findall(r"(?m)^%s(?:\{.*\})? (\S+)$" % re.escape(series), self.page("/metrics", timeout))
        return sum(map(float, values)) if values else None

    def memory(self, name="VmRSS"):
        """In bytes; VmHWM is the most that was resident since the start, or since reset_peak()."""
        with open("/proc/%d/status" % self.pid, encoding="ascii") as status:
            return int(re.search(r"(?m)^%s:\s+(\d+) kB" % name, status.read()).group(1)) << 10

    def reset_peak(self):
        try:
            with open("/proc/%d/clear_refs" % self.pid, "w", encoding="ascii") as file:
                file.write("5")
        except OSError:  # the peak since the start has to do
            pass
