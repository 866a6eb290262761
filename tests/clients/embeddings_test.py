"""The server as clients for embeddings and pipelines see it, unchanged: openai, both integrations of llama-index, langchain-openai and
huggingface_hub.

    embeddings_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import atexit
import base64
import json
import os
import shutil
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import clients_venv
from clients_venv import TOKEN, tokens_file

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
clients_venv.enter(
    "huggingface_hub", "langchain_openai", "llama_index.embeddings.openai", "llama_index.embeddings.text_embeddings_inference",
    "numpy", "openai", "grpc")  # fmt: skip

import numpy as np  # noqa: E402
import openai  # noqa: E402
from huggingface_hub import InferenceClient  # noqa: E402
from huggingface_hub.errors import HfHubHTTPError  # noqa: E402
from langchain_openai import OpenAIEmbeddings  # noqa: E402
from llama_index.embeddings.openai import OpenAIEmbedding  # noqa: E402
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference  # noqa: E402

TEXTS = ["Where is Lake Titicaca ?", "Who wrote Hamlet ?"]
DATA = os.path.join(clients_venv.ROOT, "tests")


def make_repository():
    """The bundled models, and those of other tests: a tagger, a reader and a translator."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory)
    models = os.path.join(directory, "models")
    shutil.copytree(sys.argv[3], models)
    shutil.copytree(os.path.join(DATA, "golden", "tagger", "words"), os.path.join(models, "tagger", "1"))
    shutil.copytree(os.path.join(DATA, "data", "models", "old_reader", "1"), os.path.join(models, "reader", "1"))
    shutil.copytree(os.path.join(DATA, "data", "models", "old_translator", "1"), os.path.join(models, "translator", "1"))
    return models, tokens_file(directory)


sys.argv[3], TOKENS = make_repository()
from server_process import Server  # noqa: E402


class EmbeddingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--auth_tokens_file=" + TOKENS)
        cls.addClassCleanup(cls.server.stop)
        cls.url = "http://127.0.0.1:%d" % cls.server.http_port
        cls.openai = openai.OpenAI(base_url=cls.url + "/v1", api_key=TOKEN, max_retries=0)
        cls.addClassCleanup(cls.openai.close)
        encodings = cls.ask("/v1/encode", {"model": "trec", "sequences": [{"text": text} for text in TEXTS]})["encodings"]
        values = np.array([encoding["values"] for encoding in encodings])
        cls.expected = values / np.linalg.norm(values, axis=1, keepdims=True)
        cls.tokens = sum(encoding["token_count"] for encoding in encodings)

    @classmethod
    def ask(cls, path, body=None):
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + TOKEN}
        request = urllib.request.Request(cls.url + path, body and json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def pipeline(self, model):
        return InferenceClient(self.url + "/pipelines/" + model, token=TOKEN)

    def check(self, vectors):
        np.testing.assert_allclose(np.array(vectors), self.expected, atol=1e-6)

    def test_openai(self):
        for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": self.expected.shape[1]}):
            answer = self.openai.embeddings.create(model="trec", input=TEXTS, **options)
            vectors = [one.embedding for one in answer.data]
            if options.get("encoding_format") == "base64":
                vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
            self.check(vectors)
            self.assertEqual([one.index for one in answer.data], [0, 1])
            self.assertEqual((answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens), ("trec", self.tokens, self.tokens))
        one = self.openai.embeddings.create(model="trec", input=TEXTS[0])
        np.testing.assert_allclose(one.data[0].embedding, self.expected[0], atol=1e-6)

    def test_openais_errors(self):
        for fields, param, message in (
            ({"input": [5, 6]}, "input", "check_embedding_ctx_length=False"),
            ({"dimensions": 7}, "dimensions", "expected %d, the model's, found 7" % self.expected.shape[1]),
            ({"input": ["a", ""]}, "input", "input[1]: "),
            ({"input": "a " * 5000}, "input", "; shorten the text"),
            ({"model": "war_and_peace"}, "model", "model"),
        ):
            with self.assertRaises(openai.BadRequestError) as raised:
                self.openai.embeddings.create(**{"model": "trec", "input": "a", **fields})
            self.assertEqual(raised.exception.body["param"], param, raised.exception.body)
            self.assertIn(message, raised.exception.body["message"])
        with self.assertRaises(openai.NotFoundError):
            self.openai.embeddings.create(model="nope", input="a")

    def test_llama_index_openai(self):
        client = OpenAIEmbedding(model_name="trec", api_base=self.url + "/v1", api_key=TOKEN, max_retries=0)
        self.check(client.get_text_embedding_batch(TEXTS))
        np.testing.assert_allclose(client.get_query_embedding(TEXTS[0]), self.expected[0], atol=1e-6)

    def test_llama_index_text_embeddings_inference(self):
        # It sends no name of a model: /embed means the only classifier or encoder. It puts texts into sentences of its own for models
        # that it knows.
        client = TextEmbeddingsInference(
            model_name="trec", base_url=self.url, auth_token=TOKEN, text_instruction="", query_instruction="")
        self.check(client.get_text_embedding_batch(TEXTS))
        np.testing.assert_allclose(client.get_query_embedding(TEXTS[0]), self.expected[0], atol=1e-6)

    def test_langchain_openai(self):
        options = {"model": "trec", "base_url": self.url + "/v1", "api_key": TOKEN, "max_retries": 0}
        client = OpenAIEmbeddings(check_embedding_ctx_length=False, **options)
        self.check(client.embed_documents(TEXTS))
        np.testing.assert_allclose(client.embed_query(TEXTS[0]), self.expected[0], atol=1e-6)

    def test_langchain_openai_with_ids(self):
        """By default it sends ids of a vocabulary that tiktoken fetches; here one is played, since nothing is fetched."""
        import tiktoken  # noqa: PLC0415

        played = tiktoken.Encoding("played", pat_str=r"\S+|\s+", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={})
        saved = tiktoken.encoding_for_model
        tiktoken.encoding_for_model = lambda name: played
        self.addCleanup(setattr, tiktoken, "encoding_for_model", saved)
        client = OpenAIEmbeddings(model="trec", base_url=self.url + "/v1", api_key=TOKEN, max_retries=0)
        with self.assertRaisesRegex(openai.BadRequestError, "check_embedding_ctx_length=False"):
            client.embed_documents(TEXTS)

    def test_huggingface_feature_extraction(self):
        client = InferenceClient(self.url + "/embed", token=TOKEN)
        self.check(client.feature_extraction(TEXTS))
        self.check(client.feature_extraction(TEXTS, truncate=True, normalize=True))
        plain = client.feature_extraction(TEXTS[0], normalize=False)
        self.assertGreater(abs(np.linalg.norm(plain) - 1), 1e-3)

    def test_huggingface_text_classification(self):
        labels = self.pipeline("trec").text_classification(TEXTS[0])
        self.assertEqual(labels[0].label, "LOC")
        self.assertAlmostEqual(sum(label.score for label in labels), 1, places=5)
        self.assertEqual(len(self.pipeline("trec").text_classification(TEXTS[0], top_k=2)), 2)
        with self.assertRaisesRegex(HfHubHTTPError, "parameters.function_to_apply: not supported"):
            self.pipeline("trec").text_classification(TEXTS[0], function_to_apply="none")
        with self.assertRaisesRegex(HfHubHTTPError, "404|not loaded"):
            self.pipeline("nope").text_classification(TEXTS[0])

    def test_huggingface_token_classification(self):
        text = "one  two two one"
        tokens = self.pipeline("tagger").token_classification(text, aggregation_strategy="none")
        self.assertEqual([token.entity for token in tokens], ["rises", "stays", "falls", "ends"])
        self.assertEqual([text[token.start : token.end] for token in tokens], text.split())
        self.assertEqual([token.word for token in tokens], text.split())
        groups = self.pipeline("tagger").token_classification("one two three two", ignore_labels=["ends"])
        self.assertEqual([(group.entity_group, group.word) for group in groups], [("rises", "one two"), ("falls", "three")])

    def test_huggingface_translation(self):
        answer = self.pipeline("translator").translation("a b c")
        self.assertEqual(answer.translation_text, self.ask(
            "/v1/translate", {"model": "translator", "sequences": [{"text": "a b c"}]})["translations"][0]["hypotheses"][0]["text"])

    def test_huggingface_question_answering(self):
        context = "Shakespeare wrote Hamlet ."
        answer = self.pipeline("reader").question_answering("Who wrote Hamlet ?", context)
        self.assertEqual(context[answer.start : answer.end], answer.answer)
        self.assertTrue(0 < answer.score <= 1)
        self.assertEqual(len(self.pipeline("reader").question_answering("Who wrote Hamlet ?", context, top_k=2)), 2)

    def test_several_models_need_a_name(self):
        with self.assertRaises(urllib.error.HTTPError) as raised:
            self.ask("/", {"inputs": "a"})
        with raised.exception as error:
            self.assertIn("model (/pipelines/MODEL): empty, expected a name", error.read().decode())

    def test_info_and_health(self):
        info = self.ask("/info")
        self.assertEqual((info["model_id"], info["max_client_batch_size"] > 0), ("trec", True))
        self.assertEqual(self.ask("/health"), {"status": "ok"})

    def test_tokens(self):
        tokens = self.ask("/tokenize", {"prompt": "It was", "add_special_tokens": False, "return_token_strs": True})
        self.assertEqual((tokens["count"], tokens["token_strs"]), (6, list("It was")))
        self.assertEqual(self.ask("/detokenize", {"tokens": tokens["tokens"]}), {"prompt": "It was"})
        self.assertEqual(self.ask("/tokenizer_info")["name_or_path"], "war_and_peace")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
