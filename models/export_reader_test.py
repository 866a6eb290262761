"""Tests of export_torch.py with readers. Exits with 77 (skipped) without PyTorch."""

import os
import unittest

from testing.export_test_case import ExportTestCase

import torch

VOCABULARY = "<PAD>\n<UNK>\nwho\nann\n?\n"


def reader_config(**changes):
    config = {"task": "reader", "vocab_size": 5, "embedding_dim": 4, "hidden_size": 2,
              "doc_layers": 2, "question_layers": 1, "features": ["exact", "tf"],
              "num_features": 2, "use_qemb": True, "pos": False, "ner": False,
              "concat_rnn_layers": False, "question_merge": "self_attn", "max_len": 15,
              "lowercase": True, "pad_id": 0, "unk_id": 1, "sru": {"highway_bias": -1.5},
              "made_with": "a note", **changes}
    return {key: value for key, value in config.items() if value is not None}


def reader_state(**changes):
    """A state_dict with the names that the public code has, of reader_config()."""
    shapes = {"embedding.weight": (5, 4), "qemb_match.linear.weight": (4, 4),
              "qemb_match.linear.bias": (4,), "doc_rnn.rnns.0.weight": (10, 16),
              "doc_rnn.rnns.1.weight": (4, 12), "question_rnn.rnns.0.weight": (4, 12),
              "self_attn.linear.weight": (1, 4), "self_attn.linear.bias": (1,)}
    for cell in ("doc_rnn.rnns.0", "doc_rnn.rnns.1", "question_rnn.rnns.0"):
        shapes.update({cell + ".weight_c": (8,), cell + ".bias": (8,), cell + ".scale_x": (1,)})
    for end in ("start_attn", "end_attn"):
        shapes.update({end + ".linear.weight": (4, 4), end + ".linear.bias": (4,)})
    generator = torch.Generator().manual_seed(5)
    state = {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    state.update(changes)
    return {name: value for name, value in state.items() if value is not None}


class ExportReaderTest(ExportTestCase):

    def defaults(self):
        return {"config": reader_config(), "state": reader_state(), "vocabulary": VOCABULARY}

    def test_writes_the_format(self):
        output = self.assert_exports()
        self.assertIn("sru_client answer --model=model", output)
        self.assertIn("2 + 1 layers", output)
        self.assertEqual(self.config(), {
            "format_version": 1,
            "task": "reader",
            "encoder": {"input_size": 10, "hidden_size": 2, "num_layers": 2, "bidirectional": True,
                        "projection_size": 0, "use_tanh": False, "layer_norm": False,
                        "normalize_after": False, "has_skip_term": True, "rescale": True,
                        "v1": False, "proj_input_to_hidden_first": False, "highway_bias": -1.5},
            "embedding": {"vocabulary_size": 5, "oov_id": 1},
            "preprocessing": {"type": "unicode_words", "lowercase": True},
            "reader": {"embedding_dim": 4, "question_layers": 1, "features": ["exact", "tf"],
                       "use_qemb": True, "concat_rnn_layers": False,
                       "question_merge": "self_attn", "max_len": 15},
        })
        self.assert_tensors(reader_state())
        self.assertEqual(self.words(), VOCABULARY)

    def test_finds_the_vocabulary_beside_the_config(self):
        self.write("vocab.txt", VOCABULARY)
        self.assert_exports(vocabulary=None)
        self.assertEqual(self.words(), VOCABULARY)
        os.remove(self.path("vocab.txt"))
        self.assert_refused("cannot read the vocabulary", vocabulary=None)

    def test_a_model_of_ids_has_no_vocabulary(self):
        output = self.assert_exports(config=reader_config(lowercase=None, unk_id=None),
                                     vocabulary=None)
        self.assertIn("no vocabulary", output)
        self.assertEqual(self.config()["embedding"], {"vocabulary_size": 5})
        self.assertNotIn("preprocessing", self.config())
        self.assertEqual(sorted(os.listdir(self.out)), ["config.json", "model.safetensors"])

    def test_tags_and_concatenated_layers(self):
        config = reader_config(pos=True, pos_size=3, pos_dim=2, ner=True, ner_size=4, ner_dim=1,
                               concat_rnn_layers=True, question_merge="avg", use_qemb=False)
        wide = torch.zeros(8, 4)
        state = reader_state(**{
            "qemb_match.linear.weight": None, "qemb_match.linear.bias": None,
            "self_attn.linear.weight": None, "self_attn.linear.bias": None,
            "pos_embedding.weight": torch.zeros(3, 2), "ner_embedding.weight": torch.zeros(4, 1),
            "doc_rnn.rnns.0.weight": torch.zeros(9, 16), "start_attn.linear.weight": wide,
            "end_attn.linear.weight": wide, "start_attn.linear.bias": torch.zeros(8),
            "end_attn.linear.bias": torch.zeros(8)})
        self.assert_exports(config=config, state=state)
        reader = self.config()["reader"]
        self.assertEqual([reader[key] for key in ("pos_size", "pos_dim", "ner_size", "ner_dim")],
                         [3, 2, 4, 1])
        self.assertEqual(self.config()["encoder"]["input_size"], 9)

    def test_takes_the_authors_own_files(self):
        state = reader_state(fixed_embedding=torch.zeros(3, 4))
        for given in (state, {"state_dict": {"network": state, "updates": 7}, "epoch": 3}):
            self.assert_exports(state=given)
            self.assert_tensors(reader_state())

    def test_cells_have_their_own_defaults(self):
        self.assert_exports(config=reader_config(sru=None))
        self.assertEqual(self.config()["encoder"]["rescale"], True)
        self.assert_exports(config=reader_config(sru={"rescale": False, "bidirectional": True}))
        self.assertEqual(self.config()["encoder"]["rescale"], False)

    def test_refuses_bad_configs(self):
        for changes, message in (
                ({"vocab_size": None}, "key 'vocab_size' is missing"),
                ({"hidden_size": 0}, "hidden_size: expected an integer from 1 to 16384, found 0"),
                ({"doc_layers": True}, "doc_layers: expected an integer"),
                ({"use_qemb": 1}, "use_qemb: expected true or false, found 1"),
                ({"pos": True}, "key 'pos_size' is missing"),
                ({"ner": True, "ner_size": 3, "ner_dim": 0}, "ner_dim: expected an integer"),
                ({"features": ["tf", "exact"]}, "features: expected an array of exact, lower"),
                ({"features": ["exact", "exact"]}, "features: expected an array"),
                ({"features": "tf"}, "features: expected an array"),
                ({"num_features": 3}, "num_features: expected 2"),
                ({"question_merge": "max"}, "question_merge: expected one of self_attn, avg"),
                ({"max_len": 0}, "max_len: expected an integer from 1"),
                ({"sru": []}, "sru: expected an object with the arguments of sru.SRUCell"),
                ({"sru": {"num_layers": 2}}, "sru.num_layers: is not an argument of sru.SRUCell"),
                ({"sru": {"bidirectional": False}}, "sru.bidirectional: expected true"),
                ({"sru": {"custom_m": "x"}}, "sru.custom_m"),
                ({"sru": {"n_proj": -1}}, "sru.projection_size: expected an integer"),
                ({"unk_id": 5}, "unk_id: expected an integer from 0 to 4, found 5"),
                ({"unk_id": None}, "key 'unk_id' is missing"),
                ({"lowercase": "yes"}, "lowercase: expected true or false"),
                ({"embedding_dim": 16384}, "would read 32770 values")):
            self.assert_refused(message, config=reader_config(**changes))
        self.assert_refused("expected 5 words, as many as vocab_size says, found 2",
                            vocabulary="<PAD>\n<UNK>\n")
        self.assert_refused("key 'lowercase' is missing", config=reader_config(lowercase=None))
        self.assert_refused('--encoder-prefix: a model with the task "reader" has none',
                            extra=["--encoder-prefix", "rnn"])
        self.assert_refused('--labels: a model with the task "reader" has none', labels="a\nb\n")

    def test_refuses_bad_checkpoints(self):
        for changes, message in (
                ({"self_attn.linear.bias": None},
                 "tensor 'self_attn.linear.bias' is missing (shape [1]); check the config"),
                ({"doc_rnn.rnns.1.weight": None}, "tensor 'doc_rnn.rnns.1.weight' is missing"),
                ({"doc_rnn.rnns.0.weight": torch.zeros(9, 16)},
                 "'doc_rnn.rnns.0.weight': expected shape [10, 16] from the config, found [9, 16]"),
                ({"start_attn.linear.weight": torch.zeros(4, 8)},
                 "'start_attn.linear.weight': expected shape [4, 4]"),
                ({"ner_embedding.weight": torch.zeros(4, 4)},
                 "'ner_embedding.weight' is not part of a model with this config"),
                ({"question_rnn.rnns.1.weight": torch.zeros(4, 12)}, "question_rnn.rnns.1.weight"),
                ({"embedding.weight": torch.zeros(6, 4)}, "expected shape [5, 4]")):
            self.assert_refused(message, state=reader_state(**changes))

    def test_takes_the_public_checkpoints(self):
        def check(given):
            self.assertEqual(self.config()["embedding"]["vocabulary_size"], given["vocab_size"])
            self.assertEqual("preprocessing" in self.config(), "lowercase" in given)
            self.assertEqual(self.config()["reader"]["features"], given["features"])

        self.check_public_checkpoints("golden_systems/reader/*", "checkpoints/reader_*", check=check)


if __name__ == "__main__":
    unittest.main()
