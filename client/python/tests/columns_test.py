"""Columns against a server of this process: what arrives, what comes back, in which form."""

import contextlib
import io
import pickle
import struct
import sys
import threading
import time
import unittest
import unittest.mock

import grpc
import numpy as np
from fake_service import Refusal, serve

import sru_inference
from sru_inference import open_inference_pb2 as oip
from sru_inference.v1 import inference_pb2 as pb

try:
    import pyarrow
except ImportError:
    pyarrow = None

WIDTH = 3


def texts_of(request, index=0):
    raw, texts, at = request.raw_input_contents[index], [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        texts.append(raw[at + 4 : at + 4 + size].decode())
        at += 4 + size
    assert [len(texts)] == list(request.inputs[index].shape)
    return texts


def tensor_of_texts(texts):
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


class Model:
    """Tokens are words: a label is the first one, a number its length, a vector has the lengths of the words."""

    def __init__(self, task="classifier", rows=4):
        self.task, self.rows = task, rows

    def config(self, request):
        config = oip.ModelConfig(name=request.name, platform="sru", max_batch_size=self.rows)
        config.parameters["task"].string_value = self.task
        return oip.ModelConfigResponse(config=config)

    def infer(self, request):
        texts = texts_of(request)
        for index, text in enumerate(texts):
            if text == "bad":
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"input text[{index}]: bad")
            if not text.strip() and not request.parameters["skip_empty"].bool_param:
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"input text[{index}]: no tokens are left")
        response = oip.ModelInferResponse(model_name=request.model_name)
        words = [text.split() for text in texts]
        longest = max(map(len, words))
        for name in [output.name for output in request.outputs] or ["label", "probabilities"]:
            datatype, shape, raw = "FP32", [len(texts)], None
            if name == "label":
                datatype, raw = "BYTES", tensor_of_texts([one[0] if one else "" for one in words])
            elif name == "lengths":
                datatype, raw = "INT32", np.array([len(one) for one in words], "<i4").tobytes()
            elif self.task == "tagger":
                datatype, shape = "INT32", [len(texts), longest]
                rows = [[len(word) for word in one] + [0] * (longest - len(one)) for one in words]
                raw = np.array(rows, "<i4").reshape(shape).tobytes()
            elif name == "label_ids":
                datatype, raw = "INT32", np.array([len(one[0]) if one else -1 for one in words], "<i4").tobytes()
            elif name == "log_prob":
                datatype, raw = "FP64", np.array([-len(one) if one else np.nan for one in words], "<f8").tobytes()
            elif name == "probabilities":
                shape = [len(texts), WIDTH]
                raw = np.array([[len(one) or np.nan] * WIDTH for one in words], "<f4").tobytes()
            elif name == "encoding":
                shape, values = [len(texts), longest, WIDTH], np.zeros((len(texts), longest, WIDTH), "<f4")
                for row, one in enumerate(words):
                    for token, word in enumerate(one):
                        values[row, token] = len(word)
                raw = values.tobytes()
            response.outputs.add(name=name, datatype=datatype, shape=shape)
            response.raw_output_contents.append(raw)
        return response

    def answers(self):
        return {"ModelInfer": self.infer, "ModelConfig": self.config}


class ColumnsTest(unittest.TestCase):
    def columns(self, fake=None, answers=None, **options):
        self.service = serve(self, **{**(fake or Model()).answers(), **(answers or {})})
        options = {"model": "m", **options}
        columns = sru_inference.Columns(self.service.address, **options)
        self.addCleanup(columns.close)
        return columns

    def requests(self):
        return [request for request in self.service.requests if isinstance(request, oip.ModelInferRequest)]

    def test_rows_keep_their_order_and_nulls_their_place(self):
        texts = [f"w{i} x" for i in range(50)]
        texts[3], texts[10], texts[49] = None, " ", None
        columns = self.columns(outputs=["label", "probabilities", "label_ids"], in_flight=3)
        found = columns(texts)
        wanted = [text.split()[0] if text and text.strip() else None for text in texts]
        self.assertEqual(list(found), ["label", "probabilities", "label_ids"])
        self.assertEqual(found["label"].tolist(), wanted)
        self.assertEqual((found["probabilities"].dtype, found["probabilities"].shape), (np.float32, (50, WIDTH)))
        self.assertEqual(np.isnan(found["probabilities"]).all(axis=1).tolist(), [one is None for one in wanted])
        self.assertEqual((found["label_ids"].dtype, found["label_ids"][[2, 3, 10, 11]].tolist()), (np.int32, [2, -1, -1, 3]))
        requests = self.requests()
        sent = sorted(text for request in requests for text in texts_of(request))
        self.assertEqual(sent, sorted(text for text in texts if text is not None))
        self.assertEqual(max(len(texts_of(request)) for request in requests), 4)
        first = max(requests, key=lambda request: len(texts_of(request)))
        self.assertEqual((first.model_name, first.model_version, first.inputs[0].name), ("m", "", "text"))
        self.assertEqual([first.inputs[0].datatype, *first.inputs[0].shape], ["BYTES", 4])
        self.assertEqual([output.name for output in first.outputs], ["label", "probabilities", "label_ids"])
        self.assertEqual((first.parameters["priority"].string_param, first.parameters["skip_empty"].bool_param), ("low", True))

    def test_parameters_and_rows(self):
        parameters = {"truncate": True, "top": 3, "x": 0.5, "priority": "high", "skip_empty": None}
        columns = self.columns(parameters=parameters, rows=2, version=7, outputs=[])
        self.assertEqual(list(columns(["a b", "c", "d"])), ["label", "probabilities"])
        self.assertEqual(sorted(len(texts_of(request)) for request in self.requests()), [1, 2])
        sent, version = self.requests()[0].parameters, self.requests()[0].model_version
        self.assertEqual((sorted(sent), version), (["priority", "top", "truncate", "x"], "7"))
        self.assertEqual((sent["truncate"].bool_param, sent["top"].int64_param, sent["x"].double_param), (True, 3, 0.5))
        self.assertEqual(sent["priority"].string_param, "high")
        with self.assertRaisesRegex(sru_inference.InvalidArgumentError, r"input text\[2\]: no tokens are left"):
            columns(["a", "b", " "])

    def test_the_model_may_be_left_out(self):
        answers = {"GetModel": lambda request: pb.GetModelResponse(model=pb.ModelInfo(name="only"))}
        self.assertEqual(self.columns(answers=answers, model="")(["a"])["label"].tolist(), ["a"])
        self.assertEqual(self.requests()[0].model_name, "only")

    def test_forms_of_a_column(self):
        columns = self.columns()
        for texts in (
            ("a", None, "b"),
            iter(["a", None, "b"]),
            np.array(["a", None, "b"], object),
            np.array(["a", float("nan"), "b"], object),
        ):
            self.assertEqual(columns(texts)["label"].tolist(), ["a", None, "b"])
        self.assertEqual(columns(np.array(["a", "ä"]))["label"].tolist(), ["a", "ä"])
        self.assertEqual(columns([])["label"].tolist(), [])
        found = columns([None, None])["label"]
        self.assertEqual((found.dtype, found.tolist()), (object, [None, None]))

    def test_per_token(self):
        texts = ["a bb", None, "ccc", " ", "a a a"]
        columns = self.columns(Model("tagger", rows=2), outputs=["label_ids"])
        found = [None if row is None else row.tolist() for row in columns(texts)["label_ids"]]
        self.assertEqual(found, [[1, 2], None, [3], None, [1, 1, 1]])
        self.assertEqual([output.name for output in self.requests()[0].outputs], ["label_ids", "lengths"])
        found = self.columns(Model("encoder"), outputs=["encoding", "lengths"])(texts)
        self.assertEqual([row is None or row.shape for row in found["encoding"]], [(2, 3), True, (1, 3), True, (3, 3)])
        self.assertEqual(found["encoding"][0].tolist(), [[1] * 3, [2] * 3])
        self.assertEqual(found["lengths"].tolist(), [2, 0, 1, 0, 3])
        self.assertEqual(len(self.columns(Model("encoder"), outputs=["encoding"])([None, ""])["encoding"]), 2)

    @unittest.skipUnless(pyarrow, "there is no pyarrow")
    def test_arrow(self):
        texts = ["a bb", None, "ccc", " ", "a a a"]
        columns = self.columns(outputs=["label", "probabilities", "log_prob", "label_ids"])
        whole = pyarrow.array(texts)
        chunked = pyarrow.chunked_array([texts[:2], [], texts[2:]], pyarrow.large_string())
        for column in (whole, whole.cast(pyarrow.large_string()), whole.dictionary_encode(), chunked, whole[1:]):
            found = columns(column)
            start = 5 - len(column)
            for one in found.values():
                one.validate(full=True)
            self.assertEqual(found["label"].to_pylist(), ["a", None, "ccc", None, "a"][start:])
            rows = [[2.0] * 3, None, [1.0] * 3, None, [3.0] * 3]
            self.assertEqual(found["probabilities"].to_pylist(), rows[start:])
            self.assertEqual(found["probabilities"].type, pyarrow.list_(pyarrow.float32(), 3))
            self.assertEqual(found["log_prob"].to_pylist(), [-2.0, None, -1.0, None, -3.0][start:])
            self.assertEqual(found["label_ids"].to_pylist(), [1, None, 3, None, 1][start:])
        for nothing in (pyarrow.array([], pyarrow.string()), pyarrow.nulls(2)):
            found = columns(nothing)
            self.assertEqual([one.null_count for one in found.values()], [len(nothing)] * 4)
            self.assertEqual(found["probabilities"].type, pyarrow.list_(pyarrow.float32(), 3))
        with self.assertRaisesRegex(TypeError, "text: expected a column of strings, found one of int64"):
            columns(pyarrow.array([1]))

    @unittest.skipUnless(pyarrow, "there is no pyarrow")
    def test_arrow_per_token(self):
        texts = pyarrow.array(["a bb", None, "ccc", " "])
        found = self.columns(Model("encoder", rows=2), outputs=["encoding", "lengths"])(texts)
        found["encoding"].validate(full=True)
        self.assertEqual(found["encoding"].to_pylist(), [[[1.0] * 3, [2.0] * 3], None, [[3.0] * 3], None])
        self.assertEqual(found["lengths"].to_pylist(), [2, None, 1, None])
        found = self.columns(Model("tagger"), outputs=["label_ids"])(texts)["label_ids"]
        self.assertEqual((found.type, found.to_pylist()), (pyarrow.list_(pyarrow.int32()), [[1, 2], None, [3], None]))

    def test_a_task_with_two_inputs(self):
        def infer(request):
            pairs = zip(texts_of(request, 0), texts_of(request, 1))
            response = oip.ModelInferResponse(raw_output_contents=[tensor_of_texts(["/".join(pair) for pair in pairs])])
            response.outputs.add(name="answer", datatype="BYTES", shape=request.inputs[0].shape)
            return response

        columns = self.columns(Model("reader"), {"ModelInfer": infer}, outputs=["answer"])
        found = columns({"question": ["q", None, "r"], "passage": ["p", "x", "s"]})
        self.assertEqual(found["answer"].tolist(), ["q/p", None, "r/s"])
        self.assertEqual([one.name for one in self.requests()[0].inputs], ["question", "passage"])
        with self.assertRaisesRegex(ValueError, r"texts: expected columns of one length, found \[1, 2\]"):
            columns({"question": ["q"], "passage": ["p", "s"]})

    def test_a_server_that_has_the_protocol_alone(self):
        def unimplemented(_):
            raise Refusal(grpc.StatusCode.UNIMPLEMENTED)

        columns = self.columns(answers={"ModelConfig": unimplemented})
        self.assertEqual(len(columns(["a"] * 1500)["label"]), 1500)
        self.assertEqual(sorted(len(texts_of(request)) for request in self.requests()), [476, 1024])
        self.assertEqual(dict(self.requests()[0].parameters), {})

    def test_a_call_has_a_bound_in_bytes(self):
        columns = self.columns(Model(rows=1000))
        self.assertEqual(len(columns(["x" * 1000] * 100 + ["y" * 100_000, "z"])["label"]), 102)
        sizes = [[len(text) for text in texts_of(request)] for request in self.requests()]
        self.assertEqual(sorted(map(len, sizes)), [1, 1, 39, 61])
        self.assertIn([100_000], sizes)

    def test_an_error_names_the_row(self):
        columns = self.columns(in_flight=2)
        texts = ["a"] * 20
        texts[2], texts[13] = None, "bad"
        with self.assertRaises(sru_inference.InvalidArgumentError) as raised:
            columns(texts)
        self.assertEqual(raised.exception.message, "input text[13]: bad")
        self.assertEqual(str(pickle.loads(pickle.dumps(raised.exception))), "INVALID_ARGUMENT: input text[13]: bad")
        for wrong, error, expected in (
            (["a", 3], TypeError, r"text\[1\]: expected a text, found int"),
            (["a", b"x"], TypeError, r"text\[1\]: expected a text, found bytes"),
            (["a", "\ud800"], ValueError, r"text\[1\]: expected Unicode"),
            ("a text", TypeError, "text: expected a column, found a single text"),
            (np.array([["a"]]), ValueError, r"text: expected an array \[rows\], found one \[1, 1\]"),
        ):
            with self.subTest(expected), self.assertRaisesRegex(error, expected):
                columns(wrong)

    def test_busy_servers_are_asked_again(self):
        refusals = [Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.01)] * 3
        refusals.append(Refusal(grpc.StatusCode.UNAVAILABLE))

        def busy(method):
            def answer(request):
                if refusals:
                    raise refusals.pop()
                return method(request)

            return answer

        model = Model(rows=1)
        columns = self.columns(model, {"ModelInfer": busy(model.infer), "ModelConfig": busy(model.config)})
        self.assertEqual(columns(["a", "b"])["label"].tolist(), ["a", "b"])
        refusals += [Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.01)] * 5
        self.assertEqual(columns(list("abcdef"))["label"].tolist(), list("abcdef"))

    def test_patience_ends(self):
        def refuse(request):
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "input text[0]: the queue is full", retry_after=0.02)

        columns = self.columns(answers={"ModelInfer": refuse}, patience=0.2)
        with self.assertRaisesRegex(sru_inference.ResourceExhaustedError, "the queue is full"):
            columns(["a"])
        self.assertGreater(len(self.requests()), 3)
        begin = time.monotonic()
        columns = self.columns(answers={"ModelInfer": refuse}, patience=0.01)
        with self.assertRaises(sru_inference.ResourceExhaustedError):
            columns(["a"])
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_call_that_is_too_large_is_not_repeated(self):
        def refuse(request):
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "this call alone is too large")

        columns = self.columns(answers={"ModelInfer": refuse})
        with self.assertRaisesRegex(sru_inference.ResourceExhaustedError, "too large"):
            columns(["a"])
        self.assertEqual(len(self.requests()), 1)

    def test_another_address_when_the_server_is_gone(self):
        models = [Model(rows=1), Model(rows=1)]
        services = [serve(self, **model.answers()) for model in models]
        asked = []

        def address():
            asked.append(services[len(asked)].address)
            return asked[-1]

        with sru_inference.Columns(address, model="m", max_attempts=1) as columns:
            self.assertEqual((columns(["a"])["label"].tolist(), len(asked)), (["a"], 1))
            services[0].stop()
            self.assertEqual((columns(["b", "c"])["label"].tolist(), len(asked)), (["b", "c"], 2))

    def test_nothing_connects_before_the_first_call(self):
        secret = {"token": "t", "tls_ca": "/not/on/this/machine.pem", "tls_server_name": "s"}
        columns = sru_inference.Columns("nowhere:1", model="m", parameters={"truncate": True}, **secret)
        copy = pickle.loads(pickle.dumps(columns))
        self.assertEqual(copy._arguments, columns._arguments)
        with self.assertRaisesRegex(ValueError, "tls_ca: cannot read"):
            copy(["a"])
        columns = pickle.loads(pickle.dumps(self.columns(token="t", token_without_tls=True)))
        self.assertEqual(columns(["a"])["label"].tolist(), ["a"])
        self.assertEqual(self.service.metadata[-1]["authorization"], "Bearer t")
        copy = pickle.loads(pickle.dumps(columns))  # of one that is connected
        self.assertEqual(copy(["a"])["label"].tolist(), ["a"])
        copy.close()
        columns.close()
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "the columns are closed"):
                columns(["a"])

    def test_closing_ends_the_calls(self):
        gate, began = threading.Event(), threading.Event()
        self.addCleanup(gate.set)
        columns = self.columns(answers={"ModelInfer": lambda request: began.set() or gate.wait(60)})
        errors = []

        def call():
            try:
                columns(["a"])
            except sru_inference.CancelledError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        began.wait(30)
        columns.close()
        thread.join(30)
        self.assertEqual(len(errors), 1)

    def test_threads_share_columns(self):
        columns = self.columns()
        found = []
        work = [[f"t{thread}-{row}" for row in range(30)] for thread in range(6)]
        threads = [threading.Thread(target=lambda t=t: found.append(columns(t)["label"].tolist() == t)) for t in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [True] * 6)

    def test_bad_arguments(self):
        for error, arguments, expected in (
            (TypeError, {"adress": "x"}, "adress"),
            (ValueError, {"in_flight": 0}, "in_flight: expected at least 1, found 0"),
            (ValueError, {"rows": -1}, "rows: expected at least 0, found -1"),
            (ValueError, {"timeout": 0}, "timeout: expected more than 0 seconds"),
            (TypeError, {"outputs": "label"}, "outputs: expected a list"),
            (TypeError, {"model": None}, "model: expected a text"),
            (TypeError, {"parameters": {"truncate": []}}, r"parameters\['truncate'\]: expected a bool, a number or a text"),
        ):
            with self.subTest(expected), self.assertRaisesRegex(error, expected):
                sru_inference.Columns(**arguments)

    def test_progress_is_for_terminals(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        for stream, expected in ((Terminal(), r"^\r\d of 9 rows, \d+ rows/s .*\r9 of 9 rows, \d+ rows/s \n$"), (io.StringIO(), "^$")):
            ticks = iter(range(0, 1000, 3))
            columns = self.columns()
            columns(["a"])
            with contextlib.redirect_stderr(stream), unittest.mock.patch.object(
                sys.modules["sru_inference._common"].time, "monotonic", lambda: next(ticks)
            ):
                columns(["a"] * 9)
            self.assertRegex(stream.getvalue(), expected)


if __name__ == "__main__":
    unittest.main()
