"""What callers may know of each other, and what a server takes from a caller: prefix caches and the keys of states.

    callers_apart_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
from sru_server import SruServer  # noqa: E402

SERVER, _, REPOSITORY = sys.argv[1:4]
TEXT = "The old prince told nobody what the letter said. " * 8
TOKENS = {"a": "kR3vX9mQ2bT7wZ5n", "b": "pL8sD4fG6hJ1kQ0w"}


class Server(SruServer):
    def __init__(self, *flags):
        super().__init__([
            SERVER, "--model_repository=" + REPOSITORY, "--model_control=explicit", "--load_models=war_and_peace", "--listen=127.0.0.1:0",
            "--metrics_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0", "--instances=1", "--credentials_poll_interval_s=0.01", *flags])

    def post(self, path, caller=None, **message):
        """The status and the text of the answer."""
        headers = {"Content-Type": "application/json"}
        if caller:
            headers["Authorization"] = "Bearer " + TOKENS[caller]
        url = "http://127.0.0.1:%d%s" % (self.port_of("HTTP"), path)
        request = urllib.request.Request(url, json.dumps({"model": "war_and_peace", **message}).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


class PrefixCacheTest(unittest.TestCase):
    def test_a_caller_finds_only_what_it_asked_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokens")
            with open(path, "w") as file:
                file.write("".join("%s %s\n" % entry for entry in TOKENS.items()))
            with Server("--auth_tokens_file=" + path, "--prefix_cache_mb=8") as server:
                hits = []  # after each of three calls with one prompt
                for caller in "aab":
                    status, text = server.post("/v1/generate", caller, prompt={"text": TEXT}, max_new_tokens=1)
                    self.assertEqual(status, 200, text)
                    hits.append(server.metric('sru_prefix_cache_hits_total{model="war_and_peace",version="1"}'))
                self.assertEqual(hits, [0, 1, 1])


class StateKeysTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, *keys, mode=0o400):
        path = os.path.join(self.folder.name, name)
        with open(path + ".new", "w") as file:
            file.write("\n".join(key * 32 for key in keys))
        os.chmod(path + ".new", mode)
        os.rename(path + ".new", path)
        return "--state_key_file=" + path

    def state(self, server):
        status, text = server.post("/v1/score", sequences=[{"text": TEXT}], returnStates=True)
        self.assertEqual(status, 200, text)
        return json.loads(text)["scores"][0]["state"]

    def go_on(self, server, state):
        return server.post("/v1/score", sequences=[{"text": "He"}], states=[state])

    def test_replicas_take_what_one_of_them_made(self):
        with Server(self.write("one", "a")) as one, Server(self.write("two", "b", "a")) as two, Server() as plain:
            of_one, of_two, of_plain = (self.state(server) for server in (one, two, plain))
            for server, state in ((one, of_one), (two, of_one), (two, of_two), (plain, of_plain)):
                status, text = self.go_on(server, state)
                self.assertEqual(status, 200, text)
            changed = bytearray(base64.b64decode(of_one))
            changed[-1] ^= 1
            for server, state in ((one, of_two), (one, of_plain), (two, of_plain), (plain, of_one),
                                  (two, base64.b64encode(changed).decode())):
                status, text = self.go_on(server, state)
                self.assertEqual(status, 400, text)
                self.assertIn("its digest does not agree", text)
            # The new key reaches the other replica while it serves.
            self.write("one", "a", "b")
            deadline = time.monotonic() + 20
            while self.go_on(one, of_two)[0] != 200:
                self.assertLess(time.monotonic(), deadline, one.log())
                time.sleep(0.02)
            self.assertEqual(self.go_on(one, of_one)[0], 200)

    def test_a_file_that_everybody_can_read_is_refused(self):
        done = subprocess.run(
            [SERVER, "--model_repository=" + REPOSITORY, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
             "--http_listen=", self.write("keys", "a", mode=0o444)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--state_key_file", done.stderr)
        self.assertNotIn("aaaa", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
