"""Sets the clock of a server while it answers: no call fails and no duration is wrong.

    set_clock_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY CLOCK_SHIFT_LIBRARY
"""

import mmap
import os
import struct
import sys
import tempfile
import time
import unittest

from server_process import Server, classify_request

CLOCK_SHIFT = sys.argv[4]
SECOND = 10**9
DAY = 86400 * SECOND


class ClockTest(unittest.TestCase):
    def test_setting_the_clock_fails_no_call(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(struct.pack("q", 0))
            file.flush()
            shift = mmap.mmap(file.fileno(), 8)
            flags = ("--log_format=json", "--log_requests=all", "--log_requests_per_second=0")
            environment = {"LD_PRELOAD": CLOCK_SHIFT, "CLOCK_SHIFT_FILE": file.name}
            with Server(*flags, env=environment) as server:
                channel = server.channel()
                classify = channel.unary_unary("/sru.v1.InferenceService/Classify")
                request = classify_request("Who wrote Hamlet ?")
                answers = []

                def call_for(seconds):
                    end = time.monotonic() + seconds
                    while time.monotonic() < end:
                        calls = [classify.future(request, timeout=2) for _ in range(8)]
                        answers.extend(call.code().name for call in calls)

                # Abseil's clock counts cycles once it has measured their rate for a few seconds, and then
                # lags behind a change by up to two seconds.
                call_for(6)
                for step in (-5 * SECOND, 5 * SECOND, -DAY, DAY, 0):
                    shift[:] = struct.pack("q", step)
                    call_for(0.3)
                self.assertEqual(set(answers), {"OK"})
                self.assertGreater(len(answers), 100)

                labels = '{method="Classify",model="trec",version="1"}'
                spent = server.metric("sru_request_duration_seconds_sum" + labels)
                self.assertGreater(spent, 0)
                self.assertLess(spent, 2.0 * len(answers))
                # It also ends in time, although the clock is set once more.
                shift[:] = struct.pack("q", -DAY)
                begin = time.monotonic()
                self.assertEqual(server.stop(), 0)
                self.assertLess(time.monotonic() - begin, 15)
                # The log has the dates of the wall clock, which shows that the shift has worked.
                days = {line["time"][:10] for line in server.log_lines("request")}
                self.assertGreaterEqual(len(days), 3, days)
            shift.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=2)
