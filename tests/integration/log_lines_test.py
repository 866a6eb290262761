"""Tests the server's log as a collector reads it: one line per event, request ids, traces, no content.

    log_lines_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
import unittest

import grpc

from server_process import HEALTH, Server, await_true, call, classify_request, refusal

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
from transports import either  # noqa: E402

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = "00-%s-%s-01" % (TRACE, PARENT)
QUESTION = "Who wrote Zanzibarquux ?"
NEW_ID = re.compile(r"^[0-9a-f]{32}$")


class LogTest(unittest.TestCase):
    def test_json_lines(self):
        with Server("--log_format=json", "--log_requests=all") as server, server.channel() as channel:
            headers = (("x-request-id", "id-1"), ("traceparent", TRACEPARENT))
            answer = call(channel, "Classify", classify_request(QUESTION, "Why ?"), headers)
            self.assertEqual(answer.code, "OK")
            self.assertEqual(answer.metadata["x-request-id"], "id-1")
            self.assertEqual(call(channel, "ListModels").code, "OK")
            self.assertEqual(call(channel, "GetModel", b"\x0a\x05other").code, "NOT_FOUND")
            self.assertEqual(call(channel, "/x/y").code, "UNIMPLEMENTED")
            self.assertEqual(server.stop(), 0)

            # Every line of both streams is JSON.
            self.assertEqual(json.loads(server.first_line)["message"].split()[0], "listening")
            lines = server.log_lines("request")
            self.assertEqual(
                [(line["method"], line["code"], line["level"]) for line in lines],
                [
                    ("Classify", "OK", "info"),
                    ("ListModels", "OK", "info"),
                    ("GetModel", "NOT_FOUND", "warning"),
                    ("/x/y", "UNIMPLEMENTED", "warning"),
                ],
            )
            first = lines[0]
            self.assertEqual(first["request_id"], "id-1")
            self.assertEqual(first["trace_id"], TRACE)
            self.assertEqual(first["parent_id"], PARENT)
            self.assertEqual(first["trace_sampled"], 1)
            self.assertEqual((first["model"], first["version"]), ("trec", 1))
            self.assertEqual((first["sequences"], first["tokens"]), (2, 6))
            self.assertRegex(first["peer"], r"^ipv[46]:")
            self.assertGreater(first["total_us"], first["compute_us"])
            self.assertGreater(first["compute_us"], 0)
            for line in lines[1:]:
                self.assertRegex(line["request_id"], NEW_ID)
                self.assertNotIn("trace_id", line)
            self.assertIn("'other' is not loaded", lines[2]["error"])

    def test_slow_calls(self):
        # A call waits for others for 20 ms.
        flags = ("--log_slow_ms=15", "--log_requests=none", "--max_queue_delay_us=20000")
        with Server("--log_format=json", *flags) as server, server.channel() as channel:
            headers = (("x-request-id", "id-3"), ("traceparent", TRACEPARENT))
            self.assertEqual(call(channel, "Classify", classify_request(QUESTION, "Why ?"), headers).code, "OK")
            self.assertEqual(call(channel, "ListModels").code, "OK")
            self.assertEqual(call(channel, "GetModel", b"\x0a\x05other").code, "NOT_FOUND")
            status = json.loads(server.page("/status.json"))
            self.assertEqual(server.stop(), 0)
            lines = server.log_lines("slow request")
            self.assertEqual([(line["method"], line["level"]) for line in lines], [("Classify", "info")])
            self.assertEqual(server.log_lines("request"), [])
            self.assertGreater(lines[0]["queue_us"], 15000)
            self.assertEqual((lines[0]["batch_sequences"], lines[0]["batch_tokens"]), (2, 6))
            self.assertNotIn("steps", lines[0])
            self.assertEqual(status["slow_calls"]["log_slow_ms"], 15)
            kept = status["slow_calls"]["calls"]
            self.assertEqual([(one["method"], one["model"], one["request_id"], one["trace_id"]) for one in kept],
                             [("Classify", "trec", "id-3", TRACE)])
            self.assertEqual([(one["method"], one["code"]) for one in status["errors"]], [("GetModel", "NOT_FOUND")])
            self.assertIn("'other' is not loaded", status["errors"][0]["error"])
            self.assertNotIn("Zanzibarquux", json.dumps(status))

    def test_admin_calls(self):
        admin = ("--model_control=explicit", "--admin_listen=127.0.0.1:0")
        with Server("--log_format=json", "--log_requests=all", *admin) as server:
            channel = grpc.insecure_channel("localhost:%d" % server.port_of("admin"))
            name = b"\x0a\x04trec"
            headers = (("x-request-id", "id-2"),)
            answer = call(channel, "/sru.v1.AdminService/LoadModel", name, headers)
            self.assertEqual((answer.code, answer.metadata["x-request-id"]), ("OK", "id-2"))
            failed = call(channel, "/sru.v1.AdminService/UnloadModel", b"\x0a\x04gone")
            self.assertEqual(failed.code, "NOT_FOUND")
            bad = call(channel, "/sru.v1.AdminService/LoadModel", b"\x0a\x03../")
            self.assertEqual(bad.code, "INVALID_ARGUMENT")
            channel.close()
            self.assertEqual(server.stop(), 0)
            lines = server.log_lines("request")
            self.assertEqual(
                [(line["method"], line["code"], line.get("model")) for line in lines],
                [
                    ("LoadModel", "OK", "trec"),
                    ("UnloadModel", "NOT_FOUND", "gone"),
                    ("LoadModel", "INVALID_ARGUMENT", None),
                ],
            )
            self.assertEqual(lines[0]["request_id"], "id-2")
            self.assertEqual(lines[1]["request_id"], failed.metadata["x-request-id"])
            for line in lines:
                self.assertNotIn("version", line)

    def test_request_ids(self):
        with Server() as server, server.channel() as channel:

            def given(value, method="ListModels"):
                return call(channel, method, metadata=(("x-request-id", value),)).metadata

            for value in ("a", "!~", "0f8fad5b-d9cb-469f-a165-70867728950e", "x" * 128):
                self.assertEqual(given(value)["x-request-id"], value)
                self.assertEqual(given(value, "Classify")["x-request-id"], value)  # an error
            for value in ("a b", "x" * 129):
                self.assertRegex(given(value)["x-request-id"], NEW_ID)
            # An OK answer to a call without an id has none; an error has one to ask about.
            self.assertNotIn("x-request-id", call(channel, "ListModels").metadata)
            failed = call(channel, "Classify")
            self.assertRegex(failed.metadata["x-request-id"], NEW_ID)
            server.await_log("request_id=" + failed.metadata["x-request-id"])

    @unittest.skipIf(either(False, True, "a message that is too large"), "gRPC's library refuses them without a word")
    def test_calls_whose_message_is_too_large(self):
        with Server("--log_format=json", "--max_message_bytes=1024") as server, server.channel() as channel:
            answer = call(channel, "Classify", b"x" * 2000, (("x-request-id", "id-3"),))
            self.assertEqual(call(channel, HEALTH, b"x" * 2000).code, "RESOURCE_EXHAUSTED")
            self.assertEqual((answer.code, answer.metadata["x-request-id"]), ("RESOURCE_EXHAUSTED", "id-3"))
            series = 'sru_requests_total{code="RESOURCE_EXHAUSTED",method="Classify",model="",version=""}'
            self.assertEqual(server.metric(series), 1)
            self.assertEqual(server.metric("sru_caller_calls_total"), 1)
            self.assertEqual(server.metric("sru_unknown_method_calls_total"), 0)
            await_true(lambda: len(server.log_lines("request")) == 2, "their lines")
            line, health = server.log_lines("request")
            self.assertEqual((health["method"], health["code"]), (HEALTH, "RESOURCE_EXHAUSTED"))
            self.assertEqual((line["method"], line["code"]), ("Classify", "RESOURCE_EXHAUSTED"))
            self.assertEqual((line["request_id"], line["level"]), ("id-3", "warning"))
            self.assertRegex(line["peer"], r"^ipv[46]:")

    def test_malformed_traces_are_ignored(self):
        with Server("--log_format=json") as server, server.channel() as channel:
            for value in ("", "x", TRACEPARENT[:-1], TRACEPARENT.upper(), "ff" + TRACEPARENT[2:]):
                answer = call(channel, "Classify", metadata=(("traceparent", value),))
                self.assertEqual(answer.code, "INVALID_ARGUMENT")
            call(channel, "Classify", metadata=(("traceparent", TRACEPARENT),))
            server.stop()
            traces = [line.get("trace_id") for line in server.log_lines("request")]
            self.assertEqual(traces, [None] * 5 + [TRACE])

    def test_only_what_was_asked_for(self):
        for policy, expected in (("none", []), ("errors", ["bad"]), ("all", ["good", "bad"])):
            with Server("--log_requests=" + policy) as server, server.channel() as channel:
                call(channel, "ListModels", metadata=(("x-request-id", "good"),))
                call(channel, "Classify", metadata=(("x-request-id", "bad"),))
                server.stop()
                self.assertEqual(re.findall(r" request_id=(\w+)", server.log()), expected)
        with Server("--log_requests=all", "--log_level=error") as server, server.channel() as channel:
            call(channel, "ListModels")
            call(channel, "Classify")
            server.stop()
            self.assertEqual(server.log(), "")

    # Calls whose answers differ in every way in which the server looks at content.
    CONTENT = (
        classify_request(QUESTION),
        classify_request(QUESTION + " \n level=error \x1b[31m"),
        classify_request("word " * 3000 + QUESTION),
        classify_request(QUESTION, model="trec", top_k=-1),
        b"\x1a\x10\x12\x0e\x0a\x0cZanzibarquux",  # tokens
        b"\x1a\x0e\x0a\x0cZanzibar\xffuux",  # not UTF-8
        b"\x1a\x09\x1a\x07\x0a\x05\xb1\xa8\xb8\xbd\x03",  # the token id 931009585
        b"\x1a\x7fZanzibarquux",  # cut short
    )

    def test_no_content(self):
        with Server("--log_format=json", "--log_requests=all") as server, server.channel() as channel:
            for request in self.CONTENT:
                call(channel, "Classify", request)
                call(channel, "Encode", request)
            server.stop()
            lines = server.log_lines("request")
            self.assertEqual(len(lines), 2 * len(self.CONTENT))
            self.assertIn("sequences[0].text", [line.get("error") for line in lines])
            for word in ("Zanzibar", "wrote", "931009", "0xff"):
                self.assertNotIn(word, server.log())

    def test_content_when_asked(self):
        with Server("--log_format=json", "--log_requests=all", "--log_content") as server, server.channel() as channel:
            for request in self.CONTENT:
                call(channel, "Classify", request)
            server.stop()
            lines = server.log_lines("request")
            self.assertEqual(len(lines), len(self.CONTENT))
            self.assertIn(QUESTION, lines[0]["request"])
            self.assertLess(max(len(line["request"]) for line in lines), 4200)
            self.assertIn("are too many", lines[2]["error"])
        with Server("--log_requests=all", "--log_content") as server, server.channel() as channel:
            call(channel, "Classify", self.CONTENT[1])
            server.stop()
            # A text cannot break a line or forge a field.
            self.assertEqual(len(re.findall(r"^\S+ \S+ +request .*$", server.log(), re.M)), 1)
            self.assertNotIn("\x1b", server.log())

    def test_callers_have_names(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "tokens")
            with open(path, "w") as file:
                file.write("search token-of-search-team\ntoken-of-nobody-else\n")
            flags = ("--auth_tokens_file=" + path, "--log_requests=all", "--log_format=json")
            with Server(*flags) as server, server.channel() as channel:
                for token in ("token-of-search-team", "token-of-nobody-else"):
                    call(channel, "ListModels", metadata=(("authorization", "Bearer " + token),))
                call(channel, "ListModels", metadata=(("traceparent", TRACEPARENT),))
                server.stop()
                callers = [line.get("caller") for line in server.log_lines("request")]
                self.assertEqual(callers, ["search", "unnamed"])
                failed = server.log_lines("authentication failed")
                self.assertEqual([(line["reason"], line["trace_id"]) for line in failed], [("missing", TRACE)])
                self.assertNotIn("token-of", server.log())

    def test_requests_of_a_stream_have_the_peer_of_the_stream(self):
        with Server("--log_format=json") as server, server.channel() as channel:
            infer = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            self.assertIn(b"'nope' is not loaded", next(infer(iter([b"\x0a\x04nope"]), timeout=20)))
            call(channel, "Classify")
            server.stop()
            lines = {line["method"]: line for line in server.log_lines("request")}
            self.assertRegex(lines["Classify"]["peer"], r"^ipv[46]:.*:\d+$")
            self.assertEqual(lines["ModelInfer"]["peer"], lines["Classify"]["peer"])

    def test_strangers_cannot_fill_the_log(self):
        with Server("--log_format=json", "--log_requests_per_second=2") as server, server.channel() as channel:
            for _ in range(200):
                call(channel, "Classify")
            suppressed = server.metric("sru_log_lines_suppressed_total")
            written = 200 - suppressed
            self.assertLess(written, 50)
            await_true(lambda: len(server.log_lines("request")) == written, "every other line")

            def says_so():
                call(channel, "Classify")
                return any("suppressed_lines" in line for line in server.log_lines("request"))

            await_true(says_so, "a line that counts those left out")

    # Calls that each write a line of more than 400 bytes: together half more than what may wait and
    # what a pipe holds.
    FLOOD = 4500

    def flood(self, server):
        headers = (("x-request-id", "i" * 128), ("traceparent", TRACEPARENT))
        request = classify_request(QUESTION, model="m" * 128)
        with server.channel() as channel:
            classify = channel.unary_unary("/sru.v1.InferenceService/Classify")
            for _ in range(0, self.FLOOD, 100):
                calls = [classify.future(request, metadata=headers, timeout=20) for _ in range(100)]
                self.assertEqual({c.code().name for c in calls}, {"NOT_FOUND"})

    def check_serves(self, server):
        with server.channel() as channel:
            for _ in range(20):
                self.assertEqual(call(channel, "Classify", classify_request(QUESTION), timeout=5).code, "OK")
            self.assertEqual(call(channel, HEALTH, timeout=5).code, "OK")

    @unittest.skipIf(either(False, True, "too many connections"), "gRPC's library has no bound")
    def test_refused_connections_are_said_once(self):
        with Server("--max_connections=2", "--log_format=json") as server:
            held = []
            try:
                for _ in range(8):
                    held.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
                server.await_log("connections are refused: as many are open as --max_connections")
                server.await_metric("sru_connections_refused_total", 6)
            finally:
                for connection in held:
                    connection.close()
            lines = [json.loads(line) for line in server.log().splitlines() if "refused_connections" in line]
            self.assertEqual(len(lines), 1, lines)
            self.assertGreaterEqual(lines[0]["refused_connections"], 1)
            self.assertRegex(lines[0]["peer"], "^ipv4:127.0.0.1:")

    def test_a_log_that_nobody_reads_holds_nothing_up(self):
        read_end, write_end = os.pipe()
        try:
            flags = ("--log_format=json", "--log_requests_per_second=0")
            with Server(*flags, stderr=write_end) as server:
                self.flood(server)
                self.check_serves(server)
                dropped = server.metric("sru_log_lines_dropped_total")
                self.assertGreater(dropped, 0)
                # Once it is read again, everything is there except the dropped lines, which are reported.
                lines, buffered = [], b""
                os.set_blocking(read_end, False)

                def read_lines():
                    nonlocal buffered
                    try:
                        buffered += os.read(read_end, 1 << 20)
                    except BlockingIOError:
                        pass
                    *whole, buffered = buffered.split(b"\n")
                    lines.extend(json.loads(line) for line in whole)
                    return any("dropped_lines" in line for line in lines)

                await_true(read_lines, "the line that counts those dropped")
                requests = [line for line in lines if line["message"] == "request"]
                told = [line["dropped_lines"] for line in lines if "dropped_lines" in line]
                self.assertEqual(len(requests) + sum(told), self.FLOOD)
                self.assertEqual(told, [dropped])
                self.assertEqual(lines[-1]["dropped_lines"], dropped)

                # Now it stalls while the server is told to stop.
                self.flood(server)
                server.process.terminate()
                self.assertEqual(server.process.wait(timeout=15), 0)
        finally:
            os.close(read_end)
            os.close(write_end)

    def test_a_log_whose_reader_is_gone_holds_nothing_up(self):
        read_end, write_end = os.pipe()
        with Server("--log_requests_per_second=0", stderr=write_end) as server:
            os.close(write_end)
            os.close(read_end)
            self.flood(server)
            self.check_serves(server)
            self.assertGreaterEqual(server.metric("sru_log_lines_dropped_total"), self.FLOOD)
            self.assertEqual(server.stop(), 0)

    def test_a_second_signal_ends_it_though_nobody_reads(self):
        read_end, write_end = os.pipe()
        try:
            flags = ("--log_requests_per_second=0", "--drain_delay_s=60", "--drain_timeout_s=60")
            with Server(*flags, stderr=write_end) as server:
                self.flood(server)
                server.process.terminate()
                await_true(lambda: server.metric("sru_ready") == 0, "it drains")
                time.sleep(1.1)  # two signals within a second are one
                server.process.terminate()
                self.assertEqual(server.process.wait(timeout=10), 128 + signal.SIGTERM)
        finally:
            os.close(read_end)
            os.close(write_end)

    def test_wrong_values_name_the_flag(self):
        for flag in ("--log_format=xml", "--log_level=debug", "--log_requests=some", "--log_requests_per_second=-1"):
            self.assertIn(flag.split("=")[0] + ": expected", refusal(flag))
        # The refusal is in the format too, whatever is wrong.
        for wrong in ("--nosuch=1", "--max_batch_tokens=many", "--dtype=float8", "stray"):
            line = json.loads(refusal(wrong, "--log_format=json"))
            self.assertEqual(line["level"], "error")
            self.assertIn(wrong.split("=")[0], line["message"])
        self.assertEqual(json.loads(refusal("--log_format=json", "--max_connections=-1"))["level"], "error")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
