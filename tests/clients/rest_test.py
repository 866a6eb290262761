"""The REST routes as curl sees them: every call of /v1, errors, tokens, deadlines, TLS, and what HTTP itself may do.

    rest_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

import clients_venv
from clients_venv import TOKEN, tokens_file

clients_venv.enter("grpc", "jsonschema", "openapi_spec_validator")

import grpc  # noqa: E402
import jsonschema  # noqa: E402
import openapi_spec_validator  # noqa: E402
from server_process import Authority, Server, await_true, inference_pb2  # noqa: E402

if shutil.which("curl") is None:
    print("SKIPPED: there is no program curl")
    sys.exit(77)

TEXTS = ["Where is Lake Titicaca ?", "Who wrote Hamlet ?", "How many moons does Jupiter have ?"]


class Answer:
    """What curl printed: of several answers on one connection, the last."""

    def __init__(self, output):
        head, _, self.body = output.partition("\r\n\r\n")
        while self.body.startswith("HTTP/1.1 "):  # after "100 Continue"
            head, _, self.body = self.body.partition("\r\n\r\n")
        lines = head.split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]


class RestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.url = "http://127.0.0.1:%d" % cls.server.http_port

    def run_curl(self, *arguments, data=None):
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "30", *arguments], input=data, capture_output=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def curl(self, path, body=None, *arguments, headers=(), url=None):
        options = []
        if body is not None:
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
            options = ["-H", "Content-Type: application/json", "--data-binary", "@-"]
        for header in headers:
            options += ["-H", header]
        data = body.encode() if isinstance(body, str) else body
        return Answer(self.run_curl("-i", *options, *arguments, (url or self.url) + path, data=data))

    def start_stream(self):
        """curl, which has begun to get a text that takes long."""
        request = {"model": "war_and_peace", "prompt": {"text": "It was"}, "max_new_tokens": 4000, "num_samples": 64}
        content = ["-H", "Content-Type: application/json", "-d", json.dumps(request)]
        process = subprocess.Popen(["curl", "-sSN", *content, self.url + "/v1/generate"], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        return process

    def refused(self, status, code, part, *arguments, **options):
        answer = self.curl(*arguments, **options)
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(answer.error["code"], code)
        self.assertIn(part, answer.error["message"])
        return answer

    def test_classify_answers_as_grpc_does(self):
        answer = self.curl(
            "/v1/classify", {"model": "trec", "top_k": 2, "sequences": [{"text": text} for text in TEXTS]}
        )
        self.assertEqual(answer.status, 200)
        request = inference_pb2.ClassifyRequest(model="trec", top_k=2)
        for text in TEXTS:
            request.sequences.add(text=text)
        with grpc.insecure_channel(self.server.address) as channel:
            call = channel.unary_unary(
                "/sru.v1.InferenceService/Classify",
                request_serializer=inference_pb2.ClassifyRequest.SerializeToString,
                response_deserializer=inference_pb2.ClassifyResponse.FromString,
            )
            expected = call(request, timeout=30)
        found = answer.json()
        self.assertEqual((found["model"], found["version"]), ("trec", "1"))
        for one, other in zip(found["classifications"], expected.classifications, strict=True):
            self.assertEqual(one["token_count"], other.token_count)
            for label, reference in zip(one["labels"], other.labels, strict=True):
                self.assertEqual((label["name"], label["index"]), (reference.name, reference.index))
                # The shortest decimals that are this float32: nothing is lost.
                for field in ("probability", "logit"):
                    again = inference_pb2.Label(logit=label[field]).logit
                    self.assertEqual(again, getattr(reference, field))

    def test_the_other_calls_answer(self):
        encoding = self.curl("/v1/encode", {"model": "trec", "sequences": [{"text": TEXTS[0]}]}).json()["encodings"][0]
        self.assertEqual(encoding["shape"], ["128"])
        self.assertEqual(len(encoding["values"]), 128)
        score = self.curl("/v1/score", {"sequences": [{"text": "It was"}], "tokenLogProbs": True}).json()["scores"][0]
        self.assertEqual(len(score["token_log_probs"]), 5)
        models = self.curl("/v1/models").json()
        self.assertEqual([model["id"] for model in models["data"]], ["trec", "war_and_peace"])
        self.assertEqual([model["task"] for model in models["models"]], ["classifier", "language_model"])
        self.assertEqual({status["state"] for status in models["statuses"]}, {"READY"})
        model = self.curl("/v1/models/trec?version=1").json()
        self.assertEqual((model["id"], model["model"]["labels"][0]), ("trec", "DESC"))
        self.refused(404, "NOT_FOUND", "'trec' has no version 7", "/v1/models/trec?version=7")
        # There is neither a reader nor a translator.
        self.refused(400, "FAILED_PRECONDITION", "a reader", "/v1/answer",
                     {"model": "trec", "queries": [{"question": "a", "passages": ["b"]}]})
        self.refused(400, "FAILED_PRECONDITION", "a translator", "/v1/translate",
                     {"model": "trec", "sequences": [{"text": "a"}]})

    def test_short_forms_answer_the_same(self):
        def answers(path, body):
            answer = self.curl(path, {"model": "trec", **body})
            self.assertEqual(answer.status, 200, answer.body)
            return {name: value for name, value in answer.json().items() if name != "times"}

        for path, more in (("/v1/classify", {"top_k": 1}), ("/v1/encode", {"pooling": "mean", "priority": "Low"})):
            one, *others = [
                answers(path, {**form, **more})
                for form in ({"sequences": [{"text": TEXTS[0]}]}, {"sequences": [TEXTS[0]]}, {"text": TEXTS[0]}, {"texts": [TEXTS[0]]})
            ]
            self.assertEqual(others, [one] * 3)
        long = answers("/v1/encode", {"sequences": [{"text": TEXTS[0]}], "pooling": "POOLING_MEAN"})
        self.assertEqual(one, long)
        score = [self.curl("/v1/score", body).json()["scores"] for body in ({"sequences": [{"text": "It was"}]}, {"text": "It was"})]
        self.assertEqual(score[0], score[1])
        text = [
            self.curl("/v1/generate", {"prompt": prompt, "max_new_tokens": 5}).body.split('"times"')[0]
            for prompt in ({"text": "It was"}, "It was")
        ]
        self.assertEqual(text[0], text[1])
        connect = self.curl("/sru.v1.InferenceService/Classify", {"model": "trec", "text": TEXTS[0], "top_k": 1})
        self.assertEqual(connect.json()["classifications"], answers("/v1/classify", {"text": TEXTS[0], "top_k": 1})["classifications"])
        self.refused(400, "INVALID_ARGUMENT", "sequences, text: expected one of them", "/v1/classify",
                     {"text": "a", "sequences": ["b"]})
        self.refused(400, "INVALID_ARGUMENT", 'as in {"sequences": ["..."]}', "/v1/classify", {"inputs": "a"})

    def test_bodies_may_be_packed(self):
        request = {"model": "trec", "sequences": [{"text": text} for text in TEXTS]}
        expected = self.curl("/v1/classify", request).json()["classifications"]
        text = json.dumps(request).encode()
        for version in ("--http1.1", "--http2-prior-knowledge"):
            for name, packed in (("gzip", gzip.compress(text)), ("x-gzip", gzip.compress(text)), ("deflate", zlib.compress(text))):
                answer = self.curl("/v1/classify", packed, version, headers=["Content-Encoding: " + name])
                self.assertEqual((answer.status, answer.json()["classifications"]), (200, expected))
            chunked = ["Content-Encoding: gzip"] + ["Transfer-Encoding: chunked"] * (version == "--http1.1")
            answer = self.curl("/v1/classify", gzip.compress(text), version, headers=chunked)
            self.assertEqual(answer.status, 200)
            for path in ("/v1/classify", "/v1/completions", "/v2/models/trec/infer", "/sru.v1.InferenceService/Classify"):
                bomb = self.curl(path, gzip.compress(bytes(64 << 20)), version, headers=["Content-Encoding: gzip"])
                self.assertEqual(bomb.status, 413, path)
                self.assertIn("unpacks to more than", bomb.body)

    def test_generate_sends_events(self):
        request = {"model": "war_and_peace", "prompt": {"text": "It was"}, "max_new_tokens": 20, "sampling": {"seed": 1}}
        answer = self.curl("/v1/generate", request, "-N")
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.headers["content-type"].startswith("text/event-stream"))
        events = [json.loads(event[len("data: "):]) for event in answer.body.strip().split("\n\n")]
        self.assertEqual(len("".join(event.get("text", "") for event in events)), 20)
        self.assertEqual(events[-1]["finish_reason"], "FINISH_REASON_LENGTH")
        self.assertEqual(events[-1]["generated_tokens"], 20)
        # What fails before the first event has a status.
        self.refused(400, "INVALID_ARGUMENT", "max_new_tokens", "/v1/generate", {**request, "max_new_tokens": -1})
        # What fails later is an event.
        answer = self.curl("/v1/generate", {**request, "max_new_tokens": 4000, "num_samples": 64}, headers=["X-Request-Timeout-Ms: 150"])
        self.assertEqual(answer.status, 200)
        error = json.loads(answer.body.strip().split("\n\n")[-1][len("data: "):])["error"]
        self.assertEqual(error["code"], "DEADLINE_EXCEEDED")

    def test_a_client_that_goes_away_cancels(self):
        process = self.start_stream()
        self.assertEqual(self.server.metric("sru_requests_in_flight"), 1)
        process.kill()
        process.wait()
        process.stdout.close()
        self.server.await_metric("sru_requests_in_flight", 0)

    def test_errors_name_the_place(self):
        self.refused(404, "NOT_FOUND", "'nope' is not loaded", "/v1/classify",
                     {"model": "nope", "sequences": [{"text": "a"}]})
        for message, body in (
            ("sequences[1].text: expected a string, found the number 5", {"sequences": [{"text": "a"}, {"text": 5}]}),
            ("sequences[0]", {"sequences": [{"text": ""}]}),
            *(("the body is not JSON", body) for body in ("{", "", b'{"model":"\xff"}')),
            ("expected a string or an object, as in {\"sequences\": [\"...\"]}, found a list", '{"sequences":' + 100000 * "["),
            ("the key comes twice", '{"model":"a","model":"b"}'),
        ):
            self.refused(400, "INVALID_ARGUMENT", message, "/v1/classify", body)
        self.refused(404, "NOT_FOUND", "the nearest route is POST /v1/classify", "/v1/clasify")
        answer = self.refused(405, "UNIMPLEMENTED", "it takes POST", "/v1/classify")
        self.assertEqual(answer.headers["allow"], "POST")
        self.refused(415, "INVALID_ARGUMENT", "Content-Type", "/v1/classify", None, "-d", "{}")
        answer = self.refused(415, "INVALID_ARGUMENT", "Content-Encoding: expected gzip, deflate or none", "/v1/classify", {},
                              headers=["Content-Encoding: br"])
        self.assertEqual(answer.headers["accept-encoding"], "gzip, deflate")
        self.refused(400, "INVALID_ARGUMENT", "Content-Encoding: expected a body in gzip", "/v1/classify", {},
                     headers=["Content-Encoding: gzip"])
        self.refused(400, "INVALID_ARGUMENT", "X-Request-Timeout-Ms: expected", "/v1/models",
                     headers=["X-Request-Timeout-Ms: soon"])

    def test_ids_come_back(self):
        answer = self.curl("/v1/models", headers=["X-Request-Id: my-id-1"])
        self.assertEqual(answer.headers["x-request-id"], "my-id-1")
        answer = self.curl("/v1/classify", {"model": "nope"}, headers=["X-Request-Id: my-id-2"])
        self.assertEqual(answer.headers["x-request-id"], "my-id-2")
        self.server.await_log("my-id-2")

    def test_other_origins_are_refused(self):
        for header in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Origin: null"):
            self.refused(403, "PERMISSION_DENIED", "another origin", "/v1/models", headers=[header])
            self.refused(403, "PERMISSION_DENIED", "another origin", "/v1/classify", {}, headers=[header])
        answer = self.curl(
            "/v1/classify", None, "-X", "OPTIONS",
            headers=["Origin: http://evil.example", "Access-Control-Request-Method: POST"],
        )  # fmt: skip
        self.assertEqual(answer.status, 403)
        self.assertFalse([name for name in answer.headers if name.startswith("access-control")])

    def test_http_connections_are_kept(self):
        body = json.dumps({"model": "trec", "sequences": [{"text": TEXTS[0]}]})
        post = ["-H", "Content-Type: application/json", "-d", body, "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n"]
        url = self.url + "/v1/classify"
        lines = self.run_curl(*post, url, "--next", "-sS", *post, url, "--next", "-sS", *post, url).split("\n")
        self.assertEqual(lines[:3], ["200 1", "200 0", "200 0"])

    def test_bodies_may_be_chunked(self):
        answer = self.curl(
            "/v1/classify", {"model": "trec", "sequences": [{"text": text} for text in TEXTS * 80]},
            headers=["Transfer-Encoding: chunked"],
        )  # fmt: skip
        self.assertEqual(len(answer.json()["classifications"]), 240)

    def test_answers_keep_the_described_form(self):
        description = self.curl("/openapi.json").json()
        openapi_spec_validator.validate(description)
        schemas = {"$defs": description["components"]["schemas"]}
        text = json.dumps(schemas).replace("#/components/schemas/", "#/$defs/")

        def check(name, value):
            jsonschema.validate(value, {**json.loads(text), "$ref": "#/$defs/" + name})

        check("ClassifyResponse", self.curl("/v1/classify", {"model": "trec", "sequences": [{"text": "a"}]}).json())
        check("EncodeResponse", self.curl("/v1/encode", {"model": "trec", "sequences": [{"text": "a"}]}).json())
        check("ScoreResponse", self.curl(
            "/v1/score", {"sequences": [{"text": "abc"}], "top_candidates": 2, "return_states": True}).json())
        generate = {"prompt": {"text": "It"}, "max_new_tokens": 2, "token_log_probs": True}
        check("GenerateRequest", generate)
        for event in self.curl("/v1/generate", generate).body.strip().split("\n\n"):
            check("GenerateResponse", json.loads(event[len("data: "):]))
        completion = {"prompt": "It", "max_tokens": 2, "logprobs": 2, "echo": True}
        check("CompletionRequest", completion)
        check("Completion", self.curl("/v1/completions", completion).json())
        check("Error", self.curl("/v1/classify", {"x": 1}).json())
        check("OpenAiError", self.curl("/v1/completions", {"x": 1}).json())
        listed = description["paths"]["/v1/models"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        local = json.dumps(listed).replace("#/components/schemas/", "#/$defs/")
        jsonschema.validate(self.curl("/v1/models").json(), {**json.loads(text), **json.loads(local)})
        for name, request in (
            ("ClassifyRequest", {"text": "a", "priority": "low"}), ("ClassifyRequest", {"texts": ["a"], "priority": "PRIORITY_LOW"}),
            ("EncodeRequest", {"sequences": ["a", {"tokens": ["b"]}, {"text": "c"}], "pooling": "mean"}),
            ("GenerateRequest", {"prompt": "It", "stop": "."}), ("TranslateRequest", {"length_penalty": {"form": "gnmt"}}),
            ("AnswerRequest", {"question": "a", "passages": ["b"]}), ("AnswerRequest", {"queries": [{"question": "a", "passages": ["b"]}]}),
            ("DetokenizeRequest", {"sequences": [[1, 2]]}),
        ):  # fmt: skip
            check(name, request)
        for name, wrong in (
            ("ClassifyResponse", {"model": 5}), ("ClassifyRequest", {"text": ["a"]}), ("ClassifyRequest", {"priority": "lowest"}),
            ("ClassifyResponse", {"classifications": "a"}), ("GenerateResponse", {"finish_reason": "stop"}),
        ):  # fmt: skip
            with self.assertRaises(jsonschema.ValidationError, msg=wrong):
                check(name, wrong)


class TokensTest(RestTest):
    """Tokens, TLS and mutual TLS; the calls themselves are the same."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.authority = Authority(cls.directory.name, "authority")
        certificate, key = cls.authority.issue("server")
        cls.tls = ["--tls_cert=" + certificate, "--tls_key=" + key]
        cls.server = Server("--auth_tokens_file=" + tokens_file(cls.directory.name), *cls.tls)
        cls.addClassCleanup(cls.server.stop)
        cls.url = "https://localhost:%d" % cls.server.http_port

    def test_tls_and_tokens(self):
        trust = ["--cacert", self.authority.certificate]
        request = {"model": "trec", "sequences": [{"text": TEXTS[0]}]}
        answer = self.curl("/v1/classify", request, *trust, headers=["Authorization: Bearer " + TOKEN])
        self.assertEqual(answer.json()["classifications"][0]["labels"][0]["name"], "LOC")
        for headers in ([], ["Authorization: Bearer wrong"], ["Authorization: Basic eDp5"]):
            answer = self.curl("/v1/classify", request, *trust, headers=headers)
            self.assertEqual((answer.status, answer.error["code"]), (401, "UNAUTHENTICATED"))
            self.assertEqual(answer.headers["www-authenticate"], "Bearer")
        line = "authentication failed method=/v1/classify code=UNAUTHENTICATED reason=%s peer=127.0.0.1 user_agent=curl/"
        for reason in ("missing", "unknown", "malformed"):
            self.server.await_log(line % reason)
        self.assertEqual(self.server.log().count("authentication failed"), 3)
        answer = self.curl("/v1/models", None, *trust, headers=["Authorization: Bearer " + TOKEN])
        self.assertEqual(answer.status, 200)
        done = subprocess.run(["curl", "-sS", "--max-time", "30", self.url + "/v1/models"], capture_output=True)
        self.assertEqual(done.returncode, 60, done.stderr)  # an authority that curl does not know

    def test_mutual_tls(self):
        certificate, key = self.authority.issue("caller")
        with Server(*self.tls, "--tls_client_ca=" + self.authority.certificate) as server:
            url = "https://localhost:%d" % server.http_port
            trust = ["--cacert", self.authority.certificate]
            answer = self.curl("/v1/models", None, *trust, "--cert", certificate, "--key", key, url=url)
            self.assertEqual(answer.status, 200)
            done = subprocess.run(
                ["curl", "-sS", "--max-time", "30", *trust, url + "/v1/models"], capture_output=True, timeout=60
            )
            self.assertNotEqual(done.returncode, 0)


class DrainTest(RestTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--drain_delay_s=0", "--drain_timeout_s=0.5")
        cls.addClassCleanup(cls.server.stop)
        cls.url = "http://127.0.0.1:%d" % cls.server.http_port

    def test_a_server_that_stops_ends_its_streams(self):
        process = self.start_stream()
        self.server.process.terminate()
        rest = process.stdout.read().strip().split("\n\n")
        process.stdout.close()
        process.wait()
        events = [json.loads(event[len("data: "):]) for event in rest if event.startswith("data: ")]
        self.assertEqual(events[-1]["error"]["code"], "UNAVAILABLE")
        await_true(lambda: self.server.process.poll() is not None, "the server ends")


def load_tests(loader, _tests, _pattern):
    """The subclasses share functions, not tests."""
    suite = unittest.TestSuite()
    suite.addTests(loader.loadTestsFromTestCase(RestTest))
    for case in (TokensTest, DrainTest):
        suite.addTests(case(name) for name in vars(case) if name.startswith("test_"))
    return suite


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
