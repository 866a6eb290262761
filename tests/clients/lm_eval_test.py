"""The server as EleutherAI's lm_eval sees it: `local-completions` with the server's own tokenizer.

    lm_eval_test.py SRU_SERVER SRU_CLIENT MODELS

Runs in .cache/bulk-venv (scripts/deps.sh bulk): lm_eval brings 700 MB.
"""

import json
import math
import os
import sys
import unittest
import urllib.request

import clients_venv

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="none")
clients_venv.enter("lm_eval", "grpc", venv="bulk")

import lm_eval.models.openai_completions  # noqa: E402, F401
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.api.registry import get_model  # noqa: E402
from server_process import Server  # noqa: E402

MODEL = "war_and_peace"
PAIRS = [("It was", " a dark"), ("Prince Andrew", " looked at the"), ("It was", " the")]


def instances(kind, arguments):
    return [Instance(kind, {}, one, i) for i, one in enumerate(arguments)]


class LmEvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.url = "http://127.0.0.1:%d" % cls.server.http_port
        cls.model = get_model("local-completions")(
            base_url=cls.url + "/v1/completions", model=MODEL, custom_prefix_token_id=0,
            max_length=512, batch_size=2, max_retries=1,
        )  # fmt: skip

    def log_probs(self, text):
        """Of each token of the text but the first, by /v1/score."""
        body = json.dumps({"model": MODEL, "text": text, "token_log_probs": True, "top_candidates": 1}).encode()
        request = urllib.request.Request(self.url + "/v1/score", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            score = json.load(answer)["scores"][0]
        return score["token_log_probs"], [one["candidates"][0]["log_prob"] for one in score["candidates"]]

    def test_likelihoods_of_continuations(self):
        found = self.model.loglikelihood(instances("loglikelihood", PAIRS))
        for (context, rest), (log_prob, is_greedy) in zip(PAIRS, found, strict=True):
            wanted, best = (values[-len(rest):] for values in self.log_probs(context + rest))  # a token is a byte
            self.assertTrue(math.isclose(log_prob, sum(wanted), rel_tol=1e-4), (log_prob, sum(wanted)))
            self.assertEqual(is_greedy, wanted == best)

    def test_likelihood_of_a_text(self):
        text = "The prince smiled and went on."
        found, = self.model.loglikelihood_rolling(instances("loglikelihood_rolling", [(text,)]))
        wanted = sum(self.log_probs("\n" + text)[0])
        self.assertTrue(math.isclose(found, wanted, rel_tol=1e-4), (found, wanted))

    def test_texts_go_on_until_a_stop(self):
        arguments = [("It was", {"until": ["the"], "max_gen_toks": 40, "temperature": 0}), ("He", {"until": ["."], "max_gen_toks": 5})]
        first, second = self.model.generate_until(instances("generate_until", arguments))
        self.assertTrue(first)
        self.assertNotIn("the", first)
        self.assertEqual(len(second), 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
