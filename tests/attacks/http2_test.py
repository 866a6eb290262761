"""Tests the pieces of http2.py and of harness.py that the attacks are made of."""

import os
import re
import socket
import struct
import threading
import unittest

import harness
import http2
import run


class PiecesTest(unittest.TestCase):
    def test_every_attack_is_an_entry(self):
        with open(os.path.join(harness.HERE, "CMakeLists.txt"), encoding="ascii") as file:
            entries = [name for names in re.findall(r"attack IN ITEMS([^)]*)\)", file.read()) for name in names.split()]
        self.assertEqual(sorted(entries), sorted(harness.ROWS))
        self.assertEqual(set(run.LIBRARY_FAILS) | set(run.NATIVE_FAILS) | set(entries), set(entries))

    def test_integers_are_those_of_the_rfc(self):
        # RFC 7541, appendix C.1
        self.assertEqual(http2.integer(10, 5), b"\x0a")
        self.assertEqual(http2.integer(1337, 5), b"\x1f\x9a\x0a")
        self.assertEqual(http2.integer(42, 8), b"\x2a")

    def test_header_fields_are_those_of_the_rfc(self):
        # RFC 7541, appendix C.2.1
        field = http2.literal("custom-key", "custom-header", indexed=True)
        self.assertEqual(field, b"\x40\x0acustom-key\x0dcustom-header")
        block = b"\x88" + field + http2.literal("grpc-status", "5") + b"\x20"
        found = http2.read_fields(block)
        self.assertEqual(found, {":status": "200", "custom-key": "custom-header", "grpc-status": "5"})

    def test_frames(self):
        frame = http2.frame(http2.PING, http2.ACK, 0, b"12345678")
        self.assertEqual(frame, b"\0\0\x08\x06\x01\0\0\0\x0012345678")
        self.assertEqual(http2.message(b"abc", length=1 << 31), b"\0\x80\0\0\0abc")

    def test_fields_of_messages(self):
        data = http2.field(1, b"name") + http2.field(2, 300) + b"\x1d\0\0\x80\x3f"
        self.assertEqual([one[:2] for one in http2.fields(data)], [(1, b"name"), (2, 300), (3, b"\0\0\x80\x3f")])
        self.assertEqual(b"".join(one[2] for one in http2.fields(data)), data)

    def test_times_of_a_call_are_no_part_of_its_bits(self):
        first = http2.Answer("OK", "", http2.field(1, b"trec") + http2.field(4, b"1"))
        second = http2.Answer("OK", "", http2.field(1, b"trec") + http2.field(4, b"2"))
        other = http2.Answer("OK", "", http2.field(1, b"cert") + http2.field(4, b"1"))
        self.assertEqual(harness.answer_bits(first), harness.answer_bits(second))
        self.assertNotEqual(harness.answer_bits(first), harness.answer_bits(other))

    def test_percentile(self):
        self.assertEqual(harness.p99([3.0, 1.0]), 3.0)
        self.assertEqual(harness.p99([float(i) for i in range(1000)]), 990.0)
        self.assertEqual(harness.p99([]), float("inf"))


class FakeServer:
    """Answers with what the test says, byte by byte."""

    def __init__(self, reply):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._reply = reply
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._listener.close()

    def _run(self):
        connection, _ = self._listener.accept()
        with connection:
            self._reply(connection)


class ConnectionTest(unittest.TestCase):
    def call(self, *frames):
        def reply(connection):
            connection.recv(65536)
            connection.sendall(b"".join(frames))
            connection.settimeout(5)
            try:
                while connection.recv(65536):
                    pass
            except OSError:
                pass

        with FakeServer(reply) as server:
            with http2.Connection(server.port) as connection:
                return connection.call("/x/y", b"abc", timeout=0.5)

    def test_an_answer(self):
        block = b"\x88" + http2.literal("grpc-status", "0")
        answer = self.call(
            http2.settings((http2.INITIAL_WINDOW_SIZE, 1 << 20)),
            http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\x88"),
            http2.frame(http2.DATA, 0, 1, http2.message(b"answer")),
            http2.frame(http2.HEADERS, http2.END_STREAM, 1, block[:5]),
            http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1, block[5:]),
        )
        self.assertEqual((answer.code, answer.body), ("OK", b"answer"))
        answer = self.call(
            http2.frame(http2.DATA, 0, 1, http2.message(b"answer")),
            http2.frame(http2.HEADERS, http2.END_STREAM | http2.END_HEADERS, 1, block),
        )
        self.assertEqual((answer.code, answer.body), ("OK", b"answer"))

    def test_what_else_ends_a_call(self):
        self.assertEqual(self.call(http2.reset(1, 7)).code, "RST_STREAM")
        self.assertEqual(self.call().code, "TIMEOUT")

        def reply(connection):
            connection.recv(65536)
            connection.sendall(http2.frame(http2.GOAWAY, 0, 0, struct.pack(">II", 0, 11) + b"too_many_pings"))

        with FakeServer(reply) as server:
            with http2.Connection(server.port) as connection:
                answer = connection.call("/x/y", b"abc", timeout=5)
                self.assertEqual(answer.code, "CLOSED")
                self.assertEqual(connection.goaway, (11, "too_many_pings"))


if __name__ == "__main__":
    unittest.main()
