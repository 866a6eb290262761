"""Addresses, retries, tokens and TLS files, before anything is sent."""

import json
import math
import os
import sys
import tempfile
import unittest

from sru_inference import Client
from sru_inference._connection import Connection, make_target, service_config, stays_on_this_machine


def options_of(**given):
    """All options of a client with these."""
    return Client(**given)._connection.options


class AddressTest(unittest.TestCase):
    def test_targets(self):
        self.assertEqual(make_target("dns:///sru.example:50051"), "dns:///sru.example:50051")
        self.assertEqual(make_target(["localhost:1"]), "localhost:1")
        self.assertEqual(make_target(["10.0.0.1:1", "10.0.0.2:2"]), "ipv4:10.0.0.1:1,10.0.0.2:2")
        self.assertEqual(make_target(["[::1]:1", "[fe80::1]:2"]), "ipv6:[::1]:1,[fe80::1]:2")
        for wrong in ("", [], ["a.example:1", "10.0.0.1:1"], ["[::1]:1", "10.0.0.1:1"]):
            with self.assertRaisesRegex(ValueError, "^address: "):
                make_target(wrong)

    def test_what_stays_on_this_machine(self):
        here = (
            "localhost:1 LOCALHOST 127.0.0.1:1 127.9.9.9 [::1]:1 ::1 unix:/run/sru dns:///localhost:1 "
            "ipv4:127.0.0.1:1,127.0.0.2:1 ipv6:[::1]:1 [::ffff:127.0.0.1]:1"
        )
        elsewhere = (
            "sru.example:1 127.evil.example:1 localhost.evil.example 10.0.0.1:1 ipv4:127.0.0.1:1,10.0.0.1:1 0.0.0.0:1 "
            "dns://10.0.0.1/localhost:1 localhost:x [::2]:1"
        )
        for expected, targets in ((True, here.split()), (False, [*elsewhere.split(), ""])):
            for target in targets:
                self.assertEqual(stays_on_this_machine(target), expected, target)


class OptionsTest(unittest.TestCase):
    def test_errors_name_the_option(self):
        for options, expected in (
            ({"timeout": 0}, "timeout: expected more than 0 seconds"),
            ({"stream_timeout": math.nan}, "stream_timeout: expected more than 0"),
            ({"max_attempts": 6}, "max_attempts: expected 1 to 5, found 6"),
            ({"initial_backoff": 0.001}, "initial_backoff, max_backoff"),
            ({"initial_backoff": 3}, "initial_backoff, max_backoff"),
            ({"max_message_bytes": 0}, "max_message_bytes: expected more than 0"),
            ({"tls_cert": "a.pem"}, "tls_key: expected the one that belongs to tls_cert"),
            ({"tls_ca": "/absent"}, "tls_ca: cannot read '/absent'"),
            ({"tls_ca": __file__}, "tls_ca: expected PEM certificates in"),
            ({"tls_cert": __file__, "tls_key": __file__}, "tls_cert, tls_key: expected a PEM certificate in"),
            ({"token": "a b"}, "token: expected one token of visible ASCII"),
            ({"token": "a", "token_file": "b"}, "token, token_file: expected one of the two"),
            ({"token_file": "/absent"}, "token_file: cannot read '/absent'"),
            ({"token_file": os.devnull}, "token_file: /dev/null: expected one token"),
            ({"token": "a", "address": "sru.example:1"}, "token: the token would cross the network in the clear"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, "^" + expected):
                Client(**options)
        Client("sru.example:1", token="a", token_without_tls=True).close()
        Client("sru.example:1", token="a", tls=True).close()

    def test_timeouts(self):
        connection = Connection(options_of(timeout=2, stream_timeout=math.inf))
        self.assertEqual(connection.timeout(None), 2)
        self.assertEqual(connection.timeout(0.5), 0.5)
        self.assertIsNone(connection.timeout(None, stream=True))
        # gRPC's clock would overflow, and the call would be over at once.
        for long in (7.4e9, 1e300, sys.maxsize, 10**400, math.inf):
            self.assertIsNone(connection.timeout(long), long)
        self.assertEqual(connection.timeout(1e9), 1e9)
        with self.assertRaisesRegex(ValueError, "timeout: "):
            connection.timeout(-1)

    def test_service_config(self):
        shipped = service_config(options_of())
        policy = json.loads(shipped)["methodConfig"][0]["retryPolicy"]
        self.assertEqual(policy["maxAttempts"], options_of().max_attempts)
        self.assertEqual((policy["initialBackoff"], policy["maxBackoff"]), ("0.100000s", "2.000000s"))
        other = json.loads(service_config(options_of(max_attempts=2, initial_backoff=0.25)))
        self.assertEqual(other["methodConfig"][0]["retryPolicy"]["maxAttempts"], 2)
        self.assertEqual(other["methodConfig"][0]["retryPolicy"]["initialBackoff"], "0.250000s")
        self.assertEqual(other["loadBalancingConfig"], json.loads(shipped)["loadBalancingConfig"])
        self.assertNotIn("retryPolicy", service_config(options_of(max_attempts=1)))

    def test_channel_options(self):
        keepalive = [("grpc.keepalive_time_ms", 9)]
        options = options_of(max_attempts=1, max_message_bytes=5, tls=True, tls_server_name="a", channel_options=keepalive)
        arguments = dict(Connection(options).channel_options(only_serving=False))
        expected = {
            "max_receive_message_length": 5, "enable_retries": 0, "inhibit_health_checking": 1,
            "ssl_target_name_override": "a", "keepalive_time_ms": 9,
        }  # fmt: skip
        self.assertEqual({name: arguments["grpc." + name] for name in expected}, expected)
        self.assertNotIn("grpc.inhibit_health_checking", dict(Connection(options).channel_options(only_serving=True)))

    def test_no_proxy_gets_what_stays_on_this_machine(self):
        for address, expected in (("localhost:1", 0), ("unix:/run/sru", 0), ("sru.example:1", None)):
            arguments = dict(Connection(options_of(address=address)).channel_options(only_serving=True))
            self.assertEqual(arguments.get("grpc.enable_http_proxy"), expected, address)


class TokenTest(unittest.TestCase):
    def test_a_token_file_is_read_again(self):
        now = [0.0]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")

            def write(text):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)

            write("first\n")
            connection = Connection(options_of(token_file=path), clock=lambda: now[0])
            write("second")
            self.assertEqual(connection.metadata(""), (("authorization", "Bearer first"),))
            now[0] = 10.0
            self.assertEqual(connection.metadata(""), (("authorization", "Bearer second"),))
            write("")  # it is being replaced
            now[0] = 20.0
            self.assertEqual(connection.metadata("id"), (("authorization", "Bearer second"), ("x-request-id", "id")))
        now[0] = 30.0
        self.assertEqual(connection.metadata(""), (("authorization", "Bearer second"),))

    def test_request_ids(self):
        for wrong in ("a b", "x" * 129, "\n", "\u00e4"):
            with self.assertRaisesRegex(ValueError, "request_id: expected 1 to 128"):
                Connection(options_of()).metadata(wrong)


if __name__ == "__main__":
    unittest.main()
