"""report_common.py with programs of paper."""

import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import sys
import tempfile
import unittest

import report_common
from report_common import NotMeasured, Report, Row, at_least, at_most

# Says its addresses and runs until it is stopped.
SERVER = """#!{python}
import os, signal, sys
open({folder!r} + "/arguments", "w").write(" ".join(sys.argv[1:]) + " on %s" % sorted(os.sched_getaffinity(0)))
print("listening on 127.0.0.1:7, metrics on 127.0.0.1:8, HTTP on 127.0.0.1:9", flush=True)
print("x" * 200000, file=sys.stderr, flush=True)
signal.pause()
"""
BENCH = """#!/bin/sh
echo "$*" >>'{folder}/bench'
case "$*" in
  *broken*) echo 'sru_bench: why not' >&2; exit 1;;
  *refused*) echo '{{"codes": {{"UNAVAILABLE": 9}}}}'; exit 1;;
esac
echo '{{"rate": 5}}'
"""
KERNELS = """#!/bin/sh
case "$1" in *none*) exit 0;; esac
echo '{{"benchmarks": ['
for time in 7 5 9; do echo '{{"run_type": "iteration", "run_name": "BM_Step/batch:64", "real_time": '$time'}},'; done
echo '{{"run_type": "iteration", "run_name": "BM_Step/batch:1", "error_occurred": true}},'
echo '{{"run_type": "aggregate", "run_name": "BM_Step/batch:64", "real_time": 1}}]}}'
"""


class HarnessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("sru_server", SERVER), ("sru_bench", BENCH), ("kernel_benchmarks", KERNELS)):
            path = self.folder / name
            path.write_text(text.format(python=sys.executable, folder=folder.name), encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def report(self, *parts, arguments=()):
        """(exit code, the page, what was said)"""
        report = Report(report_common.ROOT / "page.md", parts)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = report.run([f"--bin={self.folder}", f"--out={self.folder}/page.md", *map(str, arguments)])
        return code, (self.folder / "page.md").read_text(encoding="utf-8"), said.getvalue()

    def arguments(self):
        return Report(report_common.ROOT / "page.md", ()).parser.parse_args([f"--bin={self.folder}"])

    def test_a_server_is_asked_for_its_addresses_and_stopped(self):
        core = report_common.one_core()
        with report_common.Server(self.arguments(), "models", "bfloat16", ["--more"], core) as server:
            self.assertEqual((server.address, server.http_address), ("127.0.0.1:7", "127.0.0.1:9"))
            self.assertGreater(server.memory_bytes("VmHWM"), 1 << 20)
            self.assertGreaterEqual(server.seconds(), 0)
            given = (self.folder / "arguments").read_text(encoding="utf-8")
        self.assertIsNotNone(server.process.poll())
        for wanted in ("--model_repository=models --backend=cpu --dtype=bfloat16 --listen=127.0.0.1:0 ", "--more", f"on [{core}]"):
            self.assertIn(wanted, given)

    def test_a_server_that_cannot_start_says_why(self):
        (self.folder / "sru_server").write_text("#!/bin/sh\necho begin >&2; echo 'no such backend' >&2; exit 1\n", encoding="utf-8")
        with self.assertRaisesRegex(NotMeasured, "^no such backend$"):
            report_common.Server(self.arguments(), "models")
        os.remove(self.folder / "sru_server")
        with self.assertRaisesRegex(NotMeasured, "sru_server does not start: No such file"):
            report_common.Server(self.arguments(), "models")

    def test_sru_bench_answers_json_even_if_no_call_was_answered(self):
        args = self.arguments()
        with report_common.Server(args, "models") as server:
            self.assertEqual(report_common.bench(args, "load", server, "--rate=1"), {"rate": 5})
            self.assertEqual(report_common.bench(args, "load", server, "refused")["codes"], {"UNAVAILABLE": 9})
            with self.assertRaisesRegex(NotMeasured, "^sru_bench: sru_bench: why not$") as raised:
                report_common.bench(args, "broken", server)
        self.assertEqual(raised.exception.code, 1)
        self.assertIn("load --address=127.0.0.1:7 --json --duration=5s --rate=1\n", (self.folder / "bench").read_text(encoding="utf-8"))

    def test_times_of_benchmarks_are_medians_of_the_repetitions(self):
        self.assertEqual(report_common.kernel_benchmarks(self.arguments(), "BM_Step"), {"BM_Step/batch:64": 7})
        with self.assertRaisesRegex(NotMeasured, "has no BM_none"):
            report_common.kernel_benchmarks(self.arguments(), "BM_none")

    def test_a_program_is_asked_line_by_line(self):
        words = ["sh", "-c", 'while read -r line; do [ "$line" != end ] || { echo bye >&2; exit 1; }; echo "[$line]"; done']
        with report_common.Program(words, report_common.one_core()) as program:
            self.assertEqual(program.ask([1, 2]), [[1, 2]])
            self.assertEqual(program.ask("a"), ["a"])
            self.assertEqual(program.ask("3, 4", str), [3, 4])
            with self.assertRaisesRegex(NotMeasured, "^bye$"):
                program.ask("end", str)

    def test_rounds_alternate(self):
        order = []
        found = report_common.alternate(3, {"a": lambda: order.append("a") or len(order), "b": lambda: order.append("b") or 0})
        self.assertEqual("".join(order), "ababab")
        self.assertEqual(found, {"a": [1, 3, 5], "b": [0, 0, 0]})
        values = iter((5, 1, 9))
        self.assertEqual(report_common.medians(3, {"a": lambda: next(values)}), {"a": 5})
        self.assertEqual(report_common.spread([3000, 1, 2.6], 1), "1.0 to 3,000.0, median 2.6")

    def test_rows_judge_their_figures(self):
        rows = [at_most("a", 1.5, 1.4), at_most("a", 1.4, 1.4, " x", 3), at_least("a", 2, 3), at_least("a", 3, 3)]
        self.assertEqual([row.good for row in rows], [False, True, False, True])
        self.assertEqual([row.figure for row in rows[:3]], ["1.50", "1.400 x", "2.00"])
        self.assertEqual(rows[0].wanted, "at most 1.4")

    def test_the_page_has_a_table_of_rows_for_each_part_and_what_was_not_measured(self):
        def first(args, _):
            """What is first."""
            yield Row("speed", f"{args.seconds:g}", "10", True)
            yield Row("size", "7", "", False)

        def second(_, models):
            """What is second."""
            yield Row("before", "it failed")
            models.shared("checkpoints", "none")

        code, page, said = self.report(first, second, arguments=[f"--shared={self.folder}"])
        self.assertEqual(code, 1)
        self.assertIn("size: found 7, wanted", said)
        head, body = re.fullmatch(r"# Figures\n\nWritten by `scripts/\S+`. Machine: (.*)\.\n\n(## first.*)", page, re.DOTALL).groups()
        self.assertRegex(head, r"\d+ cores \(.*\), backend cpu. Commit: .+. Date: 20\d\d-\d\d-\d\d$")
        self.assertEqual(body, (
            "## first\n\nWhat is first.\n\n|  | found | wanted |\n|---|---|---|\n| speed | 5 | 10 |\n| size | **7** |  |\n\n"
            "## second\n\nWhat is second.\n\n|  | found | wanted |\n|---|---|---|\n| before | it failed |  |\n\n"
            f"Not measured: {self.folder}/checkpoints/none is not here.\n"))

    def test_the_page_is_written_after_each_row(self):
        def one(*_):
            """One."""
            yield Row("a", "1")
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.report(one)
        self.assertIn("| a | 1 |", (self.folder / "page.md").read_text(encoding="utf-8"))

    def test_a_later_run_keeps_the_rows_of_an_earlier_one_and_measures_what_is_left(self):
        figures = iter(("7", "ran out of time; why", "8"))

        def one(*_):
            """One."""
            yield Row("a", next(figures))

        def two(args, _):
            """Two."""
            yield Row("b", next(figures), "", "b" in args.passed)

        self.assertEqual(self.report(one, two)[0], 1)
        earlier = self.folder / "earlier.json"
        shutil.copy(self.folder / "page.json", earlier)
        self.assertEqual(json.loads(earlier.read_text(encoding="utf-8"))["done"], ["one"])
        code, page, said = self.report(one, two, arguments=["--resume", earlier])
        self.assertEqual((code, "one\n" in said), (1, False))
        self.assertIn("| a | 7 |", page)
        self.assertIn("| b | **8** |", page)
        self.assertEqual(json.loads((self.folder / "page.json").read_text(encoding="utf-8"))["done"], ["one", "two"])

    def test_parts_are_chosen_and_a_quick_run_judges_nothing(self):
        def one(args, _):
            """One."""
            return [at_most("rounds", args.rounds, 0), Row("seconds", f"{args.seconds:g}")]

        def two(*_):
            """Two."""
            raise NotMeasured("no GPU")

        def nothing(*_):
            """Nothing."""
            return [1 / 0.0]

        self.assertEqual(self.report(one, two)[0], 1)
        code, page, _ = self.report(one, two, arguments=["--quick", "--parts=two,one"])
        self.assertEqual(code, 0)
        for wanted in ("| rounds | **1.00** | at most 0 |", "| seconds | 0.1 |", "A quick run"):
            self.assertIn(wanted, page)
        self.assertLess(page.index("## two"), page.index("## one"))
        self.assertIn("| rounds | **3.00** |", self.report(one, arguments=["--quick", "--rounds=3"])[1])
        self.assertIn("Not measured: float division", self.report(one, nothing, arguments=["--quick"])[1])
        with self.assertRaises(ZeroDivisionError):
            self.report(nothing)
        code, page, said = self.report(one, two, arguments=["--parts=two"])
        self.assertEqual((code, "SKIPPED: nothing can be measured here: two: no GPU" in said), (77, True))
        with self.assertRaises(SystemExit):
            self.report(one, two, arguments=["--parts=three"])

    def test_models_are_made_once_and_exported_with_what_is_beside_them(self):
        args = self.arguments()
        args.python, args.shared = self.folder / "python", self.folder
        args.python.write_text(f"#!/bin/sh\necho \"$@\" >>'{self.folder}/exported'\nmkdir -p \"$7\"\n", encoding="utf-8")
        args.python.chmod(0o755)
        (self.folder / "checkpoints" / "m").mkdir(parents=True)
        (self.folder / "checkpoints" / "m" / "labels.txt").write_text("a", encoding="utf-8")
        (self.folder / "checkpoints" / "m" / "lines.jsonl").write_text('{"a": 1}\n[2]\n', encoding="utf-8")
        models = report_common.Models(args, self.folder / "made")
        for _ in range(2):
            self.assertEqual(models.checkpoint("m"), self.folder / "made" / "m")
        exported, = (self.folder / "exported").read_text(encoding="utf-8").splitlines()
        self.assertRegex(exported, f"export_torch.py .* --out {self.folder}/made/m/m/1 --labels {self.folder}/checkpoints/m/labels.txt$")
        self.assertEqual(models.lines("checkpoints", "m", "lines.jsonl"), [{"a": 1}, json.loads("[2]")])


if __name__ == "__main__":
    unittest.main()
