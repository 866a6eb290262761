"""Tests TLS, tokens and bounds on connections, with real handshakes and calls.

    security_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import contextlib
import http.client
import os
import signal
import re
import shutil
import socket
import ssl
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

from server_process import (
    CLIENT,
    HEALTH,
    LIST_SERVICES,
    OTHER_TOKEN,
    PYTHON_CLIENT,
    REFLECTION,
    REFLECTION_V1,
    TOKEN,
    Authority,
    Server,
    await_true,
    bearer,
    call,
    call_once,
    credentials,
    openssl,
    read,
    refusal,
    run,
)

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "attacks"))
import http2  # noqa: E402

# Which transport the servers have, by the variable that they read. gRPC's library tells of no handshakes and bounds no connections.
NATIVE = os.environ.get("SRU_GRPC_TRANSPORT") != "library"
# Between two checks a test may replace two files that belong together, not more.
FAST = "--credentials_poll_interval_s=0.2"


def handshake_failures(server, reason):
    return server.metric('sru_tls_handshake_failures_total{reason="%s"}' % reason)


def await_handshake_failure(server, reason, before=0):
    """Waits until a failure at the gRPC port has been counted and logged."""
    if NATIVE:
        await_true(lambda: handshake_failures(server, reason) > before, reason)
        server.await_log("TLS handshake failed reason=" + reason)


def auth_failures(server, reason):
    return server.metric('sru_auth_failures_total{reason="%s"}' % reason)


class Files(unittest.TestCase):
    """A folder with two authorities that both issued certificates."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        cls.ours = Authority(cls.directory, "ours")
        cls.theirs = Authority(cls.directory, "theirs")
        cls.server_pair = cls.ours.issue("server")
        cls.client_pair = cls.ours.issue("client")
        cls.theirs_server = cls.theirs.issue("server")
        cls.stranger_pair = cls.theirs.issue("client")
        cls.expired_pair = cls.ours.issue("expired", days=-1)

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def check_refusal(self, parts, *flags, env=None):
        line = refusal(*flags, env=env)
        for part in parts:
            self.assertIn(part, line)

    def weak_pair(self):
        """A key of a size that the distributions' OpenSSL does not accept."""
        return self.ours.issue("weak", rsa_bits=1024)

    def tls_flags(self, pair=None, client_ca=None):
        certificate, key = pair or self.server_pair
        flags = ["--tls_cert=" + certificate, "--tls_key=" + key]
        return flags + (["--tls_client_ca=" + client_ca] if client_ca else [])


class TlsTest(Files):
    def test_server_certificate(self):
        with Server(*self.tls_flags()) as server:
            self.assertEqual(call_once(server, credentials(self.ours)).code, "OK")
            # A client that does not trust the authority, or expects another name.
            self.assertEqual(call_once(server, credentials(self.theirs)).code, "UNAVAILABLE")
            self.assertEqual(call_once(server, credentials(self.ours), name="example.org").code, "UNAVAILABLE")
            # gRPC's clients just leave, and check the name after the handshake; others say why.
            await_handshake_failure(server, "closed_by_client")
            if NATIVE:
                self.assertRegex(server.log(), r"reason=closed_by_client .* peer=ipv[46]:")
            self.assertNotEqual(self.s_client(server, "-CAfile", self.theirs.certificate)[0], 0)
            await_handshake_failure(server, "refused_by_client")
            # A client without TLS.
            self.assertEqual(call_once(server, None).code, "UNAVAILABLE")
            await_handshake_failure(server, "not_tls")
            # A client that needs no certificate may present any.
            self.assertEqual(call_once(server, credentials(self.ours, *self.stranger_pair)).code, "OK")
            self.assertEqual(self.s_client(server)[0], 0)
            self.assertIn("ALPN protocol: h2", self.s_client(server)[1])
            self.assertNotEqual(self.s_client(server, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")[0], 0)

    def test_probes_of_the_port_are_no_handshakes(self):
        """Load balancers and kubelets connect and leave; a client that began a handshake and left is counted."""
        if not NATIVE:
            self.skipTest("gRPC's library tells of no handshakes")
        with Server(*self.tls_flags()) as server:
            peers = []
            for sent in (b"", b"", b"", b"\x16\x03\x01\x02\x00"):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
                peers.append(connection.getsockname()[1])
                connection.sendall(sent)
                connection.close()
            server.await_metric('sru_tls_handshake_failures_total{reason="closed_by_client"}', 1)
            self.assertEqual(call_once(server, credentials(self.ours)).code, "OK")
            self.assertEqual(handshake_failures(server, "closed_by_client"), 1)
            server.await_log("peer=ipv4:127.0.0.1:%d" % peers[-1])
            self.assertEqual(server.log().count("TLS handshake failed"), 1)

    def https(self, server, body=b"", pair=None, authority=None, headers=(), path="/v1/classify"):
        """The answer's status and body; None when there is no connection."""
        context = ssl.create_default_context(cafile=(authority or self.ours).certificate)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as newer versions of Python do
        if pair:
            context.load_cert_chain(*pair)
        connection = http.client.HTTPSConnection("localhost", server.http_port, context=context, timeout=30)
        try:
            headers = {"Content-Type": "application/json", **dict(headers)}
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return None
        finally:
            connection.close()

    def test_http_has_the_same_files(self):
        request = b'{"sequences": [{"text": "Where is Lake Titicaca ?"}]}'
        certificate, key = self.write("http.crt", read(self.server_pair[0])), self.write("http.key", read(self.server_pair[1]))
        tokens = self.write("tokens", "team %s\n" % TOKEN)
        flags = ["--auth_tokens_file=" + tokens, "--credentials_poll_interval_s=0.05"]
        with Server(*self.tls_flags((certificate, key)), *flags) as server:
            bearer = {"Authorization": "Bearer " + TOKEN}
            status, body = self.https(server, request, headers=bearer)
            self.assertEqual(status, 200, body)
            self.assertIn(b"LOC", body)
            self.assertEqual(self.https(server, request)[0], 401)
            self.assertIsNone(self.https(server, request, authority=self.theirs, headers=bearer))
            server.await_log("TLS handshake failed reason=refused_by_client")
            with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    plain.recv(1000)
            server.await_metric('sru_tls_handshake_failures_total{reason="not_tls"}', 1)
            for sent in (b"", b"\x16\x03\x01\x02\x00"):
                with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as leaving:
                    leaving.sendall(sent)
            server.await_metric('sru_tls_handshake_failures_total{reason="closed_by_client"}', 1)
            # New connections see renewed files.
            self.write("http.key", read(self.theirs_server[1]))
            self.write("http.crt", read(self.theirs_server[0]))
            await_true(
                lambda: (self.https(server, request, authority=self.theirs, headers=bearer) or [0])[0] == 200,
                "the new certificate is used",
            )

    def test_http_asks_for_client_certificates(self):
        request = b'{"sequences": [{"text": "Where is Lake Titicaca ?"}]}'
        with Server(*self.tls_flags(client_ca=self.ours.certificate)) as server:
            self.assertEqual(self.https(server, request, pair=self.client_pair)[0], 200)
            for pair, reason in (
                (self.stranger_pair, "bad_client_certificate"),
                (None, "no_client_certificate"),
            ):
                before = handshake_failures(server, reason)
                self.assertIsNone(self.https(server, request, pair=pair))
                await_true(lambda: handshake_failures(server, reason) > before, reason)

    def test_client_certificates(self):
        admin = ["--admin_listen=127.0.0.1:0", "--model_control=explicit"]
        with Server(*self.tls_flags(client_ca=self.ours.certificate), *admin) as server:
            self.assertEqual(call_once(server, credentials(self.ours, *self.client_pair)).code, "OK")
            for pair, reason in (
                (self.stranger_pair, "bad_client_certificate"),
                (self.expired_pair, "bad_client_certificate"),
                ((None, None), "no_client_certificate"),
            ):
                before = handshake_failures(server, reason)
                answer = call_once(server, credentials(self.ours, *pair))
                self.assertEqual(answer.code, "UNAVAILABLE", reason)
                await_handshake_failure(server, reason, before)
            # Under TLS 1.2 a client learns of it within the handshake, under 1.3 just after.
            self.assertNotEqual(self.s_client(server, "-tls1_2")[0], 0)
            certificate, key = self.client_pair
            self.assertEqual(self.s_client(server, "-tls1_2", "-cert", certificate, "-key", key)[0], 0)
            # The server still works.
            self.assertEqual(call_once(server, credentials(self.ours, *self.client_pair)).code, "OK")

    def test_our_load_generator(self):
        """sru_bench over TLS: both its loads, by its own HTTP/2 and by gRPC, and what it says of a wrong flag."""
        certificate, key = self.client_pair
        with Server(*self.tls_flags(client_ca=self.ours.certificate)) as server:

            def bench(command, *flags):
                to = "--address=" + server.address
                times = ["--warmup=0s", "--duration=60s"]
                return run(os.path.join(os.path.dirname(CLIENT), "sru_bench"), command, to, *times, *flags)

            trust = "--tls_ca=" + self.ours.certificate
            tls = [trust, "--tls_cert=" + certificate, "--tls_key=" + key]
            load = bench("load", *tls, "--calls=50", "--in_flight=4", "--json")
            self.assertEqual(load.returncode, 0, load.stderr)
            self.assertIn('"ok":50', load.stdout.replace(" ", ""))
            texts = bench("generate", *tls, "--texts=2", "--model=war_and_peace")
            self.assertEqual(texts.returncode, 0, texts.stderr)
            for flags, part in (
                (["--tls_ca=" + self.theirs.certificate], "of --tls_ca for localhost, found: self-signed"),
                (["--tls_ca=" + self.theirs.certificate, "--lengths=5"], "certificate verify failed"),
                # gRPC's library hangs up without an alert.
                ([trust], "certificate required; give --tls_cert and --tls_key" if NATIVE else "cannot connect with TLS: "),
                ([*tls, "--tls_server_name=example.org"], "for example.org, found: hostname mismatch"),
                ([], "a server with TLS needs --tls_ca"),
                ([trust, "--tls_cert=" + certificate], "tls_key: expected the key of tls_cert"),
            ):
                done = bench("load", *flags)
                self.assertNotEqual(done.returncode, 0, part)
                self.assertIn(part, done.stderr)

    def test_our_clients(self):
        certificate, key = self.client_pair
        tokens = self.write("tokens", "team %s\n" % TOKEN)
        token = self.write("token", TOKEN + "\n")
        with Server(
            *self.tls_flags(client_ca=self.ours.certificate), "--auth_tokens_file=" + tokens
        ) as server:

            def models(*flags):
                return run(CLIENT, "models", "--address=" + server.address, "--deadline=20s", *flags)

            tls = ["--tls_ca=" + self.ours.certificate, "--tls_cert=" + certificate]
            done = models(*tls, "--tls_key=" + key, "--token_file=" + token)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("trec", done.stdout)
            done = models(*tls, "--tls_key=" + key)
            self.assertEqual(done.returncode, 1)
            server.await_log(
                "authentication failed method=/sru.v1.InferenceService/ListModels "
                "code=UNAUTHENTICATED reason=missing peer=ipv4:127.0.0.1:"
            )
            server.await_log(" certificate=client user_agent=\"grpc-c++/")
            self.assertIn("UNAUTHENTICATED", done.stderr)
            self.assertIn("--token_file", done.stderr)
            # The message says why there is no connection, not only that there is none.
            stranger, stranger_key = self.stranger_pair
            trust = "--tls_ca=" + self.ours.certificate
            for flags, parts in (
                (["--tls_ca=" + self.theirs.certificate], ["certificate verify failed", "tls_ca"]),
                ([trust, "--tls_server_name=example.org"], ["example.org is not in", "tls_server_name"]),
                ([trust], ["may want a client certificate", "give it with tls_cert"]),
                ([trust, "--tls_cert=" + stranger, "--tls_key=" + stranger_key], ["or another one"]),
                ([], ["may speak TLS", "tls_ca"]),
            ):
                done = models(*flags)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertNotIn("make serve", done.stderr)
                for part in parts:
                    self.assertIn(part, done.stderr)
            for flags, text in (
                (tls, "--tls_key"),
                ([*tls, "--tls_key=" + stranger_key], "--tls_key: expected the key of"),
                (["--tls_ca=" + token + ".none"], "--tls_ca"),
                ([*tls, "--tls_key=" + key, "--token_file=" + token + ".none"], "--token_file"),
                (["--address=example.org:50051", "--token_file=" + token], "--token_file"),
            ):
                done = models(*flags)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, done.stderr)

            python = ["env", "PYTHONPATH=" + PYTHON_CLIENT, sys.executable, "-m", "sru_inference", "classify"]
            python += ["--address=" + server.address, *tls, "--tls_key=" + key]
            done = run(*python, "--token_file=" + token, "Who wrote Hamlet ?")
            self.assertIn("HUM", done.stdout, done.stderr)
            self.assertIn("UNAUTHENTICATED", run(*python, "Who wrote Hamlet ?").stderr)

    def test_a_wrong_start_names_the_flag(self):
        certificate, key = self.server_pair
        encrypted = os.path.join(self.directory, "encrypted.key")
        openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", encrypted)
        cut = self.write("cut.pem", read(certificate)[:-40])
        none = os.path.join(self.directory, "none.pem")
        empty = self.write("empty.pem", "")
        cut_chain = self.write("cut_chain.pem", read(certificate) + read(self.ours.certificate)[:99])
        wrong_chain = self.write("chain.pem", read(certificate) + read(self.theirs.certificate))
        for flags, parts in (
            (["--tls_cert=" + none, "--tls_key=" + key], ["--tls_cert: cannot read", none]),
            (["--tls_cert=" + certificate, "--tls_key=" + none], ["--tls_key: cannot read", none]),
            (["--tls_cert=" + certificate], ["--tls_key: expected"]),
            (["--tls_key=" + key], ["--tls_cert: expected"]),
            (["--tls_cert=" + empty, "--tls_key=" + key], ["--tls_cert", "empty file"]),
            (["--tls_cert=" + cut, "--tls_key=" + key], ["--tls_cert: expected PEM"]),
            (["--tls_cert=" + cut_chain, "--tls_key=" + key], ["--tls_cert: expected PEM"]),
            (["--tls_cert=" + wrong_chain, "--tls_key=" + key], ["--tls_cert", "issuer"]),
            (["--tls_cert=" + key, "--tls_key=" + certificate], ["--tls_cert: expected PEM"]),
            (["--tls_cert=" + certificate, "--tls_key=" + certificate], ["--tls_key: expected a PEM"]),
            (["--tls_cert=" + certificate, "--tls_key=" + encrypted], ["--tls_key", "passphrase"]),
            (self.tls_flags((certificate, self.client_pair[1])), ["--tls_key", "another key"]),
            (self.tls_flags(self.expired_pair), ["--tls_cert", "/CN=expired", "expired at"]),
            (self.tls_flags(client_ca=none), ["--tls_client_ca: cannot read", none]),
            (self.tls_flags(client_ca=key), ["--tls_client_ca: expected PEM"]),
            (self.tls_flags(client_ca=self.expired_pair[0]), ["--tls_client_ca", "expired at"]),
        ):
            self.check_refusal(parts, *flags)
        # Otherwise only each handshake would tell what OpenSSL refuses at its security level.
        weak, weak_ca = self.weak_pair(), Authority(self.directory, "weak-ca", rsa_bits=1024)
        for flags, flag in (
            (self.tls_flags(weak), "--tls_cert: "),
            (self.tls_flags(client_ca=weak_ca.certificate), "--tls_client_ca: "),
        ):
            self.check_refusal((flag, "RSA, 1024 bits", "security level"), *flags)
        # A chain in the right order is accepted.
        chain = self.write("chain.pem", read(certificate) + read(self.ours.certificate))
        with Server(*self.tls_flags((chain, key))) as server:
            self.assertEqual(call_once(server, credentials(self.ours)).code, "OK")

    def test_files_that_change(self):
        certificate, key = (os.path.join(self.directory, name) for name in ("live.pem", "live.key"))
        authorities = os.path.join(self.directory, "live-ca.pem")

        def copy(pair):
            shutil.copy(pair[0], certificate)
            shutil.copy(pair[1], key)

        copy(self.server_pair)
        shutil.copy(self.ours.certificate, authorities)
        client = credentials(self.ours, *self.client_pair)
        with Server(*self.tls_flags((certificate, key), authorities), FAST) as server:
            old = server.channel(client)
            self.assertEqual(call(old, HEALTH).code, "OK")
            self.assertEqual(server.metric("sru_tls_certificate_expiry_seconds"), self.expiry(certificate))
            self.assertEqual(self.subject(server), "server")

            renewed = self.ours.issue("renewed", days=25)
            server.await_more("sru_tls_reloads_total", lambda: copy(renewed))
            self.assertEqual(server.metric("sru_tls_certificate_expiry_seconds"), self.expiry(certificate))
            self.assertEqual(self.subject(server), "renewed")
            self.assertEqual(call(old, HEALTH).code, "OK")  # its connection goes on

            # Half written, of another key, expired, gone: the last good ones stay in use.
            failures = "sru_tls_reload_failures_total"
            half = read(certificate)[: os.path.getsize(certificate) // 2]
            server.await_more(failures, lambda: self.write("live.pem", half))
            other = read(self.server_pair[0])
            server.await_more(failures, lambda: self.write("live.pem", other))
            server.await_log("earlier ones stay in use: --tls_key")
            server.await_more(failures, lambda: copy(self.expired_pair))
            server.await_more(failures, lambda: os.remove(key))
            server.await_more(failures, lambda: copy(self.weak_pair()))
            server.await_log("key too small")
            self.assertEqual(self.subject(server), "renewed")
            self.assertEqual(server.metric("sru_tls_certificate_expiry_seconds"), self.expiry(renewed[0]))
            self.assertEqual(call_once(server, client).code, "OK")

            # The files are mended; at the same time clients of another authority are let in instead.
            shutil.copy(self.theirs.certificate, authorities)
            server.await_more("sru_tls_reloads_total", lambda: copy(self.server_pair))
            self.assertEqual(call_once(server, client).code, "UNAVAILABLE")
            stranger = credentials(self.ours, *self.stranger_pair)
            self.assertEqual(call_once(server, stranger).code, "OK")
            if NATIVE:  # shown out
                await_true(lambda: call(old, HEALTH).code == "UNAVAILABLE", "the end of the connection")
            else:
                self.assertEqual(call(old, HEALTH).code, "OK")
            old.close()
            self.assertEqual(server.stop(), 0)

    def test_tickets_end_with_the_authorities(self):
        """Sessions are resumed, but not once the client's authority has been removed."""
        if NATIVE:
            self.skipTest("the native transport resumes no sessions")
        authorities = os.path.join(self.directory, "ticket-ca.pem")
        shutil.copy(self.ours.certificate, authorities)
        certificate, key = self.client_pair
        ticket = os.path.join(self.directory, "ticket")
        with Server(*self.tls_flags(client_ca=authorities), FAST) as server:
            tls = ["-tls1_2", "-cert", certificate, "-key", key]
            self.assertEqual(self.s_client(server, *tls, "-sess_out", ticket)[0], 0)
            code, output = self.s_client(server, "-tls1_2", "-sess_in", ticket)
            self.assertEqual(code, 0, output)
            self.assertIn("Reused, TLSv1.2", output)
            server.await_more("sru_tls_reloads_total", lambda: shutil.copy(self.theirs.certificate, authorities))
            server.await_log("TLS: new authorities of clients: /CN=theirs")
            code, output = self.s_client(server, "-tls1_2", "-sess_in", ticket)
            self.assertNotIn("Reused", output)
            self.assertNotEqual(code, 0)

    def s_client(self, server, *flags):
        trust = [] if "-CAfile" in flags else ["-CAfile", self.ours.certificate]
        alpn = ("-verify_return_error", "-alpn", "h2")
        done = run("openssl", "s_client", "-connect", server.address, *trust, *alpn, *flags)
        return done.returncode, done.stdout + done.stderr

    def subject(self, server):
        """The common name in the certificate that a new connection gets."""
        certificate, key = self.client_pair
        output = self.s_client(server, "-cert", certificate, "-key", key)[1]
        return re.search(r"(?m)^subject=CN ?= ?(\w+)$", output).group(1)

    def expiry(self, certificate):
        end = openssl("x509", "-in", certificate, "-noout", "-enddate")
        return ssl.cert_time_to_seconds(end.split("=")[1].strip())


class TokenTest(Files):
    def setUp(self):
        self.path = self.write("tokens", "# teams\nsearch %s\n" % TOKEN)

    def flags(self, *more):
        return ["--auth_tokens_file=" + self.path, *more]

    def test_every_call_needs_a_token(self):
        with Server(*self.flags("--log_requests_per_second=0")) as server, server.channel() as channel:
            for metadata, reason in (
                ((), "missing"),
                (bearer(OTHER_TOKEN), "unknown"),
                (bearer(TOKEN.swapcase()), "unknown"),
                (bearer(TOKEN[:-1]), "unknown"),
                (bearer(TOKEN + "x"), "unknown"),
                (bearer(""), "malformed"),
                ((("authorization", TOKEN),), "malformed"),
                ((("authorization", "Basic " + TOKEN),), "malformed"),
                (bearer(TOKEN) + bearer(TOKEN), "malformed"),
                (bearer("x" * 5000), "malformed"),
            ):
                before = auth_failures(server, reason)
                answer = call(channel, "ListModels", metadata=metadata)
                self.assertEqual(answer.code, "UNAUTHENTICATED", metadata)
                self.assertTrue(answer.details.startswith("authorization: "), answer.details)
                self.assertEqual(auth_failures(server, reason), before + 1, metadata)
            # This holds for every service and for methods that do not exist, except for health.
            for method in ("GetModel", "Classify", "Encode", "/sru.v1.AdminService/LoadModel", "/x/y"):
                self.assertEqual(call(channel, method).code, "UNAUTHENTICATED", method)
            self.assertEqual(self.reflect(channel, ()), "UNAUTHENTICATED")
            self.assertEqual(call(channel, HEALTH).code, "OK")

            for value in ("Bearer ", "bearer ", "BEARER  "):
                metadata = (("authorization", value + TOKEN),)
                self.assertEqual(call(channel, "ListModels", metadata=metadata).code, "OK", value)
            self.assertEqual(self.reflect(channel, bearer(TOKEN)), "OK")
            unknown = server.metric("sru_unknown_method_calls_total")
            answer = call(channel, "/sru.v1.AdminService/LoadModel", metadata=bearer(TOKEN))
            self.assertEqual(answer.code, "UNIMPLEMENTED")
            self.assertIn("/sru.v1.AdminService/LoadModel", answer.details)
            self.assertEqual(server.metric("sru_unknown_method_calls_total"), unknown + 1)
            server.await_log("authentication failed method=/x/y code=UNAUTHENTICATED reason=missing")
            self.assertNotIn(TOKEN, server.log())
            self.assertNotIn(OTHER_TOKEN, server.log())

    def test_an_openssl_without_sha256_fails_closed(self):
        """As if a FIPS module is configured but missing: no token may pass."""
        configuration = self.write(
            "base-only.cnf",
            "openssl_conf = init\n[init]\nproviders = providers\n[providers]\nbase = base\n"
            "[base]\nactivate = 1\n",
        )
        env = {"OPENSSL_CONF": configuration}
        self.check_refusal(("--auth_tokens_file: ", "SHA-256", "OPENSSL_CONF"), *self.flags(), env=env)
        self.check_refusal(("--tls_cert: ", "OpenSSL cannot do TLS", "OPENSSL_CONF"), *self.tls_flags(), env=env)

    def test_a_hang_up_has_the_file_read_at_once(self):
        with Server(*self.flags("--credentials_poll_interval_s=3600")) as server, server.channel() as channel:
            self.write("tokens", OTHER_TOKEN)
            server.process.send_signal(signal.SIGHUP)
            server.await_metric("sru_auth_tokens_reloads_total", 1)
            server.await_log("reload: looking at the file of tokens")
            self.assertEqual(call(channel, "ListModels", metadata=bearer(OTHER_TOKEN)).code, "OK")

    def test_what_a_refused_call_sends_is_not_kept(self):
        """A call is refused by its headers, before its message is read, with TLS and without."""
        for tls, channel_credentials in (([], None), (self.tls_flags(), credentials(self.ours))):
            with Server(*self.flags(*tls)) as server, server.channel(channel_credentials) as channel:
                self.assertEqual(call(channel, "ListModels", metadata=bearer(TOKEN)).code, "OK")
                before = server.memory("VmHWM")
                for _ in range(3):
                    answer = call(channel, "Classify", b"\0" * (100 << 20), timeout=60)
                    self.assertEqual(answer.code, "UNAUTHENTICATED")
                # Less than one of the three messages; a sanitizer keeps freed memory for a while.
                self.assertLess(server.memory("VmHWM") - before, 64 << 20)
                self.assertEqual(call(channel, "ListModels", metadata=bearer(TOKEN)).code, "OK")

    def test_health_can_need_one_too(self):
        with Server(*self.flags("--auth_health")) as server:
            self.assertEqual(call_once(server, None).code, "UNAUTHENTICATED")
            self.assertEqual(call_once(server, None, metadata=bearer(TOKEN)).code, "OK")

    def test_probes_need_none(self):
        """Those of all protocols; what stands beside them needs one."""
        paths = ["/v2/health/live", "/v2/health/ready", "/v2/models/trec/ready", "/health", "/readyz"]
        probes = ["inference.GRPCInferenceService/" + name for name in ("ServerLive", "ServerReady")]
        for flags, expected in (([], 200), (["--auth_health"], 401)):
            with Server(*self.flags(*flags)) as server:
                for path in paths:
                    want = 200 if path == "/readyz" else expected
                    self.assertEqual(self.http_status(server, "GET", path), want, path)
                for probe in probes:
                    self.assertEqual(self.http_status(server, "POST", "/" + probe), expected, probe)
                for path in ("/v2", "/v2/models/trec", "/v1/models"):
                    self.assertEqual(self.http_status(server, "GET", path), 401, path)

    def http_status(self, server, verb, path):
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        with contextlib.closing(connection):
            body = None if verb == "GET" else "{}"
            connection.request(verb, path, body, {} if body is None else {"Content-Type": "application/json"})
            return connection.getresponse().status

    def test_the_admin_port_needs_one_too(self):
        tokens = self.write("admin_tokens", TOKEN + "\n")
        flags = self.tls_flags() + [
            "--auth_tokens_file=" + tokens,
            "--admin_listen=127.0.0.1:0",
            "--model_control=explicit",
        ]
        with Server(*flags) as server:
            port = str(server.port_of("admin"))
            command = [CLIENT, "admin", "--address=localhost:" + port]
            command += ["--tls_ca=" + self.ours.certificate]

            def admin(verb, name, token):
                extra = ["--token_file=" + self.write("admin_token", token)] if token else []
                done = run(*command, *extra, verb, name)
                return done.returncode, done.stderr

            for token in (None, OTHER_TOKEN, TOKEN.upper()):
                with self.subTest(token):
                    code, error = admin("load", "trec", token)
                    self.assertNotEqual(code, 0)
                    self.assertIn("UNAUTHENTICATED", error)
            self.assertEqual(auth_failures(server, "missing"), 1)
            self.assertEqual(auth_failures(server, "unknown"), 2)
            self.assertEqual(admin("load", "trec", TOKEN)[0], 0)
            self.assertIn("INVALID_ARGUMENT", admin("load", "../trec", TOKEN)[1])
            self.assertIn("NOT_FOUND", admin("load", "other", TOKEN)[1])
            with grpc.secure_channel("localhost:" + port, credentials(self.ours)) as channel:
                unknown = call(channel, "/sru.v1.AdminService/Reboot", metadata=bearer(TOKEN))
            self.assertEqual(unknown.code, "UNIMPLEMENTED")
            self.assertEqual(server.metric("sru_unknown_method_calls_total"), 1)

    def test_the_admin_port_may_have_its_own(self):
        calls = self.write("call_tokens", "team %s\n" % TOKEN)
        admins = self.write("own_admin_tokens", "ops %s\n" % OTHER_TOKEN)
        flags = ["--admin_tokens_file=" + admins, "--admin_listen=127.0.0.1:0"]
        with Server(
            "--auth_tokens_file=" + calls, *flags, "--model_control=explicit", "--log_requests=all", FAST
        ) as server:
            port = str(server.port_of("admin"))
            main = server.channel()
            admin = grpc.insecure_channel("localhost:" + port)

            def codes(token):
                load = call(admin, "/sru.v1.AdminService/LoadModel", b"\x0a\x04trec", bearer(token))
                return call(main, "ListModels", metadata=bearer(token)).code, load.code

            self.assertEqual(codes(TOKEN), ("OK", "UNAUTHENTICATED"))
            self.assertEqual(codes(OTHER_TOKEN), ("UNAUTHENTICATED", "OK"))
            server.await_log("caller=ops")
            self.write("own_admin_tokens", TOKEN)
            server.await_metric("sru_auth_tokens_reloads_total", 1)
            self.assertEqual(codes(TOKEN), ("OK", "OK"))
            self.assertEqual(codes(OTHER_TOKEN), ("UNAUTHENTICATED", "UNAUTHENTICATED"))
            main.close()
            admin.close()
        with Server(*flags) as server:  # calls need none
            self.assertEqual(call_once(server, None, "ListModels").code, "OK")

    def test_the_admin_port_is_not_open_by_accident(self):
        admins = self.write("own_admin_tokens", "ops %s\n" % OTHER_TOKEN)
        network = "--admin_listen=0.0.0.0:0"
        for flags, parts in (
            ([network], ["--admin_listen: ", "--admin_tokens_file"]),
            ([network, *self.tls_flags()], ["--admin_listen: ", "--tls_client_ca"]),
            ([network, "--admin_tokens_file=" + admins], ["--admin_tokens_file: ", "in the clear"]),
            (["--admin_tokens_file=" + admins], ["--admin_listen: expected"]),
            (
                ["--admin_listen=127.0.0.1:0", "--admin_tokens_file=" + admins + ".none"],
                ["--admin_tokens_file: cannot read"],
            ),
        ):
            self.check_refusal(parts, *flags)
        for flags in (
            self.tls_flags(client_ca=self.ours.certificate),
            [*self.tls_flags(), "--admin_tokens_file=" + admins],
        ):
            with Server(network, *flags):
                pass

    def test_the_box_of_the_status_page_needs_one_too(self):
        tokens = self.write("box_tokens", TOKEN + "\n")
        with Server("--auth_tokens_file=" + tokens) as server:

            def status(token):
                headers = {"Content-Type": "application/json"}
                if token:
                    headers["Authorization"] = "Bearer " + token
                url = "http://127.0.0.1:%d/v1/classify" % server.metrics_port
                body = b'{"model": "trec", "sequences": [{"text": "Where is it ?"}]}'
                request = urllib.request.Request(url, body, headers)
                try:
                    with urllib.request.urlopen(request, timeout=10) as answer:
                        return answer.status
                except urllib.error.HTTPError as error:
                    return error.code

            self.assertEqual(status(None), 401)
            self.assertEqual(status(OTHER_TOKEN), 401)
            self.assertEqual(status(TOKEN), 200)
            self.assertEqual(auth_failures(server, "missing"), 1)
            line = "authentication failed method=/v1/classify code=UNAUTHENTICATED reason=%s peer=127.0.0.1 "
            for reason in ("missing", "unknown"):
                server.await_log(line % reason)
            self.assertEqual(server.log().count("authentication failed"), 2)
        flags = self.tls_flags(client_ca=self.ours.certificate)
        with Server(*flags) as server:
            self.assertEqual(status(None), 403)  # it shows no certificate

    def test_without_tokens_nothing_needs_one(self):
        with Server() as server, server.channel() as channel:
            self.assertEqual(call(channel, "ListModels").code, "OK")
            self.assertEqual(self.reflect(channel, ()), "OK")
            self.assertEqual(call(channel, "/sru.v1.AdminService/LoadModel").code, "UNIMPLEMENTED")
            self.assertEqual(server.metric("sru_unknown_method_calls_total"), 1)

    def test_the_file_changes(self):
        with Server(*self.flags(), *self.tls_flags(), FAST) as server, server.channel(credentials(self.ours)) as channel:

            def code(token):
                return call(channel, "ListModels", metadata=bearer(token)).code

            self.assertEqual((code(TOKEN), code(OTHER_TOKEN)), ("OK", "UNAUTHENTICATED"))
            self.write("tokens", "search %s\nother %s\n" % (TOKEN, OTHER_TOKEN))
            server.await_metric("sru_auth_tokens_reloads_total", 1)
            self.assertEqual((code(TOKEN), code(OTHER_TOKEN)), ("OK", "OK"))
            self.write("tokens", "# nobody\n")
            server.await_metric("sru_auth_tokens_reload_failures_total", 1)
            os.remove(self.path)
            server.await_metric("sru_auth_tokens_reload_failures_total", 2)
            self.assertEqual((code(TOKEN), code(OTHER_TOKEN)), ("OK", "OK"))
            server.await_log("earlier ones stay in use")
            # A token that is removed is refused on open connections too.
            reloads = server.metric("sru_auth_tokens_reloads_total")  # a file that was seen half written counts twice
            self.write("tokens", OTHER_TOKEN)
            server.await_metric("sru_auth_tokens_reloads_total", reloads + 1)
            self.assertEqual((code(TOKEN), code(OTHER_TOKEN)), ("UNAUTHENTICATED", "OK"))

    def test_a_wrong_start_names_the_flag(self):
        network = "--listen=0.0.0.0:0"
        for flags, parts in (
            (["--auth_tokens_file=" + self.path + ".none"], ["--auth_tokens_file: cannot read"]),
            (["--auth_tokens_file=" + self.directory], ["--auth_tokens_file: cannot read"]),
            (["--auth_tokens_file=" + self.write("none", "\n# none\n")], ["at least one token"]),
            (["--auth_tokens_file=" + self.write("bad", "a\nb c d\n")], ["--auth_tokens_file: line 2"]),
            (self.flags(network), ["in the clear", "--auth_without_tls"]),
            (["--auth_health"], ["--auth_tokens_file"]),
        ):
            self.check_refusal(parts, *flags)
        for flags in (self.flags(network, "--auth_without_tls"), self.flags(network, *self.tls_flags())):
            with Server(*flags):
                pass

    def reflect(self, channel, metadata):
        """Of both names of the service, which must not differ."""
        codes = set()
        for method in (REFLECTION, REFLECTION_V1):
            stream = channel.stream_stream(method)(iter([LIST_SERVICES]), metadata=metadata, timeout=20)
            try:
                codes.add("OK" if b"sru.v1.InferenceService" in next(stream) else "nothing")
            except grpc.RpcError as error:
                codes.add(error.code().name)
        self.assertEqual(len(codes), 1, codes)
        return codes.pop()


def goaway(server, ping=False):
    """The error code and text of the GOAWAY that ends a new connection; None if there is none."""
    with http2.Connection(server.port) as connection:
        try:
            while True:
                if ping:
                    connection.send(http2.frame(http2.PING, 0, 0, b"12345678") * 4)
                connection.pump(30)
        except http2.Closed:
            connection.closed_within(5)  # reads what came before, if it could not be sent to
            return connection.goaway


class LimitTest(unittest.TestCase):
    def test_headers(self):
        with Server("--max_metadata_bytes=4096") as server:
            small = call_once(server, None, metadata=(("x-note", "a" * 2000),))
            self.assertEqual(small.code, "OK")
            large = call_once(server, None, metadata=(("x-note", "a" * 9000),))
            self.assertEqual(large.code, "RESOURCE_EXHAUSTED")

    def test_pings(self):
        with Server() as server:
            self.assertEqual(goaway(server, ping=True), (11, "too_many_pings"))
            self.assertEqual(call_once(server, None).code, "OK")

    def test_age(self):
        with Server("--max_connection_age_s=0.2", "--drain_timeout_s=1") as server:
            self.assertIn(goaway(server), ((0, ""), (0, "max_age")))

    def test_connections(self):
        if not NATIVE:
            self.skipTest("gRPC's library bounds no connections")
        with Server("--max_connections=3") as server:
            connections = [http2.Connection(server.port) for _ in range(3)]
            server.await_metric("sru_connections", 3)
            # One without a call makes way.
            self.assertEqual(call_once(server, None).code, "OK")
            self.assertEqual(server.metric("sru_connections_refused_total"), 1)
            server.await_metric('sru_door_connections_closed_total{cause="made_way"}', 1)
            self.assertEqual(sum(one.closed_within(1) for one in connections), 1)

    def test_a_flood_of_connections_ends(self):
        """The server accepts again once there are files."""
        if not NATIVE:
            self.skipTest("gRPC's library never accepts again")
        with Server(files=128) as server:
            connections = []
            for _ in range(300):
                connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            await_true(lambda: server.metric("sru_connections_refused_total") > 100, "refusals")
            server.await_log("the limit of 128 open files (ulimit -n) leaves about 48 connections")
            server.await_log("connections are refused: ")
            # There is one line every ten seconds, whatever arrives.
            self.assertLess(server.log().count("connections are refused: "), 5)
            for connection in connections:
                connection.close()
            await_true(lambda: call_once(server, None).code == "OK", "room again")

    def test_both_names_of_reflection_answer_alike(self):
        name = b"sru.v1.InferenceService"
        find_symbol = b"\x22" + bytes([len(name)]) + name  # file_containing_symbol
        requests = [LIST_SERVICES, find_symbol, b"\x22\x01x", find_symbol]
        with Server() as server, server.channel() as channel:

            def answers(method, requests):
                found = []
                stream = channel.stream_stream(method)(iter(requests), timeout=20)
                try:
                    for answer in stream:
                        found.append(answer)
                except grpc.RpcError:
                    pass
                return found, stream.code()

            found, code = answers(REFLECTION_V1, requests)
            self.assertEqual(code, grpc.StatusCode.OK)
            self.assertEqual(len(found), len(requests))
            self.assertIn(b"sru/v1/inference.proto", found[1])
            self.assertEqual((found, code), answers(REFLECTION, requests))
            for bad in ([b"\xff"], [b"\x22\xff\x7f" + 16383 * b"x"]):
                refused = ([], grpc.StatusCode.INVALID_ARGUMENT)
                self.assertEqual(answers(REFLECTION_V1, bad), refused)
                self.assertEqual(answers(REFLECTION, bad), refused)
            nothing, code = answers(REFLECTION, [b""])
            self.assertIn(b"asks nothing", nothing[0])
            self.assertEqual(server.metric("sru_unknown_method_calls_total"), 0)

    def test_a_reflection_message_takes_no_more_memory_than_it_has(self):
        # Parsed, each would take 200 MB for as long as its stream is open.
        groups = b"{|" * (2 << 20)
        with Server("--max_message_bytes=%d" % (5 << 20)) as server, server.channel() as channel:
            before = server.memory("VmHWM")
            for method in (REFLECTION, REFLECTION_V1):
                stream = channel.stream_stream(method)(iter([groups]), timeout=20)
                with self.assertRaises(grpc.RpcError):
                    next(stream)
                self.assertEqual(stream.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn("has at most 4096 bytes, not 4194304", stream.details())
            self.assertLess(server.memory("VmHWM") - before, 64 << 20)

    def test_reflection_streams_are_bounded_and_hold_no_threads(self):
        for method in (REFLECTION, REFLECTION_V1):
            self.take_streams_of(method)

    def take_streams_of(self, method):
        with Server() as server, server.channel() as channel:
            before = self.threads(server)
            ends = threading.Event()

            def requests():
                yield LIST_SERVICES
                ends.wait()

            streams = [channel.stream_stream(method)(requests()) for _ in range(100)]
            results = []
            for stream in streams:
                try:
                    next(stream)
                    results.append("OK")
                except grpc.RpcError as error:
                    results.append(error.code().name)
            self.assertLessEqual(self.threads(server), before + 8)
            # A quarter of the places: all of them come from one address.
            self.assertEqual(sorted(results), 8 * ["OK"] + 92 * ["RESOURCE_EXHAUSTED"])
            self.assertEqual(call(channel, "ListModels").code, "OK")
            for stream in streams:
                stream.cancel()
            ends.set()
            await_true(lambda: self.lists_services(channel, method), "room for streams again")

    @staticmethod
    def lists_services(channel, method):
        try:
            stream = channel.stream_stream(method)(iter([LIST_SERVICES]), timeout=20)
            return any(b"sru.v1.InferenceService" in answer for answer in stream)
        except grpc.RpcError:
            return False

    @staticmethod
    def threads(server):
        return len(os.listdir("/proc/%d/task" % server.process.pid))

    def test_wrong_values_name_the_flag(self):
        for flag in (
            "--max_connections=-1",
            "--max_metadata_bytes=1",
            "--max_connection_age_s=-1",
        ):
            self.assertIn(flag.split("=")[0] + ": expected", refusal(flag))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
