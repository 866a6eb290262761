"""Tests of export_torch.py. Exits with 77, which CTest shows as skipped, without PyTorch."""

import contextlib
import io
import json
import os
import re
import struct
import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: PyTorch is not installed (apt install python3-torch)")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import export_torch  # noqa: E402
from export_test_case import ExportTestCase, pieces_model, read_safetensors  # noqa: E402
from exporter.common import REQUIRED  # noqa: E402
from exporter.encoder import read_encoder  # noqa: E402
from exporter.stack import expected_tensors  # noqa: E402
from exporter.vocabulary import PREPROCESSINGS, WITHOUT_OOV  # noqa: E402

VOCABULARY = "<pad>\n<oov>\na\nb\nc\n"
LABELS = "no\nyes\n"


def small_config(**changes):
    return {"sru_config": {"input_size": 4, "hidden_size": 3, "num_layers": 1,
                           "bidirectional": True, "dropout": 0.3}, "pooling": "max",
            "preprocessing": "clean_str, lower-cased", "oov_id": 1, "task": "a note", **changes}


def small_state():
    generator = torch.Generator().manual_seed(7)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator)

    return {"embedding.weight": tensor(5, 4), "encoder.rnn_lst.0.weight": tensor(4, 24),
            "encoder.rnn_lst.0.weight_c": tensor(12), "encoder.rnn_lst.0.bias": tensor(12),
            "encoder.rnn_lst.0.scale_x": torch.ones(1), "out.weight": tensor(2, 6),
            "out.bias": tensor(2)}


BYTES = [10, 32, 97, 98, 255]
WORDS = ["the", "</s>", "<unk>", "war", "peace"]


def lm_config(**changes):
    config = {"task": "language_model", "unit": "byte", "tied": False, "vocabulary": BYTES,
              "sru_config": {"input_size": 4, "hidden_size": 3, "num_layers": 1,
                             "bidirectional": False}, **changes}
    return {key: value for key, value in config.items() if value is not None}


def lm_state(**changes):
    """A state_dict with the names that the public code of the language models has."""
    generator = torch.Generator().manual_seed(9)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator)

    state = {"embedding_layer.weight": tensor(5, 4), "rnn.rnn_lst.0.weight": tensor(4, 12),
             "rnn.rnn_lst.0.weight_c": tensor(6), "rnn.rnn_lst.0.bias": tensor(6),
             "rnn.rnn_lst.0.scale_x": torch.ones(1), "output_layer.weight": tensor(5, 3),
             "output_layer.bias": tensor(5), **changes}
    return {name: value for name, value in state.items() if value is not None}


def tied_config(**changes):
    return lm_config(unit="word", tied=True, vocabulary=WORDS,
                     sru_config={"input_size": 4, "hidden_size": 4, "num_layers": 1}, **changes)


def tied_state(**changes):
    table = torch.arange(20, dtype=torch.float32).reshape(5, 4)
    return lm_state(**{"embedding_layer.weight": None, "embedding_layer.embedding.weight": table,
                       "output_layer.weight": table, "rnn.rnn_lst.0.weight": torch.ones(4, 12),
                       "rnn.rnn_lst.0.weight_c": torch.ones(8),
                       "rnn.rnn_lst.0.bias": torch.ones(8), **changes})


class ExportTest(ExportTestCase):

    def run_export(self, config=None, state=None, vocabulary=VOCABULARY, labels=LABELS, **arguments):
        return super().run_export(small_config() if config is None else config,
                                  small_state() if state is None else state, vocabulary, labels,
                                  **arguments)

    def test_writes_the_format(self):
        output = self.assert_exports(extra=["--description", "a t\u00e9st"])
        self.assertIn("sru_server --model_repository=", output)
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["config.json", "model.safetensors", "vocab.txt"])
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["1"])
        self.assertEqual(self.config(), {
            "format_version": 1,
            "description": "a t\u00e9st",
            "encoder": {"input_size": 4, "hidden_size": 3, "num_layers": 1, "bidirectional": True,
                        "projection_size": 0, "use_tanh": False, "layer_norm": False,
                        "normalize_after": False, "has_skip_term": True, "rescale": False,
                        "v1": False, "proj_input_to_hidden_first": False, "highway_bias": 0.0},
            "embedding": {"vocabulary_size": 5, "oov_id": 1},
            "preprocessing": {"type": "sentence_classification", "lowercase": True},
            "pooling": "max",
            "labels": ["no", "yes"],
        })
        self.assert_written(small_state(), VOCABULARY)

    def test_is_deterministic(self):
        def contents():
            with open(os.path.join(self.out, "model.safetensors"), "rb") as file:
                return file.read()
        self.assert_exports()
        first = contents()
        self.assertEqual(struct.unpack("<Q", first[:8])[0] % 8, 0)
        shuffled = dict(reversed(list(small_state().items())))
        self.assert_exports(state=shuffled, extra=["--force"])
        self.assertEqual(contents(), first)

    def test_never_overwrites_without_force(self):
        self.assert_exports()
        code, output = self.run_export(labels="maybe\nyes\n")
        self.assertEqual(code, 1)
        self.assertIn("--force", output)
        self.assertEqual(self.config()["labels"], ["no", "yes"])
        self.assert_exports(labels="maybe\nyes\n", extra=["--force"])
        self.assertEqual(self.config()["labels"], ["maybe", "yes"])
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["1"])

    def test_force_deletes_nothing_but_a_model(self):
        def refused(message, *arguments):
            code, output = self.run_export(extra=["--force", *arguments])
            self.assertEqual(code, 1, output)
            self.assertIn(message, output)

        self.assert_exports()
        for name, make in (("best.pt", lambda path: self.write(path, "weights")), ("config.json.d", os.mkdir)):
            path = os.path.join(self.out, name)
            make(path)
            refused(path + ": the exporter does not write this")
            self.assertTrue(os.path.exists(path))
            (os.rmdir if os.path.isdir(path) else os.remove)(path)
        self.assert_exports(extra=["--force"])
        weights = os.path.join(self.out, "model.safetensors")
        os.symlink(weights, self.path("link"))
        for given in (weights, self.path("link")):
            refused(weights + ": is an input of the export", "--checkpoint", given)
        os.rename(self.out, self.path("moved"))
        self.write(self.out, "notes")
        refused(self.out + " is no directory")
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["1"])
        self.assertTrue(os.path.isfile(self.out))

    def test_takes_other_shapes_of_checkpoints(self):
        state = small_state()
        for given in ({"state_dict": state, "epoch": 3},
                      {"module." + name: tensor for name, tensor in state.items()},
                      {name: tensor.half() for name, tensor in state.items()},
                      {name: tensor.bfloat16() for name, tensor in state.items()},
                      {name: tensor.double() for name, tensor in state.items()}):
            self.assert_exports(state=given, extra=["--force"])
            tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
            for name, tensor in state.items():
                self.assertTrue(torch.allclose(tensors[name], tensor, atol=0.02), name)

    def test_not_contiguous_tensors(self):
        state = small_state()
        expected = state["out.weight"].clone()
        state["out.weight"] = state["out.weight"].t().contiguous().t()
        self.assert_exports(state=state)
        tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
        self.assertTrue(torch.equal(tensors["out.weight"], expected))

    def test_prefixes(self):
        renamed = {name.replace("embedding.", "words.").replace("encoder.", "net.rnn.")
                   .replace("out.", "net.head."): tensor for name, tensor in small_state().items()}
        self.assert_exports(state=renamed, extra=[
            "--embedding-prefix", "words", "--encoder-prefix", "net.rnn", "--classifier-prefix",
            "net.head"])
        tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
        self.assertEqual(set(tensors), set(small_state()))

    def test_encoder_of_features_with_an_empty_prefix(self):
        state = {name[len("encoder."):]: tensor for name, tensor in small_state().items()
                 if name.startswith("encoder.")}
        config = {"sru_config": small_config()["sru_config"]}
        self.assert_exports(config=config, state=state, vocabulary=None, labels=None,
                            extra=["--encoder-prefix", ""])
        self.assertEqual(set(self.config()), {"format_version", "encoder", "pooling"})
        self.assertEqual(self.config()["pooling"], "none")
        self.assertEqual(os.listdir(self.out).count("vocab.txt"), 0)

    def test_preprocessing_names(self):
        for name, expected in (
                ("whitespace", {"type": "whitespace"}),
                ("lowercase", {"type": "lowercase"}),
                ("none: split on whitespace", {"type": "whitespace"}),
                ("clean_str, case kept", {"type": "sentence_classification", "lowercase": False}),
                ("sentence_classification",
                 {"type": "sentence_classification", "lowercase": False}),
                ({"type": "sentence_classification", "lowercase": True},
                 {"type": "sentence_classification", "lowercase": True})):
            self.assert_exports(config=small_config(preprocessing=name), extra=["--force"])
            self.assertEqual(self.config()["preprocessing"], expected)

    def test_notes_what_is_probably_misspelled(self):
        output = self.assert_exports(config=small_config(poolng="mean", task="clasifier", dataset="trec"))
        self.assertIn("the key 'poolng' was taken for information only; is 'pooling' meant?", output)
        self.assertIn("the task 'clasifier' was taken for information only; is 'classifier' meant?", output)
        self.assertNotIn("dataset", output)

    def test_refuses_bad_configs(self):
        def sru(**changes):
            return small_config(sru_config={**small_config()["sru_config"], **changes})

        for config, message in (
                ("{", "is not JSON"),
                ("[]", "expected a JSON object"),
                (b"\xff", "not valid UTF-8 at byte 0"),
                ('{"pooling": "max", "pooling": "max"}', "key 'pooling' appears twice"),
                ("{}", "bidirectional: the tensors of 'encoder' give 6 values per token, which may be one direction of "
                 "6 or two of 3; say --sru bidirectional=false or --sru bidirectional=true"),
                (sru(custom_m="x"), "custom_m"),
                (sru(hidden=3), "sru_config.hidden: is not an argument of sru.SRU"),
                (sru(hidden_size=0), "sru_config.hidden_size: expected an integer from 1 to 16384"),
                (sru(hidden_size=True), "found true"),
                (sru(v1=1), "sru_config.v1: expected true or false, found 1"),
                (sru(highway_bias="x"), "sru_config.highway_bias: expected a number"),
                (small_config(sru_config={"input_size": 4}), "sru_config.hidden_size: is missing"),
                (small_config(pooling="none"), "pooling: expected one of first, last, max, mean"),
                (small_config(pooling="average"), "pooling: expected one of"),
                (small_config(preprocessing="bert"), "preprocessing: expected one of"),
                (small_config(oov_id=5), "oov_id: expected an integer from 0 to 4, found 5")):
            with self.subTest(message):
                self.assert_refused(message, config=config)
        for key in ("oov_id", "preprocessing"):
            config = small_config()
            del config[key]
            self.assert_refused(f"key '{key}' is missing", config=config)

    def test_refuses_bad_word_lists(self):
        for vocabulary, message in (
                ("", "is empty"),
                ("<pad>\n<oov>\na\n\nc\n", "line 4 is empty"),
                ("<pad>\n<oov>\na\nb\na\n", "line 5 repeats line 3: 'a'"),
                ("<pad>\r\n<oov>\r\n", "line 1 has a carriage return"),
                (b"<pad>\n\xff\n", "not valid UTF-8 at byte 6"),
                ("\ufeffa\n", "byte order mark"),
                ("<pad>\n<oov>\na\nb\n", "expected shape [4, 4] from the config, found [5, 4]")):
            with self.subTest(message):
                self.assert_refused(message, vocabulary=vocabulary)
        self.assert_refused("line 2 repeats line 1: 'no'", labels="no\nno\n")
        self.assert_refused("expected shape [3, 6] from the config, found [2, 6]",
                            labels="a\nb\nc\n")

    def test_refuses_bad_checkpoints(self):
        def changed(**changes):
            state = small_state()
            for name, tensor in changes.items():
                if tensor is None:
                    del state[name]
                else:
                    state[name] = tensor
            return state

        nan = torch.zeros(2)
        nan[1] = float("nan")
        for state, message in (
                (changed(**{"out.weight": None}), "tensor 'out.weight' is missing (shape [2, 6])"),
                (changed(**{"encoder.rnn_lst.0.scale_x": None}),
                 "tensor 'encoder.rnn_lst.0.scale_x' is missing"),
                (changed(**{"encoder.rnn_lst.0.weight": torch.zeros(4, 18)}),
                 "'encoder.rnn_lst.0.weight': expected shape [4, 24] from the config, found "
                 "[4, 18]"),
                (changed(**{"encoder.rnn_lst.1.weight": torch.zeros(6, 18)}),
                 "'encoder.rnn_lst.1.weight' is not part of a model with this config"),
                (changed(**{"encoder.rnn_lst.0.custom_m.weight": torch.zeros(2)}), "custom_m"),
                (changed(**{"decoder.weight": torch.zeros(2)}),
                 "tensor 'decoder.weight' belongs to no module"),
                (changed(**{"out.bias": nan}), "'out.bias' holds values that are not finite"),
                (changed(**{"out.bias": torch.full([2], 1e300, dtype=torch.float64)}),
                 "not finite in float32"),
                (changed(**{"out.bias": torch.zeros(2, dtype=torch.int64)}),
                 "'out.bias': expected floating-point numbers, found torch.int64"),
                (changed(**{"out.bias": 3}), "entry 'out.bias' is a int, expected a tensor"),
                ({}, "expected a state_dict"),
                ([1, 2], "expected a state_dict, found list")):
            with self.subTest(message):
                self.assert_refused(message, state=state)
        self.assert_refused("tensor 'out.weight' belongs to no module", labels=None,
                            config=small_config(pooling="max"))

    def test_refuses_a_broken_checkpoint_file(self):
        def run(path):
            self.write("c.json", json.dumps(small_config()))
            code, output = self.export(
                "--checkpoint", path, "--config", self.path("c.json"), "--vocab", self.write("v.txt", VOCABULARY),
                "--labels", self.write("l.txt", LABELS), "--out", self.out)
            self.assertEqual(code, 1)
            return output

        self.assertIn("cannot be loaded", run(self.write("bad.pt", b"no checkpoint")))
        self.assertIn("cannot read the checkpoint", run(self.path("absent.pt")))
        # Cut short, which PyTorch reports in many ways, "Invalid argument" among them.
        whole = self.path("whole.pt")
        torch.save(small_state(), whole)
        with open(whole, "rb") as file:
            contents = file.read()
        for kept in (0, 1, 100, len(contents) // 2, len(contents) - 1):
            error = run(self.write("cut.pt", contents[:kept]))
            self.assertIn("cut.pt: cannot be loaded", error)
            self.assertIn("is it whole?", error)

    def test_never_runs_code_from_a_checkpoint(self):
        marker = self.path("marker")

        class Evil:
            def __reduce__(self):
                return (os.mkdir, (marker,))

        self.assert_refused("cannot be loaded", state={"state_dict": small_state(), "x": Evil()})
        self.assertFalse(os.path.exists(marker))

    def test_refuses_a_bad_place(self):
        for out, message in (("repository/model/v1", "found 'v1'"),
                             ("repository/model/0", "found '0'"),
                             ("repository/my model/1", "found 'my model'"),
                             ("repository/.hidden/1", "found '.hidden'")):
            self.assert_refused(message, out=self.path(out))

    def test_shapes_follow_the_package(self):
        encoder = read_encoder("c", {"sru_config": {
            "input_size": 10, "hidden_size": 8, "bidirectional": True, "projection_size": 6,
            "layer_norm": True, "normalize_after": True}})
        tensors = expected_tensors(encoder, 0, 0)
        self.assertEqual(tensors["encoder.rnn_lst.0.weight_proj"][0], [10, 6])
        self.assertEqual(tensors["encoder.rnn_lst.0.weight"][0], [6, 64])
        self.assertEqual(tensors["encoder.rnn_lst.0.layer_norm.weight"][0], [16])
        self.assertEqual(tensors["encoder.rnn_lst.1.weight"][0], [6, 48])
        encoder.update(projection_size=10, proj_input_to_hidden_first=True, normalize_after=False,
                       has_skip_term=False)
        tensors = expected_tensors(encoder, 0, 0)
        self.assertEqual(tensors["encoder.input_to_hidden.weight"][0], [16, 10])
        self.assertEqual(tensors["encoder.rnn_lst.0.weight_proj"][0], [16, 10])
        self.assertEqual(tensors["encoder.rnn_lst.0.weight"][0], [10, 48])
        encoder.update(proj_input_to_hidden_first=False)
        tensors = expected_tensors(encoder, 0, 0)
        self.assertNotIn("encoder.rnn_lst.0.weight_proj", tensors)
        self.assertEqual(tensors["encoder.rnn_lst.0.weight"][0], [10, 48])
        self.assertEqual(tensors["encoder.rnn_lst.0.layer_norm.weight"][0], [10])

    # ------------------------------------------------------------ other tokenizers

    def test_writes_every_tokenizer(self):
        words = {kind: VOCABULARY for kind in PREPROCESSINGS}
        words.update(bytes=None, sentencepiece=None, line_words="a\n<unk>\n</s>\nb\nc\n")
        for kind, vocabulary in words.items():
            preprocessing, changes, extra = {"type": kind}, {}, ["--force"]
            if kind == "bytes":
                preprocessing["vocabulary"] = BYTES
            if kind == "sentencepiece":
                extra += ["--subwords", self.write("s.model", pieces_model(*"abcde"))]
            config = small_config(preprocessing=preprocessing, **changes)
            if kind in WITHOUT_OOV:
                del config["oov_id"]
            with self.subTest(kind):
                self.assert_exports(config=config, vocabulary=vocabulary, extra=extra)
                keys = {key: default for key, default in PREPROCESSINGS[kind].items()
                        if default is not REQUIRED}
                self.assertEqual(self.config()["preprocessing"], {**preprocessing, **keys})
                self.assertEqual(self.config()["embedding"].get("oov_id"), config.get("oov_id"))
                files = {"bytes": set(), "sentencepiece": {"spm.model"}}.get(kind, {"vocab.txt"})
                self.assertEqual(set(os.listdir(self.out)),
                                 {"config.json", "model.safetensors"} | files)
        config = small_config(preprocessing="characters")
        del config["oov_id"]
        self.assert_exports(config=config, extra=["--force"])
        self.assertEqual(self.config()["embedding"], {"vocabulary_size": 5})

    def test_refuses_what_a_tokenizer_has_not(self):
        def config(preprocessing, **changes):
            changed = small_config(preprocessing=preprocessing, **changes)
            return {key: value for key, value in changed.items() if value is not None}

        spm = ["--subwords", self.write("s.model", pieces_model(*"abcd"))]
        cut = ["--subwords", self.write("cut.model", pieces_model(*"abcde")[:-3])]
        other = ["--subwords", self.write("other.model", b"text")]
        absent = ["--subwords", self.path("absent.model")]
        for preprocessing, changes, arguments, message in (
                ("bytes", {}, {}, "preprocessing: expected one of"),
                ({"type": "bytes"}, {}, {}, "preprocessing.vocabulary: expected an array of 1 to"),
                ({"type": "bytes", "vocabulary": [2, 1]}, {}, {}, "ascending, found [2, 1]"),
                ({"type": "bytes", "vocabulary": BYTES}, {}, {"vocabulary": None},
                 'oov_id: is not read with preprocessing "bytes"'),
                ({"type": "bytes", "vocabulary": BYTES}, {"oov_id": None}, {},
                 '--vocab: is not read with preprocessing "bytes"'),
                ({"type": "bytes", "vocabulary": BYTES[1:]}, {"oov_id": None}, {"vocabulary": None},
                 "expected shape [4, 4] from the config, found [5, 4]"),
                ("line_words", {"oov_id": None}, {}, "the word </s>, which a newline becomes"),
                ("line_words", {}, {"vocabulary": "</s>\na\n"}, "oov_id: is not read with"),
                ("unicode_words", {"oov_id": None}, {}, "key 'oov_id' is missing"),
                ("sentencepiece", {"oov_id": None}, {"vocabulary": None}, "--subwords: is needed"),
                ("sentencepiece", {"oov_id": None}, {"vocabulary": None, "extra": spm},
                 "expected shape [4, 4] from the config, found [5, 4]"),
                ("sentencepiece", {"oov_id": None}, {"vocabulary": None, "extra": cut},
                 "cut.model: is not a SentencePiece model, or a damaged one"),
                ("sentencepiece", {"oov_id": None}, {"vocabulary": None, "extra": other},
                 "other.model: is not a SentencePiece model"),
                ("sentencepiece", {"oov_id": None}, {"vocabulary": None, "extra": absent},
                 "cannot read the subwords"),
                ("whitespace", {}, {"extra": spm}, "--subwords: is not read with preprocessing")):
            with self.subTest(message):
                self.assert_refused(message, config=config(preprocessing, **changes), **arguments)

    # ------------------------------------------------------------ language models

    def run_language_model(self, config, state, **arguments):
        return dict(config=config, state=state, **{"vocabulary": None, "labels": None, **arguments})

    def test_language_model_of_bytes(self):
        output = self.assert_exports(**self.run_language_model(lm_config(), lm_state()))
        self.assertIn("sru_client score --model=model", output)
        self.assertEqual(sorted(os.listdir(self.out)), ["config.json", "model.safetensors"])
        config = self.config()
        config.pop("encoder")
        self.assertEqual(config, {
            "format_version": 1, "task": "language_model", "embedding": {"vocabulary_size": 5},
            "preprocessing": {"type": "bytes", "vocabulary": BYTES}})
        tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
        names = {name.replace("embedding_layer", "embedding").replace("rnn.rnn", "encoder.rnn")
                 .replace("output_layer", "out"): tensor for name, tensor in lm_state().items()}
        self.assertEqual(set(tensors), set(names))
        for name, tensor in names.items():
            self.assertTrue(torch.equal(tensors[name], tensor), name)

    def test_language_model_of_words_tied(self):
        self.assert_exports(**self.run_language_model(tied_config(), tied_state()))
        config = self.config()
        self.assertIs(config["tied"], True)
        self.assertEqual(config["preprocessing"], {"type": "line_words"})
        self.assertEqual(config["embedding"], {"vocabulary_size": 5})
        with open(os.path.join(self.out, "vocab.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), WORDS)
        tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
        self.assertNotIn("out.weight", tensors)
        self.assertTrue(torch.equal(tensors["embedding.weight"],
                                    tied_state()["output_layer.weight"]))
        # The words may be a file instead, or both that agree.
        lines = "\n".join(WORDS) + "\n"
        without = {key: value for key, value in tied_config().items() if key != "vocabulary"}
        for given in (tied_config(), without):
            self.assert_exports(**self.run_language_model(given, tied_state(), vocabulary=lines,
                                                          extra=["--force"]))

    def test_language_model_with_names_and_a_tokenizer_of_its_own(self):
        renamed = {name.replace("embedding_layer", "emb").replace("output_layer", "head"): tensor
                   for name, tensor in lm_state().items()}
        config = lm_config(unit=None, vocabulary=None, preprocessing="sentencepiece")
        self.assert_exports(**self.run_language_model(config, renamed, extra=[
            "--subwords", self.write("s.model", pieces_model(*"abcde")),
            "--embedding-prefix", "emb", "--output-prefix", "head"]))
        self.assertEqual(self.config()["preprocessing"], {"type": "sentencepiece"})
        with open(os.path.join(self.out, "spm.model"), "rb") as file:
            self.assertEqual(file.read(), pieces_model(*"abcde"))

    def test_refuses_what_a_language_model_cannot_be(self):
        def sru(**changes):
            return {"sru_config": {**lm_config()["sru_config"], **changes}}

        other = torch.arange(20, dtype=torch.float32).reshape(5, 4)
        other[4, 3] += 1e-3
        for config, state, message in (
                (lm_config(**sru(bidirectional=True)), lm_state(),
                 "sru_config.bidirectional: expected false for a language model"),
                (lm_config(pooling="max"), lm_state(), 'pooling: expected "none"'),
                (lm_config(tied=1), lm_state(), "tied: expected true or false, found 1"),
                (lm_config(tied=True), lm_state(),
                 "tied: expected false, since sru_config.input_size 4 is not sru_config.hidden_size"),
                (lm_config(unit="letter"), lm_state(), 'unit: expected "byte" or "word"'),
                (lm_config(unit=None), lm_state(), "found null"),
                (lm_config(preprocessing="whitespace"), lm_state(), "exclude each other"),
                (lm_config(vocabulary=None), lm_state(), "vocabulary: expected an array of 1 to"),
                (lm_config(vocabulary=[1, 1]), lm_state(), "ascending, found [1, 1]"),
                (lm_config(vocabulary=BYTES[1:]), lm_state(),
                 "'embedding_layer.weight': expected shape [4, 4] from the config, found [5, 4]"),
                (lm_config(), lm_state(**{"output_layer.bias": None}),
                 "tensor 'out.bias' is missing (shape [5])"),
                (lm_config(), lm_state(**{"output_layer.weight": torch.zeros(5, 4)}),
                 "'output_layer.weight': expected shape [5, 3] from the config, found [5, 4]"),
                (lm_config(), lm_state(**{"rnn.rnn_lst.1.bias": torch.zeros(6)}),
                 "'rnn.rnn_lst.1.bias' is not part of a model with this config"),
                (lm_config(), lm_state(**{"dropout.mask": torch.zeros(6)}),
                 "tensor 'dropout.mask' belongs to no module"),
                (tied_config(), tied_state(**{"output_layer.weight": other}),
                 "the output layer's weight differs from the embedding"),
                (tied_config(), tied_state(**{"output_layer.weight": torch.zeros(4, 4)}),
                 "'output_layer.weight': expected shape [5, 4] from the config, found [4, 4]"),
                (lm_config(unit="word", vocabulary=["a", "b"]), lm_state(), "the word </s>"),
                (lm_config(unit="word", vocabulary=["</s>", ""]), lm_state(), "vocabulary[1]"),
                (lm_config(unit="word", vocabulary=["</s>", "</s>"]), lm_state(), "vocabulary[1]"),
                (lm_config(unit="word", vocabulary=["</s>", "a\nb"]), lm_state(), "vocabulary[1]"),
                (lm_config(unit="word", vocabulary=None), lm_state(), "vocabulary: is missing"),
                (lm_config(task="classifier"), lm_state(), "task: a classifier needs --labels")):
            with self.subTest(message):
                self.assert_refused(message, **self.run_language_model(config, state))
        self.assert_refused('--labels: a model with the task "language_model" has none',
                            **self.run_language_model(lm_config(), lm_state(), labels=LABELS))
        self.assert_refused(
            "differs from the key vocabulary",
            **self.run_language_model(tied_config(), tied_state(), vocabulary="</s>\na\n"))

    def tagger_config(self, **changes):
        config = small_config(task="tagger", **changes)
        return {key: value for key, value in config.items() if key != "pooling" or "pooling" in changes}

    def test_tagger(self):
        output = self.assert_exports(config=self.tagger_config())
        self.assertIn("5 words, 2 labels of each token.", output)
        self.assertIn("sru_client tag --model=model", output)
        self.assertEqual(set(self.config()), {"format_version", "task", "encoder", "embedding", "preprocessing", "labels"})
        self.assertEqual((self.config()["task"], self.config()["labels"]), ("tagger", ["no", "yes"]))
        self.assert_written(small_state(), VOCABULARY)

    def test_tagger_of_features_in_one_direction_without_bias(self):
        state = {name: tensor for name, tensor in small_state().items() if name not in ("embedding.weight", "out.bias")}
        state.update({"encoder.rnn_lst.0.weight": torch.ones(4, 12), "encoder.rnn_lst.0.weight_c": torch.ones(6),
                      "encoder.rnn_lst.0.bias": torch.ones(6), "out.weight": torch.ones(2, 3)})
        config = {"task": "tagger", "sru_config": {"input_size": 4, "hidden_size": 3, "num_layers": 1}, "pooling": "none"}
        self.assert_exports(config=config, state=state, vocabulary=None)
        self.assertEqual(set(self.config()), {"format_version", "task", "encoder", "labels"})
        self.assertEqual(set(read_safetensors(os.path.join(self.out, "model.safetensors"))), set(state))

    def test_tagger_of_flags_and_its_encoder_alone(self):
        config = {key: value for key, value in self.tagger_config().items() if key != "task"}
        self.assert_exports(config=config, extra=["--task", "tagger"])
        self.assertEqual(self.config()["task"], "tagger")
        self.assert_exports(config=self.tagger_config(), extra=["--encoder_only", "--force"])
        self.assertEqual((self.config()["pooling"], "task" in self.config(), "labels" in self.config()), ("none", False, False))

    def test_refuses_what_a_tagger_cannot_be(self):
        self.assert_refused("task: a tagger needs --labels", config=self.tagger_config(), labels=None)
        self.assert_refused('pooling: expected "none" or no such key for a tagger, found "max"',
                            config=self.tagger_config(pooling="max"))
        self.assert_refused("expected shape [3, 6] from the config, found [2, 6]", config=self.tagger_config(),
                            labels="a\nb\nc\n")
        self.assert_refused("if 'norm' is between the encoder and the output layer", config=self.tagger_config(),
                            state={**small_state(), "norm.weight": torch.ones(6), "norm.bias": torch.ones(6)})

    def test_takes_the_public_checkpoints(self):
        def check(given):
            self.assertEqual(self.config()["embedding"], {"vocabulary_size": len(given["vocabulary"])})
            self.assertEqual(self.config().get("tied", False), given["tied"])
            tensors = read_safetensors(os.path.join(self.out, "model.safetensors"))
            self.assertEqual(sum(tensor.numel() for name, tensor in tensors.items() if not name.endswith(".scale_x")),
                             given["parameters"])

        self.check_public_checkpoints("golden_systems/language_model/*", "checkpoints/lm_*", check=check)

    def test_help_teaches(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), self.assertRaises(SystemExit) as exit_:
            export_torch.main(["--help"])
        self.assertEqual(exit_.exception.code, 0)
        for word in ("sru_config", "oov_id", "example:", "sru_server", "A CLASSIFIER", "AN ENCODER", "A LANGUAGE MODEL",
                     "A TAGGER", "A READER", "A TRANSLATOR", "--check mine.json"):
            self.assertIn(word, output.getvalue())
        names = re.search(r"the tokenizer \(FORMAT.md\):(.*?)or an object", output.getvalue(), re.DOTALL).group(1)
        self.assertEqual(set(re.findall('"(.*?)"', names)), set(PREPROCESSINGS) - {"bytes"})


if __name__ == "__main__":
    unittest.main()
