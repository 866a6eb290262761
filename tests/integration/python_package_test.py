"""The Python package against the real server: every call, both clients, streams, large answers, TLS, tokens,
overload, servers that go away, and the lines of its README.

    python_package_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import asyncio
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import struct
import sys
import tempfile
import unittest

import numpy as np
from server_process import PYTHON_CLIENT, REPOSITORY, TOKEN, Authority, Server

import sru_inference
from sru_inference import aio

sys.path.append(os.path.join(PYTHON_CLIENT, "tests"))
from client_test import answer, translate  # noqa: E402
from fake_service import FakeService  # noqa: E402

QUESTIONS = ["How many moons does Jupiter have ?", "Who wrote Hamlet ?"]


def write_frames_model(repository):
    """A unidirectional encoder of frames of 4 values, with random weights."""
    folder = os.path.join(repository, "frames", "1")
    os.makedirs(folder)
    generator = np.random.default_rng(1)
    tensors = {
        "encoder.rnn_lst.0.weight": generator.standard_normal((4, 24)),
        "encoder.rnn_lst.0.weight_c": generator.standard_normal(12),
        "encoder.rnn_lst.0.bias": generator.standard_normal(12),
        "encoder.rnn_lst.0.scale_x": np.ones(1),
    }
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    config = {"format_version": 1, "encoder": {"input_size": 4, "hidden_size": 6, "num_layers": 1}, "pooling": "none"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


class PlainServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.repository = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.repository.cleanup)
        for name in ("trec", "war_and_peace"):
            shutil.copytree(os.path.join(REPOSITORY, name), os.path.join(cls.repository.name, name))
        write_frames_model(cls.repository.name)
        cls.server = Server("--model_repository=" + cls.repository.name)
        cls.addClassCleanup(cls.server.stop)
        cls.client = sru_inference.Client(cls.server.address)
        cls.addClassCleanup(cls.client.close)

    def test_classify(self):
        response = self.client.classify(QUESTIONS, model="trec", request_id="call-1")
        self.assertEqual([result.label for result in response], ["NUM", "HUM"])
        self.assertEqual((response.model, response.version, response.request_id), ("trec", 1, "call-1"))
        self.assertAlmostEqual(float(response[0].probabilities.sum()), 1, 5)
        self.assertEqual((len(response[0].labels), response[0].unknown_tokens), (6, 2))
        self.assertGreater(response.times.total_us, 0)
        empty = self.client.classify(["", QUESTIONS[1]], model="trec", skip_empty=True)
        self.assertEqual([result.label for result in empty], ["", "HUM"])

    def test_encode(self):
        exact = self.client.encode(QUESTIONS, model="trec").array()
        self.assertEqual((exact.shape, exact.dtype), ((2, 128), np.float32))
        for precision, tolerance in (("float16", 1e-3), ("bfloat16", 8e-3)):
            found = self.client.encode(QUESTIONS, model="trec", precision=precision).array()
            np.testing.assert_allclose(found, exact, rtol=tolerance, atol=1e-6)
            self.assertFalse(np.array_equal(found, exact))
        lengths = np.linalg.norm(self.client.encode(QUESTIONS, model="trec", normalize=True).array(), axis=1)
        np.testing.assert_allclose(lengths, 1, rtol=1e-6)
        last = self.client.encode(QUESTIONS[:1], model="trec", pooling="none")[0]
        self.assertEqual(last.values.shape, (last.token_count, 128))

    def test_token_vectors_beyond_four_mebibytes(self):
        ids = np.random.default_rng(2).integers(0, 1000, (10, 1000))
        response = self.client.encode(ids, model="trec", pooling="none", timeout=60)
        self.assertEqual(response.array().nbytes, 10 * 1000 * 128 * 4)

    def test_a_stream_gives_the_bits_of_the_whole(self):
        frames = np.random.default_rng(3).standard_normal((50, 4)).astype(np.float32)
        whole = self.client.encode([frames], model="frames")[0].values
        self.assertEqual(whole.shape, (50, 6))
        items = list(self.client.encode_stream([frames[:1], frames[1:30]], model="frames", return_state=True))
        rest = list(self.client.encode_stream(iter([frames[30:]]), model="frames", state=items[-1].state))
        found = np.concatenate([item.values for item in items[:2] + rest])
        self.assertEqual(found.tobytes(), whole.tobytes())

        async def stream():
            async with aio.Client(self.server.address) as client:
                return [item.values async for item in client.encode_stream(np.split(frames, [7, 20]), model="frames")]

        self.assertEqual(np.concatenate(asyncio.run(stream())).tobytes(), whole.tobytes())

    def test_score_in_pieces(self):
        text = "Pierre smiled."
        whole, ids = self.client.score([text, np.array([1, 2])], token_log_probs=True, top_candidates=2, token_texts=True)
        self.assertEqual(whole.token_texts, tuple(text))
        self.assertEqual((whole.token_count, whole.scored_count, ids.scored_count), (14, 13, 1))
        self.assertEqual([len(candidates) for candidates in whole.candidates], [2] * 13)
        self.assertEqual(whole.candidates[11][0].text, "d")
        state, log_probs = b"", []
        for piece in (text[:1], text[1:9], text[9:]):
            scored = self.client.score([piece], states=[state], return_states=True, token_log_probs=True)[0]
            state = scored.state
            log_probs += scored.token_log_probs.tolist()
        self.assertEqual(log_probs, whole.token_log_probs.tolist())

    def test_generate(self):
        arguments = {"sampling": {"temperature": 0.9, "seed": 5}, "return_state": True, "token_log_probs": True}
        pieces = list(self.client.generate("Prince Andrew", max_new_tokens=30, **arguments))
        self.assertEqual((pieces[-1].finish_reason, pieces[-1].generated_tokens), ("length", 30))
        text = "".join(piece.text for piece in pieces)
        begin = list(self.client.generate("Prince Andrew", max_new_tokens=10, **arguments))
        rest = self.client.generate(state=begin[-1].state, max_new_tokens=20, **arguments)
        self.assertEqual("".join(piece.text for piece in itertools.chain(begin, rest)), text)

        async def samples():
            async with aio.Client(self.server.address) as client:
                texts = ["", "", ""]
                async for piece in client.generate("Prince Andrew", max_new_tokens=30, num_samples=3, **arguments):
                    texts[piece.sample] += piece.text
                return texts

        texts = asyncio.run(samples())
        self.assertEqual(texts[0], text)
        self.assertEqual(len(set(texts)), 3)

    def test_lists_of_any_length(self):
        texts = QUESTIONS * 1100
        found = self.client.classify(texts, model="trec", top_k=1, timeout=60)
        self.assertEqual([one.label for one in found], ["NUM", "HUM"] * 1100)
        with self.assertRaisesRegex(sru_inference.InvalidArgumentError, r"sequences\[2199\]\.text: no tokens"):
            self.client.classify([*texts[:-1], " "], model="trec", timeout=60)
        tokens = self.client.encode([np.arange(1, 1001)] * 100, model="trec", timeout=60)  # too many tokens for a call
        self.assertEqual((tokens.array().shape, {one.token_count for one in tokens}), ((100, 128), {1000}))

        async def classify():
            async with aio.Client(self.server.address) as client:
                return [one.label for one in await client.classify(texts, model="trec", timeout=60)]

        self.assertEqual(asyncio.run(classify()), ["NUM", "HUM"] * 1100)

    def test_columns(self):
        texts = [f"{question} {row % 7}" for row, question in enumerate(QUESTIONS * 700)]
        texts[5], texts[1300], texts[1301], texts[9] = None, " ", "", "why " * 25_000
        sent = [row for row, text in enumerate(texts) if text and text.strip()]
        wanted = self.client.classify([texts[row] for row in sent], model="trec", truncate=True, timeout=60)
        parameters = {"truncate": True}
        address = self.server.address
        with sru_inference.Columns(address, model="trec", outputs=["label", "logits"], parameters=parameters) as columns:
            found = columns(texts)
        self.assertEqual(found["label"][sent].tolist(), [one.label for one in wanted])
        self.assertEqual(found["label"][[5, 1300, 1301]].tolist(), [None] * 3)
        self.assertEqual(np.isnan(found["logits"]).any(axis=1).nonzero()[0].tolist(), [5, 1300, 1301])
        logits = {label.name: label.logit for label in wanted[0].labels}
        self.assertEqual(found["logits"][0].tolist(), [logits[name] for name in self.client.model("trec").labels])
        parameters = {"pooling": "none"}
        with sru_inference.Columns(address, model="trec", outputs=["encoding"], parameters=parameters) as columns:
            found = columns([*QUESTIONS, None, ""])["encoding"]
        wanted = self.client.encode(QUESTIONS, model="trec", pooling="none")
        self.assertEqual([one.tobytes() for one in found[:2]], [one.values.tobytes() for one in wanted])
        self.assertEqual(found[2:].tolist(), [None, None])
        with sru_inference.Columns(address, model="war_and_peace", outputs=["log_prob"]) as columns:
            found = columns(["Pierre smiled.", None, ""])["log_prob"]
        self.assertEqual((found[0], np.isnan(found[1:]).tolist()), (self.client.score(["Pierre smiled."])[0].log_prob, [True] * 2))

    def test_tokens_and_unknown_ones(self):
        text = "Pierre smiled."
        found = self.client.tokenize([text], model="war_and_peace")
        self.assertEqual([(text[one.start_char : one.end_char], one.text) for one in found[0].tokens], [(c, c) for c in text])
        ids = [token.id for token in found[0].tokens]
        self.assertEqual(list(self.client.detokenize([ids, ids[:6]], model="war_and_peace")), [text, "Pierre"])
        with self.assertRaises(sru_inference.InvalidArgumentError):
            self.client.score(['"Yes"'], unknown="refuse")
        skipped = self.client.score(['"Yes"'], unknown="skip")[0]
        self.assertEqual((skipped.token_count, skipped.unknown_tokens), (3, 2))
        self.assertEqual(skipped.log_prob, self.client.score(["Yes"])[0].log_prob)
        last = list(self.client.generate('"Yes', max_new_tokens=2, unknown="skip"))[-1]
        self.assertEqual((last.prompt_tokens, last.unknown_tokens), (3, 1))

    def test_errors(self):
        with self.assertRaisesRegex(sru_inference.NotFoundError, "'absent' is not loaded") as raised:
            self.client.classify(QUESTIONS, model="absent", request_id="call-2")
        self.assertEqual(raised.exception.request_id, "call-2")
        with self.assertRaisesRegex(sru_inference.FailedPreconditionError, "classifier"):
            self.client.score(["a"], model="trec")
        with self.assertRaisesRegex(
            sru_inference.InvalidArgumentError, r"sequences\[1\].features.feature_size: expected 4 .* found 3"
        ):
            self.client.encode([np.zeros((2, 4)), np.zeros((2, 3))], model="frames")
        with self.assertRaisesRegex(sru_inference.FailedPreconditionError, "unidirectional"):
            list(self.client.encode_stream(["a"], model="trec"))
        with self.assertRaises(sru_inference.UnimplementedError):
            self.client.load_model("trec")

    def test_questions_about_the_server(self):
        self.client.wait_ready(30)
        self.assertEqual(self.client.health(), "SERVING")
        models = self.client.models()
        self.assertEqual(
            [(model.name, model.task) for model in models.models],
            [("frames", "encoder"), ("trec", "classifier"), ("war_and_peace", "language_model")],
        )
        self.assertEqual({status.state for status in models.statuses}, {"READY"})
        self.assertEqual(self.client.model("trec").labels[0], "DESC")

    def test_the_readme(self):
        """Every block of code; a reader and a translator are played, since none is bundled."""
        with open(os.path.join(PYTHON_CLIENT, "README.md"), encoding="utf-8") as file:
            readme = file.read()
        self.assertIn("pip install ./client/python", readme[: readme.index("```python")])
        blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        self.assertEqual(blocks[0].count("\n"), 4)
        printed = []
        service = FakeService(Answer=answer, Translate=translate)
        self.addCleanup(service.stop)
        names = {}
        with Server() as server:  # the bundled models, as the README has it
            for block in blocks:
                played = "client.answer(" in block or "client.translate(" in block
                client = names.get("client")
                if played:
                    names["client"] = sru_inference.Client(service.address)
                    self.addCleanup(names["client"].close)
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(compile(block.replace("localhost:50051", server.address), "README.md", "exec"), names)
                printed.append(output.getvalue())
                if played:
                    names["client"] = client
            names["client"].close()
        self.assertRegex(printed[0], r"^NUM [01]\.\d+\n$")
        self.assertEqual(
            printed[3:5], ["2.0 H\n", "A DOG RUNS.\nA SHIP SAILS PAST THE OLD LIGHTHOUSE.\n-0.5 A DOG RUNS. []\n"]
        )
        self.assertRegex(printed[5], r"^\['HUM', '[A-Z]+'\]\n")
        self.assertRegex(printed[6], "^model: 'absent' is not loaded; loaded: .* my-call-1\n$")
        self.assertEqual(printed[7], "['HUM' None None 'LOC']\n(4, 6)\n")


class SeveralServersTest(unittest.TestCase):
    def start(self, *flags):
        servers = [Server(*flags), Server(*flags)]
        for server in servers:
            self.addCleanup(server.stop)
        return servers, [f"127.0.0.1:{server.port}" for server in servers]

    def test_calls_outlive_a_server(self):
        servers, addresses = self.start()
        with sru_inference.Client(addresses) as client:
            for calls in range(300):
                if calls == 100:
                    servers[0].process.kill()
                self.assertEqual(client.classify(QUESTIONS[1:])[0].label, "HUM")

    def test_a_text_goes_on_when_its_server_shuts_down(self):
        flags = ("--drain_timeout_s=0.05", "--max_new_tokens=10000")
        servers, addresses = self.start(*flags)
        arguments = {
            "prompt": "Prince Andrew",
            "sampling": {"temperature": 0.9, "seed": 5},
            "max_new_tokens": 10000,
            "return_state": True,
        }

        def finish(pieces):
            ids, text = [], ""
            for piece in pieces:
                ids += piece.token_ids.tolist()
                text += piece.text
            return ids, text, piece.state, piece.generated_tokens

        with sru_inference.Client(addresses[1]) as alone:
            whole = finish(alone.generate(**arguments))
        self.assertEqual(whole[3], 10000)

        async def finish_async(address, begun):
            async with aio.Client(address) as client:
                pieces = client.generate(**arguments)
                found = [await pieces.__anext__()]
                begun.set()
                async for piece in pieces:
                    found.append(piece)
                return finish(found)

        with sru_inference.Client(addresses) as client:
            # The calls go in turn to the servers that the channel has a connection to, which is one at first.
            texts, begun = [], []
            while not servers[0].metric("sru_open_streams"):
                self.assertLess(len(texts), 50, "no text came to the first server")
                texts.append(client.generate(**arguments))
                begun.append(next(texts[-1]))

            async def main():
                event = asyncio.Event()
                # Of the first server alone, then of both.
                task = asyncio.ensure_future(finish_async(addresses, event))
                await event.wait()
                servers[0].process.terminate()
                return await task

            self.assertEqual(asyncio.run(main()), whole)
            for first, text in zip(begun, texts):
                self.assertEqual(finish(itertools.chain([first], text)), whole)


class SecureServerTest(unittest.TestCase):
    def test_tls_tokens_and_admin(self):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
            certificate, key = ours.issue("server")
            client_certificate, client_key = ours.issue("client")
            tokens = os.path.join(folder, "tokens")
            token_file = os.path.join(folder, "token")
            for path, text in ((tokens, "python " + TOKEN), (token_file, TOKEN)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
            tls = {"tls_ca": ours.certificate, "tls_cert": client_certificate, "tls_key": client_key}
            flags = [
                "--tls_cert=" + certificate,
                "--tls_key=" + key,
                "--tls_client_ca=" + ours.certificate,
                "--auth_tokens_file=" + tokens,
            ]
            with Server(
                *flags, "--model_control=explicit", "--load_models=trec", "--admin_listen=127.0.0.1:0"
            ) as server:

                def client(**options):
                    made = sru_inference.Client(
                        f"localhost:{server.port}", **{"timeout": 5, "max_attempts": 1, **options}
                    )
                    self.addCleanup(made.close)
                    return made

                self.assertEqual(client(**tls, token_file=token_file).classify(QUESTIONS)[0].label, "NUM")
                self.assertEqual(
                    client(**tls, token=TOKEN, tls_server_name="localhost").classify(QUESTIONS)[0].label, "NUM"
                )
                for wrong in ({}, {"token": "wrong"}):
                    with self.assertRaises(sru_inference.UnauthenticatedError):
                        client(**tls, **wrong).classify(QUESTIONS)
                for wrong in (
                    {"tls_ca": theirs.certificate},
                    {"tls_ca": ours.certificate},
                    {},
                ):  # authority, no certificate, no TLS
                    with self.assertRaises(sru_inference.UnavailableError):
                        client(token=TOKEN, **wrong).classify(QUESTIONS)
                admin = int(re.search(r"admin on [^ ]+:(\d+)", server.first_line + server.log()).group(1))
                with sru_inference.Client(f"localhost:{admin}", **tls, token=TOKEN) as administrator:
                    self.assertEqual(administrator.load_model("war_and_peace", timeout=60)[0].state, "READY")
                    administrator.unload_model("war_and_peace")
                    with self.assertRaises(sru_inference.NotFoundError):
                        administrator.unload_model("war_and_peace")

    def test_overload(self):
        with Server("--max_queue_tokens=8000", "--instances=1") as server:

            async def main():
                async with aio.Client(server.address) as client:
                    ids = [np.ones(1000, int)] * 3
                    calls = (client.encode(ids, model="trec", pooling="none", timeout=60) for _ in range(40))
                    return await asyncio.gather(*calls, return_exceptions=True)

            outcomes = asyncio.run(main())
        refused = [one for one in outcomes if isinstance(one, sru_inference.ResourceExhaustedError)]
        self.assertTrue(refused)
        self.assertTrue(all(one.retry_after > 0 for one in refused))
        self.assertEqual(len(refused) + sum(not isinstance(one, Exception) for one in outcomes), 40)


if __name__ == "__main__":
    unittest.main(argv=["python_package_test.py"], verbosity=2)
