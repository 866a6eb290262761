"""Tests of --verify and --check against the server, whose path is the first argument. Exits with 77, which CTest shows as
skipped, without PyTorch."""

import contextlib
import io
import json
import math
import os
import shutil
import sys
import unittest

from export_reader_test import VOCABULARY, reader_config, reader_state
from testing.export_test_case import ExportTestCase, read_safetensors, sru_state
from export_translator_test import translator_config, translator_state

import torch

from exporter.reference import layer, under
from exporter.verify import Table

SERVER = None
WORDS = ["<pad>", "<unk>", "the", "film", "good", "bad", "!", "a"]


PLAIN = {"input_size": 6, "hidden_size": 4, "num_layers": 2, "bidirectional": True}
RICH = {"input_size": 6, "hidden_size": 8, "num_layers": 3, "use_tanh": True, "layer_norm": True, "rescale": True,
        "projection_size": 3, "normalize_after": True}


def plain_vectors(state, ids, **changes):
    """[length][output] in float64, of a model with PLAIN and these changes."""
    encoder = {"use_tanh": False, "has_skip_term": True, "layer_norm": False, "rescale": False, **PLAIN, **changes}
    h = state["embedding.weight"][ids].double()
    for i in range(encoder["num_layers"]):
        weights = under(state, f"encoder.rnn_lst.{i}.")
        h = layer(torch, h, {name: value.double() for name, value in weights.items()}, encoder)
    return h


class VerifyTest(ExportTestCase):

    def run_verify(self, encoder, *extra, labels=True, words=True, **config):
        """Exit code and what was printed."""
        state = sru_state(encoder, len(WORDS) if words else 0, 2 if labels else 0)
        config = {"sru_config": encoder, **({"preprocessing": "whitespace", "oov_id": 1} if words else {}), **config}
        return self.run_with_server(*extra, state=state, config=config, vocabulary="\n".join(WORDS) if words else None,
                                    labels="no\nyes\n" if labels else None)

    def run_with_server(self, *extra, **given):
        return self.run_export(extra=["--server", SERVER, "--force", *extra], **given)

    def assert_verified(self, **given):
        """What was printed."""
        code, output = self.run_with_server("--verify", **given)
        self.assertEqual(code, 0, output)
        return output

    def assert_same(self, *arguments, **keywords):
        code, output = self.run_verify(*arguments, **keywords)
        self.assertEqual(code, 0, output)
        self.assertIn("are the same within", output)
        self.assertNotIn("DIFFERENT", output)
        return output

    def test_classifier_with_texts(self):
        output = self.assert_same(PLAIN, "--verify", "--verify_text", "the  film was very good !", pooling="last")
        self.assertIn("2 of 6 words (33%) are unknown", output)
        self.assertEqual(output.count("logits"), 7)

    def test_encoder_of_features_with_every_option(self):
        output = self.assert_same(RICH, "--verify", labels=False, words=False)
        self.assertEqual(output.count("vectors"), 6)

    def test_language_model(self):
        encoder = {"input_size": 6, "hidden_size": 5, "num_layers": 2}
        state = sru_state(encoder, 3, 3, names=("embedding_layer", "rnn", "output_layer"))
        config = {"task": "language_model", "unit": "byte", "vocabulary": [10, 97, 98], "sru_config": encoder}
        code, output = self.run_with_server("--verify_text", "abba\n", state=state, config=config)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("log-probs"), 6)

    def test_takes_no_reader_and_no_translator(self):
        translator = translator_config()
        for name, given in (("reader", {"config": reader_config(), "state": reader_state(), "vocabulary": VOCABULARY}),
                            ("translator", {"config": translator, "state": translator_state(translator)})):
            for flags in (["--verify"], ["--check", "mine.json"]):
                code, output = self.run_with_server(*flags, **given)
                self.assertEqual(code, 1, output)
                self.assertIn(f"this is a {name}", output)

    def test_tagger_with_texts_and_of_features(self):
        output = self.assert_same(PLAIN, "--verify", "--verify_text", "the  film was very good !", task="tagger")
        self.assertIn("2 of 6 words (33%) are unknown", output)
        self.assertEqual(output.count("probabilities"), 7)
        output = self.assert_same(RICH, "--verify", words=False, task="tagger")
        self.assertEqual(output.count("probabilities"), 6)

    def test_tagger_with_more_labels_than_a_server_sends(self):
        state = sru_state(PLAIN, len(WORDS), 150)
        tagger = {"config": {"task": "tagger", "sru_config": PLAIN, "preprocessing": "whitespace", "oov_id": 1}, "state": state,
                  "vocabulary": "\n".join(WORDS), "labels": "".join(f"label {index}\n" for index in range(150))}
        self.assertIn(" 7500 ", self.assert_verified(**tagger))  # numbers of 50 tokens
        # A label that is not sent is no more probable than those that are.
        probabilities = (plain_vectors(state, [2]) @ state["out.weight"].double().t() + state["out.bias"]).softmax(-1)
        for wrong, code in ((False, 0), (True, 2)):
            if wrong:
                probabilities[0, probabilities.argmin()] = 0.5
            given = self.write("mine.json", json.dumps({"ids": [[2]], "probabilities": [probabilities.tolist()]}))
            found, output = self.run_with_server("--check", given, **tagger)
            self.assertEqual(found, code, output)

    def test_trained_taggers(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "tagger")
        for name, extra in (("words", ["--vocab", os.path.join(folder, "words", "vocab.txt")]), ("frames", [])):
            weights = os.path.join(folder, name, "model.safetensors")
            code, output = self.run_with_server("--verify", "--config", os.path.join(folder, name, "config.json"), *extra,
                                                checkpoint=weights)
            self.assertEqual(code, 0, output)
            self.assertEqual(output.count("probabilities"), 6)
            self.assert_tensors(read_safetensors(weights))

    def test_check_finds_a_wrong_option(self):
        ids = [[2, 3, 4], [7], [5, 1, 1, 6, 2, 3]]
        encoder = {**PLAIN, "use_tanh": True}
        state = sru_state(encoder, len(WORDS), 2)
        logits = []
        for sequence in ids:
            h = plain_vectors(state, sequence, use_tanh=True)
            logits.append((h.max(0).values @ state["out.weight"].double().t() + state["out.bias"]).tolist())
        given = self.write("mine.json", json.dumps({"ids": ids, "logits": logits}))
        self.assert_same(encoder, "--check", given, pooling="max")
        shutil.rmtree(self.out)
        for wrong, pooling, instead in ((PLAIN, "max", "--sru use_tanh=true."), (encoder, "mean", "--pooling max."),
                                        ({**PLAIN, "has_skip_term": True}, "first", "--pooling max --sru use_tanh=true.")):
            code, output = self.run_verify(wrong, "--check", given, pooling=pooling)
            self.assertEqual(code, 2, output)
            self.assertIn("DIFFERENT", output)
            self.assertIn("the server does not compute what the numbers of", output)
            self.assertIn("They are the same with " + instead, output)
            self.assertEqual(os.listdir(os.path.dirname(self.out)), [])
            self.assertIn(f"{self.out} was not written", output)
        vectors = [plain_vectors(state, sequence).mean(0).tolist() for sequence in ids]
        code, output = self.run_verify(PLAIN, "--check", self.write("vectors.json", json.dumps({"ids": ids, "vectors": vectors})),
                                       pooling="none", labels=False)
        self.assertEqual(code, 2, output)
        self.assertIn("They are the same with --pooling mean.", output)
        code, output = self.run_verify(encoder, "--check", self.write("other.json", json.dumps(
            {"ids": ids, "logits": [[0.5, 1.5]] * 3})), pooling="max")
        self.assertIn("No other pooling and no other use_tanh", output)

    def test_a_version_that_differs_does_not_replace_one(self):
        given = self.write("mine.json", json.dumps({"ids": [[2]], "logits": [[0.5, 1.5]]}))
        self.run_verify(PLAIN, pooling="max")
        with open(os.path.join(self.out, "config.json"), "rb") as file:
            before = file.read()
        code, output = self.run_verify(PLAIN, "--check", given, pooling="mean")
        self.assertEqual(code, 2, output)
        with open(os.path.join(self.out, "config.json"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_half_precision_explains_itself(self):
        state = {name: tensor.half() for name, tensor in sru_state(PLAIN, len(WORDS), 2).items()}
        whole = {name: tensor.float() for name, tensor in state.items()}
        h = plain_vectors(whole, [2, 3]).max(0).values @ whole["out.weight"].double().t() + whole["out.bias"]
        config = {"sru_config": PLAIN, "preprocessing": "whitespace", "oov_id": 1, "pooling": "max"}
        for off, code, message in ((0, 0, "are the same"), (1e-3, 2, "The weights are float16 numbers, whose rounding"),
                                   (0.5, 2, "No other pooling")):
            given = self.write("mine.json", json.dumps({"ids": [[2, 3]], "logits": [(h + off).tolist()]}))
            found, output = self.run_with_server("--check", given, state=state, config=config, vocabulary="\n".join(WORDS),
                                                 labels="no\nyes\n")
            self.assertEqual(found, code, output)
            self.assertIn(message, output)

    def test_numbers_that_are_not_finite_are_never_the_same(self):
        for number, name in ((math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")):
            for expected, found, message in (([0.5, number], [0.5, 1.5], f"DIFFERENT: expected[1] is {name}"),
                                             ([0.5, 1.5], [0.5, number], f"DIFFERENT: found[1] is {name}"),
                                             ([0.5, number], [0.5, number], f"DIFFERENT: expected[1] is {name}")):
                table, output = Table(1e-4), io.StringIO()
                table.add("made up", 2, None, expected, found)
                with contextlib.redirect_stdout(output):
                    table.print("PyTorch")
                self.assertEqual(table.different, 1)
                self.assertIn(message, output.getvalue())
            given = self.write("mine.json", json.dumps({"ids": [[2]], "logits": [[0.5, number]]}))
            code, output = self.run_verify(PLAIN, "--check", given, pooling="max")
            self.assertEqual(code, 2, output)
            self.assertIn(f"DIFFERENT: expected[1] is {name}", output)

    def test_bad_checks(self):
        for contents, message in (({"ids": [[1]]}, "one of logits, vectors; found ids"),
                                  ({"ids": [[1]], "logits": [[1, 2], [3, 4]]}, "lists of the same length"),
                                  ({"ids": [["the"]], "logits": [[1, 2]]}, 'ids[0]: found ["the"]'),
                                  ({"ids": [[1]], "logits": [["x"]]}, 'logits[0]: expected numbers, found "x"'),
                                  ({"ids": [[99]], "logits": [[1, 2]]}, "sru_server refused classify: INVALID_ARGUMENT")):
            code, output = self.run_verify(PLAIN, "--check", self.write("mine.json", json.dumps(contents)), pooling="max")
            self.assertEqual(code, 1, output)
            self.assertIn(message, output)

    def test_needs_are_looked_at_before_anything_is_written(self):
        other = self.write("other", "#!/bin/sh\necho something else\n")
        os.chmod(other, 0o755)
        bad = self.write("bad", b"\x7fELF")
        os.chmod(bad, 0o755)
        for extra, message in ((["--verify", "--server", self.path("absent")], "is not a program that can be run"),
                               (["--verify", "--server", self.directory.name], "is not a program that can be run"),
                               (["--verify", "--server", bad], "is not a program that can be run"),
                               (["--verify", "--server", other], "is not sru_server; asked for its --version, it said 'someth"),
                               (["--check", self.path("absent.json")], "cannot read the check"),
                               (["--check", self.write("x.json", '{"ids": [[1]]}')], "one of logits, vectors"),
                               (["--verify_text", " "], "no token is left of")):
            with self.subTest(message):
                code, output = self.run_verify(PLAIN, *extra, pooling="max")
                self.assertEqual(code, 1, output)
                self.assertIn(message, output)
                self.assertFalse(os.path.exists(self.path("repository")))

    def test_a_server_that_refuses_leaves_nothing(self):
        code, output = self.run_verify(PLAIN, "--check", self.write("mine.json", '{"ids": [[99]], "logits": [[1, 2]]}'),
                                       pooling="max")
        self.assertEqual(code, 1, output)
        self.assertEqual(os.listdir(os.path.dirname(self.out)), [])


if __name__ == "__main__":
    SERVER = sys.argv.pop(1)
    unittest.main()
