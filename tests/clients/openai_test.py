"""The server as the `openai` package sees it: completions of a language model, with a client that nobody here wrote.

    openai_test.py SRU_SERVER SRU_CLIENT MODELS
"""

import json
import math
import sys
import tempfile
import unittest
import urllib.request

import clients_venv
from clients_venv import TOKEN, tokens_file

clients_venv.enter("openai", "grpc")

import openai  # noqa: E402
from server_process import Server  # noqa: E402

MODEL = "war_and_peace"
PROMPT = "It was a dark and"
LIMITED = "fedcba9876543210fedcba9876543210"


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as directory:
            tokens = tokens_file(directory, "limited %s tokens_per_second=1 burst=20 calls_in_flight=3" % LIMITED)
            cls.server = Server("--auth_tokens_file=" + tokens)
        cls.addClassCleanup(cls.server.stop)
        cls.client = cls.make_client(TOKEN)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def make_client(cls, token, **options):
        return openai.OpenAI(
            base_url="http://127.0.0.1:%d/v1" % cls.server.http_port, api_key=token, max_retries=0, **options
        )

    def complete(self, **fields):
        return self.client.completions.create(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 8, "seed": 3, **fields})

    def test_a_text_goes_on(self):
        answer = self.complete()
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertEqual((answer.object, answer.model), ("text_completion", MODEL))
        self.assertEqual(len(answer.choices), 1)
        choice = answer.choices[0]
        self.assertEqual((choice.index, choice.finish_reason, choice.logprobs), (0, "length", None))
        self.assertEqual(len(choice.text), 8)  # a token is a byte
        usage = answer.usage
        self.assertEqual((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (17, 8, 25))

    def test_the_same_seed_gives_the_same_text(self):
        texts = [self.complete(seed=seed, max_tokens=24).choices[0].text for seed in (3, 3, 4)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_a_stream_has_the_same_text(self):
        # Long: a text that is made while the answer waits for a busy machine comes in fewer pieces.
        whole = self.complete(max_tokens=800)
        chunks = list(self.complete(max_tokens=800, stream=True, stream_options={"include_usage": True}))
        self.assertGreater(len(chunks), 3)
        self.assertEqual("".join(c.text for chunk in chunks for c in chunk.choices), whole.choices[0].text)
        self.assertEqual([c.finish_reason for chunk in chunks for c in chunk.choices][-1], "length")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage, whole.usage)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})

    def test_several_prompts_and_texts(self):
        answer = self.complete(prompt=["It was", "He said"], n=2, echo=True)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual([choice.text[:2] for choice in answer.choices], ["It", "It", "He", "He"])
        self.assertNotEqual(answer.choices[0].text, answer.choices[1].text)
        self.assertEqual(answer.usage.prompt_tokens, len("It was") + len("He said"))
        self.assertEqual(answer.usage.completion_tokens, 4 * 8)
        chunks = list(self.complete(prompt=["It was", "He said"], n=2, echo=True, stream=True))
        texts = [""] * 4
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        self.assertEqual(texts, [choice.text for choice in answer.choices])

    def test_a_stop_string_ends_the_text(self):
        text = self.complete(max_tokens=60, temperature=0).choices[0].text
        stop = text[10:13]
        answer = self.complete(max_tokens=60, temperature=0, stop=[stop]).choices[0]
        self.assertEqual(answer.text, text[: text.index(stop)])
        self.assertEqual(answer.finish_reason, "stop")

    def test_prompts_may_be_token_ids(self):
        one = self.complete(prompt=[56, 57], logprobs=0, echo=True).choices[0]
        several = self.complete(prompt=[[56, 57], [58]], logprobs=0, echo=True).choices
        self.assertEqual(one.logprobs.tokens, several[0].logprobs.tokens)
        self.assertEqual(len(several[1].logprobs.tokens), 1 + 8)

    def test_log_probabilities_of_a_text(self):
        logprobs = self.complete(logprobs=3, temperature=0).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 8)
        for token, log_prob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
            self.assertEqual(len(top), 3)
            self.assertEqual(top[token], log_prob)
            self.assertEqual(max(top.values()), log_prob)  # greedy
        self.assertEqual(logprobs.text_offset, list(range(8)))

    def test_log_probabilities_of_a_prompt(self):
        # As programs that evaluate models ask for them.
        answer = self.complete(max_tokens=0, echo=True, logprobs=1)
        choice = answer.choices[0]
        self.assertEqual(choice.text, PROMPT)
        self.assertEqual(choice.logprobs.tokens, list(PROMPT))
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertTrue(all(value < 0 for value in choice.logprobs.token_logprobs[1:]))
        self.assertEqual(answer.usage.completion_tokens, 0)
        # What Score gives for the same text.
        request = urllib.request.Request(
            "http://127.0.0.1:%d/v1/score" % self.server.http_port,
            json.dumps({"model": MODEL, "sequences": [{"text": PROMPT}]}).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer " + TOKEN},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            score = json.load(response)["scores"][0]["log_prob"]
        self.assertTrue(math.isclose(sum(choice.logprobs.token_logprobs[1:]), score, rel_tol=1e-5))

    def test_penalties_and_biases_are_used(self):
        plain = self.complete(temperature=0, max_tokens=20)
        first = self.complete(temperature=0, max_tokens=20, echo=True, logprobs=0).choices[0].logprobs.tokens
        self.assertEqual("".join(first), PROMPT + plain.choices[0].text)
        penalised = self.complete(temperature=0, max_tokens=20, frequency_penalty=2, presence_penalty=2)
        self.assertNotEqual(plain.choices[0].text, penalised.choices[0].text)
        biased = self.complete(temperature=0, logit_bias={"56": 100}).choices[0].text
        self.assertEqual(biased, 8 * biased[0])

    def test_errors_are_the_clients_exceptions(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.complete(model="nope")
        self.assertIn("'nope' is not loaded", str(caught.exception))
        for fields, param, start in (
            ({"max_tokens": -1}, "max_tokens", ""),
            ({"best_of": 3}, "best_of", ""),
            ({"suffix": "x"}, "suffix", ""),
            ({"extra_body": {"guided_choice": ["a"]}}, "guided_choice", ""),
            ({"model": "trec"}, "model", ""),
            ({"prompt": ["a", "b" * 5000]}, "prompt", "prompt[1]: "),
            ({"prompt": [56, 99999]}, "prompt", "prompt[1]: "),
            ({"max_tokens": 1000000}, "max_tokens", "max_tokens: "),
            ({"stop": ["x", ""]}, "stop", "stop[1]: "),
        ):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.complete(**fields)
            self.assertEqual(caught.exception.body["param"], param)
            self.assertTrue(caught.exception.body["message"].startswith(start), caught.exception.body)
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
        with self.make_client("wrong") as client, self.assertRaises(openai.AuthenticationError):
            client.completions.create(model=MODEL, prompt="x")
        with self.assertRaises(openai.InternalServerError) as caught:
            self.complete(max_tokens=4000, n=64, extra_headers={"X-Request-Timeout-Ms": "20"})
        self.assertEqual(caught.exception.status_code, 504)

    def test_limits_of_a_caller_are_the_clients(self):
        with self.make_client(LIMITED) as client:
            answer = client.completions.with_raw_response.create(model=MODEL, prompt=PROMPT, max_tokens=8)
            self.assertEqual(answer.headers["x-ratelimit-limit-requests"], "3")
            self.assertEqual(answer.headers["x-ratelimit-remaining-requests"], "3")
            self.assertEqual(answer.headers["x-ratelimit-limit-tokens"], "20")
            with self.assertRaises(openai.RateLimitError) as caught:  # it has used 25
                client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=8)
            headers = caught.exception.response.headers
            self.assertEqual(headers["x-ratelimit-remaining-tokens"], "0")
            self.assertGreaterEqual(int(headers["retry-after"]), 1)
            self.assertEqual(caught.exception.body["type"], "rate_limit_error")

    def test_a_stream_that_is_left_is_cancelled(self):
        stream = self.complete(max_tokens=4000, n=64, stream=True)
        next(iter(stream))
        self.assertEqual(self.server.metric("sru_requests_in_flight"), 1)
        stream.close()
        self.server.await_metric("sru_requests_in_flight", 0)

    def test_models_are_listed(self):
        self.assertEqual(sorted(model.id for model in self.client.models.list()), ["trec", MODEL])
        model = self.client.models.retrieve(MODEL)
        self.assertEqual((model.id, model.object), (MODEL, "model"))
        self.assertIsInstance(model.created, int)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
