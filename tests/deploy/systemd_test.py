"""deploy/systemd: systemd takes the unit, the server takes what the unit gives it, says when it is ready and ends within its time.

The first argument is the folder of the programs.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import running

UNIT = os.path.join(running.ROOT, "deploy", "systemd", "sru-server.service.in")
EXPOSURE = 20  # tenths, of systemd-analyze security


def unit_text(prefix="/usr"):
    with open(UNIT, encoding="utf-8") as file:
        return file.read().replace("@PREFIX@", prefix)


def settings():
    """{key: value} of the unit; a key that comes again has the last value."""
    return dict(line.split("=", 1) for line in unit_text().splitlines() if re.match(r"[A-Za-z]+=", line))


class SystemdTest(unittest.TestCase):

    def analyze(self, text, *arguments):
        """What systemd-analyze says of a unit."""
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "sru-server.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return running.run("systemd-analyze", *arguments, path, stderr=subprocess.STDOUT)

    def test_systemd_takes_the_unit(self):
        text = unit_text().replace("/usr/bin/sru_server", os.path.join(PROGRAMS, "sru_server"))
        complaints = [line for line in self.analyze(text, "verify").stdout.splitlines() if "sru-server" in line]
        self.assertEqual(complaints, [])

    def test_the_unit_is_sandboxed(self):
        arguments = ("security", "--offline=true", "--threshold=%d" % EXPOSURE)
        self.assertEqual(self.analyze(unit_text(), *arguments).returncode, 0)
        open_unit = re.sub(r"(Protect|Private|Restrict)\w+=.*", "", unit_text())
        self.assertNotEqual(self.analyze(open_unit, *arguments).returncode, 0)

    def test_it_is_installed_with_the_paths_of_its_prefix(self):
        with tempfile.TemporaryDirectory() as folder:
            done = running.run("cmake", "--install", os.path.dirname(PROGRAMS), "--prefix", folder, "--component", "service")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "lib/systemd/system/sru-server.service"), encoding="utf-8") as file:
                self.assertEqual(file.read(), unit_text(folder))
            with open(os.path.join(folder, "lib/sysusers.d/sru-server.conf"), encoding="utf-8") as file:
                self.assertRegex(file.read(), r"^u %s " % settings()["User"])

    def test_the_server_takes_its_variables_and_says_when_it_is_ready(self):
        variables = dict(part.split("=", 1) for part in settings()["Environment"].split())
        self.assertEqual(settings()["Type"], "notify")
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(os.path.join(folder, "notify"))
            told.settimeout(running.DEADLINE_S)
            variables.update(SRU_MODEL_REPOSITORY=running.MODELS, NOTIFY_SOCKET=os.path.join(folder, "notify"))
            process = subprocess.Popen(
                [os.path.join(PROGRAMS, "sru_server"), "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                 "--http_listen="], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                env={"PATH": os.environ["PATH"], **variables})
            try:
                self.assertEqual(told.recv(100), b"READY=1")
                self.assertIn("listening on", process.stdout.readline())
            finally:
                process.terminate()
                _, errors = process.communicate(timeout=running.DEADLINE_S)
            self.assertEqual(process.returncode, 0, errors)
            self.assertEqual(told.recv(100), b"STOPPING=1")
        self.assertEqual(variables["SRU_MODEL_CONTROL"], "poll")  # else a reload would not look at the models
        self.assertGreater(int(settings()["TimeoutStopSec"]), int(variables["SRU_DRAIN_TIMEOUT_S"]))

    def test_a_name_that_is_no_files(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(b"\0sru-notify-%d" % os.getpid())
            told.settimeout(running.DEADLINE_S)
            with running.Server(PROGRAMS, {"NOTIFY_SOCKET": "@sru-notify-%d" % os.getpid()}):
                self.assertEqual(told.recv(100), b"READY=1")

    def test_nobody_listens(self):
        with running.Server(PROGRAMS, {"NOTIFY_SOCKET": "/nowhere/notify"}) as server:
            self.assertEqual(server.client("health"), 0)


class DemoTest(unittest.TestCase):
    """--demo of a program in the folder build/ of a checkout; wheel_test.py has that of an installation."""

    def test_it_finds_the_models_of_the_checkout(self):
        with running.Server(PROGRAMS, {"SRU_DEMO": "true", "SRU_MODEL_REPOSITORY": "/nowhere"}) as server:
            self.assertEqual(server.client("classify", "--model=trec", "Where is Samarkand ?"), 0)

    def test_a_program_alone_says_where_it_looked(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.realpath(folder)
            os.mkdir(os.path.join(folder, "bin"))
            shutil.copy(os.path.join(PROGRAMS, "sru_server"), os.path.join(folder, "bin"))
            done = running.run(os.path.join(folder, "bin", "sru_server"), "--demo")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--demo: expected the bundled models in %s/share/sru/models or " % folder, done.stderr)
        self.assertIn("give --model_repository=DIR", done.stderr)


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main()
