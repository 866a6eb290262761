"""Tests that the port of the native transport speaks gRPC, and HTTP/1.1 and HTTP/2 with JSON, with TLS and without.

    one_port_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import contextlib
import http.client
import json
import os
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

if shutil.which("curl") is None:
    print("SKIPPED: there is no program curl")
    sys.exit(77)

from server_process import (
    OTHER_TOKEN, SERVICE, TOKEN, Authority, Server, await_true, bearer, call, classify_request, credentials, inference_pb2,
)  # fmt: skip

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "attacks"))
import http2  # noqa: E402

NATIVE = "--grpc_transport=native"
HANDSHAKES = 512  # that may be under way
COMPLETIONS = "/v1/completions"
QUESTION = '{"model":"trec","sequences":[{"text":"Who wrote it ?"}]}'

NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
NGINX_CONF = """{root} daemon off; pid {path}/pid; error_log stderr error;
events {{}}
http {{
  access_log off;
  client_body_temp_path {path}; proxy_temp_path {path}; fastcgi_temp_path {path}; uwsgi_temp_path {path}; scgi_temp_path {path};
  server {{
    listen unix:{path}/socket ssl http2;
    ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]};
    location / {{
      grpc_pass grpcs://127.0.0.1:{port};
      grpc_set_header X-Forwarded-For 203.0.113.7;
      grpc_ssl_certificate {tls[2]}; grpc_ssl_certificate_key {tls[3]};
      grpc_ssl_trusted_certificate {tls[4]}; grpc_ssl_verify on; grpc_ssl_name localhost;
    }}
  }}
}}
"""


def curl(url, *flags, body=None):
    """The HTTP version, the status and the body of an answer; version 0 and status 0 if there is none."""
    command = ["curl", "-sS", "-m", "20", "-w", "\n%{http_version} %{http_code}", *flags]
    if body is not None:
        command += ["-H", "content-type: application/json", "--data-binary", "@-"]
    done = subprocess.run([*command, url], input=body, capture_output=True, text=True, timeout=60)
    text, _, last = done.stdout.rpartition("\n")
    version, status = last.split()
    return version, int(status), text


def label(text):
    return json.loads(text)["classifications"][0]["labels"][0]["name"]


class OnePort(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        cls.ours = Authority(cls.directory, "ours")
        cls.certificate, cls.key = cls.ours.issue("server")
        cls.client_certificate, cls.client_key = cls.ours.issue("client")
        cls.tokens = os.path.join(cls.directory, "tokens")
        with open(cls.tokens, "w") as file:
            file.write("a %s\n" % TOKEN)

    def tls(self, *flags):
        return Server(NATIVE, "--http_listen=", "--tls_cert=" + self.certificate, "--tls_key=" + self.key, *flags)

    def check_grpc(self, server, channel_credentials=None, metadata=()):
        request = classify_request("Who wrote it ?", model="trec")
        with server.channel(channel_credentials) as channel:
            self.assertEqual(call(channel, "Classify", request, metadata).code, "OK")

    def test_plain(self):
        with Server(NATIVE, "--http_listen=") as server:
            self.assertIsNone(server.http_port)
            base = "http://127.0.0.1:%d" % server.port
            self.check_grpc(server)
            for flag, version in (("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
                self.assertEqual(curl(base + "/readyz", flag), (version, 200, "ready\n"))
                self.assertEqual(curl(base + "/healthz", flag), (version, 200, "ok\n"))
                got, status, text = curl(base + "/v1/classify", flag, body=QUESTION)
                self.assertEqual((got, status, label(text)), (version, 200, "HUM"))
                text = curl(base + "/v1/classify", flag, "-i", "-H", "Expect: 100-continue", body=QUESTION)[2]
                self.assertRegex(text, "^HTTP/%s 100 (?s:.*)HTTP/%s 200 " % (version, version))
                self.assertEqual(curl(base + "/nothing", flag)[:2], (version, 404))
                got, status, text = curl(base + "/v1/classify", flag, body="{")
                self.assertEqual((got, status), (version, 400))
                self.assertIn("not JSON", text)
                long = QUESTION.replace("Who", "Who " * 50000)  # more tokens than a sequence may have
                got, status, text = curl(base + "/v1/classify", flag, body=long)
                self.assertEqual((got, status), (version, 400), text[:200])
            # Neither protocol, and nothing at all.
            for first in (b"\x16\x03\x01", b"PRI *", b""):
                with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                    client.sendall(first)
            self.check_grpc(server)
            self.assertGreater(server.metric('sru_door_connections_closed_total{cause="peer"}'), 0)
            self.assertGreater(server.metric('sru_http_requests_total{code="2xx"}'), 0)

    @unittest.skipIf(NGINX is None, "nginx is not installed")
    def test_behind_nginx_with_tls_on_both_sides(self):
        tls = (self.certificate, self.key, self.client_certificate, self.client_key, self.ours.certificate)
        with self.tls("--tls_client_ca=" + self.ours.certificate, "--trusted_proxies=127.0.0.1") as server:
            path = os.path.join(self.directory, "nginx")
            os.mkdir(path)
            with open(path + "/nginx.conf", "w") as file:
                file.write(NGINX_CONF.format(path=path, port=server.port, root="user root;" * (os.geteuid() == 0), tls=tls))
            nginx = subprocess.Popen([NGINX, "-e", "stderr", "-p", path, "-c", path + "/nginx.conf"])
            try:
                await_true(lambda: os.path.exists(path + "/socket"), "nginx listens")
                options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.default_authority", "localhost")]
                with grpc.secure_channel("unix:" + path + "/socket", credentials(self.ours), options) as channel:
                    request = classify_request(*["Who wrote it ?"] * 8, model="trec")
                    calls = [channel.unary_unary(SERVICE + "Classify").future(request, timeout=20) for _ in range(200)]
                    self.assertEqual({done.code().name for done in calls}, {"OK"})
                    prompt = inference_pb2.GenerateRequest(model="war_and_peace", max_new_tokens=200)
                    prompt.prompt.text = "It was"
                    parts = channel.unary_stream(SERVICE + "Generate")(prompt.SerializeToString(), timeout=20)
                    self.assertGreater(len(list(parts)), 1)
                    wrong = call(channel, "Classify", classify_request("a", model="nobody"))
                    self.assertEqual((wrong.code, "nobody" in wrong.details), ("NOT_FOUND", True))
                self.assertGreater(server.metric('sru_caller_tokens_total{caller="203.0.113.7"}'), 0)
            finally:
                nginx.terminate()
                nginx.wait(timeout=20)

    def test_tls(self):
        with self.tls("--auth_tokens_file=" + self.tokens) as server:
            base = "https://localhost:%d" % server.port
            trust = ("--cacert", self.ours.certificate)
            own = ("-H", "authorization: Bearer " + TOKEN)
            self.check_grpc(server, credentials(self.ours), bearer(TOKEN))
            for flag, version in (("--http1.1", "1.1"), ("--http2", "2"), ("--no-alpn", "1.1")):
                self.assertEqual(curl(base + "/readyz", flag, *trust), (version, 200, "ready\n"))
                got, status, text = curl(base + "/v1/classify", flag, *trust, *own, body=QUESTION)
                self.assertEqual((got, status, label(text)), (version, 200, "HUM"))
                self.assertEqual(curl(base + "/v1/classify", flag, *trust, body=QUESTION)[:2], (version, 401))
                text = curl(base + "/v1/classify", flag, *trust, "-i", "-H", "Expect: 100-continue", body=QUESTION)[2]
                self.assertRegex(text, "^HTTP/%s 401 " % version)  # no 100, and the body is not sent
            self.assertEqual(curl("http://localhost:%d/readyz" % server.port)[:2], ("0", 0), "without TLS")

    def test_handshakes_that_do_not_end_make_way(self):
        with self.tls() as server:
            begun = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(600)]
            for connection in begun:
                self.addCleanup(connection.close)
                connection.sendall(b"\x16\x03\x01\x02\x00\x01")
            closed = 'sru_door_connections_closed_total{cause="made_way"}'
            await_true(lambda: server.metric(closed) >= 600 - HANDSHAKES, "the oldest make way")
            self.assertLessEqual(server.metric("sru_door_connections"), HANDSHAKES)
            trust = ("--cacert", self.ours.certificate)
            self.assertEqual(curl("https://localhost:%d/readyz" % server.port, *trust)[1], 200)
            self.assertGreater(server.metric("sru_door_connections"), HANDSHAKES / 2, "before their time was up")

    def test_mutual_tls(self):
        with self.tls("--tls_client_ca=" + self.ours.certificate) as server:
            url = "https://localhost:%d/v1/classify" % server.port
            trust = ("--cacert", self.ours.certificate)
            own = ("--cert", self.client_certificate, "--key", self.client_key)
            for flag in ("--http1.1", "--http2"):
                self.assertEqual(curl(url, flag, *trust, *own, body=QUESTION)[1], 200)
                self.assertEqual(curl(url, flag, *trust, body=QUESTION)[1], 0)

    def test_a_drain_answers_what_has_come(self):
        body = '{"model":"war_and_peace","prompt":"Prince","max_tokens":400,"stream":true}'
        for flag in ("--http1.1", "--http2-prior-knowledge"):
            with Server(NATIVE, "--http_listen=") as server:
                url = "http://127.0.0.1:%d/v1/completions" % server.port
                command = ["curl", "-sSN", "-m", "20", flag, "-H", "content-type: application/json", "-d", body, url]
                client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                self.assertIn("data: ", client.stdout.readline())
                server.process.send_signal(signal.SIGTERM)
                text = client.communicate(timeout=30)[0]
                self.assertIn("data: [DONE]", text, flag)
                await_true(lambda: not server.alive(), "the server ends")
                self.assertEqual(server.process.returncode, 0, flag)

    def test_a_drain_answers_those_who_are_sending(self):
        """They learn that another server is to be asked, and that this one has done nothing."""
        with Server(NATIVE, "--http_listen=") as server, contextlib.ExitStack() as stack:
            older = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 20))
            head = "POST /v1/classify HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\n{"
            older.sendall(head.encode())
            lines = stack.enter_context(older.makefile("rb"))  # the socket may give them in pieces
            self.assertEqual(lines.readline() + lines.readline(), b"HTTP/1.1 100 Continue\r\n\r\n")
            newer = []
            for path, kind, body in (
                ("/v1/classify", "application/json", b"{"),
                ("/sru.v1.InferenceService/Classify", "application/grpc", http2.message(b"abc")[:6]),
            ):
                connection = stack.enter_context(http2.Connection(server.port))
                newer.append((connection, connection.start(path, body=body, content_type=kind)))
                self.assertEqual(connection.call("/grpc.health.v1.Health/Check").code, "OK")  # so that one has come, too
            server.process.send_signal(signal.SIGTERM)
            answer = lines.read()
            self.assertRegex(answer.decode(), "(?s)^HTTP/1.1 503 .*Connection: close.*the server is shutting down")
            page, called = (connection.finish(stream, timeout=20) for connection, stream in newer)
            self.assertIn("503", page.details)
            self.assertEqual((called.code, called.details), ("UNAVAILABLE", "the server is shutting down"))
            await_true(lambda: not server.alive(), "the server ends")
            self.assertEqual(server.process.returncode, 0)

    def test_who_is_shown_out(self):
        """A token that is taken away ends its streams, those that go on over HTTP too, and nobody else's."""
        tokens = os.path.join(self.directory, "changing")
        with open(tokens, "w") as file:
            file.write("a %s\nb %s\n" % (TOKEN, OTHER_TOKEN))
        with self.tls("--auth_tokens_file=" + tokens, "--credentials_poll_interval_s=0.2") as server:
            channel = server.channel(credentials(self.ours))
            self.addCleanup(channel.close)

            def stream(token):
                requests = queue.SimpleQueue()
                self.addCleanup(requests.put, None)
                method = channel.stream_stream(SERVICE + "EncodeStream")
                return method(iter(requests.get, None), metadata=bearer(token))

            ended, stays = stream(TOKEN), stream(OTHER_TOKEN)
            for version, token in (("1.1", TOKEN), ("2", TOKEN), ("2", OTHER_TOKEN)):
                self.start_text(server, version, token)
            server.await_metric("sru_requests_in_flight", 3)
            with open(tokens, "w") as file:
                file.write("b %s\n" % OTHER_TOKEN)
            with self.assertRaises(grpc.RpcError) as raised:
                next(ended)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            server.await_metric("sru_requests_in_flight", 1)
            self.assertTrue(stays.is_active())

    def test_whose_certificate_is_no_longer_accepted(self):
        authority = os.path.join(self.directory, "authority.pem")
        shutil.copy(self.ours.certificate, authority)
        with self.tls("--tls_client_ca=" + authority, "--credentials_poll_interval_s=0.2") as server:
            for version in ("1.1", "2"):
                self.start_text(server, version, TOKEN, self.client_certificate, self.client_key)
            server.await_metric("sru_requests_in_flight", 2)
            shutil.copy(Authority(self.directory, "theirs").certificate, authority)
            server.await_metric("sru_requests_in_flight", 0)

    def start_text(self, server, version, token, *pair):
        """Begins a long text and reads none of it."""
        tls = ssl.create_default_context(cafile=self.ours.certificate)
        if pair:
            tls.load_cert_chain(*pair)
        body = b'{"model":"war_and_peace","prompt":"Prince","max_tokens":3000,"stream":true}'
        authorization = "Bearer " + token
        if version == "2":
            tls.set_alpn_protocols(["h2"])
            client = http2.Connection(server.port, window=1000, tls=tls)
            client.start(COMPLETIONS, [("authorization", authorization)], body, True, content_type="application/json")
        else:
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", server.port))
            client = tls.wrap_socket(raw, server_hostname="localhost")
            head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: %s\r\n"
            client.sendall((head % (COMPLETIONS, authorization)).encode())
            client.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.addCleanup(client.close)

    def test_an_old_connection_is_closed_after_its_answer(self):
        with Server(NATIVE, "--max_connection_age_s=1") as server:
            for port in (server.port, server.http_port):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connection.request("GET", "/readyz")
                self.assertIsNone(self.answer(connection).getheader("Connection"))
                time.sleep(1.2)
                with self.assertRaises((OSError, http.client.HTTPException)):
                    connection.request("GET", "/readyz")  # it was idle when it became too old
                    self.answer(connection)

    def test_no_call_takes_longer_than_max_call_s(self):
        with self.tls("--max_call_s=2") as server:
            channel = server.channel(credentials(self.ours))
            self.addCleanup(channel.close)
            requests = queue.SimpleQueue()
            self.addCleanup(requests.put, None)
            waits = channel.stream_stream(SERVICE + "EncodeStream")(iter(requests.get, None))
            with self.assertRaises(grpc.RpcError) as raised:
                next(waits)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
            self.assertIn("--max_call_s", raised.exception.details())
            resets = 'sru_door_resets_total{by="server",reason="cancel"}'
            server.await_more(resets, lambda: self.start_text(server, "2", TOKEN))
            server.await_metric("sru_requests_in_flight", 0)

    @staticmethod
    def answer(connection):
        answer = connection.getresponse()
        answer.read()
        return answer


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
