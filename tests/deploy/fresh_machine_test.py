"""Tests scripts/fresh_machine.sh without a network: a stand-in for debootstrap makes machines of a shell and little else.

What a real Debian adds is tried by running the script itself.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import running

SCRIPT = os.path.join(running.ROOT, "scripts", "fresh_machine.sh")

# debootstrap --variant=minbase SUITE ROOT MIRROR
DEBOOTSTRAP = """#!/bin/bash
set -eu
[ "$4" != http://mirror.invalid/refuses ] || { echo "E: no such release"; exit 1; }
root=$3
mkdir -p "$root"/{bin,usr/bin,usr/sbin,lib64,proc,sys,dev/pts,dev/shm,etc/apt/apt.conf.d,root,tmp,var/cache/apt/archives}
for program in bash env sleep touch umount; do
  path=$(command -v $program)
  cp -L "$path" "$root/bin/$program"
  for library in $(ldd "$path" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
done
cp "$root"/bin/* "$root/usr/bin/"
printf '#!/bin/bash\\nexit 0\\n' >"$root/usr/bin/apt-get"
chmod +x "$root/usr/bin/apt-get"
touch "$root/dev/null"
"""


def run(*arguments, environment=None, user=None):
    command = [SCRIPT, *arguments]
    if user is not None:
        command = [shutil.which("setpriv"), "--reuid", str(user), "--clear-groups", *command]
    return running.run(*command, env=environment)


def processes_with(text):
    """The command lines of all processes on this machine that contain this text."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, encoding="utf-8", errors="replace") as file:
                line = file.read().replace("\0", " ")
        except OSError:
            continue
        if text in line and int(pid) != os.getpid():
            found.append(line)
    return found


class ArgumentsTest(unittest.TestCase):
    def refused(self, *arguments):
        done = run(*arguments)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_help_names_every_option(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("bookworm", "trixie", "noble", "--command", "--files", "--root", "SRU_DEBIAN_MIRROR"):
            self.assertIn(word, done.stdout)

    def test_ubuntu_needs_its_keys(self):
        if os.geteuid() != 0 or shutil.which("debootstrap") is None:
            self.skipTest("needs root and debootstrap")
        done = running.run(os.path.join(running.ROOT, "scripts", "debian_root.sh"), "noble", "/nonexistent/root",
                           env={**os.environ, "SRU_UBUNTU_KEYRING": "/nonexistent/keys"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("SRU_UBUNTU_KEYRING: expected the keys of Ubuntu's package ubuntu-keyring, found no /nonexistent/keys", done.stderr)

    def test_refuses_what_it_does_not_know(self):
        self.assertIn("SUITE: expected bookworm, trixie or noble, found none", self.refused())
        self.assertIn("SUITE: expected bookworm, trixie or noble, found 'jessie'", self.refused("jessie"))
        self.assertIn("expected one SUITE, found bookworm and trixie", self.refused("bookworm", "trixie"))
        self.assertIn("unexpected argument '--kep'", self.refused("bookworm", "--kep"))
        self.assertIn("unexpected argument '--command='", self.refused("bookworm", "--command="))
        self.assertIn("--files: expected a folder, found /nowhere", self.refused("bookworm", "--files=/nowhere"))

    def test_removes_no_folder_that_it_did_not_make(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("--root: %s exists" % folder, self.refused("bookworm", "--root=" + folder))
            self.assertTrue(os.path.isdir(folder))


@unittest.skipIf(os.geteuid() != 0, "needs root, for mounts")
class MachineTest(unittest.TestCase):
    def setUp(self):
        for program in ("git", "unshare", "setpriv"):
            if shutil.which(program) is None:
                self.skipTest("needs " + program)
        if running.run("git", "-C", running.ROOT, "rev-parse").returncode:
            self.skipTest("needs a git checkout, which the machine clones")
        if running.run("unshare", "--mount", "--pid", "--fork", "true").returncode:
            self.skipTest("this machine lets nobody make namespaces")
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.root = os.path.join(work.name, "machine")
        programs = os.path.join(work.name, "bin")
        os.mkdir(programs)
        with open(os.path.join(programs, "debootstrap"), "w", encoding="ascii") as file:
            file.write(DEBOOTSTRAP)
        os.chmod(file.name, 0o755)
        self.environment = dict(os.environ, PATH=programs + ":" + os.environ["PATH"])
        self.environment.pop("SRU_DEBIAN_MIRROR", None)

    def run_in(self, command, *arguments):
        return run("bookworm", "--root=" + self.root, "--command=" + command, *arguments, environment=self.environment)

    def assert_nothing_is_left(self):
        self.assertFalse(os.path.exists(self.root))
        self.assertEqual(processes_with(self.root), [])
        with open("/proc/mounts", encoding="utf-8") as file:
            self.assertNotIn(self.root, file.read())

    def test_runs_a_command_in_a_clone_and_leaves_nothing(self):
        left_running = "sleep 1000.%d" % os.getpid()
        files = tempfile.TemporaryDirectory()
        self.addCleanup(files.cleanup)
        with open(os.path.join(files.name, "package"), "w", encoding="ascii") as file:
            file.write("here\n")
        done = self.run_in(
            "test -e README.md; test $(<build/package) = here; echo process 1 is $PPID; trap; %s & echo in $PWD; test ! -e %s" % (left_running, self.root),
            "--files=" + files.name,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("process 1 is 1\n", done.stdout)
        self.assertIn("in /root/sru_server\n", done.stdout)
        # Ignored signals would show here, and a test that sends SIGINT would wait forever.
        self.assertNotIn("trap -- '' SIG", done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r"^fresh_machine: bookworm: a fresh Debian \d+s, .*; all \d+s$")
        self.assertFalse(os.path.exists(self.root + ".logs"))
        self.assertEqual(processes_with(left_running), [])
        self.assert_nothing_is_left()

    def test_a_command_that_fails_gives_its_code_and_the_logs(self):
        done = self.run_in("echo before it fails; exit 7")
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"fresh_machine: bookworm: 'echo before it fails; exit 7' failed with 7 after \d+s")
        with open(self.root + ".logs/all.log", encoding="utf-8") as file:
            self.assertIn("\nbefore it fails\n", file.read())
        self.assert_nothing_is_left()

    def test_a_mirror_that_fails_is_named(self):
        self.environment["SRU_DEBIAN_MIRROR"] = "http://mirror.invalid/refuses"
        done = self.run_in("true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("E: no such release", done.stdout)
        self.assertIn("debootstrap of bookworm from http://mirror.invalid/refuses failed", done.stdout)
        self.assert_nothing_is_left()

    def start_and_signal(self, number):
        command = ["bookworm", "--root=" + self.root, "--command=echo it runs; sleep 1000"]
        process = subprocess.Popen(
            [SCRIPT, *command], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        with process:
            lines = iter(process.stdout.readline, "")
            self.assertTrue(any(line == "it runs\n" for line in lines))
            process.send_signal(number)
            rest = process.communicate(timeout=running.DEADLINE_S)[0]
        return process.returncode, rest

    def test_a_signal_ends_the_machine(self):
        code, rest = self.start_and_signal(signal.SIGTERM)
        self.assertEqual(code, 143)
        self.assertIn("failed with 143", rest)
        self.assert_nothing_is_left()

    def test_even_if_the_script_is_killed_no_process_is_left(self):
        self.start_and_signal(signal.SIGKILL)
        # The kernel ends the machine's processes one after the other, and nothing notifies us.
        deadline = time.monotonic() + running.DEADLINE_S
        while processes_with(self.root) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(processes_with(self.root), [])
        self.assertEqual(os.listdir(self.root + "/proc"), [], "nothing is mounted")

    def test_who_is_not_root_is_told(self):
        done = run("bookworm", "--root=/nonexistent/machine", environment=self.environment, user=65534)
        if re.search("Permission denied", done.stderr):
            self.skipTest("the checkout is not readable by others")
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs root, for debootstrap and mounts", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
