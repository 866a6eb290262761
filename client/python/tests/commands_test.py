"""The command line, as users of the package and of a checkout call it."""

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import grpc
import numpy as np
from client_test import ANSWERS, Letters
from fake_service import Refusal, serve

from sru_inference.__main__ import main, marked, printable
from sru_inference.exporter.model_directory import write_safetensors
from sru_inference.results import SpanAnswer
from sru_inference.v1 import inference_pb2 as pb

# An encoder of features: no embedding, no classifier.
EXPORT = """
import json, os, sys
import torch
from sru_inference import export
os.chdir(sys.argv[1])
shapes = {"weight": (4, 24), "weight_c": (12,), "bias": (12,), "scale_x": (1,)}
torch.save({"encoder.rnn_lst.0." + name: torch.ones(shape) for name, shape in shapes.items()}, "m.pt")
with open("c.json", "w") as file:
    json.dump({"sru_config": {"input_size": 4, "hidden_size": 6, "num_layers": 1}, "pooling": "none"}, file)
sys.exit(export.main(["--checkpoint=m.pt", "--config=c.json", "--out=model/1"]))
"""


def run_python(*arguments, **options):
    command = [sys.executable, "-B", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)


def longest_words(request):
    """The longest words of each query's passages; an empty passage is refused."""
    results = []
    for query in request.queries:
        spans = []
        for place, passage in enumerate(query.passages):
            if not passage:
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "queries[0].passages[0]: empty")
            for word in passage.split():
                start = passage.index(word)
                where = {"passage": place, "start_char": start, "end_char": start + len(word)}
                spans.append(pb.SpanAnswer(text=word, log_score=len(word), probability=0.5, **where))
        spans.sort(key=lambda span: -span.log_score)
        results.append(pb.QueryAnswers(answers=spans[: request.top_n]))
    return pb.AnswerResponse(results=results)


def count_bytes(request):
    """Each byte but the first of a text costs a bit; the state is how many there were."""
    text = request.sequences[0].text
    scored = len(text) - (0 if request.states else 1)
    one = pb.Score(token_count=len(text), scored_count=scored, log_prob=-0.6931471805599453 * scored)
    if request.return_states:
        one.state = b"state"
    return pb.ScoreResponse(version=7, scores=[one])


class CommandsTest(unittest.TestCase):
    def setUp(self):
        self.service = serve(self, **{**ANSWERS, "Answer": longest_words, "Score": count_bytes, "Generate": Letters()})

    def run_program(self, *arguments, text=""):
        """(standard output, exit code, standard error) of the program, which runs in this process."""
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
            with unittest.mock.patch("sys.stdin", io.StringIO(text)):
                try:
                    code = main([*arguments, "--address=" + self.service.address])
                except SystemExit as ended:
                    code = ended.code
        return output.getvalue(), code, errors.getvalue()

    def check(self, arguments, text, expected, code=0):
        output, found, errors = self.run_program(*arguments, text=text)
        self.assertEqual((output, found), (expected, code), errors)
        return errors

    def test_classify(self):
        self.check(["classify"], "one two\n\nthree\n", "one 0.7500  one two\nthree 0.7500  three\n")
        self.assertEqual(self.service.requests[0].top_k, 1)
        errors = self.check(["classify", "NOT_FOUND"], "", "", 1)
        self.assertEqual(errors, "NOT_FOUND: as you like it\n")

    def test_tag(self):
        self.check(["tag"], "one two\n\nthree\n", "o 0.7500  one\nt 0.7500  two\n\nt 0.7500  three\n\n")
        self.check(["tag", "--top_k=2", "one"], "", "o 0.7500, n 0.7500  one\n\n")

    def test_tokens(self):
        self.check(["tokenize", "--unknown=skip"], "one two\n\nthree\n", "3  0-3  one\n3  4-7  two\n\n5  0-5  three\n\n")
        self.assertEqual(self.service.requests[0].unknown, pb.UNKNOWN_SKIP)
        self.check(["detokenize", "3", "1"], "", "xxx x\n")
        self.assertIn("invalid choice: 'drop'", self.check(["classify", "--unknown=drop", "a"], "", "", 2))

    def test_more_texts_than_a_call_takes(self):
        for command, after in (("classify", "  w%d\n"), ("tag", "  w%d\n\n")):
            self.service.requests.clear()
            text = "".join(f"w{i}\n" for i in range(70))
            output, code, errors = self.run_program(command, text=text)
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual([len(request.sequences) for request in self.service.requests], [32, 32, 6])
            self.assertEqual(output.count("\n" if command == "classify" else "\n\n"), 70)
            self.assertTrue(output.endswith(after % 69))
        self.check(["classify"], "", "")

    def test_score(self):
        self.check(
            ["score"],
            "Pierre.\n\nP\n",
            "     7       -4.159     1.0000      2.000  Pierre.\n     1            -          -          -  P\n"
            "     8       -4.159     1.0000      2.000  total\n",
        )
        self.check(
            ["score", "--carry"],
            "ab\n\n",
            "     3       -1.386     1.0000      2.000  ab\n     1       -0.693     1.0000      2.000  \n"
            "     4       -2.079     1.0000      2.000  total\n",
        )
        # A version that is loaded meanwhile could not go on from this state.
        self.assertEqual((self.service.requests[-1].states[0], self.service.requests[-1].version), (b"state", 7))

    def test_generate(self):
        self.check(["generate", "--max_new_tokens=4"], "ab\n", "defg")
        self.assertEqual(self.service.requests[0].prompt.text, "ab\n")

    def test_answer(self):
        expected = "  10.000  0.5000  -  It was [wonderful.]\n   3.000  0.5000  -  It [was] wonderful.\n"
        self.check(["answer", "--question=Which?", "--top_n=2"], "It was wonderful.\n", expected)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("one two three")
            file.flush()
            expected = f"   5.000  0.5000  {file.name}  one two [three]\n"
            self.check(["answer", "--question=Which?", file.name, "-"], "four", expected)
            errors = self.check(["answer", "--question=Which?", file.name + ".absent"], "", "", 2)
            self.assertIn(file.name + ".absent", errors)
        self.assertIn("INVALID_ARGUMENT", self.check(["answer", "--question=Which?"], "", "", 1))

    def test_translate(self):
        self.check(["translate", "--beam_size=2", "--alpha=0.5"], "a man\n\ntwo\n", "A MAN\n\nTWO\n")
        self.assertEqual((self.service.requests[0].beam_size, self.service.requests[0].length_penalty.alpha), (2, 0.5))
        self.assertIn("INVALID_ARGUMENT", self.check(["translate", "bad"], "", "", 1))

    def test_questions_about_the_server(self):
        self.check(["models"], "", "m  5  FAILED    no vocab.txt\n")
        self.check(["health"], "", "SERVING\n")
        self.check(["health", "sru.v1.InferenceService"], "", "NOT_SERVING\n", 1)

    def test_wrong_usage(self):
        self.assertIn("tls_ca: cannot read '/absent'", self.check(["classify", "--tls_ca=/absent", "a"], "", "", 2))
        self.assertIn("invalid choice", self.check(["clasify"], "", "", 2))

    def test_the_exporter_is_a_command(self):
        for arguments in (["-m", "sru_inference", "export"], ["-m", "sru_inference.export"]):
            done = run_python(*arguments, "--help")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("usage: python -m sru_inference.export", done.stdout)
            self.assertIn("--checkpoint", done.stdout)

    def test_the_exporter_writes_tensors_of_two_gibibytes(self):
        tensor = unittest.mock.Mock(shape=(1 << 29,))
        tensor.numel.return_value, tensor.data_ptr.return_value = 1 << 29, 4096  # nothing reads it
        with unittest.mock.patch("builtins.open", unittest.mock.mock_open()) as opened:
            write_safetensors("model.safetensors", {"a": tensor})
            written = opened().write.call_args.args[0]
        self.assertEqual(memoryview(written).nbytes, 1 << 31)

    def test_the_exporter_writes_the_values(self):
        arrays = {"a": np.array([1, 2], np.float32), "b": np.zeros(0, np.float32), "c": np.array([3], np.float32)}
        tensors = {name: unittest.mock.Mock(shape=array.shape) for name, array in arrays.items()}
        for name, tensor in tensors.items():
            tensor.numel.return_value = len(arrays[name])
            tensor.data_ptr.return_value = arrays[name].ctypes.data if len(arrays[name]) else 0
        with tempfile.NamedTemporaryFile() as file:
            write_safetensors(file.name, tensors)
            data = file.read()
        self.assertEqual(np.frombuffer(data[-12:], np.float32).tolist(), [1, 2, 3])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
    def test_the_exporter_exports(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "model", "1")
            done = run_python("-c", EXPORT, folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors"])


class PrintingTest(unittest.TestCase):
    def test_control_characters_reach_no_terminal(self):
        self.assertEqual(printable("\x1b[1m\r\n\t\u00e4\u009b"), "\\x1B[1m\\x0D\n\t\u00e4\\x9B")

    def test_marks_one_line(self):
        def span(start, end):
            return SpanAnswer("", 0, 0, 0, start, end, 0.0, 0.0)

        self.assertEqual(marked(span(3, 6), "a\n\x1b bcd\n\n e", 60), "a \\x1B[ bc]d e")
        self.assertEqual(marked(span(2, 5), "0123456789", 1), "1[234]5")


if __name__ == "__main__":
    unittest.main()
