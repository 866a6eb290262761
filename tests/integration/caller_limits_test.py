"""Who calls, and what each caller may take, over gRPC and HTTP.

    caller_limits_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import contextlib
import json
import os
import re
import ssl
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

from server_process import Authority, Server, await_true, bearer, call, classify_request, credentials, inference_pb2, refusal

TOKENS = {
    "slow": "kR3vX9mQ2bT7wZ5n",
    "narrow": "pL8sD4fG6hJ1kQ0w",
    "picky": "vB2nM5xC8zL1qW4e",
    "free": "tY6uI9oP3aS7dF0g",
    "poet": "zX4cV7bN1mQ8wE5r",
}
LINES = """
slow   kR3vX9mQ2bT7wZ5n  tokens_per_second=1 burst=10
narrow pL8sD4fG6hJ1kQ0w  calls_in_flight=4 open_streams=1
picky  vB2nM5xC8zL1qW4e  models=trec methods=Classify,Generate highest_priority=low
free   tY6uI9oP3aS7dF0g  highest_priority=high weight=2
poet   zX4cV7bN1mQ8wE5r  tokens_per_second=1 burst=50
"""
TEXT = "what is the capital of france ?"
RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


def classify(**fields):
    return classify_request(TEXT, **{"model": "trec", **fields})


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.path = os.path.join(directory.name, "tokens")
        cls.write(LINES)
        cls.server = Server("--auth_tokens_file=" + cls.path, "--credentials_poll_interval_s=0.02", "--log_requests=all",
                            "--max_new_tokens=100000")
        cls.addClassCleanup(cls.server.stop)
        cls.channel = cls.server.channel()
        cls.addClassCleanup(cls.channel.close)

    @classmethod
    def write(cls, text):
        with open(cls.path + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.rename(cls.path + ".new", cls.path)

    def call(self, caller, request=None, method="Classify"):
        return call(self.channel, method, classify() if request is None else request, bearer(TOKENS[caller]))

    def generate(self, caller, **fields):
        """The request, and its answers from the first on, which has come."""
        request = inference_pb2.GenerateRequest(model="war_and_peace", **fields)
        request.prompt.text = "He"
        method = self.channel.unary_stream("/sru.v1.InferenceService/Generate")
        stream = method(request.SerializeToString(), metadata=bearer(TOKENS[caller]))
        next(stream)
        return request.SerializeToString(), stream

    def post(self, caller, path="/v1/classify", **fields):
        """Status, headers and message of the answer."""
        body = fields or {"model": "trec", "sequences": [{"text": TEXT}]}
        headers = {"Content-Type": "application/json"}
        if "api_key" not in body:
            headers["Authorization"] = "Bearer " + TOKENS[caller]
        url = "http://127.0.0.1:%d%s" % (self.server.http_port, path)
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def test_tokens_a_second(self):
        answers = [self.call("slow") for _ in range(4)]
        codes = [answer.code for answer in answers]
        self.assertEqual(codes[:2], ["OK", "OK"], "7 tokens of 10, then 7 of 3")
        self.assertEqual(set(codes[2:]), {"RESOURCE_EXHAUSTED"})
        self.assertIn("'slow' has used its tokens: it has 1 a second, and 10 at once", answers[3].details)
        self.assertIn(RETRY_INFO, answers[3].metadata["grpc-status-details-bin"])
        status, headers, text = self.post("slow")
        self.assertEqual(status, 429, text)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(headers["x-ratelimit-limit-tokens"], "10")
        self.assertEqual(headers["x-ratelimit-remaining-tokens"], "0")
        self.assertRegex(headers["x-ratelimit-reset-tokens"], r"^1[0-9.]*s$")
        self.assertIsNone(headers["x-ratelimit-limit-requests"])
        # LibreTranslate's clients have the token in the body.
        text = {"q": "a", "source": "en", "target": "de", "api_key": TOKENS["slow"]}
        status, headers, text = self.post("slow", "/translate", **text)
        self.assertEqual(status, 429, text)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        # Others are not concerned, and looking things up is free.
        self.assertEqual(self.call("free").code, "OK")
        self.assertEqual(self.call("slow", b"", "ListModels").code, "OK")
        self.assertEqual(self.server.metric('sru_caller_refusals_total{caller="slow"}'), 4)
        self.assertEqual(self.server.metric('sru_caller_tokens_total{caller="slow"}'), 14)
        self.server.await_log("caller=slow")

    def test_a_text_is_charged_while_it_is_generated(self):
        _, stream = self.generate("poet", max_new_tokens=100000, echo=True)
        for _ in stream:
            answer = self.call("poet", classify())
            if answer.code != "OK":
                break
        self.assertEqual(answer.code, "RESOURCE_EXHAUSTED")
        self.assertIn("'poet' has used its tokens", answer.details)
        self.assertTrue(stream.is_active(), "it had begun before")
        stream.cancel()

    def test_streams_and_calls_have_places(self):
        request, open_stream = self.generate("narrow", max_new_tokens=4000)
        await_true(lambda: self.server.metric('sru_caller_calls_in_flight{caller="narrow"}') == 1, "a call in flight")
        answer = self.call("narrow", request, "Generate")
        self.assertEqual(answer.code, "RESOURCE_EXHAUSTED")
        self.assertIn("1 open streams", answer.details)
        self.assertIn(RETRY_INFO, answer.metadata["grpc-status-details-bin"])
        status, headers, text = self.post("narrow", "/v1/completions", prompt="He", model="war_and_peace")
        self.assertEqual(status, 429, text)
        status, headers, text = self.post("narrow")
        self.assertEqual(status, 200, text)
        self.assertEqual(headers["x-ratelimit-limit-requests"], "4")
        self.assertEqual(headers["x-ratelimit-remaining-requests"], "3")
        open_stream.cancel()
        await_true(lambda: self.server.metric('sru_caller_calls_in_flight{caller="narrow"}') == 0, "the stream's end")
        # A call leaves its place with its answer: one at a time always has one.
        for _ in range(50):
            self.assertEqual(self.call("narrow").code, "OK")
            self.assertEqual(self.post("narrow")[0], 200)

    def test_what_is_not_allowed_is_named(self):
        low = {"priority": inference_pb2.PRIORITY_LOW}
        self.assertEqual(self.call("picky", classify(**low)).code, "OK")
        # Who asks for no priority has the highest that it may have.
        self.assertEqual(self.call("picky", classify()).code, "OK")
        for request, method, text in (
            (classify(priority=inference_pb2.PRIORITY_NORMAL), "Classify", "priority: the caller 'picky' may ask for low at most, found normal"),
            (classify(model="war_and_peace", **low), "Classify", "may not use 'war_and_peace'; it may use trec"),
            (b"", "Encode", "may not call Encode; it may call Classify, Generate"),
        ):
            answer = self.call("picky", request, method)
            self.assertEqual(answer.code, "PERMISSION_DENIED", answer.details)
            self.assertIn(text, answer.details)
        status, _, text = self.post("picky", "/v1/encode")
        self.assertEqual(status, 403, text)
        self.assertIn("may not call Encode", text)
        status, _, text = self.post("picky", "/v1/completions", prompt="He", model="war_and_peace")
        self.assertEqual(status, 403, text)
        self.assertIn("may not use", text)
        status, _, text = self.post("picky", "/v2/models/trec/infer", inputs=[])
        self.assertEqual(status, 403, text)
        self.assertIn("may not call ModelInfer", text)
        self.assertEqual(self.call("free", classify(priority=inference_pb2.PRIORITY_HIGH)).code, "OK")
        answer = self.call("narrow", classify(priority=inference_pb2.PRIORITY_HIGH))
        self.assertEqual(answer.code, "PERMISSION_DENIED")

    def test_a_file_that_is_wrong_changes_nothing(self):
        self.addCleanup(self.write, LINES)
        self.write(LINES.replace("calls_in_flight=4", "calls_in_flight=many"))
        self.server.await_log("line 3: calls_in_flight: expected a whole number")
        self.assertEqual(self.post("narrow")[1]["x-ratelimit-limit-requests"], "4")
        self.assertNotIn("pL8s", self.server.log())
        self.write(LINES.replace("calls_in_flight=4", "calls_in_flight=77"))
        await_true(lambda: self.post("narrow")[1]["x-ratelimit-limit-requests"] == "77", "the new limit")
        self.write(LINES)
        await_true(lambda: self.post("narrow")[1]["x-ratelimit-limit-requests"] == "4", "the old limit")


class Identities(unittest.TestCase):
    def names(self, server):
        return re.findall(r'(?m)^sru_caller_calls_total\{caller="(.*)"\}', server.page("/metrics"))

    def test_an_address_calls_or_whom_a_trusted_proxy_calls_for(self):
        with Server("--trusted_proxies=127.0.0.0/8,::1", "--caller_limits=calls_in_flight=9") as server:
            with contextlib.closing(server.channel()) as channel:
                spoofed = (("x-forwarded-for", "6.6.6.6, 203.0.113.7"), ("forwarded", "for=7.7.7.7"))
                self.assertEqual(call(channel, "Classify", classify(), spoofed).code, "OK")
            url = "http://127.0.0.1:%d/v1/classify" % server.http_port
            body = json.dumps({"model": "trec", "sequences": [{"text": TEXT}]}).encode()
            headers = {"Content-Type": "application/json", "X-Forwarded-For": "[2001:db8::5]:80"}
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
                self.assertEqual(answer.headers["x-ratelimit-limit-requests"], "9")
            self.assertEqual(self.names(server), ["2001:db8::/64", "203.0.113.7"])

    def test_a_stranger_is_not_believed(self):
        with Server() as server, contextlib.closing(server.channel()) as channel:
            for i in range(3):
                metadata = (("x-forwarded-for", "6.6.6.%d" % i),)
                self.assertEqual(call(channel, "Classify", classify(), metadata).code, "OK")
            self.assertEqual(len(self.names(server)), 1)
            self.assertIn(self.names(server)[0], ("127.0.0.1", "::1"))
            answer = call(channel, "Classify", classify(priority=inference_pb2.PRIORITY_HIGH))
            self.assertEqual(answer.code, "PERMISSION_DENIED")
            self.assertIn("priority: ", answer.details)
            callers = json.loads(server.page("/status.json"))["metrics"]["sru_caller_calls_total"]["series"]
            self.assertEqual([one["value"] for one in callers], [4])

    def test_a_certificate_calls(self):
        with tempfile.TemporaryDirectory() as directory:
            ours = Authority(directory, "ours")
            certificate, key = ours.issue("server")
            flags = ["--tls_cert=" + certificate, "--tls_key=" + key, "--tls_client_ca=" + ours.certificate]
            with Server(*flags) as server:
                pair = ours.issue("team")
                with contextlib.closing(server.channel(credentials(ours, *pair))) as channel:
                    self.assertEqual(call(channel, "Classify", classify()).code, "OK")
                context = ssl.create_default_context(cafile=ours.certificate)
                context.load_cert_chain(*pair)
                url = "https://localhost:%d/v1/classify" % server.http_port
                body = json.dumps({"model": "trec", "sequences": [{"text": TEXT}]}).encode()
                request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                    self.assertEqual(answer.status, 200)
                self.assertEqual(self.names(server), ["team"])
                self.assertEqual(server.metric("sru_caller_calls_total"), 2)

    def test_thousands_of_names_make_few_series(self):
        with Server("--trusted_proxies=127.0.0.0/8,::1", "--instances=1") as server:
            def calls(first):
                with contextlib.closing(server.channel()) as channel:
                    for i in range(first, first + 500):
                        address = (("x-forwarded-for", "10.1.%d.%d" % (i // 250, i % 250)),)
                        call(channel, "Classify", b"", address)

            threads = [threading.Thread(target=calls, args=(500 * i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            names = self.names(server)
            self.assertLessEqual(len(names), 21)
            self.assertIn("other", names)
            self.assertEqual(server.metric("sru_caller_calls_total"), 2000)

    def test_flags_are_checked(self):
        with tempfile.NamedTemporaryFile("w") as tokens:
            tokens.write("a kR3vX9mQ2bT7wZ5n\n")
            tokens.flush()
            text = refusal("--auth_tokens_file=" + tokens.name, "--caller_limits=weight=2")
            self.assertIn("--caller_limits: expected none, as --auth_tokens_file is given", text)
        self.assertIn("--caller_limits: weight: expected", refusal("--caller_limits=weight=0"))
        self.assertIn("--trusted_proxies: expected addresses", refusal("--trusted_proxies=proxy"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
