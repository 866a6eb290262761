"""A server that is there and does not answer: frozen, or behind a network that drops. Both Python clients leave it, before 2% of the
calls of two minutes have failed.

    frozen_server_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY [SECONDS]

SECONDS of calls after the failure, 12 by default. The network is one of this test's own, where it may make one.
"""

import asyncio
import collections
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent import futures

HAS_NETWORK = os.environ.get("SRU_OWN_NETWORK") == "1"
if not HAS_NETWORK:
    prepare = 'ip link set lo up && ip addr add 10.77.0.2/32 dev lo && exec env SRU_OWN_NETWORK=1 "$@"'
    command = ["unshare", "--net", "sh", "-c", prepare, "sh"]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.execvp(command[0], [*command, sys.executable, "-B", *sys.argv])

from server_process import Server  # noqa: E402

import sru_inference  # noqa: E402
from sru_inference import aio  # noqa: E402

SECONDS = float(sys.argv[4]) if len(sys.argv) > 4 else 12.0
RATE = 20.0  # calls per second of each client
LAST_FAILURE_S = 10.0  # after the server has gone; later calls all succeed
MOST_FAILURES = 0.02 * RATE * 120
CALL = {"sequences": ["Who wrote Hamlet ?"], "model": "trec"}
DEADLINE_S = 1.0


class Calls:
    """Calls at a fixed rate whether or not they are answered."""

    def __init__(self):
        self.ok, self.failures = 0, []  # failures: when each came

    async def make(self, client, seconds):
        end = time.monotonic() + seconds
        calls = []
        while time.monotonic() < end:
            calls.append(asyncio.ensure_future(self._one(client)))
            await asyncio.sleep(1 / RATE)
        await asyncio.gather(*calls)

    async def _one(self, client):
        try:
            if isinstance(client, aio.Client):
                await client.classify(**CALL)
            else:
                await asyncio.get_running_loop().run_in_executor(None, lambda: client.classify(**CALL))
            self.ok += 1
        except sru_inference.InferenceError:
            self.failures.append(time.monotonic())


class FrozenServerTest(unittest.TestCase):
    def start(self, *listen):
        servers = [Server("--instances=1", *(["--listen=" + one] if one else [])) for one in listen]
        for server in servers:
            self.addCleanup(server.stop)
        # "listening on IP:PORT, ..."
        return servers, [server.first_line.split()[2].rstrip(",") for server in servers]

    def check_leaves(self, addresses, fail, repair, server):
        """Each client, and both at once: the machine's network is shared."""

        async def both():
            blocking, calls = sru_inference.Client(addresses, timeout=DEADLINE_S), [Calls(), Calls()]
            async with aio.Client(addresses, timeout=DEADLINE_S) as client:
                await asyncio.gather(*(made.make(one, 1) for made, one in zip(calls, (blocking, client))))
                self.assertEqual([made.failures for made in calls], [[], []])
                fail()
                gone = time.monotonic()
                await asyncio.gather(*(made.make(one, SECONDS) for made, one in zip(calls, (blocking, client))))
                repair()
                for made in calls:
                    last = max(made.failures, default=gone) - gone
                    print(f"{made.ok} answered, {len(made.failures)} failed, the last after {last:.1f} s")
                    self.assertLess(last, LAST_FAILURE_S)
                    self.assertLessEqual(len(made.failures), MOST_FAILURES)
                    self.assertGreater(made.ok, 0.5 * RATE * SECONDS)
                before = server.metric("sru_requests_total")
                for made, one in zip(calls, (blocking, client)):
                    made.failures.clear()
                while server.metric("sru_requests_total") < before + 2 * RATE:  # it is used again
                    self.assertLess(time.monotonic() - gone, SECONDS + 150)  # gRPC tries again within two minutes
                    await asyncio.gather(*(made.make(one, 0.5) for made, one in zip(calls, (blocking, client))))
                self.assertEqual([made.failures for made in calls], [[], []])
            blocking.close()

        asyncio.run(both())

    def test_a_process_that_is_stopped(self):
        servers, addresses = self.start("", "")
        self.check_leaves(
            addresses,
            lambda: servers[0].process.send_signal(signal.SIGSTOP),
            lambda: servers[0].process.send_signal(signal.SIGCONT),
            servers[0],
        )

    @unittest.skipUnless(HAS_NETWORK, "no network of its own: not root, or no program ip")
    def test_a_network_that_drops(self):
        servers, addresses = self.start("10.77.0.2:0", "127.0.0.1:0")

        def ip(*arguments):
            subprocess.run(["ip", *arguments], check=True)

        def fail():
            ip("addr", "del", "10.77.0.2/32", "dev", "lo")
            ip("route", "add", "blackhole", "10.77.0.2/32")

        def repair():
            ip("route", "del", "blackhole", "10.77.0.2/32")
            ip("addr", "add", "10.77.0.2/32", "dev", "lo")

        self.check_leaves(addresses, fail, repair, servers[0])

    def test_calls_with_time_left_are_answered_elsewhere_and_a_text_ends(self):
        servers, addresses = self.start("", "")
        with sru_inference.Client(addresses) as client, sru_inference.Client(addresses[0]) as alone:
            for _ in range(20):
                client.classify(**CALL)
            text = alone.generate("Prince Andrew", model="war_and_peace", max_new_tokens=4000)
            next(text)
            servers[0].process.send_signal(signal.SIGSTOP)
            start = time.monotonic()
            with futures.ThreadPoolExecutor(8) as pool:
                calls = [pool.submit(client.classify, **CALL) for _ in range(8)]
                with self.assertRaises(sru_inference.UnavailableError):
                    collections.deque(text, maxlen=0)
                self.assertLess(time.monotonic() - start, LAST_FAILURE_S)
                for call in calls:
                    self.assertEqual(call.result()[0].label, "HUM")
            servers[0].process.send_signal(signal.SIGCONT)

    def test_a_healthy_server_stands_the_pings(self):
        servers, addresses = self.start("")
        with tempfile.TemporaryFile("w+") as said, sru_inference.Client(addresses) as client:
            stderr = os.dup(2)
            os.dup2(said.fileno(), 2)
            try:
                client.classify(**CALL)
                time.sleep(20)  # enough of them for a server that wants fewer; nobody makes a call meanwhile
                client.classify(**CALL)
            finally:
                os.dup2(stderr, 2)
                os.close(stderr)
            said.seek(0)
            self.assertNotIn("too_many_pings", said.read())  # gRPC's words
            # The connection is still the first one; gRPC's library, as the server's transport, does not count them.
            self.assertFalse(servers[0].metric("sru_door_connections_closed_total"), servers[0].log())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
