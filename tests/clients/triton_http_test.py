"""The server as Triton's HTTP client sees it: /v2 with a client that nobody here wrote, and the same bits as over gRPC.

    triton_http_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import asyncio
import json
import ssl
import sys
import unittest
import urllib.request

import clients_venv

clients_venv.enter("tritonclient.http.aio", "tritonclient.grpc")

import numpy as np  # noqa: E402
import tritonclient.grpc as triton_grpc  # noqa: E402
import tritonclient.http as triton  # noqa: E402
import tritonclient.http.aio as triton_aio  # noqa: E402
from server_process import Server  # noqa: E402
from triton_cases import HEADERS, TEXTS, TritonCases, server_with_tls_and_tokens, tensor, texts  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402


class TritonHttpTest(TritonCases, unittest.TestCase):
    module = triton
    FORMS = [{"binary_data": True}, {"binary_data": False}]
    LIMITS = [{"headers": {"X-Request-Timeout-Ms": "1"}}, {"timeout": 1000}]  # the deadlines of gRPC's calls

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS)
        cls.url = "127.0.0.1:%d" % cls.server.http_port
        cls.client = triton.InferenceServerClient(cls.url, concurrency=8)
        cls.grpc = triton_grpc.InferenceServerClient(cls.server.address)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.grpc.close()
        assert cls.server.stop() == 0

    def status_of(self, code):
        statuses = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400, "UNIMPLEMENTED": 501,
                    "RESOURCE_EXHAUSTED": 429, "DEADLINE_EXCEEDED": 504}  # fmt: skip
        return str(statuses[code])

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
        self.expect_error("NOT_FOUND", "'nope' is not loaded", self.client.get_model_metadata, "nope")
        self.expect_error("INVALID_ARGUMENT", "version: 'one', expected a positive", self.client.get_model_metadata, "trec", "one")
        config = self.client.get_model_config("trec")
        self.assertEqual((config["name"], config["platform"], config["max_batch_size"]), ("trec", "sru", 1024))
        self.assertEqual(config["parameters"]["task"]["string_value"], "classifier")
        self.client.infer("trec", [self.texts(TEXTS)])
        statistics = self.client.get_inference_statistics("trec", "1")["model_stats"]
        self.assertEqual([entry["name"] for entry in statistics], ["trec"])
        self.assertGreaterEqual(statistics[0]["inference_count"], len(TEXTS))
        self.assertGreater(statistics[0]["inference_stats"]["success"]["ns"], 0)
        everything = self.client.get_inference_statistics()["model_stats"]
        self.assertEqual([entry["name"] for entry in everything], ["trec", "war_and_peace"])

    def assert_as_over_grpc(self, model, outputs, *inputs):
        """Every form of the inputs and outputs has the bits of the other protocol. inputs: (name, type, values)."""
        expected = self.grpc.infer(
            model,
            [tensor(triton_grpc, *given) for given in inputs],
            outputs=[triton_grpc.InferRequestedOutput(name) for name in outputs],
        )
        for form in self.FORMS:
            for output_form in self.FORMS:
                wanted = [triton.InferRequestedOutput(name, **output_form) for name in outputs]
                given = [self.tensor(*one, **form) for one in inputs]
                result = self.client.infer(model, given, outputs=wanted, request_id="r 1")
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
        odd = np.array([text.encode() for text in (*TEXTS, "caf\u00e9 \U0001f600 \"quoted\" \\ \t?")], dtype=object)
        for model, outputs, given in (("trec", ["label", "logits", "probabilities"], odd), ("trec", ["encoding"], odd),
                                      ("war_and_peace", ["log_prob"], odd[:4])):  # fmt: skip
            self.assert_as_over_grpc(model, outputs, ("text", "BYTES", given))

    def test_token_ids_and_features(self):
        for datatype, kind in (("INT64", np.int64), ("INT32", np.int32)):
            ids, lengths = np.array([[5, 6, 7, 8], [9, 10, 0, 0]], dtype=kind), np.array([4, 2], dtype=kind)
            self.assert_as_over_grpc("trec", ["logits"], ("token_ids", datatype, ids), ("lengths", datatype, lengths))
        features = np.random.default_rng(3).standard_normal((2, 3, 128)).astype(np.float32)
        self.assert_as_over_grpc("trec", ["logits"], ("features", "FP32", features))

    def test_all_outputs_are_the_default(self):
        result = self.client.infer("trec", [self.texts(TEXTS)])
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

    def post(self, model, body):
        request = urllib.request.Request(
            "http://%s/v2/models/%s/infer" % (self.url, model),
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def test_wrong_requests_of_json(self):
        short = self.texts(TEXTS, binary_data=False)
        short.set_shape([3])
        wrong_count = r"input 'text': data: expected 3 values by the shape \[3\], found 4"
        self.expect_error("INVALID_ARGUMENT", wrong_count, self.client.infer, "trec", [short])
        for call in (self.client.get_model_repository_index, lambda: self.client.load_model("trec")):
            self.expect_error("UNIMPLEMENTED", "--admin_listen", call)

    def test_async_infer(self):
        expected = self.client.infer("trec", [self.texts(TEXTS)]).as_numpy("logits")
        waiting = [self.client.async_infer("trec", [self.texts(TEXTS)]) for _ in range(50)]
        for request in waiting:
            np.testing.assert_array_equal(request.get_result().as_numpy("logits"), expected)
        with self.assertRaisesRegex(InferenceServerException, "'nope' is not loaded"):
            self.client.async_infer("nope", [self.texts(TEXTS)]).get_result()

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
                    await client.infer("nope", [self.texts(TEXTS)])
                return await asyncio.gather(*(client.infer("trec", [self.texts(TEXTS)]) for _ in range(100)))

        expected = self.client.infer("trec", [self.texts(TEXTS)]).as_numpy("logits")
        for result in asyncio.run(run()):
            np.testing.assert_array_equal(result.as_numpy("logits"), expected)

    def test_compressed_requests(self):
        expected = self.client.infer("trec", [self.texts(TEXTS)]).as_numpy("logits")
        for algorithm in ("gzip", "deflate"):
            packed = {"request_compression_algorithm": algorithm}
            for form in self.FORMS:
                result = self.client.infer("trec", [self.texts(TEXTS, **form)], **packed)
                np.testing.assert_array_equal(result.as_numpy("logits"), expected)
            # An answer may always come as it is.
            self.client.infer("trec", [self.texts(TEXTS)], response_compression_algorithm=algorithm)


class TlsAndTokensTest(unittest.TestCase):
    def test_tls_and_tokens(self):
        with server_with_tls_and_tokens() as (server, root):
            self.check(server, root)

    def check(self, server, root):
        url = "localhost:%d" % server.http_port
        with triton.InferenceServerClient(
            url,
            ssl=True,
            ssl_options={"ca_certs": root},
            ssl_context_factory=lambda: ssl.create_default_context(cafile=root),
        ) as client:
            for wrong in (None, {"authorization": HEADERS["authorization"] + "2"}):
                with self.assertRaises(InferenceServerException) as caught:
                    client.infer("trec", [texts(triton, TEXTS)], headers=wrong)
                self.assertEqual(caught.exception.status(), "401")
            self.assertTrue(client.is_server_ready(headers=HEADERS))
            logits = client.infer("trec", [texts(triton, TEXTS)], headers=HEADERS).as_numpy("logits")

        async def run():
            context = ssl.create_default_context(cafile=root)
            async with triton_aio.InferenceServerClient(url, ssl=True, ssl_context=context) as client:
                return await client.infer("trec", [texts(triton, TEXTS)], headers=HEADERS)

        np.testing.assert_array_equal(asyncio.run(run()).as_numpy("logits"), logits)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
