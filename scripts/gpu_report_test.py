#!/usr/bin/env python3
"""Tests gpu_report.py and compare_pytorch_gpu.py as far as that needs no GPU: what they make of canned
results, time limits, and a whole server on the CPU backend. gpu_report_machine_test.py runs all of it.

  gpu_report_test.py FOLDER_WITH_THE_PROGRAMS
"""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.path.insert(0, os.path.join(ROOT, "kernels", "bench"))
import compare_pytorch_gpu as compare  # noqa: E402
import gpu_report  # noqa: E402

PROGRAMS = None


def result(shape, batch, dtype, sru, lstm, ops=None, fused=None):
    row = {"shape": shape, "batch": batch, "dtype": dtype, "sru_us": sru, "lstm_eager_us": lstm,
           "lstm_us": lstm}
    if ops:
        row["ops_us"] = ops
    if fused:
        row["fused_us"] = fused
    return row


class CompareTest(unittest.TestCase):
    def test_rows_are_all_shapes_batches_and_types_with_the_papers_batch_first(self):
        rows = compare.rows()
        self.assertEqual(len(rows), 8 * 4 * 2)
        self.assertEqual(len(set(rows)), len(rows))
        self.assertTrue(all(batch == 32 for _, batch, _ in rows[:16]))

    def test_summary_rates_small_batches_only(self):
        rows = [result("a", 32, "float32", 10, 60, 80), result("a", 1, "float32", 10, 120, 40),
                result("b", 8, "bfloat16", 10, 150, fused=5), result("a", 128, "float32", 10, 10)]
        summary = compare.summary(rows)
        self.assertEqual(summary["rows"], 3)
        self.assertEqual(summary["lstm_ratio_least"], 6)
        self.assertTrue(summary["lstm_least_reached"])
        self.assertEqual(summary["lstm_ratio_median"], 12)
        self.assertTrue(summary["lstm_median_reached"])
        self.assertEqual((summary["fused_rows"], summary["fused_ratio_least"]), (1, 30))
        self.assertEqual(summary["ops_rows"], 2)
        self.assertFalse(summary["ops_least_reached"])
        self.assertIsNone(compare.summary([]))

    def test_our_stacks_speaks_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "bench")
            with open(program, "w", encoding="utf-8") as file:
                file.write('#!/bin/sh\n[ "$1" = interactive ] || exit 2\n'
                           'while read -r line; do case "$line" in\n'
                           '  "2 300 128 1 32 8 bfloat16") echo 12.5;;\n'
                           '  "2 300 128 1 32 8 bfloat16_fused") echo 7.5;;\n'
                           '  *) exit 3; esac; done\n')
            os.chmod(program, 0o755)
            ours = compare.OurStacks(program)
            self.assertEqual(ours.time("sst_2", 8, "bfloat16"), 12.5)
            self.assertEqual(ours.time("sst_2", 8, "bfloat16", fused=True), 7.5)
            with self.assertRaisesRegex(RuntimeError, "ended with 3"):
                ours.time("sst_4", 8, "float32")
            ours.process.stdin.close()
            ours.process.stdout.close()

    def test_says_that_it_needs_a_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, compare.__file__, "--gpu_bench", "x", "--out", folder + "/y"],
                capture_output=True, text=True, check=False,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 77)
        self.assertIn("skipped", done.stderr)


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.report = gpu_report.Report(
            os.path.join(self.folder.name, "out"), os.path.join(self.folder.name, "logs"),
            {"gpu": "NVIDIA Paper", "driver": "1", "nvcc": "nvcc release 13.0",
             "commit": "abc", "date": "2026-01-01"})

    def steps(self, seconds=60):
        return gpu_report.Steps(self.report, time.monotonic() + seconds)

    def markdown(self):
        with open(os.path.join(self.report.folder, "gpu.md"), encoding="utf-8") as file:
            return file.read()

    def test_without_a_gpu_it_says_so(self):
        done = subprocess.run([os.path.join(ROOT, "scripts", "gpu_report.sh"), "--out",
                               self.folder.name], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": "/usr/bin:/bin"})
        if done.returncode == 0:
            self.skipTest("this machine has a GPU")
        self.assertEqual(done.returncode, 77)
        self.assertIn("needs a GPU", done.stderr)

    def test_canned_results_stand_in_both_files_with_their_targets(self):
        data = self.report.data
        data["checks"]["float32"] = [{"name": "golden a", "ok": True, "detail": ""},
                                     {"name": "golden b", "ok": False, "detail": "error 2e-05"}]
        data["scan"] = [{"dtype": "float32", "directions": 2, "hidden": 128, "sequences": 1024,
                         "length": 128, "us": 100.0, "bytes_per_s": 3.5e12, "ratio": 0.83}]
        data["classify"] = [{"type": "float32", "tokens": 10, "gpu_and_copy_us": 61.0,
                             "without_token_table_us": 66.0, "run_p50_us": 70.0, "run_p99_us": 90.0}]
        data["systems"] = [{"name": "translator, step", "type": "bfloat16", "sequences": 32, "rows": 160,
                            "run_p50_us": 400.0, "run_p99_us": 450.0, "weights_us": 40.0, "workspace_mb": 210.4, "load_s": 3.14},
                           {"name": "reader", "type": "float32", "sequences": 1, "rows": 142, "run_p50_us": 200.0, "run_p99_us": 210.0,
                            "weights_us": 0.0, "workspace_mb": 80.0, "load_s": 1.0}]
        data["products"] = [{"kind": "product", "k": 512, "own_us": 4.5}]
        data["trace"] = [{"system": "translator", "type": "float32", "sequences": 1, "kernel": "ScanKernel<float>", "launches": 5, "us": 7.25}]
        data["predict"] = [{"vocabulary": 32000, "rows": 1, "asked": "top_p 0.9", "one_block_us": 15.0, "cluster_us": 6.0}]
        data["fused"] = [{"layers": 2, "batch": 32, "plain_us": 20.0, "fused_us": 16.0}]
        data["texts"] = [{"name": "Generate, 1 at a time: tokens/s", "type": "float32", "result": "1,234"}]
        rows = [result("sst_2", 32, "float32", 10.0, 60.0, 80.0),
                result("sst_2", 32, "bfloat16", 10.0, 60.0, fused=4.0)]
        data["pytorch"] = {"torch": "2", "cudnn": 9, "results": rows, "left_out": [["b", 1, "c"]],
                           "errors": [], "summary": compare.summary(rows)}
        data["servers"] = [{"name": "without polling", "questions": 60, "right": 60, "logit_error": 1e-6, "vectors": 0,
                            "score_error": 1e-5, "greedy": True,
                            "loads": [{"load": "64 in flight", "rate": 1234.5, "p50": 10, "p99": 20}]}]
        self.report.write()
        text = self.markdown()
        for wanted in ("NVIDIA Paper", "2 checks, 1 failed", "golden b: error 2e-05", "| 3500 | 0.83",
                       "| 61.0 | missed | 66.0 |",
                       "| translator, step | bfloat16 | 32 | 160 | 400.0 | 450.0 | 40.0 | 400000 | 210 | 3.1 |",
                       "| reader | float32 | 1 | 142 | 200.0 | 210.0 | - |",
                       "| translator, step, 32 at a time: us (times reading the weights once) | - | 400 (10.0) |",
                       "| Generate, 1 at a time: tokens/s | 1,234 | - |", "| k | own us |", "| 512 | 4.5 |",
                       "| translator | float32 | 1 | ScanKernel<float> | 5 | 7.2 |",
                       "| 32000 | 1 | top_p 0.9 | 15.0 | 6.0 | 2.50 |", "| 2 | 32 | 20.0 | 16.0 | 1.25 |",
                       "least 6.0 (target 5: reached)",
                       "median 6.0 (target 10: missed)", "1 rows were left out", "| 6.0 | 80.0 | 8.0 |",
                       "fused layers, 1 rows: least 15.0, median 15.0", "| 10.0 | 4.0 | - | 60.0 |",
                       "| without polling | 60 of 60 | 1.0e-06 | 0 | 1.0e-05 | equal |",
                       "| without polling | 64 in flight | 1234 | 10 | 20 |"):
            self.assertIn(wanted, text)
        with open(os.path.join(self.report.folder, "gpu.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), data)

    def test_a_step_that_fails_or_hangs_is_recorded_and_the_rest_goes_on(self):
        steps = self.steps()
        self.assertIsNone(steps.run("breaks", ["sh", "-c", "echo why; exit 3"], 10))
        self.assertIsNone(steps.run("hangs", ["sh", "-c", "echo begun; sleep 60"], 1))
        self.assertIsNone(steps.run("absent", ["/nonexistent/program"], 10))
        self.assertIsNone(steps.run("no gpu", ["sh", "-c", "echo no GPU; exit 77"], 10))
        self.assertIsNone(steps.run("no torch", ["sh", "-c", "echo no torch; exit 77"], 10,
                                    may_skip=True))
        self.assertEqual(steps.run("works", ["echo", "fine"], 10), "fine\n")
        self.assertTrue(steps.failed)
        found = {s["name"]: (s["result"], s["note"]) for s in self.report.data["steps"]}
        self.assertEqual(found["breaks"], ("failed", "exit code 3; why"))
        self.assertEqual(found["hangs"], ("failed", "ran out of time; begun"))
        self.assertEqual(found["absent"][0], "failed")
        self.assertEqual(found["no gpu"], ("failed", "exit code 77; no GPU"))
        self.assertEqual(found["no torch"], ("skipped", "no torch"))
        self.assertEqual(found["works"], ("ok", "fine"))
        self.assertIn("ran out of time", self.markdown())
        with open(os.path.join(self.report.folder, "gpu.log"), encoding="utf-8") as file:
            self.assertIn("begun", file.read())

    def test_a_process_that_cannot_be_killed_does_not_stop_the_rest(self):
        class Hanging:  # as a driver that hangs leaves it
            pid = 2 ** 30

            def wait(self, timeout):
                time.sleep(timeout / 100)
                raise subprocess.TimeoutExpired("hanging", timeout)

        steps = self.steps()
        with open(self.report.log("hangs"), "w", encoding="utf-8") as log:
            log.write('{"kind": "scan"}\n')
        code, output = steps.finish("hangs", Hanging(), time.monotonic(), 0.1)
        self.assertIsNone(code)
        self.assertIn("ran out of time", self.report.data["steps"][0]["note"])
        self.assertEqual(steps.results("hangs", output, None), [{"kind": "scan"}])

    def test_lines_of_a_step_that_was_cut_are_results(self):
        text = '[\n{"a": 1},\nwarning\n{"a": 2}, \n{"a": '
        self.assertEqual(gpu_report.json_lines(text), [{"a": 1}, {"a": 2}])
        self.assertEqual(gpu_report.json_lines(""), [])

    def test_what_a_sanitizer_finds_in_the_library_alone_is_a_note(self):
        ours = "========= Invalid read\n=========     at sru::kernels::cuda::ScanKernel<float, 2>+0x10\n"
        library = "========= Uninitialized read\n=========     at sm90_xmma_gemm_bf16+0x10\n"
        self.assertTrue(gpu_report.in_the_library_alone(library))
        for found in (ours, library + ours, "no such tool"):
            self.assertFalse(gpu_report.in_the_library_alone(found))

    def test_reports_of_a_sanitizer_that_was_cut_are_counted(self):
        self.assertIn("2 reports", gpu_report.reports_so_far(
            "========= COMPUTE-SANITIZER\n========= Invalid read of size 4\n=========     at sru::Kernel+0x10\n=========\n"
            "========= Error: Race reported between\nok   golden x: 1 e-7\n========= ERROR SUMMARY: 2 errors\n"))
        self.assertIn("0 reports", gpu_report.reports_so_far(""))

    def test_kernels_are_summed_by_their_names(self):
        said = ('==PROF== Connected\n"ID","Kernel Name","Device","gpu__time_duration.sum"\n"","","","ns"\n'
                '"0","void sru::kernels::cuda::ScanKernel<float, 2>(sru::kernels::cuda::DependentArgs<Args>)","0","1,500"\n'
                '"1","sm90_gemm(Params)","0","4000"\n'
                '"2","void sru::kernels::cuda::ScanKernel<float, 2>(sru::kernels::cuda::DependentArgs<Args>)","0","500"\n')
        self.assertEqual(gpu_report.kernels_of(said), [("sm90_gemm", 1, 4.0), ("ScanKernel<float, 2>", 2, 2.0)])
        self.assertEqual(gpu_report.kernels_of("no such metric\n"), [])

    def test_a_written_language_model_is_like_one_of_the_published_package(self):
        golden = os.path.join(ROOT, "tests", "golden", "language_model", "carried_projection")
        with open(os.path.join(golden, "config.json"), encoding="utf-8") as file:
            encoder = json.load(file)["encoder"]
        made = os.path.join(self.folder.name, "model")
        gpu_report.write_language_model(made, encoder, 33)

        def tensors(folder):
            with open(os.path.join(folder, "model.safetensors"), "rb") as file:
                size, = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
                rest = len(file.read())
            header.pop("__metadata__", None)
            self.assertEqual(rest, max(of["data_offsets"][1] for of in header.values()))
            return {name: (of["dtype"], of["shape"]) for name, of in header.items()}

        self.assertEqual(tensors(made), tensors(golden))

    def test_texts_are_written_over_the_wire(self):
        prefix = os.path.join(self.folder.name, "prefix")
        os.makedirs(prefix)
        os.symlink(os.path.abspath(PROGRAMS), os.path.join(prefix, "bin"))
        steps = self.steps(seconds=120)
        machine = gpu_report.Machine(None, prefix, self.folder.name, {}, "", 1)
        with mock.patch.object(gpu_report, "shared_folder", lambda: None):
            gpu_report.drive_texts(steps, machine, backend="cpu", seconds=0.3,
                                   encoder={"input_size": 16, "hidden_size": 32, "num_layers": 2, "projection_size": 8})
        self.assertFalse(steps.failed, self.report.data["steps"])
        self.assertEqual([(r["type"], r["name"].split(",")[0]) for r in self.report.data["texts"]],
                         [("bfloat16", "Generate")] * 4 + [("float32", "Generate")] * 4)
        self.assertTrue(all(float(r["result"].replace(",", "")) > 0 for r in self.report.data["texts"]))

    def test_the_student_is_asked_without_torch(self):
        shared = os.path.join(self.folder.name, "shared")
        os.makedirs(os.path.join(shared, "checkpoints"))
        marian = os.path.join(shared, gpu_report.STUDENT, "marian")
        os.makedirs(marian)
        for name in ("model.npz", "vocab.spm"):
            with open(os.path.join(marian, name), "w", encoding="utf-8"):
                pass
        asked = []
        with mock.patch.object(gpu_report, "with_server", lambda steps, name, prefix, repository, *_: asked.append(os.listdir(repository))), \
                mock.patch.dict(os.environ, {"SRU_SHARED_DIR": shared}), mock.patch.object(importlib.util, "find_spec", lambda name: None):
            gpu_report.drive_trained(self.steps(), "unused", self.folder.name, {})
        self.assertEqual(asked, [["student"]])
        found = {s["name"]: (s["result"], s["note"]) for s in self.report.data["steps"]}
        self.assertEqual(found, {"export of reader and translator": ("skipped", "this Python has no torch")})

    def test_after_the_deadline_nothing_is_started(self):
        steps = self.steps(seconds=1)
        self.assertIsNone(steps.run("late", ["touch", self.folder.name + "/x"], 10))
        self.assertFalse(os.path.exists(self.folder.name + "/x"))
        gpu_report.drive_servers(steps, "/nonexistent", {}, names=("float32",))
        gpu_report.drive_trained(steps, "/nonexistent", self.folder.name, {})
        self.assertEqual([s["result"] for s in self.report.data["steps"]], ["skipped"] * 3)
        self.assertFalse(steps.failed)

    def test_json_is_found_among_other_output(self):
        self.assertEqual(gpu_report.parse_json('warning [x]\n[\n{"a": 1}\n]\n'), [{"a": 1}])
        self.assertEqual(gpu_report.parse_json('{"a": [1]}'), {"a": [1]})
        self.assertEqual(gpu_report.parse_json("[\n{"), [])
        self.assertEqual(gpu_report.parse_json(None), [])

    def test_drives_a_whole_server(self):
        prefix = os.path.join(self.folder.name, "prefix")
        os.makedirs(os.path.join(prefix, "share", "sru"))
        os.symlink(os.path.abspath(PROGRAMS), os.path.join(prefix, "bin"))
        os.symlink(os.path.join(ROOT, "models", "pretrained"),
                   os.path.join(prefix, "share", "sru", "models"))
        steps = self.steps(seconds=120)
        names = ("float32", "bfloat16")
        gpu_report.drive_servers(steps, prefix, {}, backend="cpu", seconds=0.5, names=names)
        self.assertFalse(steps.failed, self.report.data["steps"])
        self.assertEqual(tuple(s["name"] for s in self.report.data["servers"]), names)
        for server in self.report.data["servers"]:
            self.assertEqual((server["questions"], server["right"], server["vectors"]), (60, 60, 0))
            self.assertEqual(len(server["loads"]), 3)
            self.assertGreater(server["loads"][0]["rate"], 0)
        self.assertLess(self.report.data["servers"][0]["logit_error"], 1e-4)
        self.assertTrue(self.report.data["servers"][0]["greedy"])
        self.assertIn("60 of 60", self.markdown())

    def test_the_flags_of_every_server_are_known(self):
        flags = {flag.split("=")[0] for served in gpu_report.SERVED.values() for flag in served[0]}
        said = subprocess.run([os.path.join(PROGRAMS, "sru_server"), "--help=all"], capture_output=True, text=True, check=True).stdout
        for flag in flags:
            self.assertIn(f"  {flag} ", said)

    def test_drives_the_trained_models(self):
        prefix = os.path.join(self.folder.name, "prefix")
        os.makedirs(prefix)
        os.symlink(os.path.abspath(PROGRAMS), os.path.join(prefix, "bin"))
        steps = self.steps(seconds=250)
        gpu_report.drive_trained(steps, prefix, self.folder.name, {}, backend="cpu")
        self.assertFalse(steps.failed, self.report.data["steps"])
        last = self.report.data["steps"][-1]
        self.assertEqual(last["name"], "trained models")
        if last["result"] == "skipped":
            self.assertRegex(last["note"], "shared/checkpoints|torch")
            self.skipTest(last["note"])
        torch = importlib.util.find_spec("torch") is not None
        self.assertEqual([(r["name"], r["recorded"], r["equal"]) for r in self.report.data["trained"]],
                         [("reader", 300, 300), ("translator", 300, 300)] * torch + [("student, greedy", 200, 200), ("student, beam4", 200, 200)])
        self.assertIn("| student, beam4 | 200 | 200 |", self.markdown())

    def test_answers_and_translations_are_compared_with_all_that_was_recorded(self):
        span = {"start_byte": 3, "end_byte": 6, "start_char": 2, "end_char": 5, "log_score": 4.5}
        recorded = [{"answer": "one", **span}, {"answer": "two", **span}, {"answer": "six", **span}]
        found = [{"answers": [{"text": "one", **span, "log_score": 4.25}]},
                 {"answers": [{"text": "too", **span}]}, {"answers": [{"text": "six", **span, "end_char": 6}]}]
        self.assertEqual(gpu_report.compare_answers(recorded, found), (1, 0.25))
        recorded = [{"beam5_best": {"text": "eins", "score": -1.0}}, {"beam5_best": {"text": "zwei", "score": -2.0}}]
        found = [{"hypotheses": [{"text": "eins", "score": -1.5}]}, {"hypotheses": [{"text": "drei", "score": -2.0}]}]
        self.assertEqual(gpu_report.compare_translations(recorded, found), (1, 0.5))
        recorded = [{"greedy": "eins", "greedy_log_prob": -1.0}, {"greedy": "zwei", "greedy_log_prob": -2.0}]
        found = [{"hypotheses": [{"text": "eins", "log_prob": -1.5}]}, {"hypotheses": [{"text": "drei", "log_prob": -2.0}]}]
        self.assertEqual(gpu_report.compare_student(recorded, found, "greedy"), (1, 0.5))

    def test_a_server_that_is_wrong_or_refuses_has_failed(self):
        good = {"name": "float32", "questions": 60, "right": 60, "logit_error": 1e-6, "vectors": 0,
                "score_error": 1e-6, "greedy": True,
                "loads": [{"load": "64 in flight", "codes": {"OK": 100, "UNAVAILABLE": 0}}]}
        self.assertEqual(gpu_report.server_mistakes(good), [])
        self.assertEqual(gpu_report.server_mistakes({**good, "right": 59}), ["1 wrong labels"])
        for error in (0.5, float("nan")):
            self.assertIn("expected at most", gpu_report.server_mistakes(
                {**good, "logit_error": error})[0])
        self.assertEqual(gpu_report.server_mistakes({**good, "vectors": 2}), ["2 vectors have other bits alone"])
        self.assertIn("a score is wrong", gpu_report.server_mistakes({**good, "score_error": 0.1})[0])
        self.assertEqual(len(gpu_report.server_mistakes({**good, "greedy": False})), 1)
        self.assertEqual(gpu_report.server_mistakes({**good, "name": "bfloat16", "greedy": False}), [])
        loads = [{"load": "one", "codes": {"OK": 9, "INTERNAL": 3}}]
        self.assertEqual(gpu_report.server_mistakes({**good, "loads": loads}),
                         ["one: calls ended with {'INTERNAL': 3}"])

    def test_an_installation_may_be_packed(self):
        os.makedirs(self.folder.name + "/made/bin")
        for name in ("sru_server", "sru_client"):
            with open(f"{self.folder.name}/made/bin/{name}", "w", encoding="utf-8"):
                pass
        archive = self.folder.name + "/made.tar.gz"
        subprocess.run(["tar", "-czf", archive, "-C", self.folder.name, "made"], check=True)
        prefix = gpu_report.unpacked(archive, self.folder.name + "/build")
        self.assertEqual(sorted(os.listdir(prefix + "/bin")), ["sru_client", "sru_server"])
        self.assertEqual(gpu_report.unpacked(prefix, "unused"), prefix)

    def test_a_server_that_cannot_start_is_a_failed_step(self):
        prefix = os.path.join(self.folder.name, "prefix")
        os.makedirs(os.path.join(prefix, "bin"))
        program = os.path.join(prefix, "bin", "sru_server")
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho \"version `GLIBC_2.99' not found\"\nexit 1\n".replace(
                "`", "'"))
        os.chmod(program, 0o755)
        steps = self.steps()
        gpu_report.drive_servers(steps, prefix, {}, names=("float32",))
        self.assertTrue(steps.failed)
        self.assertIn("older than the one of the build", self.report.data["steps"][0]["note"])


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main(argv=sys.argv)
