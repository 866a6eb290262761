"""The server as Triton's gRPC client sees it: the Open Inference Protocol, with a client that nobody here wrote.

    triton_grpc_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import asyncio
import contextlib
import io
import json
import os
import queue
import re
import subprocess
import sys
import unittest

import clients_venv

clients_venv.enter("tritonclient.grpc.aio")

import numpy as np  # noqa: E402
import server_process  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
import tritonclient.grpc.aio as triton_aio  # noqa: E402
from server_process import Server  # noqa: E402
from triton_cases import HEADERS, TEXTS, TritonCases, server_with_tls_and_tokens, texts  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402


def sru_client(server, *args):
    """What sru_client prints with --json, an object a line."""
    result = subprocess.run(
        [server_process.CLIENT, args[0], "--address=" + server.address, "--json", *args[1:]],
        check=True,
        capture_output=True,
        text=True,
    )
    return [json.loads(line) for line in result.stdout.splitlines()]


class TritonTest(TritonCases, unittest.TestCase):
    module = triton
    LIMITS = [{"client_timeout": 0.002}, {"timeout": 2000}]

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--admin_listen=127.0.0.1:0", *cls.FLAGS)
        cls.client = triton.InferenceServerClient(cls.server.address)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def status_of(self, code):
        return "StatusCode." + code

    def classify(self, texts):
        """float32 values by text and label, as sru.v1 gives them."""
        answers = sru_client(self.server, "classify", "--model=trec", "--top_k=0", *texts)
        rows = []
        for answer in answers:
            by_name = {label["name"]: label for label in answer["labels"]}
            rows.append([by_name[name] for name in self.labels()])
        return [
            np.array([[label[kind] for label in row] for row in rows], dtype=np.float32)
            for kind in ("probability", "logit")
        ]

    def labels(self):
        config = self.client.get_model_config("trec", as_json=True)["config"]
        return config["parameters"]["labels"]["string_value"].split("\n")

    def test_health_of_the_service(self):
        self.expect_error("INVALID_ARGUMENT", "version: 'one', expected a positive", self.client.is_model_ready, "trec", "one")
        # As any health checker sees the service.
        service = b"inference.GRPCInferenceService"
        with self.server.channel() as channel:
            health = server_process.call(channel, server_process.HEALTH, bytes([0x0A, len(service)]) + service)
        self.assertEqual(health.body, b"\x08\x01")

    def test_the_example_of_the_documentation(self):
        with open(os.path.join(clients_venv.ROOT, "docs", "open_inference.md"), encoding="utf-8") as page:
            example = re.search(r"```python\n(.*?)```", page.read(), re.DOTALL).group(1)
        expected = re.search(r"# (\[b'.*)$", example, re.MULTILINE).group(1)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(example.replace("localhost:50051", self.server.address), {})
        self.assertEqual(printed.getvalue().strip(), expected)

    def test_metadata(self):
        server = self.client.get_server_metadata()
        self.assertEqual(server.name, "sru_server")
        self.assertIn("statistics", server.extensions)
        model = self.client.get_model_metadata("trec", as_json=True)
        self.assertEqual(model["platform"], "sru")
        self.assertEqual(model["versions"], ["1"])
        inputs = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in model["inputs"]}
        outputs = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in model["outputs"]}
        self.assertEqual(
            inputs,
            {
                "text": ("BYTES", ["-1", "1"]),
                "token_ids": ("INT64", ["-1", "-1"]),
                "features": ("FP32", ["-1", "-1", "128"]),
                "lengths": ("INT64", ["-1", "1"]),
            },
        )
        self.assertEqual(list(outputs), ["probabilities", "logits", "label", "label_ids"])
        self.assertEqual(outputs["probabilities"], ("FP32", ["-1", "6"]))
        self.assertEqual(outputs["label"], ("BYTES", ["-1"]))
        language_model = self.client.get_model_metadata("war_and_peace")
        self.assertEqual([tensor.name for tensor in language_model.outputs], ["log_prob"])
        self.expect_error("NOT_FOUND", "'nope' is not loaded", self.client.get_model_metadata, "nope")

    def test_config(self):
        config = self.client.get_model_config("trec").config
        self.assertEqual((config.platform, config.backend), ("sru", "cpu"))
        self.assertEqual(config.max_batch_size, 1024)
        self.assertEqual(list(config.version_policy.specific.versions), [1])
        self.assertEqual(config.parameters["task"].string_value, "classifier")
        self.assertEqual([tensor.name for tensor in config.input if not tensor.optional], [])
        self.assertEqual([list(tensor.dims) for tensor in config.input], [[1], [-1], [-1, 128], [1]])
        self.assertEqual(config.output[0].dims, [6])
        self.assertGreater(config.instance_group[0].count, 0)
        self.assertFalse(config.model_transaction_policy.decoupled)

    def test_infer_has_the_bits_of_classify(self):
        probabilities, logits = self.classify(TEXTS)
        result = self.client.infer("trec", [self.texts(TEXTS)], request_id="r 1")
        self.assertEqual(result.get_response().id, "r 1")
        self.assertEqual(result.get_response().model_version, "1")
        np.testing.assert_array_equal(result.as_numpy("probabilities"), probabilities)
        np.testing.assert_array_equal(result.as_numpy("logits"), logits)
        expected = [self.labels()[index].encode() for index in probabilities.argmax(axis=1)]
        self.assertEqual(list(result.as_numpy("label")), expected)
        only = self.client.infer("trec", [self.texts(TEXTS)], outputs=[triton.InferRequestedOutput("label")])
        self.assertIsNone(only.as_numpy("logits"))
        self.assertEqual(list(only.as_numpy("label")), expected)

    def test_token_ids_and_features(self):
        ids = np.array([[5, 6, 7, 8], [9, 10, 0, 0]])
        lengths = np.array([4, 2])
        alone = [
            self.client.infer("trec", [self.tensor("token_ids", "INT64", row[None, :length])]).as_numpy("logits")[0]
            for row, length in zip(ids, lengths)
        ]
        for datatype, kind in (("INT64", np.int64), ("INT32", np.int32)):
            result = self.client.infer(
                "trec",
                [
                    self.tensor("lengths", datatype, lengths.astype(kind)),
                    self.tensor("token_ids", datatype, ids.astype(kind)),
                ],
            )
            np.testing.assert_array_equal(result.as_numpy("logits"), np.array(alone))
        features = np.linspace(-1, 1, 2 * 3 * 128, dtype=np.float32).reshape(2, 3, 128)
        both = self.client.infer("trec", [self.tensor("features", "FP32", features)])
        one = self.client.infer("trec", [self.tensor("features", "FP32", features[1:])])
        np.testing.assert_array_equal(both.as_numpy("logits")[1:], one.as_numpy("logits"))

    def test_encoding_and_log_prob(self):
        result = self.client.infer("trec", [self.texts(TEXTS)], outputs=[triton.InferRequestedOutput("encoding")])
        encoded = sru_client(self.server, "encode", "--model=trec", *TEXTS)
        expected = np.array([answer["values"] for answer in encoded], dtype=np.float32)
        np.testing.assert_array_equal(result.as_numpy("encoding"), expected)
        scored = sru_client(self.server, "score", "--model=war_and_peace", *TEXTS)
        result = self.client.infer("war_and_peace", [self.texts(TEXTS)])
        self.assertEqual(result.as_numpy("log_prob").dtype, np.float64)
        np.testing.assert_array_equal(result.as_numpy("log_prob"), [answer["log_prob"] for answer in scored[:-1]])

    def test_typed_contents(self):
        """Which the client itself never sends: its stubs do."""
        with self.server.channel() as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.ModelInferRequest(model_name="trec")
            tensor = request.inputs.add(name="text", datatype="BYTES", shape=[len(TEXTS)])
            tensor.contents.bytes_contents.extend(text.encode() for text in TEXTS)
            answer = stub.ModelInfer(request)
            raw = self.client.infer("trec", [self.texts(TEXTS)]).get_response()
            self.assertEqual(answer, raw)
            del request.inputs[:]
            tensor = request.inputs.add(name="token_ids", datatype="INT64", shape=[1, 2])
            tensor.contents.int64_contents.extend([5, 6])
            ids = stub.ModelInfer(request)
            tensor.datatype = "INT32"
            tensor.contents.Clear()
            tensor.contents.int_contents.extend([5, 6])
            self.assertEqual(stub.ModelInfer(request), ids)

    def test_what_triton_alone_has(self):
        for call in (
            self.client.get_system_shared_memory_status,
            self.client.get_cuda_shared_memory_status,
            self.client.get_trace_settings,
            self.client.get_log_settings,
        ):
            self.expect_error("UNIMPLEMENTED", "this server has no shared memory, traces or log settings", call)

    def test_statistics(self):
        before = self.client.get_inference_statistics("trec").model_stats[0]
        self.client.infer("trec", [self.texts(TEXTS)])
        self.client.infer("trec", [self.texts(TEXTS[:1])])
        after = self.client.get_inference_statistics("trec", "1").model_stats[0]
        self.assertEqual(after.inference_count - before.inference_count, len(TEXTS) + 1)
        self.assertEqual(after.execution_count - before.execution_count, 2)
        self.assertEqual(after.inference_stats.success.count - before.inference_stats.success.count, 2)
        self.assertGreater(after.inference_stats.compute_infer.ns, before.inference_stats.compute_infer.ns)
        everything = self.client.get_inference_statistics()
        self.assertEqual([model.name for model in everything.model_stats], ["trec", "war_and_peace"])
        self.expect_error("NOT_FOUND", "'nope' is not loaded", self.client.get_inference_statistics, "nope")

    def test_async_callback(self):
        answers = queue.Queue()
        self.client.async_infer("trec", [self.texts(TEXTS)], lambda result, error: answers.put((result, error)))
        result, error = answers.get(timeout=30)
        self.assertIsNone(error)
        self.assertEqual(result.as_numpy("label").shape, (4,))

    def test_stream(self):
        answers = queue.Queue()
        self.client.start_stream(lambda result, error: answers.put((result, error)))
        count = 50
        for i in range(count):
            self.client.async_stream_infer(
                "nope" if i == 20 else "trec", [self.texts(TEXTS[: i % 4 + 1])], request_id=str(i)
            )
        for i in range(count):
            result, error = answers.get(timeout=30)
            if i == 20:
                self.assertIn("'nope' is not loaded", error.message())
                continue
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, str(i))
            self.assertEqual(result.as_numpy("logits").shape, (i % 4 + 1, 6))
        self.client.stop_stream()
        self.server.await_metric("sru_open_streams", 0)

    def test_asyncio(self):
        async def run():
            async with triton_aio.InferenceServerClient(self.server.address) as client:
                self.assertTrue(await client.is_server_ready())
                self.assertTrue(await client.is_model_ready("trec"))
                results = await asyncio.gather(*(client.infer("trec", [self.texts(TEXTS)]) for _ in range(100)))
                with self.assertRaisesRegex(InferenceServerException, "'nope' is not loaded"):
                    await client.infer("nope", [self.texts(TEXTS)])

                async def requests():
                    for i in range(20):
                        yield {"model_name": "trec", "inputs": [self.texts(TEXTS)], "request_id": str(i)}

                ids = []
                async for result, error in client.stream_infer(requests()):
                    self.assertIsNone(error)
                    ids.append(int(result.get_response().id))
                return results, ids

        results, ids = asyncio.run(run())
        expected = self.client.infer("trec", [self.texts(TEXTS)]).as_numpy("logits")
        for result in results:
            np.testing.assert_array_equal(result.as_numpy("logits"), expected)
        self.assertEqual(ids, list(range(20)))

    def test_repository(self):
        """On the port of --admin_listen only, whose other port has no such calls."""
        self.expect_error(
            "UNIMPLEMENTED", "the model repository is on the port of --admin_listen", self.client.get_model_repository_index
        )
        with triton.InferenceServerClient("localhost:%d" % self.server.port_of("admin")) as admin:
            models = {(model.name, model.version): model.state for model in admin.get_model_repository_index().models}
            self.assertEqual(models, {("trec", "1"): "READY", ("war_and_peace", "1"): "READY"})
            admin.unload_model("war_and_peace")
            self.assertFalse(self.client.is_model_ready("war_and_peace"))
            admin.load_model("war_and_peace")
            self.assertTrue(self.client.is_model_ready("war_and_peace"))
            self.expect_error("NOT_FOUND", "nope", admin.load_model, "nope")
            self.expect_error("INVALID_ARGUMENT", "parameters: 'config'", admin.load_model, "trec", config="{}")
            self.expect_error("UNIMPLEMENTED", "on the port of --listen", admin.infer, "trec", [self.texts(TEXTS)])

    def test_compression_is_refused(self):
        self.expect_error(
            "UNIMPLEMENTED", "'gzip' is disabled", self.client.infer, "trec", [self.texts(TEXTS)], compression_algorithm="gzip"
        )


class OtherServersTest(unittest.TestCase):
    def test_compression_tls_and_tokens(self):
        with server_with_tls_and_tokens("--allow_compression") as (server, root):
            self.check(server, root)

    def check(self, server, root):
        with triton.InferenceServerClient(server.address, ssl=True, root_certificates=root) as client:
            self.assertTrue(client.is_server_live())  # probes need no token
            with self.assertRaisesRegex(InferenceServerException, "UNAUTHENTICATED"):
                client.infer("trec", [texts(triton, TEXTS)])
            plain = client.infer("trec", [texts(triton, TEXTS)], headers=HEADERS)
            for algorithm in ("gzip", "deflate"):
                packed = client.infer(
                    "trec", [texts(triton, TEXTS * 20)], headers=HEADERS, compression_algorithm=algorithm
                )
                np.testing.assert_array_equal(packed.as_numpy("logits")[:4], plain.as_numpy("logits"))
            answers = queue.Queue()
            client.start_stream(lambda result, error: answers.put((result, error)), headers=HEADERS)
            client.async_stream_infer("trec", [texts(triton, TEXTS)])
            result, error = answers.get(timeout=30)
            self.assertIsNone(error)
            np.testing.assert_array_equal(result.as_numpy("logits"), plain.as_numpy("logits"))
            client.stop_stream()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
