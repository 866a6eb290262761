"""sru_inference.local_server: processes that start, share and leave a server, and ends of all kinds.

    local_server_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import tempfile
import unittest

from server_process import PYTHON_CLIENT, REPOSITORY, SERVER, await_true

from sru_inference import Client, local_server

FLAGS = ("--backend=cpu", "--instances=1")
# A process that uses the server until its standard input ends.
USER = """
import sys
from sru_inference import local_server
print(local_server(sys.argv[1], *sys.argv[3:], program=sys.argv[2] or None).address, flush=True)
sys.stdin.read()
"""


def servers():
    """Process ids of the servers that this test's folder is in the command line of."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open("/proc/%s/cmdline" % pid, encoding="utf-8") as file:
            if "--while_locked=" + tempfile.tempdir in file.read():
                found.append(int(pid))
    return found


class User:
    """Another process that asks for the server."""

    def __init__(self, *flags, program=SERVER, path=(), **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, REPOSITORY, program, *(flags or FLAGS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": tempfile.tempdir, "PYTHONPATH": os.pathsep.join([PYTHON_CLIENT, *path])},
            **options,
        )  # fmt: skip

    def address(self):
        return self.process.stdout.readline().strip()

    def leave(self):
        self.process.communicate()

    def kill(self):
        self.process.kill()
        self.leave()


class LocalServerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tempfile.tempdir = folder.name
        self.addCleanup(setattr, tempfile, "tempdir", None)
        self.addCleanup(self.await_end)

    def await_end(self):
        await_true(lambda: not servers(), "the server ends")

    def start(self, *flags, **options):
        return local_server(REPOSITORY, *(flags or FLAGS), program=SERVER, **options)

    def test_processes_share_one_that_ends_with_the_last_of_them(self):
        with self.start() as server:
            with Client(server.address) as client:
                self.assertEqual(client.classify(["How many moons does Jupiter have ?"], model="trec")[0].label, "NUM")
            users = [User() for _ in range(3)]
            self.assertEqual([user.address() for user in users], [server.address] * 3)
            (pid,) = servers()
            with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
                parent, _, session = stat.read().rpartition(")")[2].split()[1:4]
            self.assertNotIn(os.getpid(), (int(parent), int(session)))
        users[0].kill()
        users[1].leave()
        self.assertEqual(servers(), [pid])
        users[2].kill()
        self.await_end()

    def test_all_ask_at_once(self):
        users = [User() for _ in range(4)]
        self.assertEqual(len({user.address() for user in users}), 1)
        for user in users:
            user.kill()

    def test_uses_of_a_process_are_counted(self):
        first = self.start()
        with self.start() as second:
            self.assertEqual((first.address, second()), (second.address, second.address))
        self.assertEqual(len(servers()), 1)
        first.close()
        self.await_end()
        with self.start() as third:
            self.assertTrue(Client(third.address).health())

    def test_a_server_that_was_killed_is_replaced(self):
        with self.start() as server:
            before = server.address
            os.kill(servers()[0], signal.SIGKILL)

            def replaced():  # the system takes its locks a moment after its command line
                with self.start() as again:
                    return again.address == server.address != before

            await_true(replaced, "another one is there")
            self.assertTrue(Client(server.address).health())

    def test_who_starts_it_may_be_killed(self):
        user = User()
        await_true(servers, "it starts")
        other = User()
        user.kill()
        self.assertRegex(other.address(), r"^127\.0\.0\.1:\d+$")
        other.leave()

    def test_other_flags_are_another_server(self):
        with self.start() as one, self.start(*FLAGS, "--max_batch_tokens=8192") as other:
            self.assertNotEqual(one.address, other.address)

    def test_the_log_says_why_it_did_not_start(self):
        with self.assertRaisesRegex(RuntimeError, "(?s)did not start; .*--max_batch_tokens.*found 'none'"):
            self.start("--max_batch_tokens=none")
        with self.assertRaisesRegex(RuntimeError, "(?s)did not start.*no/such"):
            local_server("no/such/models", program=SERVER)

    def test_the_program(self):
        with self.assertRaisesRegex(FileNotFoundError, r"no/such/program: expected a program; .*PATH"):
            local_server(REPOSITORY, program="no/such/program")
        package = os.path.join(tempfile.tempdir, "sru_server")
        os.makedirs(os.path.join(package, "bin"))
        open(os.path.join(package, "__init__.py"), "w").close()
        os.symlink(SERVER, os.path.join(package, "bin", "sru_server"))
        user = User(program="", path=[tempfile.tempdir])
        self.assertTrue(user.address())
        user.leave()

    def test_a_folder_of_others_is_refused(self):
        with self.start() as server:
            pass
        os.chmod(server.folder, 0o755)
        with self.assertRaisesRegex(PermissionError, "of this user alone"):
            self.start()

    def test_a_terminal_sees_a_long_start(self):
        slow = os.path.join(tempfile.tempdir, "slow")
        with open(slow, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nsleep 3\nexec %s "$@"\n' % SERVER)
        os.chmod(slow, 0o755)
        ours, theirs = pty.openpty()
        user = User(program=slow, stderr=theirs)
        self.assertTrue(user.address())
        user.leave()
        self.assertIn(b"sru_server starts: 2 s", os.read(ours, 4096))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
