"""Runs translate.py against a server of this process. Exits with 77, which CTest shows as skipped,
where grpcio is missing."""

import os
import subprocess
import sys
import unittest

try:
    import grpc
except ImportError:
    print("SKIPPED: this Python has no grpcio (%s)" % sys.executable)
    sys.exit(77)

import fake_service
import sru_wire
import translate

HERE = os.path.dirname(os.path.abspath(__file__))


def capitals(request):
    """Each text in capitals; "bad" is refused."""
    translations = []
    for sequence in request["sequences"]:
        text = sequence["text"] or " ".join(sequence["tokens"]["values"])
        if text == "bad":
            return grpc.StatusCode.INVALID_ARGUMENT
        words = text.split()
        hypothesis = {
            "text": text.upper(),
            "tokens": [word.upper() for word in words],
            "score": -0.5,
            "log_prob": -1.5,
        }
        if request["return_alignment"]:
            hypothesis["alignment"] = [
                float(row == column) for row in range(len(words)) for column in range(len(words))
            ]
        translations.append({"hypotheses": [hypothesis], "token_count": len(words)})
    return {"model": "translator", "version": 2, "translations": translations}


class TranslateTest(unittest.TestCase):
    def setUp(self):
        self.service = fake_service.FakeService(
            "Translate", sru_wire.TRANSLATE_REQUEST, sru_wire.TRANSLATE_RESPONSE, capitals
        )
        self.addCleanup(self.service.stop)
        self.client = translate.Client(self.service.address)
        self.addCleanup(self.client.close)

    def test_translates(self):
        response = self.client.translate(
            ["a man", ["zwei", "W\u00f6rter"]],
            "translator",
            version=2,
            beam_size=4,
            num_hypotheses=3,
            length_penalty="power",
            alpha=0.0,
            max_new_tokens=9,
            target_prefixes=["A", ""],
            return_alignment=True,
            truncate=True,
        )
        first, second = response["translations"]
        self.assertEqual(first["hypotheses"][0]["text"], "A MAN")
        self.assertEqual(first["hypotheses"][0]["log_prob"], -1.5)
        self.assertEqual(translate.alignment(first["hypotheses"][0], first), [[1.0, 0.0], [0.0, 1.0]])
        self.assertEqual(second["hypotheses"][0]["tokens"], ["ZWEI", "W\u00d6RTER"])
        request = self.service.requests[0]
        self.assertEqual(request["length_penalty"], {"form": 2, "alpha": 0.0})
        self.assertEqual(request["target_prefixes"], ["A", ""])
        names = ("beam_size", "num_hypotheses", "max_new_tokens", "return_alignment", "truncate")
        self.assertEqual([request[name] for name in names], [4, 3, 9, 1, 1])

    def test_alpha_is_sent_only_if_it_is_given(self):
        penalty = {"form": 0}
        encoded = sru_wire.encode(sru_wire.LENGTH_PENALTY, penalty)
        self.assertNotEqual(encoded, sru_wire.encode(sru_wire.LENGTH_PENALTY, {"form": 0, "alpha": 0}))
        with self.assertRaises(ValueError) as raised:
            self.client.translate(["a"], length_penalty="big")
        self.assertIn("gnmt, power, none", str(raised.exception))

    def test_a_text_without_tokens_has_no_alignment(self):
        response = self.client.translate([""], return_alignment=True)
        translation = response["translations"][0]
        self.assertEqual(translate.alignment(translation["hypotheses"][0], translation), [])

    def test_many_texts_keep_their_order(self):
        texts = ["text x%d" % i for i in range(100)] + [""]
        translations = list(self.client.translate_all(iter(texts), batch=3, in_flight=5))
        self.assertEqual(translations, [text.upper() for text in texts])
        self.assertEqual(len(self.service.requests), 34)
        self.assertEqual(list(self.client.translate_all([])), [])
        with self.assertRaises(grpc.RpcError) as raised:
            list(self.client.translate_all(["good", "bad"]))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_the_program_prints_a_line_for_each(self):
        command = [sys.executable, os.path.join(HERE, "translate.py")]
        command += ["--address=" + self.service.address, "--beam_size=2", "--alpha=0.5"]
        done = subprocess.run(
            command,
            input="a man\n\ntwo\n",
            stdout=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "A MAN\n\nTWO\n"))
        self.assertEqual(self.service.requests[0]["beam_size"], 2)
        self.assertEqual(self.service.requests[0]["length_penalty"]["alpha"], 0.5)
        done = subprocess.run(
            command + ["bad"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"INVALID_ARGUMENT", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
