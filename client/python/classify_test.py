"""Runs classify.py, score.py and generate.py against a real server:
classify_test.py SRU_SERVER MODEL_REPOSITORY

Exits with 77, which CTest shows as skipped, where grpcio is missing.
"""

import itertools
import os
import re
import subprocess
import sys
import unittest
import urllib.request

try:
    import grpc
except ImportError:
    print("SKIPPED: this Python has no grpcio (%s)" % sys.executable)
    sys.exit(77)

import generate
import score
import sru_wire
from classify import Client

HERE = os.path.dirname(os.path.abspath(__file__))


class WireTest(unittest.TestCase):
    def test_encodes_as_protobuf_does(self):
        request = {
            "model": "trec",
            "version": 300,
            "sequences": [{"text": "caf\u00e9"}, {"tokens": {"values": ["a", "b"]}}],
            "top_k": -1,
        }
        self.assertEqual(
            sru_wire.encode(sru_wire.CLASSIFY_REQUEST, request),
            b"\x0a\x04trec\x10\xac\x02\x1a\x07\x0a\x05caf\xc3\xa9\x1a\x08\x12\x06\x0a\x01a\x0a\x01b"
            b"\x20" + b"\xff" * 9 + b"\x01",
        )

    def test_decodes_and_skips_unknown_fields(self):
        label = b"\x0a\x03NUM\x10\x02\x1d\x00\x00\x40\x3f\x25\x00\x00\x80\xbf"
        data = (
            b"\x0a\x04trec\x10\x01\x78\x05\x7a\x01x"
            + b"\x1a" + bytes([len(label) + 4]) + b"\x0a" + bytes([len(label)]) + label + b"\x10\x09"
            + b"\x22\x09\x21" + b"\x00\x00\x00\x00\x00\x00\xf8\x3f"
        )
        values = sru_wire.decode(sru_wire.CLASSIFY_RESPONSE, data)
        self.assertEqual(values["model"], "trec")
        self.assertEqual(values["version"], 1)
        self.assertEqual(values["times"]["total_us"], 1.5)
        self.assertEqual(
            values["classifications"],
            [
                {
                    "labels": [{"name": "NUM", "index": 2, "probability": 0.75, "logit": -1.0}],
                    "token_count": 9,
                    "truncated": 0,
                }
            ],
        )

    def test_packs_repeated_numbers(self):
        request = {"token_ids": {"values": [1, 300]}}
        data = b"\x1a\x05\x0a\x03\x01\xac\x02"
        self.assertEqual(sru_wire.encode(sru_wire.SEQUENCE, request), data)
        self.assertEqual(sru_wire.decode(sru_wire.SEQUENCE, data)["token_ids"], {"values": [1, 300]})
        self.assertEqual(sru_wire.encode(sru_wire.TOKEN_IDS, {"values": []}), b"")
        score = b"\x22\x08\x00\x00\x80\xbf\x00\x00\x00\xbf\x32\x02\xff\x00"
        values = sru_wire.decode(sru_wire.SCORE, score)
        self.assertEqual(values["token_log_probs"], [-1.0, -0.5])
        self.assertEqual(values["state"], b"\xff\x00")
        # One field each means the same.
        values = sru_wire.decode(sru_wire.SCORE, b"\x25\x00\x00\x80\xbf" * 2)
        self.assertEqual(values["token_log_probs"], [-1.0, -1.0])
        with self.assertRaises(ValueError):
            sru_wire.decode(sru_wire.SCORE, b"\x22\x03\x00\x00\x80")

    def test_refuses_broken_bytes(self):
        for data in (b"\x0a\x05abc", b"\x10\xff", b"\x0b"):
            with self.assertRaises(ValueError):
                sru_wire.decode(sru_wire.CLASSIFY_RESPONSE, data)

    def test_refuses_unknown_fields(self):
        with self.assertRaises(ValueError):
            sru_wire.encode(sru_wire.CLASSIFY_REQUEST, {"modle": "trec"})


class Server:
    """A server process on ports that the system picks."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [
                sys.argv[1],
                "--model_repository=" + sys.argv[2],
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                *flags,
            ],
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )
        line = self.process.stdout.readline()
        found = re.match(r"listening on (\S+), metrics on (\S+)", line)
        if not found:
            self.stop()
            raise RuntimeError("the server did not start: %r" % line)
        self.address = found.group(1)
        self._metrics = "http://" + found.group(2) + "/metrics"

    def open_streams(self):
        with urllib.request.urlopen(self._metrics) as answer:
            found = re.search(rb"^sru_open_streams (\d+)", answer.read(), re.MULTILINE)
        return int(found.group(1))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class SeveralServersTest(unittest.TestCase):
    def test_the_shipped_service_config_outlives_a_server(self):
        with open(os.path.join(HERE, "..", "service_config.json")) as file:
            service_config = file.read()
        servers = [Server(), Server()]
        for server in servers:
            self.addCleanup(server.stop)
        address = "ipv4:" + ",".join(server.address for server in servers)
        client = Client(address, service_config=service_config)
        self.addCleanup(client.close)
        for calls in range(300):
            if calls == 100:
                servers[0].process.kill()
            response = client.classify(["Who wrote Hamlet ?"])
            self.assertEqual(response["classifications"][0]["labels"][0]["name"], "HUM")


    def test_a_text_goes_on_when_its_server_shuts_down(self):
        with open(os.path.join(HERE, "..", "service_config.json")) as file:
            service_config = file.read()
        flags = ("--drain_timeout_s=0.05", "--max_new_tokens=10000")
        servers = [Server(*flags), Server(*flags)]
        for server in servers:
            self.addCleanup(server.stop)
        arguments = {
            "prompt": "Prince Andrew",
            "sampling": {"temperature": 0.9, "seed": 5},
            "max_new_tokens": 10000,
            "return_state": True,
        }

        def finish(messages):
            ids, text = [], ""
            for message in messages:
                ids += message["token_ids"]
                text += message["text"]
            return ids, text, message["state"], message["generated_tokens"]

        alone = generate.Client(servers[1].address)
        self.addCleanup(alone.close)
        whole = finish(alone.generate(**arguments))
        self.assertEqual(whole[3], 10000)

        address = "ipv4:" + ",".join(server.address for server in servers)
        client = generate.Client(address, service_config=service_config)
        self.addCleanup(client.close)
        calls = []
        call = client._generate
        client._generate = lambda request, timeout: calls.append(request) or call(request, timeout)
        # The calls go in turn to the servers that the channel has a connection to, which is one at first.
        texts, begun = [], []
        while servers[0].open_streams() == 0:
            self.assertLess(len(texts), 50, "no text came to the first server")
            texts.append(client.generate(**arguments))
            begun.append(next(texts[-1]))
        servers[0].process.terminate()
        for first, text in zip(begun, texts):
            self.assertEqual(finish(itertools.chain([first], text)), whole)
        self.assertGreater(len(calls), len(texts))


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.address = cls.server.address

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_classifies(self):
        client = Client(self.address)
        try:
            response = client.classify(
                ["How many moons does Jupiter have ?", "Who wrote Hamlet ?"], top_k=0
            )
        finally:
            client.close()
        self.assertEqual(response["model"], "trec")
        self.assertEqual(response["version"], 1)
        self.assertGreater(response["times"]["total_us"], 0)
        top = [result["labels"][0]["name"] for result in response["classifications"]]
        self.assertEqual(top, ["NUM", "HUM"])
        for result in response["classifications"]:
            self.assertEqual(len(result["labels"]), 6)
            self.assertAlmostEqual(sum(label["probability"] for label in result["labels"]), 1, 5)

    def test_errors_carry_their_code(self):
        client = Client(self.address)
        try:
            with self.assertRaises(grpc.RpcError) as raised:
                client.classify(["Who wrote Hamlet ?"], model="other")
        finally:
            client.close()
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_the_program_prints_labels(self):
        command = [sys.executable, os.path.join(HERE, "classify.py"), "--address=" + self.address]
        done = subprocess.run(
            command,
            input="How many moons does Jupiter have ?\n",
            stdout=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^NUM [01]\.\d{4}  How many moons does Jupiter have \?\n$")

    def test_scores(self):
        client = score.Client(self.address)
        self.addCleanup(client.close)
        text = "Pierre smiled."
        response = client.score([text, [1, 2]], token_log_probs=True, top_candidates=2)
        self.assertEqual(response["model"], "war_and_peace")
        whole, ids = response["scores"]
        self.assertEqual((whole["token_count"], whole["scored_count"]), (14, 13))
        self.assertEqual((ids["token_count"], ids["scored_count"]), (2, 1))
        self.assertAlmostEqual(sum(whole["token_log_probs"]), whole["log_prob"], 4)
        self.assertEqual([len(c["candidates"]) for c in whole["candidates"]], [2] * 13)
        self.assertEqual(whole["candidates"][11]["candidates"][0]["text"], "d")
        self.assertAlmostEqual(score.perplexity(whole), 2 ** score.bits_per_token(whole), 9)
        self.assertIsNone(score.perplexity(client.score(["P"])["scores"][0]))

        # In pieces it is the same text, bit by bit.
        state, log_probs = b"", []
        for piece in (text[:1], text[1:9], list(text[9:])):
            response = client.score(
                [piece], states=[state], return_states=True, token_log_probs=True
            )
            state = response["scores"][0]["state"]
            log_probs += response["scores"][0]["token_log_probs"]
        self.assertEqual(log_probs, whole["token_log_probs"])

    def test_the_program_prints_scores(self):
        command = [sys.executable, os.path.join(HERE, "score.py"), "--address=" + self.address]

        def run(*flags):
            done = subprocess.run(
                command + list(flags),
                input="Pierre smiled.\n\nHe was glad.\n",
                stdout=subprocess.PIPE,
                universal_newlines=True,
                timeout=60,
            )
            self.assertEqual(done.returncode, 0)
            return [line.split(None, 4) for line in done.stdout.splitlines()]

        lines = run()
        self.assertEqual([line[0] for line in lines], ["14", "12", "26"])
        self.assertEqual([line[-1] for line in lines], ["Pierre smiled.", "He was glad.", "total"])
        for line in lines:
            self.assertAlmostEqual(2 ** float(line[2]), float(line[3]), 2)
        # With their newlines they are one text.
        self.assertEqual([line[0] for line in run("--carry")], ["15", "1", "13", "29"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
