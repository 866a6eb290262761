"""deploy/make_wheel.py: pip installs the wheel, its commands serve the bundled models, and it brings every library but glibc.

wheel_test.py BUILD
"""

import base64
import glob
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import zipfile

import running

BUILD = sys.argv.pop(1)
GLIBC = {"libc.so.6", "libm.so.6"}


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        script = os.path.join(running.ROOT, "deploy", "make_wheel.py")
        done = running.run(sys.executable, script, BUILD, work.name, timeout=240)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.wheel = done.stdout.strip()
        cls.venv = os.path.join(work.name, "venv")
        for command in (
            [sys.executable, "-m", "venv", cls.venv],
            [os.path.join(cls.venv, "bin", "pip"), "install", "-q", "--no-index", cls.wheel],
        ):
            subprocess.run(command, check=True)
        cls.package, = glob.glob(os.path.join(cls.venv, "lib", "python3*", "site-packages", "sru_server"))

    def python(self, *arguments):
        environment = {"PATH": os.environ["PATH"]}
        return subprocess.run([os.path.join(self.venv, "bin", "python"), *arguments], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout

    def test_the_tag_names_the_glibc_that_the_programs_need(self):
        needed = re.findall(r"GLIBC_2\.(\d+)", running.run(
            "objdump", "-T", *glob.glob(self.package + "/bin/*"), *glob.glob(self.package + "/lib/*")).stdout)
        self.assertIn("-py3-none-manylinux_2_%d_" % max(map(int, needed)), self.wheel)

    def test_everything_but_glibc_is_inside(self):
        libraries = set(os.listdir(os.path.join(self.package, "lib")))
        self.assertFalse([name for name in libraries if re.match(r"lib(c|m|pthread|dl)\.so|ld-", name)])
        for program in ("sru_server", "sru_client"):
            for line in running.run("ldd", os.path.join(self.package, "bin", program)).stdout.splitlines():
                found = re.match(r"\s*(\S+) => (\S+)", line)
                if found and found[1] not in GLIBC:
                    self.assertEqual(os.path.realpath(os.path.dirname(found[2])),
                                     os.path.realpath(os.path.join(self.package, "lib")), line)

    def test_licenses_and_the_record(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            info = re.match(r"(sru_server-[^-]+)-", os.path.basename(self.wheel))[1] + ".dist-info/"
            self.assertIn(info + "licenses/sru/LICENSE", wheel.namelist())
            record = [line.rsplit(",", 2) for line in wheel.read(info + "RECORD").decode().splitlines()]
            self.assertEqual(sorted(name for name, _, _ in record), sorted(wheel.namelist()))
            for name, digest, size in record[:-1]:
                data = wheel.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), ("sha256=" + expected, str(len(data))), name)

    def test_the_module_knows_its_paths(self):
        program, models = self.python("-c", "import sru_server as s; print(s.PROGRAM); print(s.MODELS)").split()
        self.assertTrue(os.access(program, os.X_OK), program)
        self.assertEqual(sorted(os.listdir(models)), ["trec", "war_and_peace"])
        self.assertRegex(self.python("-m", "sru_server", "--version"), r"^sru_server \d")

    def test_the_command_serves_with_nothing_else(self):
        command = [os.path.join(self.venv, "bin", "sru_server"), "--demo", "--listen=127.0.0.1:0", "--http_listen=",
                   "--metrics_listen=127.0.0.1:0"]
        with subprocess.Popen(command, env={}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                address = re.match(r"listening on ([^ ,]+)", server.stdout.readline())[1]
                asked = running.run(os.path.join(self.venv, "bin", "sru_client"), "classify", "--address=" + address,
                                    "Where is Lake Titicaca ?")
                self.assertIn("LOC", asked.stdout)
            finally:
                server.send_signal(signal.SIGTERM)
        self.assertEqual(server.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
