"""deploy/systemd: systemd takes the unit, and the server takes what the unit gives it and ends within its time.

The first argument is the folder of the programs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import running

UNIT = os.path.join(running.ROOT, "deploy", "systemd", "sru-server.service")


def settings():
    """{key: value} of the unit; a key that comes again has the last value."""
    with open(UNIT, encoding="utf-8") as file:
        return dict(line.strip().split("=", 1) for line in file if re.match(r"[A-Za-z]+=", line))


class SystemdTest(unittest.TestCase):

    def test_systemd_takes_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            with open(UNIT, encoding="utf-8") as file:
                text = file.read().replace("/usr/local/bin/sru_server", os.path.join(PROGRAMS, "sru_server"))
            path = os.path.join(folder, "sru-server.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            result = running.run("systemd-analyze", "verify", path, stderr=subprocess.STDOUT)
            complaints = [line for line in result.stdout.splitlines() if "sru-server" in line]
            self.assertEqual(complaints, [])

    def test_the_server_takes_its_variables(self):
        variables = dict(part.split("=", 1) for part in settings()["Environment"].split())
        with tempfile.TemporaryDirectory() as folder:
            variables["SRU_MODEL_REPOSITORY"] = running.MODELS
            process = subprocess.Popen(
                [os.path.join(PROGRAMS, "sru_server"), "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                 "--http_listen="], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                env={"PATH": os.environ["PATH"], **variables})
            try:
                self.assertIn("listening on", process.stdout.readline())
            finally:
                process.terminate()
                _, errors = process.communicate(timeout=running.DEADLINE_S)
            self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(variables["SRU_MODEL_CONTROL"], "poll")  # else a reload would not look at the models
        self.assertGreater(int(settings()["TimeoutStopSec"]), int(variables["SRU_DRAIN_TIMEOUT_S"]))


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main()
