"""Runs generate.py against a server of this process that may stop at any token.

Exits with 77, which CTest shows as skipped, where grpcio is missing.
"""

import os
import subprocess
import sys
import unittest
from concurrent import futures

try:
    import grpc
except ImportError:
    print("SKIPPED: this Python has no grpcio (%s)" % sys.executable)
    sys.exit(77)

import generate
import sru_channel
import sru_wire

HERE = os.path.dirname(os.path.abspath(__file__))


class Model:
    """Its token at position p is the letter p letters after 'a'; its state is the position.

    steps: what the calls do, one each: after how many tokens they stop, and with which code.
    """

    def __init__(self, *steps):
        self.requests = []
        self._steps = list(steps)
        handler = grpc.unary_stream_rpc_method_handler(
            self._generate,
            request_deserializer=lambda data: sru_wire.decode(sru_wire.GENERATE_REQUEST, data),
            response_serializer=lambda values: sru_wire.encode(sru_wire.GENERATE_RESPONSE, values),
        )
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("sru.v1.InferenceService", {"Generate": handler})]
        )
        self.address = "127.0.0.1:%d" % self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def stop(self):
        self._server.stop(None)

    def _generate(self, request, context):
        self.requests.append(request)
        stops_after, code, has_state = self._steps.pop(0) if self._steps else (1000, None, True)
        start = int(request["state"] or b"0") + len(request["prompt"]["text"])
        wanted = request["max_new_tokens"]
        for k in range(min(wanted, stops_after)):
            position = start + k
            message = {
                "model": "m",
                "version": 5,
                "text": chr(ord("a") + position % 26),
                "token_ids": [position],
            }
            last = k + 1 == wanted
            if last:
                message["finish_reason"] = 1
            if last or (k + 1 == stops_after and has_state):
                message["state"] = b"%d" % (position + 1)
                message["prompt_tokens"] = len(request["prompt"]["text"])
                message["generated_tokens"] = k + 1
            yield message
        if stops_after < wanted:
            context.abort(code, "the server is shutting down")


UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class GenerateTest(unittest.TestCase):
    def run_model(self, *steps, **arguments):
        """The messages, or the error, of one text; self.requests are those of its calls."""
        model = Model(*steps)
        self.addCleanup(model.stop)
        self.requests = model.requests
        client = generate.Client(model.address)
        self.addCleanup(client.close)
        return list(client.generate("abc", **arguments))

    def test_a_text_comes_token_by_token(self):
        messages = self.run_model(
            max_new_tokens=3,
            sampling={"temperature": 0.5, "seed": 2**64 - 1, "logit_bias": {3: -1.5, 0: 1}},
            stop=["x"],
            return_state=True,
        )
        self.assertEqual("".join(message["text"] for message in messages), "def")
        self.assertEqual(messages[-1]["state"], b"6")
        self.assertEqual(generate.FINISH_REASONS[messages[-1]["finish_reason"]], "length")
        request = self.requests[0]
        self.assertEqual(request["sampling"]["temperature"], 0.5)
        self.assertEqual(request["sampling"]["seed"] % 2**64, 2**64 - 1)
        bias = {entry["key"]: entry["value"] for entry in request["sampling"]["logit_bias"]}
        self.assertEqual(bias, {3: -1.5, 0: 1.0})
        self.assertEqual(request["stop"], ["x"])

    def test_goes_on_where_a_server_stopped(self):
        messages = self.run_model(
            (2, UNAVAILABLE, True),
            (0, UNAVAILABLE, True),
            (1, UNAVAILABLE, True),
            max_new_tokens=6,
            min_new_tokens=3,
            echo=True,
            sampling={"temperature": 1},
        )
        self.assertEqual("".join(message["text"] for message in messages), "defghi")
        self.assertEqual(messages[-1]["prompt_tokens"], 3)
        self.assertEqual(messages[-1]["generated_tokens"], 6)
        self.assertTrue(all(not message["state"] for message in messages[:-1]))
        self.assertEqual([request["state"] for request in self.requests], [b"", b"5", b"5", b"6"])
        self.assertEqual([request["max_new_tokens"] for request in self.requests], [6, 4, 4, 3])
        self.assertEqual([request["min_new_tokens"] for request in self.requests], [3, 1, 1, 0])
        self.assertEqual([request["echo"] for request in self.requests], [1, 0, 0, 0])
        self.assertEqual([request["version"] for request in self.requests], [0, 5, 5, 5])
        # It is one text only if all calls have the same seed.
        self.assertEqual(len({request["sampling"]["seed"] for request in self.requests}), 1)
        self.assertGreater(self.requests[0]["sampling"]["seed"], 0)

    def test_gives_up_after_calls_without_a_token(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.run_model(*[(0, UNAVAILABLE, True)] * 3, max_new_tokens=2, attempts=3)
        self.assertEqual(raised.exception.code(), UNAVAILABLE)
        self.assertEqual(len(self.requests), 3)

    def test_without_a_state_there_is_nothing_to_go_on_from(self):
        with self.assertRaises(grpc.RpcError):
            self.run_model((2, UNAVAILABLE, False), max_new_tokens=3)
        self.assertEqual(len(self.requests), 1)

    def test_other_errors_end_the_text(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.run_model((2, grpc.StatusCode.INTERNAL, True), max_new_tokens=3)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INTERNAL)
        self.assertEqual(len(self.requests), 1)

    def test_the_program_prints_the_text(self):
        model = Model()
        self.addCleanup(model.stop)
        done = subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "generate.py"),
                "--address=" + model.address,
                "--max_new_tokens=4",
            ],
            input="ab\n",
            stdout=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "defg"))
        self.assertEqual(model.requests[0]["prompt"]["text"], "ab\n")

    def test_control_characters_reach_no_terminal(self):
        self.assertEqual(sru_channel.printable("\x1b[1m\r\n\t\u00e4\u009b"), "\\x1B[1m\\x0D\n\t\u00e4\\x9B")


if __name__ == "__main__":
    unittest.main(verbosity=2)
