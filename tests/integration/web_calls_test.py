"""Calls as web pages make them, by Connect and gRPC-Web, byte for byte, and CORS.

    web_calls_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import base64
import http.client
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from server_process import HEALTH, SERVICE, TOKEN, Server, classify_request, inference_pb2, refusal

from http_routes import ROUTES

TEXT = "Where is Lake Titicaca ?"
PAGE = "https://app.example.com"
END = 0x80


def frame(message, flags=0):
    return struct.pack(">BI", flags, len(message)) + message


def frames(body):
    """[(flags, message)]"""
    found = []
    while body:
        flags, size = struct.unpack(">BI", body[:5])
        assert len(body) >= 5 + size, "the last frame is cut"
        found.append((flags, body[5 : 5 + size]))
        body = body[5 + size :]
    return found


def decode_pieces(text):
    """Decodes base64 that consists of pieces with padding of their own, four characters at a time."""
    return b"".join(base64.b64decode(text[i : i + 4], validate=True) for i in range(0, len(text), 4))


def trailers(message):
    return dict(line.split(": ", 1) for line in message.decode("ascii").split("\r\n")[:-1])


class WebCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory:
            tokens = os.path.join(directory, "tokens")
            with open(tokens, "w", encoding="utf-8") as file:
                file.write("page " + TOKEN + "\n")
            os.chmod(tokens, 0o600)
            cls.server = Server("--auth_tokens_file=" + tokens, "--allow_origins=" + PAGE)
        cls.addClassCleanup(cls.server.stop)
        # Its port of gRPC takes calls over HTTP as well.
        cls.native = Server("--grpc_transport=native", "--allow_origins=" + PAGE)
        cls.addClassCleanup(cls.native.stop)

    def setUp(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.server.http_port, timeout=30)
        self.addCleanup(self.connection.close)

    def ask(self, path, content_type, body, headers=(), token=TOKEN, method="POST"):
        """(status, headers with lower-case names, body)"""
        sent = {"Content-Type": content_type, **dict(headers)}
        if token:
            sent["Authorization"] = "Bearer " + token
        self.connection.request(method, path, body, sent)
        answer = self.connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def label(self, message):
        return inference_pb2.ClassifyResponse.FromString(message).classifications[0].labels[0].name

    def test_connect_with_json_and_proto(self):
        request = {"model": "trec", "sequences": [{"text": TEXT}]}
        status, headers, body = self.ask(
            SERVICE + "Classify", "application/json", json.dumps(request),
            {"Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "30000", "X-Request-Id": "page-1"})
        self.assertEqual((status, headers["content-type"], headers["x-request-id"]), (200, "application/json", "page-1"))
        self.assertEqual(json.loads(body)["classifications"][0]["labels"][0]["name"], "LOC")
        status, headers, body = self.ask(SERVICE + "Classify", "application/proto", classify_request(TEXT, model="trec"))
        self.assertEqual((status, headers["content-type"]), (200, "application/proto"))
        self.assertEqual(self.label(body), "LOC")

    def test_a_connect_error(self):
        status, headers, body = self.ask(
            SERVICE + "Classify", "application/proto", classify_request(TEXT, model="nope"), {"X-Request-Id": "page-2"})
        self.assertEqual((status, headers["content-type"]), (404, "application/json"))
        self.assertEqual(headers["trailer-x-request-id"], "page-2")
        error = json.loads(body)
        self.assertEqual(error["code"], "not_found")
        self.assertIn("'nope'", error["message"])

    def test_a_deadline_of_connect(self):
        request = inference_pb2.GenerateRequest(model="war_and_peace", prompt={"text": "It"}, max_new_tokens=4000, num_samples=64)
        status, _, body = self.ask(
            SERVICE + "Generate", "application/connect+proto", frame(request.SerializeToString()),
            {"Connect-Timeout-Ms": "20"})
        self.assertEqual(status, 200)
        flags, end = frames(body)[-1]
        self.assertEqual(flags, 2)
        self.assertEqual(json.loads(end)["error"]["code"], "deadline_exceeded")

    def test_connect_with_a_stream_of_answers(self):
        request = {"model": "war_and_peace", "prompt": {"text": "It was"}, "max_new_tokens": 8}
        status, headers, body = self.ask(SERVICE + "Generate", "application/connect+json", frame(json.dumps(request).encode()))
        self.assertEqual((status, headers["content-type"]), (200, "application/connect+json"))
        *messages, end = frames(body)
        self.assertEqual(sum(len(json.loads(message)["token_ids"]) for _, message in messages), 8)
        self.assertEqual({flags for flags, _ in messages}, {0})
        self.assertEqual(end, (2, b"{}"))

    def test_grpc_web(self):
        status, headers, body = self.ask(
            SERVICE + "Classify", "application/grpc-web+proto", frame(classify_request(TEXT, model="trec")), {"X-Grpc-Web": "1"})
        self.assertEqual((status, headers["content-type"]), (200, "application/grpc-web+proto"))
        (flags, message), end = frames(body)
        self.assertEqual((flags, self.label(message)), (0, "LOC"))
        self.assertEqual((end[0], trailers(end[1])["grpc-status"]), (END, "0"))

    def test_grpc_web_in_text(self):
        request = frame(classify_request(TEXT, model="trec"))
        text = base64.b64encode(request[:7]) + base64.b64encode(request[7:])
        status, headers, body = self.ask(SERVICE + "Classify", "application/grpc-web-text", text)
        self.assertEqual((status, headers["content-type"]), (200, "application/grpc-web-text+proto"))
        (_, message), end = frames(decode_pieces(body))
        self.assertEqual(self.label(message), "LOC")
        self.assertEqual(trailers(end[1])["grpc-status"], "0")

    def test_grpc_web_with_a_stream_of_answers(self):
        request = inference_pb2.GenerateRequest(model="war_and_peace", prompt={"text": "It was"}, max_new_tokens=8)
        text = base64.b64encode(frame(request.SerializeToString()))
        status, _, body = self.ask(SERVICE + "Generate", "application/grpc-web-text", text)
        self.assertEqual(status, 200)
        *messages, end = frames(decode_pieces(body))
        answers = [inference_pb2.GenerateResponse.FromString(message) for _, message in messages]
        self.assertEqual(sum(len(answer.token_ids) for answer in answers), 8)
        self.assertEqual((end[0], trailers(end[1])["grpc-status"]), (END, "0"))

    def test_grpc_web_that_is_refused(self):
        request = frame(classify_request(TEXT, model="trec"))
        for body, headers, token, code in (
            (request, {}, "", "16"),
            (request, {"grpc-timeout": "soon"}, TOKEN, "3"),
            (request[:-1], {}, TOKEN, "3"),
            (request + request, {}, TOKEN, "3"),
            (frame(b"\xff"), {}, TOKEN, "3"),
            (frame(classify_request(TEXT, model="nope")), {}, TOKEN, "5"),
        ):
            status, _, answer = self.ask(SERVICE + "Classify", "application/grpc-web", body, headers, token)
            self.assertEqual(status, 200)
            ((flags, end),) = frames(answer)
            self.assertEqual((flags, trailers(end)["grpc-status"]), (END, code))
            self.assertTrue(trailers(end)["grpc-message"])

    def test_health_needs_no_token(self):
        status, _, body = self.ask(HEALTH, "application/proto", b"", token="")
        self.assertEqual((status, body), (200, b"\x08\x01"))
        status, _, body = self.ask(HEALTH, "application/grpc-web", frame(b""), token="")
        self.assertEqual(frames(body)[0], (0, b"\x08\x01"))
        self.assertEqual(self.ask(HEALTH, "application/json", b"{}", token="")[0], 415)

    def test_every_method_with_one_request_can_be_called(self):
        for path in (SERVICE + "ListModels", "/inference.GRPCInferenceService/ServerReady"):
            self.assertEqual(self.ask(path, "application/json", "{}")[0], 200, path)
        # This port has no methods of the admin port, and a stream of requests needs gRPC.
        self.assertEqual(self.ask("/sru.v1.AdminService/LoadModel", "application/json", "{}")[0], 404)
        status, _, body = self.ask(SERVICE + "EncodeStream", "application/connect+json", frame(b"{}"))
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(frames(body)[0][1])["error"]["code"], "unimplemented")

    def test_an_allowed_page_may_call_every_route(self):
        ask_first = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        for path in (SERVICE + "Classify", *{route.path.replace("MODEL", "trec") for route in ROUTES}):
            status, headers, body = self.ask(path, "", None, ask_first, token="", method="OPTIONS")
            self.assertEqual((status, body), (204, b""), path)
            self.assertNotIn("content-length", headers)
            self.assertEqual(headers["access-control-allow-origin"], PAGE)
            self.assertIn("POST", headers["access-control-allow-methods"])
            allowed = headers["access-control-allow-headers"].lower().split(", ")
            self.assertLessEqual(
                {"authorization", "content-type", "connect-protocol-version", "connect-timeout-ms", "x-grpc-web",
                 "x-user-agent", "grpc-timeout", "x-request-id", "traceparent"}, set(allowed))
        request = json.dumps({"model": "trec", "sequences": [{"text": TEXT}]})
        for path in (SERVICE + "Classify", "/v1/classify"):
            for token, status in ((TOKEN, 200), ("", 401)):
                found, headers, _ = self.ask(path, "application/json", request, {"Origin": PAGE}, token)
                self.assertEqual(found, status)
                self.assertEqual((headers["access-control-allow-origin"], headers["vary"]), (PAGE, "Origin"))
                self.assertIn("grpc-status", headers["access-control-expose-headers"].lower())

    @unittest.skipIf(shutil.which("curl") is None, "there is no program curl")
    def test_the_same_over_http2(self):
        url = "http://127.0.0.1:%d" % self.native.port

        def ask(path, body=b"", *flags, **headers):
            """The status with the headers, and the body."""
            command = ["curl", "-sSi", "-m", "30", "--http2-prior-knowledge", "--data-binary", "@-", *flags]
            for name, value in headers.items():
                command += ["-H", "%s: %s" % (name.replace("_", "-"), value)]
            done = subprocess.run([*command, url + path], input=body, capture_output=True, check=True, timeout=60)
            head, _, answer = done.stdout.partition(b"\r\n\r\n")
            return head.decode(), answer

        request = classify_request(TEXT, model="trec")
        head, body = ask(SERVICE + "Classify", request, content_type="application/proto")
        self.assertTrue(head.startswith("HTTP/2 200"), head)
        self.assertEqual(self.label(body), "LOC")
        head, body = ask(SERVICE + "Classify", frame(request), content_type="application/grpc-web")
        (_, message), end = frames(body)
        self.assertEqual((self.label(message), trailers(end[1])["grpc-status"]), ("LOC", "0"))
        request = inference_pb2.GenerateRequest(model="war_and_peace", prompt={"text": "It"}, max_new_tokens=8)
        head, body = ask(SERVICE + "Generate", base64.b64encode(frame(request.SerializeToString())),
                         content_type="application/grpc-web-text", grpc_timeout="30S")
        self.assertIn("content-type: application/grpc-web-text+proto", head)
        self.assertEqual(trailers(frames(decode_pieces(body))[-1][1])["grpc-status"], "0")
        head, body = ask(SERVICE + "Generate", b"\0", content_type="application/grpc-web")
        self.assertEqual(trailers(frames(body)[0][1])["grpc-status"], "3")
        head, body = ask(SERVICE + "Classify", b"", "-X", "OPTIONS", Origin=PAGE, Access_Control_Request_Method="POST")
        self.assertTrue(head.startswith("HTTP/2 204"), head)
        self.assertIn("access-control-allow-origin: " + PAGE, head)
        self.assertNotIn("content-length", head)

    def test_a_foreign_page_is_refused(self):
        request = json.dumps({"model": "trec", "sequences": [{"text": TEXT}]})
        for origin in ("https://app.example.com.evil.example", "http://app.example.com", "null"):
            status, headers, _ = self.ask(SERVICE + "Classify", "application/json", request, {"Origin": origin})
            self.assertEqual(status, 403)
            self.assertNotIn("access-control-allow-origin", headers)

    def test_malformed_origins_are_refused_at_the_start(self):
        for origins in ("app.example.com", "https://app.example.com/", "https://*.example.com"):
            self.assertIn("--allow_origins", refusal("--allow_origins=" + origins))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
