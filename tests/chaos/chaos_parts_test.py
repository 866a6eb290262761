"""The parts of a chaos run that decide, without a server: the schedule, the fit, the right answers, who said what.

chaos_parts_test.py
"""

import collections
import itertools
import os
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chaos  # noqa: E402  (skips where there is no grpcio)
import caller  # noqa: E402
import cases  # noqa: E402
import faults  # noqa: E402
import report  # noqa: E402
from sru_inference.v1 import inference_pb2 as pb  # noqa: E402


class ChaosPartsTest(unittest.TestCase):
    def test_a_seed_is_a_schedule(self):
        def first(seed, servers, count=200):
            return list(itertools.islice(chaos.schedule(seed, faults.FAULTS, servers), count))

        self.assertEqual(first(1, 2), first(1, 2))
        self.assertNotEqual(first(1, 2), first(2, 2))
        names = [strike[0].name for planned in first(1, 3, len(faults.FAULTS)) for strike in planned.strikes]
        self.assertEqual(sorted(names), sorted(one.name for one in faults.FAULTS))  # each once, before any comes again
        for planned in first(1, 3):
            for fault, target, _ in planned.strikes:
                self.assertEqual(target == "secure", fault.where == "secure")
                if fault.where == "mortal":
                    self.assertNotEqual(target, "replica-0")

    def test_growth_is_seen_and_a_peak_is_not(self):
        flat = [(second, 100.0 + second % 3) for second in range(300)]
        self.assertAlmostEqual(report.growth(flat)[0], 0, delta=1)
        peak = [(second, value + (500 if 100 < second < 130 else 0)) for second, value in flat]
        self.assertAlmostEqual(report.growth(peak)[0], 0, delta=2)
        leak = [(second, value + second) for second, value in flat]
        self.assertAlmostEqual(report.growth(leak)[0], 299, delta=5)

    def test_an_answers_version_says_which_one_is_right(self):
        request = pb.ClassifyRequest(model="m")
        case = cases.Case("Classify", cases.SERVICE + "Classify", [request])

        def answer(version, logit, queue_us=0):
            message = pb.ClassifyResponse(model="m", version=version)
            message.classifications.add().labels.add(name="A", logit=logit)
            message.times.queue_us = queue_us
            return message.SerializeToString()

        case.right = [case.answer([answer(2, 0.5)])[0], case.answer([answer(1, 0.25)])[0]]
        self.assertTrue(case.is_right([answer(3, 0.25, queue_us=7)]))
        self.assertTrue(case.is_right([answer(4, 0.5)]))
        self.assertFalse(case.is_right([answer(3, 0.5)]))
        self.assertFalse(case.is_right([answer(3, 0.25000003)]))

    def test_who_said_it(self):
        for code, details, end in (
            ("DEADLINE_EXCEEDED", "Deadline Exceeded", "PASSED"),
            ("UNAVAILABLE", "failed to connect to all addresses", "REFUSED"),
            ("UNAVAILABLE", "Socket closed", "BROKEN"),
            ("INTERNAL", "Received RST_STREAM with error code 2", "BROKEN"),
            ("UNAUTHENTICATED", "", "UNAUTHENTICATED"),
        ):
            self.assertEqual(caller._not_said(code, details), end)

    def test_answers_to_an_earlier_flood_are_not_the_rate_to_come_back_to(self):
        world = types.SimpleNamespace(servers={"replica-0": None}, arrivals=3000.0, now=100.0, changed=None)

        def set_rate(arrivals):
            world.arrivals, world.changed = arrivals, world.now

        def rate(name, begin, end):
            backlog_s = max(0.0, min(end, world.changed + 2.5) - begin)
            return world.arrivals + 1000 * backlog_s / (end - begin)

        world.set_rate, world.rate = set_rate, rate
        clock = types.SimpleNamespace(monotonic=lambda: world.now, sleep=lambda s: setattr(world, "now", world.now + s))
        with unittest.mock.patch.object(chaos, "time", clock):
            self.assertEqual(chaos.World._earlier_rates(world, 500.0), {"replica-0": 500.0})
            began = world.now
            self.assertGreater(chaos.World._earlier_rates(world, 3000.0)["replica-0"], 3000)  # nothing was left to answer: not waited for
            self.assertEqual(world.now - began, chaos.BASE_S + 1)

    def test_the_verdict_fails_for_each_must(self):
        def verdict(*broken, problems=(), ends=(), kernel_kills=0, resident=0):
            world = types.SimpleNamespace(
                began=0, ends=collections.Counter({("direct-0", "Classify", "OK"): 5, **dict(ends)}), broken=list(broken),
                problems=list(problems), servers={}, usage={"replica-1": [[(0, resident, 30)]]}, samples={}, folder="/nonexistent",
                is_bounded=True, kernel_kills=kernel_kills,
                args=types.SimpleNamespace(recovery_s=60),
            )  # fmt: skip
            return chaos.Verdict(world)

        server = types.SimpleNamespace(killed=[[100, 101]], stopping=[[200, 201]], has_library=False)
        load = types.SimpleNamespace(name="direct-0", target=server)
        event = lambda when, end, kind="Classify": (when, load, kind, end, 1, "")  # noqa: E731
        self.assertTrue(verdict().holds)
        self.assertTrue(verdict(event(105, "BROKEN")).holds)  # killed
        self.assertFalse(verdict(event(50, "BROKEN")).holds)
        self.assertFalse(verdict(event(205, "BROKEN")).holds)  # SIGTERM is no excuse
        self.assertFalse(verdict(event(205, "CANCELLED")).holds)
        server.has_library = True  # which cancels between its stop and its GOAWAY
        self.assertTrue(verdict(event(205, "CANCELLED")).holds)
        self.assertFalse(verdict(event(50, "CANCELLED")).holds)
        self.assertTrue(verdict(event(205, "BROKEN", "REST Score")).holds)
        self.assertFalse(verdict(event(50, "INTERNAL")).holds)
        for end in ("WRONG", "HUNG"):
            self.assertFalse(verdict(event(105, end), ends=[(("direct-0", "Classify", end), 1)]).holds)
        self.assertFalse(verdict(kernel_kills=1).holds)
        self.assertTrue(verdict(resident=512 << 20).holds)
        self.assertFalse(verdict(resident=513 << 20).holds)
        for problem in ("CRASH", "HANG", "LOST", "RECOVERY", "RELOAD", "TLS", "FAULT"):
            self.assertFalse(verdict(problems=[problem + ": x"]).holds, problem)


if __name__ == "__main__":
    unittest.main(verbosity=2)
