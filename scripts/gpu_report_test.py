#!/usr/bin/env python3
"""Tests gpu_report.py as far as that needs no GPU: what it makes of canned output, time limits, and a whole server on the CPU backend.
gpu_report_machine_test.py runs all of it.

  gpu_report_test.py FOLDER_WITH_THE_PROGRAMS
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "kernels" / "bench")]
import compare_pytorch  # noqa: E402
import gpu_report  # noqa: E402
import report_common  # noqa: E402
from report_common import Limits, Models, Row  # noqa: E402

PROGRAMS = None


class CompareTest(unittest.TestCase):
    def test_shapes_are_all_of_the_papers_in_every_batch_and_type_with_the_papers_batch_first(self):
        shapes = compare_pytorch.GPU_SHAPES
        self.assertEqual(len(set(map(str, shapes))), 8 * 4 * 2)
        self.assertEqual({shape.batch for shape in shapes[:16]}, {32})
        self.assertEqual(len(set(map(str, compare_pytorch.CPU_SHAPES))), 128)

    def test_says_that_it_needs_a_gpu(self):
        done = subprocess.run([sys.executable, compare_pytorch.__file__, "--gpu_bench", "x"], capture_output=True, text=True, check=False,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stderr, "PyTorch (sees no GPU|is missing)")


class GpuReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(setattr, Limits, "end", Limits.end)
        self.args = argparse.Namespace(passed={}, at_once=2, backend="cpu", seconds=0.3, build=self.folder, prefix=self.folder, gpus=1,
                                       capability="9.0", bin=self.folder / "bin", programs=self.folder / "bin", python=sys.executable,
                                       shared=self.folder / "nothing")

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def programs(self):
        """The server and its clients are those of the build."""
        (self.folder / "bin").symlink_to(pathlib.Path(PROGRAMS).resolve())

    def test_without_a_gpu_it_says_so(self):
        done = subprocess.run([ROOT / "scripts" / "gpu_report.sh", "--out", self.folder], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": "/usr/bin:/bin"})
        if done.returncode == 0:
            self.skipTest("this machine has a GPU")
        self.assertEqual(done.returncode, 77)
        self.assertIn("needs a GPU", done.stderr)

    def test_a_step_that_fails_or_hangs_is_a_row_that_says_so(self):
        def figure(*words, seconds=10):
            output, row = gpu_report.step("name", words, seconds)
            self.assertFalse(row.good)
            return output, row.figure

        self.assertEqual(figure("sh", "-c", "echo begun; echo why >&2; exit 3"), ("begun\n", "exit code 3; begun why"))
        self.assertEqual(figure("sh", "-c", "echo begun; sleep 60", seconds=1), ("begun\n", "ran out of time; begun"))
        self.assertIn("does not start", figure("/nonexistent/program")[1])
        self.assertEqual(gpu_report.step("name", ["echo", "fine"], 10), ("fine\n", None))

    def test_a_process_that_cannot_be_killed_does_not_stop_the_rest(self):
        class Hanging:  # as a driver that hangs leaves it
            pid = 2 ** 30

            def wait(self, timeout):
                time.sleep(timeout / 100)
                raise subprocess.TimeoutExpired("hanging", timeout)

        self.assertIsNone(report_common.end_of(Hanging(), 0.1))

    def test_after_the_deadline_nothing_is_started(self):
        Limits.end = time.monotonic() + 1
        late = Row("late", "no time left")
        self.assertEqual(gpu_report.step("late", ["touch", self.folder / "x"], 10), ("", late))
        self.assertFalse((self.folder / "x").exists())
        self.assertEqual(list(gpu_report.beside_server(self.args, "late", "nowhere", [], None)), [late])

    def test_lines_of_a_step_that_was_cut_are_results(self):
        self.assertEqual(gpu_report.json_lines('{"a": 1}\nwarning\n{"a": 2}\n{"a": '), [{"a": 1}, {"a": 2}])

    def test_rows_are_named_by_what_is_not_measured(self):
        self.assertEqual(gpu_report.row_of({"name": "translator, step", "rows": 160, "run_p50_us": 1400.5}),
                         Row("translator, step, rows 160", "run p50 us 1,400.5"))
        row = gpu_report.row_of({"k": 512, "own_us": 4.5, "same_bits": False})
        self.assertEqual(row, Row("k 512", "own us 4.5; other bits", "the same bits", False))

    def test_what_a_sanitizer_finds_in_the_library_alone_is_a_note(self):
        ours = "========= Invalid read\n=========     at sru::kernels::cuda::ScanKernel<float, 2>+0x10\n"
        library = "========= Uninitialized read\n=========     at sm90_xmma_gemm_bf16+0x10\n"
        failed = Row("name", "exit code 9; ...", "", False)
        self.assertTrue(gpu_report.sanitizer_row("name", library, failed).good)
        for found in (ours, library + ours, "no such tool"):
            self.assertEqual(gpu_report.sanitizer_row("name", found, failed), failed)

    def test_reports_of_a_sanitizer_that_was_cut_are_counted(self):
        said = ("========= COMPUTE-SANITIZER\n========= Invalid read of size 4\n=========     at sru::Kernel+0x10\n=========\n"
                "========= Error: Race reported between\nok   golden x: 1 e-7\n========= ERROR SUMMARY: 2 errors\n")
        row = gpu_report.sanitizer_row("name", said, Row("name", "ran out of time; x", "", False))
        self.assertEqual((row.figure, row.good), ("ran out of time; no summary, 2 reports until then", False))
        self.assertEqual(gpu_report.sanitizer_row("name", said, None), Row("name", "ERROR SUMMARY: 2 errors"))
        self.assertFalse(gpu_report.sanitizer_row("name", "", None).good)

    def test_kernels_are_summed_by_their_names(self):
        said = ('==PROF== Connected\n"ID","Kernel Name","Device","gpu__time_duration.sum"\n"","","","ns"\n'
                '"0","void sru::kernels::cuda::ScanKernel<float, 2>(sru::kernels::cuda::ScanArgs)","0","1,500"\n'
                '"1","sm90_gemm(Params)","0","4000"\n'
                '"2","void sru::kernels::cuda::ScanKernel<float, 2>(sru::kernels::cuda::ScanArgs)","0","500"\n')
        self.assertEqual(gpu_report.kernels_of(said), [("sm90_gemm", 1, 4.0), ("ScanKernel<float, 2>", 2, 2.0)])
        self.assertEqual(gpu_report.kernels_of("no such metric\n"), [])

    def test_ratios_to_pytorch_are_of_small_batches_only(self):
        found = [{"shape": "a", "batch": 32, "sru_us": 10, "lstm_us": 60, "operations_us": 40},
                 {"shape": "b", "batch": 8, "sru_us": 10, "lstm_us": 150, "fused_us": 5},
                 {"shape": "c", "batch": 128, "sru_us": 10, "lstm_us": 10}]
        with mock.patch.object(gpu_report, "step", lambda *_, **__: ("".join(json.dumps(row) + "\n" for row in found), None)):
            rows = list(gpu_report.pytorch(self.args, None))
        self.assertEqual([(row.figure, row.good) for row in rows[3:]], [
            ("6.0; 6.0 to 15.0, median 10.5", True), ("30.0; 30.0 to 30.0, median 30.0", True), ("4.0; 4.0 to 4.0, median 4.0", False)])

    def test_a_written_language_model_is_like_one_of_the_published_package(self):
        golden = ROOT / "tests" / "golden" / "language_model" / "carried_projection"
        encoder = json.loads((golden / "config.json").read_text(encoding="utf-8"))["encoder"]
        report_common.write_language_model(self.folder / "model", encoder, 33)

        def tensors(folder):
            with open(folder / "model.safetensors", "rb") as file:
                size, = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
                rest = len(file.read())
            header.pop("__metadata__", None)
            self.assertEqual(rest, max(of["data_offsets"][1] for of in header.values()))
            return {name: (of["dtype"], of["shape"]) for name, of in header.items()}

        self.assertEqual(tensors(self.folder / "model"), tensors(golden))

    def test_texts_are_written_over_the_wire(self):
        self.programs()
        with mock.patch.object(gpu_report, "PAPER", {"input_size": 16, "hidden_size": 32, "num_layers": 2, "projection_size": 8}):
            rows = list(gpu_report.texts(self.args, Models(self.args, self.folder)))
        self.assertIn("not measured", rows.pop(0).figure)
        self.assertEqual([(row.name.split(",")[0], row.name.split(", ")[-1]) for row in rows],
                         [("Generate", "bfloat16")] * 4 + [("Generate", "float32")] * 4)
        self.assertTrue(all(float(row.figure.replace(",", "")) > 0 for row in rows))

    def test_drives_a_whole_server(self):
        self.programs()
        models = self.folder / "share" / "sru"
        models.mkdir(parents=True)
        (models / "models").symlink_to(ROOT / "models" / "pretrained")
        with mock.patch.object(gpu_report, "SERVED", {name: gpu_report.SERVED[name] for name in ("float32", "bfloat16")}):
            rows = {row.name: row for row in gpu_report.served(self.args, None)}
        self.assertEqual([row for row in rows.values() if not row.good], [])
        self.assertEqual(len(rows), 2 * 8)
        self.assertEqual(rows["bfloat16: right labels"].figure, "60")
        self.assertEqual(rows["float32: greedy text"].figure, "the recorded one")
        self.assertRegex(rows["float32: 64 in flight, calls/s"].figure, r"^[1-9][\d,]* \(p50 ")

    def test_a_server_that_is_wrong_or_refuses_has_failed(self):
        self.program("sru_server", "echo listening on 127.0.0.1:7, metrics; exec sleep 60")
        questions = gpu_report.data_lines("trec_questions.jsonl")
        labels = [{"labels": [{"name": "no", "logit": "nan", "index": index} for index in range(len(question["logits"]))]}
                  for question in questions]
        answers = {"classify": labels, "encode": [{"values": [1]}] * 60, "score": [{"log_prob": 5}] * 60}
        for name, found in answers.items():
            (self.folder / name).write_text("".join(json.dumps(answer) + "\n" for answer in found), encoding="utf-8")
        self.program("sru_client", f'case "$*" in *" encode "*|"encode "*trec\\ *) echo \'{{"values": [2]}}\';; *) cat {self.folder}/"$1" || echo other;; esac')
        self.program("sru_bench", """echo '{"throughput_per_s": 9, "latency_us": {"p50": 1, "p99": 2}, "codes": {"OK": 9, "INTERNAL": 3}}'""")
        rows = {row.name: row for row in gpu_report.served(self.args, None)}
        for what in ("right labels", "error of a logit", "error of a score", "greedy text", "64 in flight, calls/s",
                     "vectors with other bits alone than in a batch"):
            self.assertFalse(rows[f"float32: {what}"].good, what)
        self.assertTrue(rows["bfloat16: greedy text"].good)
        self.assertIn("calls ended with {'INTERNAL': 3}", rows["bfloat16: one at a time, calls/s"].figure)

    def test_a_server_that_cannot_start_is_a_failed_row(self):
        self.program("sru_server", "echo \"version 'GLIBC_2.99' not found\" >&2\nexit 1")
        rows = list(gpu_report.served(self.args, None))
        self.assertEqual([row.name for row in rows], list(gpu_report.SERVED))
        self.assertEqual((rows[0].figure, rows[0].good), ("version 'GLIBC_2.99' not found", False))

    def test_the_flags_of_every_server_are_known(self):
        said = subprocess.run([pathlib.Path(PROGRAMS) / "sru_server", "--help=all"], capture_output=True, text=True, check=True).stdout
        for flag in {flag.split("=")[0] for flags, *_ in gpu_report.SERVED.values() for flag in flags}:
            self.assertIn(f"  {flag} ", said)

    def test_an_installation_may_be_packed(self):
        self.program("sru_server", "")
        archive = self.folder / "made.tar.gz"
        subprocess.run(["tar", "-czf", archive, "-C", self.folder, "bin"], check=True)
        prefix = gpu_report.unpacked(archive, self.folder / "build")
        self.assertEqual(os.listdir(prefix / "bin"), ["sru_server"])
        self.assertEqual(gpu_report.unpacked(prefix, "unused"), prefix)


if __name__ == "__main__":
    PROGRAMS = sys.argv.pop(1)
    unittest.main(argv=sys.argv)
