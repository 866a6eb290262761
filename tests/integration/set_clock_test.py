"""Sets the clock of a server while it answers: no call fails, no duration is wrong, and dates are noticed.

    set_clock_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY CLOCK_SHIFT_LIBRARY
"""

import json
import mmap
import os
import struct
import sys
import tempfile
import time
import unittest
from http.client import HTTPConnection

from server_process import Authority, Server, await_true, classify_request

CLOCK_SHIFT = sys.argv[4]
SECOND = 10**9
HOUR = 3600 * SECOND
DAY = 24 * HOUR


class ClockTest(unittest.TestCase):
    def setUp(self):
        self.file = tempfile.NamedTemporaryFile()
        self.addCleanup(self.file.close)
        self.file.write(struct.pack("q", 0))
        self.file.flush()
        self.clock = mmap.mmap(self.file.fileno(), 8)
        self.addCleanup(self.clock.close)

    def server(self, *flags):
        return Server(*flags, env={"LD_PRELOAD": CLOCK_SHIFT, "CLOCK_SHIFT_FILE": self.file.name})

    def shift(self, by):
        """Sets the server's clock to this many nanoseconds after what it is."""
        self.clock[:] = struct.pack("q", by)

    def test_setting_the_clock_fails_no_call(self):
        with self.server("--log_format=json", "--log_requests=all", "--log_requests_per_second=0") as server:
            channel = server.channel()
            classify = channel.unary_unary("/sru.v1.InferenceService/Classify")
            request = classify_request("Who wrote Hamlet ?")
            http = HTTPConnection("127.0.0.1", server.http_port)
            self.addCleanup(http.close)
            # A text takes long enough for an alarm that the step sets off to come before the answer.
            body = json.dumps({"model": "war_and_peace", "prompt": "It was", "max_tokens": 40})
            headers = {"Content-Type": "application/json", "X-Request-Timeout-Ms": "2000"}
            answers, http_answers = [], []

            def call_for(seconds):
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    calls = [classify.future(request, timeout=2) for _ in range(8)]
                    answers.extend(call.code().name for call in calls)
                    http.request("POST", "/v1/completions", body, headers)
                    response = http.getresponse()
                    answer = response.read()
                    http_answers.append((response.status, b"" if response.status == 200 else answer))

            def is_in_log(date):
                return any(line["time"].startswith(date) for line in server.log_lines("request"))

            # Abseil's clock counts cycles once it has measured their rate for a few seconds, and then
            # lags behind a change by up to two seconds.
            call_for(6)
            # The log has the dates of the wall clock, which shows that the shift has worked.
            for step in (-5 * SECOND, 5 * SECOND, -DAY, DAY, 0):
                self.shift(step)
                call_for(0.3)
                date = time.strftime("%Y-%m-%d", time.gmtime(time.time() + step / SECOND))
                await_true(lambda date=date: call_for(0.1) or is_in_log(date), "a log line of " + date)
            self.assertEqual(set(answers), {"OK"})
            self.assertGreater(len(answers), 100)
            self.assertEqual(set(http_answers), {(200, b"")})

            labels = '{method="Classify",model="trec",version="1"}'
            spent = server.metric("sru_request_duration_seconds_sum" + labels)
            self.assertGreater(spent, 0)
            self.assertLess(spent, 2.0 * (len(answers) + len(http_answers)))
            # It also ends in time, although the clock is set once more.
            self.shift(-DAY)
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 15)

    def test_the_log_announces_that_the_certificate_expires(self):
        with tempfile.TemporaryDirectory() as directory:
            certificate, key = Authority(directory, "ours").issue("server", days=20)
            files = ("--tls_cert=" + certificate, "--tls_key=" + key, "--credentials_poll_interval_s=0.2")
            with self.server(*files, "--log_format=json") as server:
                self.assertNotIn(" expire", server.log())
                for passed, notice in (
                    (7 * DAY, "the certificate of /CN=server expires in 12 days"),
                    (19 * DAY + HOUR, "the certificate of /CN=server expires in 22 hours"),
                    (20 * DAY + HOUR, "the certificate of /CN=server has expired at"),
                ):
                    self.shift(passed)
                    server.await_log(notice)
                self.assertEqual(server.metric("sru_ready"), 1)
                self.assertEqual(server.stop(), 0)
                lines = [json.loads(line) for line in server.log().splitlines()]
                levels = [line["level"] for line in lines if "the certificate of" in line["message"]]
                self.assertEqual(levels, ["warning", "warning", "error"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
