"""The server as Triton's HTTP client sees it: /v2 with a client that nobody here wrote, and the same bits as over gRPC.

    triton_http_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import asyncio
import json
import os
import ssl
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import clients_venv

clients_venv.enter("tritonclient.http.aio", "tritonclient.grpc")

sys.path.insert(0, os.path.join(clients_venv.ROOT, "tests", "integration"))

import numpy as np  # noqa: E402
import tritonclient.grpc as triton_grpc  # noqa: E402
import tritonclient.http as triton  # noqa: E402
import tritonclient.http.aio as triton_aio  # noqa: E402
from server_process import Authority, Server  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

TOKEN = "0123456789abcdef0123456789abcdef"
TEXTS = [
    "what is the capital of france ?",
    "who wrote hamlet ?",
    "how many moons does jupiter have ?",
    "why does bread rise in the oven ?",
]


def tensor(name, datatype, values, binary=True, module=triton):
    result = module.InferInput(name, list(values.shape), datatype)
    if module is triton:
        result.set_data_from_numpy(values, binary_data=binary)
    else:
        result.set_data_from_numpy(values)
    return result


def texts(values, binary=True, name="text", module=triton):
    return tensor(name, "BYTES", np.array([value.encode() for value in values], dtype=object), binary, module)


class TritonHttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(
            "--model_control=explicit", "--load_models=trec,war_and_peace", "--caller_limits=highest_priority=high"
        )
        cls.url = "127.0.0.1:%d" % cls.server.http_port
        cls.client = triton.InferenceServerClient(cls.url, concurrency=8)
        cls.grpc = triton_grpc.InferenceServerClient(cls.server.address)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.grpc.close()
        assert cls.server.stop() == 0

    def expect_error(self, status, pattern, call, *args, **kwargs):
        with self.assertRaisesRegex(InferenceServerException, pattern) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.status(), str(status))

    def test_health(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("trec"))
        self.assertTrue(self.client.is_model_ready("trec", "1"))
        self.assertFalse(self.client.is_model_ready("trec", "2"))
        self.assertFalse(self.client.is_model_ready("nope"))

    def test_metadata_config_and_statistics(self):
        self.assertEqual(self.client.get_server_metadata()["name"], "sru_server")
        model = self.client.get_model_metadata("trec")
        self.assertEqual((model["platform"], model["versions"]), ("sru", ["1"]))
        of_grpc = self.grpc.get_model_metadata("trec")
        for kind in ("inputs", "outputs"):
            self.assertEqual(
                [(entry["name"], entry["datatype"], entry["shape"]) for entry in model[kind]],
                [(entry.name, entry.datatype, list(entry.shape)) for entry in getattr(of_grpc, kind)],
            )
        self.assertEqual(self.client.get_model_metadata("trec", "1"), model)
        self.expect_error(404, "'nope' is not loaded", self.client.get_model_metadata, "nope")
        self.expect_error(400, "version: 'one', expected a positive", self.client.get_model_metadata, "trec", "one")
        config = self.client.get_model_config("trec")
        self.assertEqual((config["name"], config["platform"], config["max_batch_size"]), ("trec", "sru", 256))
        self.assertEqual(config["parameters"]["task"]["string_value"], "classifier")
        self.client.infer("trec", [texts(TEXTS)])
        statistics = self.client.get_inference_statistics("trec", "1")["model_stats"]
        self.assertEqual([entry["name"] for entry in statistics], ["trec"])
        self.assertGreaterEqual(statistics[0]["inference_count"], len(TEXTS))
        self.assertGreater(statistics[0]["inference_stats"]["success"]["ns"], 0)
        everything = self.client.get_inference_statistics()["model_stats"]
        self.assertEqual([entry["name"] for entry in everything], ["trec", "war_and_peace"])

    def assert_as_over_grpc(self, model, make_inputs, outputs):
        """Every form of the inputs and outputs has the bits of the other protocol."""
        expected = self.grpc.infer(
            model, make_inputs(True, triton_grpc), outputs=[triton_grpc.InferRequestedOutput(name) for name in outputs]
        )
        for binary_input in (True, False):
            inputs = make_inputs(binary_input, triton)
            for binary_output in (True, False):
                wanted = [triton.InferRequestedOutput(name, binary_data=binary_output) for name in outputs]
                result = self.client.infer(model, inputs, outputs=wanted, request_id="r 1")
                answer = result.get_response()
                self.assertEqual((answer["id"], answer["model_name"], answer["model_version"]), ("r 1", model, "1"))
                self.assertEqual([output["name"] for output in answer["outputs"]], outputs)
                for name in outputs:
                    found, right = result.as_numpy(name), expected.as_numpy(name)
                    if right.dtype == object:
                        as_bytes = [value if isinstance(value, bytes) else value.encode() for value in found]
                        self.assertEqual(as_bytes, list(right))
                    else:
                        self.assertEqual((found.dtype, found.shape), (right.dtype, right.shape))
                        self.assertEqual(found.tobytes(), right.tobytes())

    def test_texts(self):
        odd = TEXTS + ["caf\u00e9 \U0001f600 \"quoted\" \\ \t?"]
        self.assert_as_over_grpc(
            "trec", lambda binary, module: [texts(odd, binary, module=module)], ["label", "logits", "probabilities"]
        )
        self.assert_as_over_grpc("trec", lambda binary, module: [texts(odd, binary, module=module)], ["encoding"])
        self.assert_as_over_grpc(
            "war_and_peace", lambda binary, module: [texts(odd[:4], binary, module=module)], ["log_prob"]
        )

    def test_token_ids_and_features(self):
        ids = np.array([[5, 6, 7, 8], [9, 10, 0, 0]])
        for datatype, kind in (("INT64", np.int64), ("INT32", np.int32)):
            self.assert_as_over_grpc(
                "trec",
                lambda binary, module, datatype=datatype, kind=kind: [
                    tensor("token_ids", datatype, ids.astype(kind), binary, module),
                    tensor("lengths", datatype, np.array([4, 2], dtype=kind), binary, module),
                ],
                ["logits"],
            )
        features = np.random.default_rng(3).standard_normal((2, 3, 128)).astype(np.float32)
        self.assert_as_over_grpc(
            "trec", lambda binary, module: [tensor("features", "FP32", features, binary, module)], ["logits"]
        )

    def test_all_outputs_are_the_default(self):
        result = self.client.infer("trec", [texts(TEXTS)])
        names = {output["name"] for output in result.get_response()["outputs"]}
        self.assertEqual(names, {"probabilities", "logits", "label"})
        self.assertIsNone(result.as_numpy("encoding"))

    def test_nested_json(self):
        """Which the client never sends: arrays as the shape has them."""
        ids = {"name": "token_ids", "shape": [2, 2], "datatype": "INT64"}
        flat = self.post("trec", {"inputs": [{**ids, "data": [5, 6, 7, 8]}]})
        nested = self.post("trec", {"inputs": [{**ids, "data": [[5, 6], [7, 8]]}]})
        self.assertEqual(flat, nested)
        self.assertEqual([output["shape"] for output in flat["outputs"]], [[2, 6], [2, 6], [2]])

    def post(self, model, body, headers=None):
        request = urllib.request.Request(
            "http://%s/v2/models/%s/infer" % (self.url, model),
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def test_wrong_requests(self):
        infer = self.client.infer
        text = texts(TEXTS)
        self.expect_error(404, "'nope' is not loaded", infer, "nope", [text])
        self.expect_error(404, "version", infer, "trec", [text], model_version="7")
        words = texts(TEXTS, name="words")
        self.expect_error(400, "'words' is not an input of 'trec', expected one of text, token_ids", infer, "trec", [words])
        score = triton.InferRequestedOutput("score")
        self.expect_error(400, "'score' is not an output of 'trec'", infer, "trec", [text], outputs=[score])
        floats = np.ones([1, 3], dtype=np.float32)
        for binary in (True, False):
            self.expect_error(
                400,
                "input token_ids: datatype 'FP32', expected INT64 or INT32",
                infer,
                "trec",
                [tensor("token_ids", "FP32", floats, binary)],
            )
            self.expect_error(
                400,
                r"input features: shape \[1, 2, 3\], expected \[batch, length, 128\]",
                infer,
                "trec",
                [tensor("features", "FP32", np.ones([1, 2, 3], dtype=np.float32), binary)],
            )
        short = texts(TEXTS, binary=False)
        short.set_shape([3])
        wrong_count = r"input 'text': data: expected 3 values by the shape \[3\], found 4"
        self.expect_error(400, wrong_count, infer, "trec", [short])
        self.expect_error(400, r"input text\[1\]: no tokens are left", infer, "trec", [texts(["a", " "])])
        self.expect_error(400, "'sequence_[a-z]+' is unknown", infer, "trec", [text], sequence_id=3)
        wrong_class = triton.InferRequestedOutput("probabilities", class_count=2)
        self.expect_error(501, "classification is not supported", infer, "trec", [text], outputs=[wrong_class])
        self.expect_error(400, r"parameters\[priority\]: 9", infer, "trec", [text], priority=9)
        infer("trec", [text], priority=1, timeout=30000000)
        for call in (self.client.get_model_repository_index, lambda: self.client.load_model("trec")):
            self.expect_error(501, "--admin_listen", call)

    def test_deadlines(self):
        """Which are those of the gRPC calls: the header, or the parameter."""
        long_texts = texts([" ".join(TEXTS) * 10] * 16)
        for limit in ({"headers": {"X-Request-Timeout-Ms": "1"}}, {"timeout": 1000}):
            with self.assertRaises(InferenceServerException) as caught:
                for _ in range(100):
                    self.client.infer("war_and_peace", [long_texts], **limit)
            self.assertIn(caught.exception.status(), ("429", "504"))

    def test_async_infer(self):
        expected = self.client.infer("trec", [texts(TEXTS)]).as_numpy("logits")
        waiting = [self.client.async_infer("trec", [texts(TEXTS)]) for _ in range(50)]
        for request in waiting:
            np.testing.assert_array_equal(request.get_result().as_numpy("logits"), expected)
        with self.assertRaisesRegex(InferenceServerException, "'nope' is not loaded"):
            self.client.async_infer("nope", [texts(TEXTS)]).get_result()

    def test_asyncio(self):
        async def run():
            async with triton_aio.InferenceServerClient(self.url) as client:
                self.assertTrue(await client.is_server_live())
                self.assertTrue(await client.is_server_ready())
                self.assertTrue(await client.is_model_ready("trec"))
                self.assertEqual((await client.get_model_metadata("trec"))["platform"], "sru")
                self.assertEqual((await client.get_model_config("trec"))["platform"], "sru")
                self.assertEqual(len((await client.get_inference_statistics())["model_stats"]), 2)
                with self.assertRaisesRegex(InferenceServerException, "'nope' is not loaded"):
                    await client.infer("nope", [texts(TEXTS)])
                return await asyncio.gather(*(client.infer("trec", [texts(TEXTS)]) for _ in range(100)))

        expected = self.client.infer("trec", [texts(TEXTS)]).as_numpy("logits")
        for result in asyncio.run(run()):
            np.testing.assert_array_equal(result.as_numpy("logits"), expected)

    def test_compressed_requests_are_refused(self):
        for algorithm in ("gzip", "deflate"):
            packed = {"request_compression_algorithm": algorithm}
            self.expect_error(415, "Content-Encoding", self.client.infer, "trec", [texts(TEXTS)], **packed)
            # An answer may always come as it is.
            self.client.infer("trec", [texts(TEXTS)], response_compression_algorithm=algorithm)

    def test_calls_are_counted_as_those_over_grpc(self):
        series = 'sru_requests_total{code="OK",method="ModelInfer",model="trec",version="1"}'
        before = self.server.metric(series) or 0
        self.client.infer("trec", [texts(TEXTS)])
        self.server.await_metric(series, before + 1)


class TlsAndTokensTest(unittest.TestCase):
    def test_tls_and_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(folder, "authority")
            certificate, key = authority.issue("server")
            tokens = os.path.join(folder, "tokens")
            with open(tokens, "w", encoding="utf-8") as file:
                file.write("someone %s\n" % TOKEN)
            with Server("--tls_cert=" + certificate, "--tls_key=" + key, "--auth_tokens_file=" + tokens) as server:
                self.check(server, authority.certificate)

    def check(self, server, root):
        url = "localhost:%d" % server.http_port
        headers = {"Authorization": "Bearer " + TOKEN}
        with triton.InferenceServerClient(
            url,
            ssl=True,
            ssl_options={"ca_certs": root},
            ssl_context_factory=lambda: ssl.create_default_context(cafile=root),
        ) as client:
            for wrong in (None, {"Authorization": "Bearer " + TOKEN[::-1]}):
                with self.assertRaises(InferenceServerException) as caught:
                    client.infer("trec", [texts(TEXTS)], headers=wrong)
                self.assertEqual(caught.exception.status(), "401")
            self.assertTrue(client.is_server_ready(headers=headers))
            logits = client.infer("trec", [texts(TEXTS)], headers=headers).as_numpy("logits")

        async def run():
            context = ssl.create_default_context(cafile=root)
            async with triton_aio.InferenceServerClient(url, ssl=True, ssl_context=context) as client:
                return await client.infer("trec", [texts(TEXTS)], headers=headers)

        np.testing.assert_array_equal(asyncio.run(run()).as_numpy("logits"), logits)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
