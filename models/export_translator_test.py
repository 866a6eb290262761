"""Tests of export_torch.py with translators. Exits with 77, which CTest shows as skipped, without PyTorch."""

import os
import unittest

from testing.export_test_case import ExportTestCase, pieces_model

import torch
from exporter.translator import expected_tensors

SOURCE_TABLE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
TARGET_TABLE = "decoder.embeddings.make_embedding.emb_luts.0.weight"
SRU = "encoder.transformer.1.feed_forward.sru."


def translator_config(**changes):
    config = {"task": "translator", "d_model": 4, "heads": 2, "d_sru": 6, "encoder_layers": 2,
              "decoder_layers": 1, "bidirectional_encoder": False, "shared_embeddings": True,
              "source_vocabulary": 5, "target_vocabulary": 5, "pad_id": 0, "unk_id": 1,
              "bos_id": 2, "eos_id": 3, "max_positions": 100, "max_length": 20, "beam_size": 5,
              "length_penalty": "gnmt", "alpha": 0.6, "source_language": "en",
              "made_with": "a note", **changes}
    return {key: value for key, value in config.items() if value is not None}


def translator_state(config=None, **changes):
    """A state_dict with OpenNMT-py's names, of the config."""
    generator = torch.Generator().manual_seed(5)
    config = config or translator_config()
    state = {name: torch.randn(*shape, generator=generator)
             for name, shape in expected_tensors(config).items()}
    state[TARGET_TABLE] = state.get(TARGET_TABLE, state[SOURCE_TABLE])
    for name in [name for name in state if name.endswith(".sru.weight")]:
        state[name.replace(".weight", ".scale_x")] = torch.ones(1)
    state.update(changes)
    return {name: value for name, value in state.items() if value is not None}


class ExportTranslatorTest(ExportTestCase):

    def defaults(self):
        return {"config": translator_config(), "state": translator_state()}

    def test_writes_the_format(self):
        output = self.assert_exports()
        self.assertIn("2 encoder and 1 decoder layers", output)
        self.assertIn("a translator of ids", output)
        translator = translator_config()
        del translator["task"], translator["made_with"]
        self.assertEqual(self.config(), {"format_version": 1, "task": "translator",
                                         "translator": translator})
        self.assertNotIn(TARGET_TABLE, expected_tensors(translator))
        self.assert_tensors({name: translator_state()[name] for name in expected_tensors(translator)})

    def test_both_tables_of_separate_embeddings(self):
        config = translator_config(shared_embeddings=False, target_vocabulary=7,
                                   bidirectional_encoder=True)
        self.assert_exports(config=config, state=translator_state(config))
        self.assertEqual(list(self.tensors()[TARGET_TABLE].shape), [7, 4])

    def test_subwords_of_the_flag_or_beside_the_config(self):
        pieces = pieces_model(*"abcde")
        output = self.assert_exports(extra=["--subwords", self.write("given.model", pieces)])
        self.assertIn("sru_client translate --model=model", output)
        self.assertEqual(self.config()["preprocessing"], {"type": "sentencepiece"})
        self.write("beside.model", pieces)
        self.assert_exports(config=translator_config(subwords="beside.model"))
        with open(os.path.join(self.out, "spm.model"), "rb") as file:
            self.assertEqual(file.read(), pieces)
        self.write("four.model", pieces_model(*"abcd"))
        self.write("text.model", b"text")
        for name, message in (("absent", "cannot read the subwords"), ("text", "is not a SentencePiece model"),
                              ("four", "expected 5 pieces (source_vocabulary), found 4")):
            self.assert_refused(message, config=translator_config(subwords=name + ".model"))

    def test_takes_opennmts_own_files(self):
        state = translator_state()
        generator = {name[len("generator."):]: state.pop(name)
                     for name in list(state) if name.startswith("generator.")}
        state["encoder.embeddings.make_embedding.pe.pe"] = torch.zeros(5000, 1, 4)
        state["decoder.embeddings.make_embedding.pe.pe"] = torch.zeros(5000, 1, 4)
        state["decoder.transformer_layers.0.mask"] = torch.ones(1, 9, 9, dtype=torch.uint8)
        self.assert_exports(state={"model": state, "generator": generator, "epoch": 3})
        tensors = self.tensors()
        self.assertEqual(set(tensors), set(expected_tensors(translator_config())))
        self.assertTrue(torch.equal(tensors["generator.0.bias"], generator["0.bias"]))

    def test_refuses_bad_configs(self):
        for changes, message in (
                ({"d_model": None}, "key 'd_model' is missing; expected an integer from 1 to 16384"),
                ({"d_model": 0}, "d_model: expected an integer from 1 to 16384, found 0"),
                ({"heads": 3}, "heads: expected a divisor of d_model 4, found 3"),
                ({"d_sru": 7, "bidirectional_encoder": True},
                 "d_sru: expected an even number beside bidirectional_encoder, found 7"),
                ({"encoder_layers": 257}, "encoder_layers: expected an integer from 1 to 256"),
                ({"decoder_layers": True}, "decoder_layers: expected an integer"),
                ({"shared_embeddings": None}, "key 'shared_embeddings' is missing; expected true or false"),
                ({"target_vocabulary": 6}, "target_vocabulary: expected 5 as source_vocabulary"),
                ({"eos_id": 5}, "eos_id: expected an integer from 0 to 4, found 5"),
                ({"max_length": 101}, "max_length: expected an integer from 1 to 100, found 101"),
                ({"max_positions": 0}, "max_positions: expected an integer from 1"),
                ({"beam_size": 65}, "beam_size: expected an integer from 1 to 64, found 65"),
                ({"length_penalty": "wu"}, "length_penalty: expected one of gnmt, power, none"),
                ({"alpha": 10.5}, "alpha: expected a number from 0 to 10, found 10.5"),
                ({"alpha": True}, "alpha: expected a number"),
                ({"alpha": None}, "alpha: expected a number"),
                ({"source_language": 1}, "source_language: expected a string, found 1"),
                ({"subwords": 1}, "subwords: expected the name of a file, found 1")):
            self.assert_refused(message, config=translator_config(**changes))
        self.assert_refused('--encoder-prefix: a model with the task "translator" has none',
                            extra=["--encoder-prefix", "rnn"])
        self.assert_refused('--vocab: a model with the task "translator" has none', vocabulary="a\nb\nc\nd\ne\n")
        self.assert_refused('--labels: a model with the task "translator" has none', labels="a\nb\n")

    def test_refuses_bad_checkpoints(self):
        for changes, message in (
                ({"generator.0.bias": None},
                 "tensor 'generator.0.bias' is missing (shape [5]); check the config"),
                ({SRU + "weight": torch.zeros(4, 24)},
                 f"'{SRU}weight': expected shape [4, 18] from the config, found [4, 24]"),
                ({TARGET_TABLE: torch.zeros(5, 4)},
                 f"'{TARGET_TABLE}' differs from '{SOURCE_TABLE}'"),
                ({"encoder.transformer.2.layer_norm.bias": torch.zeros(4)},
                 "'encoder.transformer.2.layer_norm.bias' is not part of a model with this config"),
                ({"encoder.transformer.0.feed_forward.w_1.weight": torch.zeros(6, 4)},
                 "'encoder.transformer.0.feed_forward.w_1.weight' is not part of a model with this config"),
                ({"generator.0.weight": torch.zeros(6, 4)}, "expected shape [5, 4]")):
            self.assert_refused(message, state=translator_state(**changes))

    def test_takes_the_public_checkpoints(self):
        def check(given):
            for key, value in self.config()["translator"].items():
                self.assertEqual(value, given[key], key)
            self.assertEqual("preprocessing" in self.config(), "subwords" in given)

        self.check_public_checkpoints("golden_systems/translator/*", "checkpoints/translator_*", check=check)


if __name__ == "__main__":
    unittest.main()
