"""What Triton's clients of gRPC and of HTTP have in common, for the tests of both."""

import contextlib
import tempfile

import numpy as np
from clients_venv import TOKEN, tokens_file
from server_process import Authority, Server
from tritonclient.utils import InferenceServerException

TEXTS = [
    "what is the capital of france ?",
    "who wrote hamlet ?",
    "how many moons does jupiter have ?",
    "why does bread rise in the oven ?",
]
HEADERS = {"authorization": "Bearer " + TOKEN}


def tensor(module, name, datatype, values, **options):
    """An input for a client of this module; `binary_data` is an option of tritonclient.http."""
    result = module.InferInput(name, list(values.shape), datatype)
    result.set_data_from_numpy(values, **options)
    return result


def texts(module, values, name="text", **options):
    array = np.array([value.encode() for value in values], dtype=object)
    return tensor(module, name, "BYTES", array, **options)


@contextlib.contextmanager
def server_with_tls_and_tokens(*flags):
    """(server, path of its authority)"""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder, "authority")
        certificate, key = authority.issue("server")
        tls = "--tls_cert=" + certificate, "--tls_key=" + key
        with Server(*tls, "--auth_tokens_file=" + tokens_file(folder), *flags) as server:
            yield server, authority.certificate


class TritonCases:
    """A subclass has its `client` of `module`, `server`, and says how the client names a code."""

    FLAGS = ["--model_control=explicit", "--load_models=trec,war_and_peace",
             "--caller_limits=highest_priority=high"]  # fmt: skip
    FORMS = [{}]  # the options of inputs
    TIMEOUT_CODES = ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")

    def texts(self, values, **options):
        return texts(self.module, values, **options)

    def tensor(self, name, datatype, values, **options):
        return tensor(self.module, name, datatype, values, **options)

    def expect_error(self, code, pattern, call, *args, **kwargs):
        with self.assertRaisesRegex(InferenceServerException, pattern) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.status(), self.status_of(code))

    def test_health(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        for *model, ready in (("trec", True), ("trec", "1", True), ("trec", "2", False), ("nope", False)):
            self.assertEqual(self.client.is_model_ready(*model), ready, model)

    def test_wrong_requests(self):
        def output(name, **options):
            return {"outputs": [self.module.InferRequestedOutput(name, **options)]}

        wrong_shape = self.texts(TEXTS)
        wrong_shape.set_shape([2, 2])
        floats = np.ones([1, 3], dtype=np.float32)
        features = np.ones([1, 2, 3], dtype=np.float32)
        text = self.texts(TEXTS)
        label_and_encoding = [self.module.InferRequestedOutput(name) for name in ("label", "encoding")]
        for code, pattern, given, options in (
            ("NOT_FOUND", "'nope' is not loaded", text, {"model_name": "nope"}),
            ("NOT_FOUND", "version", text, {"model_version": "7"}),
            ("INVALID_ARGUMENT", "version: 'x'", text, {"model_version": "x"}),
            ("INVALID_ARGUMENT",
             r"inputs\[0\].name: 'words' is not an input of 'trec', expected one of text, token_ids",
             self.texts(TEXTS, name="words"), {}),
            ("INVALID_ARGUMENT",
             r"outputs\[0\].name: 'score' is not an output of 'trec', expected one of probabilities",
             text, output("score")),
            ("INVALID_ARGUMENT", "encoding does not go with label", text, {"outputs": label_and_encoding}),
            ("INVALID_ARGUMENT", r"input text: shape \[2, 2\], expected \[batch\]", wrong_shape, {}),
            *(
                ("INVALID_ARGUMENT", pattern, self.tensor(name, "FP32", values, **form), {})
                for form in self.FORMS
                for pattern, name, values in (
                    ("input token_ids: datatype 'FP32', expected INT64 or INT32", "token_ids", floats),
                    (r"input features: shape \[1, 2, 3\], expected \[batch, length, 128\]", "features", features),
                )
            ),
            ("INVALID_ARGUMENT", r"input token_ids: 1000000 at \[0, 1\] is out of range",
             self.tensor("token_ids", "INT64", np.array([[1, 1000000]])), {}),
            ("INVALID_ARGUMENT", r"input text\[1\]: no tokens are left", self.texts(["a", " "]), {}),
            ("INVALID_ARGUMENT", "'sequence_[a-z]+' is unknown", text, {"sequence_id": 3}),
            ("INVALID_ARGUMENT", r"parameters\[priority\]: 9", text, {"priority": 9}),
            ("UNIMPLEMENTED", "classification is not supported", text,
             output("probabilities", class_count=2)),
        ):
            with self.subTest(pattern):
                given = {"model_name": "trec", "inputs": [given], **options}
                self.expect_error(code, pattern, self.client.infer, **given)

    def test_timeouts(self):
        self.client.infer("trec", [self.texts(TEXTS)], timeout=30000000, priority=1)
        # More than can be computed in that time: the client gives up, unless the server does first.
        long_texts = self.texts([" ".join(TEXTS) * 10] * 16)
        for limit in self.LIMITS:
            with self.assertRaises(InferenceServerException) as caught:
                for _ in range(100):
                    self.client.infer("war_and_peace", [long_texts], **limit)
            codes = [self.status_of(code) for code in self.TIMEOUT_CODES]
            self.assertIn(caught.exception.status(), codes)

    def test_counted_under_its_own_name(self):
        series = 'sru_requests_total{code="OK",method="ModelInfer",model="trec",version="1"}'
        before = self.server.metric(series) or 0
        self.client.infer("trec", [self.texts(TEXTS)])
        self.server.await_metric(series, before + 1)
