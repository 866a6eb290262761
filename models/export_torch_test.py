"""Tests of export_torch.py. Exits with 77, which CTest shows as skipped, without PyTorch."""

import contextlib
import io
import os
import re
import struct
import unittest

from testing.export_test_case import ExportTestCase, pieces_model, sru_state

import export_torch
import torch

from exporter.common import REQUIRED
from exporter.encoder import read_encoder
from exporter.stack import expected_tensors
from exporter.vocabulary import PREPROCESSINGS, WITHOUT_OOV

VOCABULARY = "<pad>\n<oov>\na\nb\nc\n"
LABELS = "no\nyes\n"


ENCODER = {"input_size": 4, "hidden_size": 3, "num_layers": 1, "bidirectional": True}


def without_none(given):
    return {name: value for name, value in given.items() if value is not None}


def small_config(**changes):
    return without_none({"sru_config": {**ENCODER, "dropout": 0.3}, "pooling": "max",
                         "preprocessing": "clean_str, lower-cased", "oov_id": 1, "task": "a note", **changes})


def small_state(**changes):
    return without_none({**sru_state(ENCODER, rows=5, outputs=2), **changes})


BYTES = [10, 32, 97, 98, 255]
WORDS = ["the", "</s>", "<unk>", "war", "peace"]


def lm_config(**changes):
    return without_none({"task": "language_model", "unit": "byte", "tied": False, "vocabulary": BYTES,
                         "sru_config": {**ENCODER, "bidirectional": False}, **changes})


def lm_state(**changes):
    """A state_dict with the names that the public code of the language models has."""
    encoder = {**ENCODER, "bidirectional": False}
    return without_none({**sru_state(encoder, 5, 5, names=("embedding_layer", "rnn", "output_layer")), **changes})


def tied_config(**changes):
    return lm_config(**{"unit": "word", "tied": True, "vocabulary": WORDS,
                        "sru_config": {"input_size": 4, "hidden_size": 4, "num_layers": 1}, **changes})


def tied_state(**changes):
    table = torch.arange(20, dtype=torch.float32).reshape(5, 4)
    return lm_state(**{"embedding_layer.weight": None, "embedding_layer.embedding.weight": table,
                       "output_layer.weight": table, "rnn.rnn_lst.0.weight": torch.ones(4, 12),
                       "rnn.rnn_lst.0.weight_c": torch.ones(8),
                       "rnn.rnn_lst.0.bias": torch.ones(8), **changes})


class ExportTest(ExportTestCase):

    def defaults(self):
        return {"config": small_config(), "state": small_state(), "vocabulary": VOCABULARY, "labels": LABELS}

    def test_writes_the_format(self):
        output = self.assert_exports(extra=["--description", "a t\u00e9st"])
        self.assertIn("sru_server --model_repository=", output)
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["config.json", "model.safetensors", "vocab.txt"])
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["1"])
        self.assertEqual(self.config(), {
            "format_version": 1,
            "description": "a t\u00e9st",
            "encoder": {**ENCODER, "projection_size": 0, "use_tanh": False, "layer_norm": False,
                        "normalize_after": False, "has_skip_term": True, "rescale": False,
                        "v1": False, "proj_input_to_hidden_first": False, "highway_bias": 0.0},
            "embedding": {"vocabulary_size": 5, "oov_id": 1},
            "preprocessing": {"type": "sentence_classification", "lowercase": True},
            "pooling": "max",
            "labels": ["no", "yes"],
        })
        self.assert_tensors(small_state())
        self.assertEqual(self.words(), VOCABULARY)

    def test_is_deterministic(self):
        def contents():
            with open(os.path.join(self.out, "model.safetensors"), "rb") as file:
                return file.read()
        self.assert_exports()
        first = contents()
        self.assertEqual(struct.unpack("<Q", first[:8])[0] % 8, 0)
        shuffled = dict(reversed(list(small_state().items())))
        self.assert_exports(state=shuffled)
        self.assertEqual(contents(), first)

    def test_never_overwrites_without_force(self):
        for expected in (0, 1):
            code, output = self.run_export(labels="no\nyes\n" if expected == 0 else "maybe\nyes\n")
            self.assertEqual(code, expected, output)
            self.assertEqual(self.config()["labels"], ["no", "yes"])
        self.assertIn("--force", output)
        self.assert_exports(labels="maybe\nyes\n")
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
        self.assert_exports()
        weights = os.path.join(self.out, "model.safetensors")
        os.symlink(weights, self.path("link"))
        for given in (weights, self.path("link")):
            refused(weights + ": is an input of the export", "--checkpoint", given)
        os.rename(self.out, self.path("moved"))
        self.write(self.out, "notes")
        refused(self.out + " is no directory")
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["1"])
        self.assertTrue(os.path.isfile(self.out))

    def test_takes_other_types_of_numbers(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            state = {name: tensor.to(dtype) for name, tensor in small_state().items()}
            self.assert_exports(state=state)
            self.assert_tensors({name: tensor.float() for name, tensor in state.items()})

    def test_not_contiguous_tensors(self):
        self.assert_exports(state=small_state(**{"out.weight": small_state()["out.weight"].t().contiguous().t()}))
        self.assert_tensors(small_state())

    def test_prefixes(self):
        renamed = {name.replace("embedding.", "words.").replace("encoder.", "net.rnn.")
                   .replace("out.", "net.head."): tensor for name, tensor in small_state().items()}
        self.assert_exports(state=renamed, extra=[
            "--embedding-prefix", "words", "--encoder-prefix", "net.rnn", "--classifier-prefix",
            "net.head"])
        self.assert_tensors(small_state())

    def test_encoder_of_features_with_an_empty_prefix(self):
        state = {name[len("encoder."):]: tensor for name, tensor in small_state().items()
                 if name.startswith("encoder.")}
        self.assert_exports(config={"sru_config": ENCODER}, state=state, vocabulary=None, labels=None,
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
            self.assert_exports(config=small_config(preprocessing=name))
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
                ({}, "bidirectional: the tensors of 'encoder' give 6 values per token, which may be one direction of "
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
            self.assert_refused(message, config=config)
        for key in ("oov_id", "preprocessing"):
            self.assert_refused(f"key '{key}' is missing", config=small_config(**{key: None}))

    def test_refuses_bad_word_lists(self):
        for vocabulary, message in (
                ("", "is empty"),
                ("<pad>\n<oov>\na\n\nc\n", "line 4 is empty"),
                ("<pad>\n<oov>\na\nb\na\n", "line 5 repeats line 3: 'a'"),
                ("<pad>\r\n<oov>\r\n", "line 1 has a carriage return"),
                (b"<pad>\n\xff\n", "not valid UTF-8 at byte 6"),
                ("\ufeffa\n", "byte order mark"),
                ("<pad>\n<oov>\na\nb\n", "expected shape [4, 4] from the config, found [5, 4]")):
            self.assert_refused(message, vocabulary=vocabulary)
        self.assert_refused("line 2 repeats line 1: 'no'", labels="no\nno\n")
        self.assert_refused("expected shape [3, 6] from the config, found [2, 6]",
                            labels="a\nb\nc\n")

    def test_refuses_bad_checkpoints(self):
        nan = torch.zeros(2)
        nan[1] = float("nan")
        for state, message in (
                (small_state(**{"out.weight": None}), "tensor 'out.weight' is missing (shape [2, 6])"),
                (small_state(**{"encoder.rnn_lst.0.scale_x": None}),
                 "tensor 'encoder.rnn_lst.0.scale_x' is missing"),
                (small_state(**{"encoder.rnn_lst.0.weight": torch.zeros(4, 18)}),
                 "'encoder.rnn_lst.0.weight': expected shape [4, 24] from the config, found "
                 "[4, 18]"),
                (small_state(**{"encoder.rnn_lst.1.weight": torch.zeros(6, 18)}),
                 "'encoder.rnn_lst.1.weight' is not part of a model with this config"),
                (small_state(**{"encoder.rnn_lst.0.custom_m.weight": torch.zeros(2)}), "custom_m"),
                (small_state(**{"decoder.weight": torch.zeros(2)}),
                 "tensor 'decoder.weight' belongs to no module"),
                (small_state(**{"out.bias": nan}), "'out.bias' holds values that are not finite"),
                (small_state(**{"out.bias": torch.full([2], 1e300, dtype=torch.float64)}),
                 "not finite in float32"),
                (small_state(**{"out.bias": torch.zeros(2, dtype=torch.int64)}),
                 "'out.bias': expected floating-point numbers, found torch.int64"),
                (small_state(**{"out.bias": 3}), "entry 'out.bias' is a int, expected a tensor"),
                ({}, "expected a state_dict"),
                ([1, 2], "expected a state_dict, found list")):
            self.assert_refused(message, state=state)
        self.assert_refused("tensor 'out.weight' belongs to no module", labels=None,
                            config=small_config(pooling="max"))

    def test_refuses_a_broken_checkpoint_file(self):
        self.assert_refused("cannot be loaded", checkpoint=self.write("bad.pt", b"no checkpoint"))
        self.assert_refused("cannot read the checkpoint", checkpoint=self.path("absent.pt"))
        # Cut short, which PyTorch reports in many ways, "Invalid argument" among them.
        whole = self.path("whole.pt")
        torch.save(small_state(), whole)
        with open(whole, "rb") as file:
            contents = file.read()
        for kept in (0, 1, 100, len(contents) // 2, len(contents) - 1):
            cut = self.write("cut.pt", contents[:kept])
            self.assertIn("is it whole?", self.assert_refused("cut.pt: cannot be loaded", checkpoint=cut))

    def test_refuses_a_bad_place(self):
        for out, message in (("repository/model/v1", "found 'v1'"),
                             ("repository/model/0", "found '0'"),
                             ("repository/my model/1", "found 'my model'"),
                             ("repository/.hidden/1", "found '.hidden'")):
            self.assert_refused(message, out=self.path(out))

    def test_shapes_follow_the_package(self):
        given = {"input_size": 10, "hidden_size": 8, "bidirectional": True, "projection_size": 6,
                 "layer_norm": True, "normalize_after": True}
        narrow = {"projection_size": 10, "normalize_after": False, "has_skip_term": False}
        for changes, shapes in (
                ({}, {"rnn_lst.0.weight_proj": [10, 6], "rnn_lst.0.weight": [6, 64], "rnn_lst.1.weight": [6, 48],
                      "rnn_lst.0.layer_norm.weight": [16]}),
                ({**narrow, "proj_input_to_hidden_first": True},
                 {"input_to_hidden.weight": [16, 10], "rnn_lst.0.weight_proj": [16, 10], "rnn_lst.0.weight": [10, 48]}),
                (narrow, {"rnn_lst.0.weight_proj": None, "rnn_lst.0.weight": [10, 48],
                          "rnn_lst.0.layer_norm.weight": [10]})):
            tensors = expected_tensors(read_encoder("c", {"sru_config": {**given, **changes}}), 0, 0)
            for name, shape in shapes.items():
                self.assertEqual(tensors.get("encoder." + name), shape)

    # ------------------------------------------------------------ other tokenizers

    def test_writes_every_tokenizer(self):
        words = {kind: VOCABULARY for kind in PREPROCESSINGS}
        words.update(bytes=None, sentencepiece=None, line_words="a\n<unk>\n</s>\nb\nc\n")
        for kind, vocabulary in words.items():
            preprocessing, extra = {"type": kind}, []
            if kind == "bytes":
                preprocessing["vocabulary"] = BYTES
            if kind == "sentencepiece":
                extra += ["--subwords", self.write("s.model", pieces_model(*"abcde"))]
            config = small_config(preprocessing=preprocessing, oov_id=None if kind in WITHOUT_OOV else 1)
            with self.subTest(kind):
                self.assert_exports(config=config, vocabulary=vocabulary, extra=extra)
                keys = {key: default for key, default in PREPROCESSINGS[kind].items()
                        if default is not REQUIRED}
                self.assertEqual(self.config()["preprocessing"], {**preprocessing, **keys})
                self.assertEqual(self.config()["embedding"].get("oov_id"), config.get("oov_id"))
                files = {"bytes": set(), "sentencepiece": {"spm.model"}}.get(kind, {"vocab.txt"})
                self.assertEqual(set(os.listdir(self.out)),
                                 {"config.json", "model.safetensors"} | files)
        self.assert_exports(config=small_config(preprocessing="characters", oov_id=None))
        self.assertEqual(self.config()["embedding"], {"vocabulary_size": 5})

    def test_says_what_becomes_of_unknown_text(self):
        for flags, key, expected in (([], None, None), (["--unknown", "refuse"], None, "refuse"), ([], "skip", "skip"),
                                     (["--unknown", "replace"], "skip", "replace")):
            preprocessing = {"type": "whitespace", **({"unknown": key} if key else {})}
            self.assert_exports(config=small_config(preprocessing=preprocessing), extra=flags)
            self.assertEqual(self.config()["preprocessing"].get("unknown"), expected)
        self.assert_refused("preprocessing.unknown: expected one of refuse, skip, replace; found \"keep\"",
                            config=small_config(preprocessing={"type": "whitespace", "unknown": "keep"}))

    def test_refuses_what_a_tokenizer_has_not(self):
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
            self.assert_refused(message, config=small_config(preprocessing=preprocessing, **changes), **arguments)

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


class LanguageModelTest(ExportTestCase):

    def defaults(self):
        return {"config": lm_config(), "state": lm_state()}

    def test_of_bytes(self):
        self.assertIn("sru_client score --model=model", self.assert_exports())
        self.assertEqual(sorted(os.listdir(self.out)), ["config.json", "model.safetensors"])
        config = self.config()
        config.pop("encoder")
        self.assertEqual(config, {
            "format_version": 1, "task": "language_model", "embedding": {"vocabulary_size": 5},
            "preprocessing": {"type": "bytes", "vocabulary": BYTES}})
        self.assert_tensors({name.replace("embedding_layer", "embedding").replace("rnn.rnn", "encoder.rnn")
                             .replace("output_layer", "out"): tensor for name, tensor in lm_state().items()})

    def test_of_words_tied(self):
        # The words may be in the config, a file instead, or both that agree.
        lines = "\n".join(WORDS) + "\n"
        for config, vocabulary in ((tied_config(), None), (tied_config(), lines), (tied_config(vocabulary=None), lines)):
            self.assert_exports(config=config, state=tied_state(), vocabulary=vocabulary)
            config = self.config()
            self.assertIs(config["tied"], True)
            self.assertEqual(config["preprocessing"], {"type": "line_words"})
            self.assertEqual(config["embedding"], {"vocabulary_size": 5})
            self.assertEqual(self.words(), lines)
            self.assertNotIn("out.weight", self.tensors())
            self.assertTrue(torch.equal(self.tensors()["embedding.weight"], tied_state()["output_layer.weight"]))

    def test_with_names_and_a_tokenizer_of_its_own(self):
        renamed = {name.replace("embedding_layer", "emb").replace("output_layer", "head"): tensor
                   for name, tensor in lm_state().items()}
        config = lm_config(unit=None, vocabulary=None, preprocessing="sentencepiece")
        self.assert_exports(config=config, state=renamed, extra=[
            "--subwords", self.write("s.model", pieces_model(*"abcde")),
            "--embedding-prefix", "emb", "--output-prefix", "head"])
        self.assertEqual(self.config()["preprocessing"], {"type": "sentencepiece"})
        with open(os.path.join(self.out, "spm.model"), "rb") as file:
            self.assertEqual(file.read(), pieces_model(*"abcde"))

    def test_refuses_bad_configs(self):
        for changes, message in (
                ({"sru_config": ENCODER}, "sru_config.bidirectional: expected false for a language model"),
                ({"pooling": "max"}, 'pooling: expected "none"'),
                ({"tied": 1}, "tied: expected true or false, found 1"),
                ({"tied": True},
                 "tied: expected false, since sru_config.input_size 4 is not sru_config.hidden_size"),
                ({"unit": "letter"}, 'unit: expected "byte" or "word"'),
                ({"unit": None}, "found null"),
                ({"preprocessing": "whitespace"}, "exclude each other"),
                ({"vocabulary": None}, "vocabulary: expected an array of 1 to"),
                ({"vocabulary": [1, 1]}, "ascending, found [1, 1]"),
                ({"vocabulary": BYTES[1:]},
                 "'embedding_layer.weight': expected shape [4, 4] from the config, found [5, 4]"),
                ({"unit": "word", "vocabulary": ["a", "b"]}, "the word </s>"),
                ({"unit": "word", "vocabulary": ["</s>", ""]}, "vocabulary[1]"),
                ({"unit": "word", "vocabulary": ["</s>", "</s>"]}, "vocabulary[1]"),
                ({"unit": "word", "vocabulary": ["</s>", "a\nb"]}, "vocabulary[1]"),
                ({"unit": "word", "vocabulary": None}, "vocabulary: is missing"),
                ({"task": "classifier"}, "task: a classifier needs --labels")):
            self.assert_refused(message, config=lm_config(**changes))
        self.assert_refused('--labels: a model with the task "language_model" has none', labels=LABELS)
        self.assert_refused("differs from the key vocabulary", config=tied_config(), state=tied_state(),
                            vocabulary="</s>\na\n")

    def test_refuses_bad_checkpoints(self):
        other = torch.arange(20, dtype=torch.float32).reshape(5, 4)
        other[4, 3] += 1e-3
        for changes, message in (
                ({"output_layer.bias": None}, "tensor 'out.bias' is missing (shape [5])"),
                ({"output_layer.weight": torch.zeros(5, 4)},
                 "'output_layer.weight': expected shape [5, 3] from the config, found [5, 4]"),
                ({"rnn.rnn_lst.1.bias": torch.zeros(6)},
                 "'rnn.rnn_lst.1.bias' is not part of a model with this config"),
                ({"dropout.mask": torch.zeros(6)}, "tensor 'dropout.mask' belongs to no module")):
            self.assert_refused(message, state=lm_state(**changes))
        for weight, message in (
                (other, "the output layer's weight differs from the embedding"),
                (torch.zeros(4, 4), "'output_layer.weight': expected shape [5, 4] from the config, found [4, 4]")):
            self.assert_refused(message, config=tied_config(), state=tied_state(**{"output_layer.weight": weight}))

    def test_takes_the_public_checkpoints(self):
        def check(given):
            self.assertEqual(self.config()["embedding"], {"vocabulary_size": len(given["vocabulary"])})
            self.assertEqual(self.config().get("tied", False), given["tied"])
            tensors = self.tensors()
            self.assertEqual(sum(tensor.numel() for name, tensor in tensors.items() if not name.endswith(".scale_x")),
                             given["parameters"])

        self.check_public_checkpoints("golden_systems/language_model/*", "checkpoints/lm_*", check=check)


class TaggerTest(ExportTestCase):

    def defaults(self):
        return {"config": small_config(task="tagger", pooling=None), "state": small_state(), "vocabulary": VOCABULARY,
                "labels": LABELS}

    def test_writes_the_format(self):
        output = self.assert_exports()
        self.assertIn("5 words, 2 labels of each token.", output)
        self.assertIn("sru_client tag --model=model", output)
        self.assertEqual(set(self.config()), {"format_version", "task", "encoder", "embedding", "preprocessing", "labels"})
        self.assertEqual((self.config()["task"], self.config()["labels"]), ("tagger", ["no", "yes"]))
        self.assert_tensors(small_state())

    def test_of_features_in_one_direction_without_bias(self):
        encoder = {**ENCODER, "bidirectional": False}
        state = sru_state(encoder, outputs=2)
        del state["out.bias"]
        self.assert_exports(config={"task": "tagger", "sru_config": encoder, "pooling": "none"}, state=state, vocabulary=None)
        self.assertEqual(set(self.config()), {"format_version", "task", "encoder", "labels"})
        self.assert_tensors(state)

    def test_of_flags_and_its_encoder_alone(self):
        self.assert_exports(config=small_config(task=None, pooling=None), extra=["--task", "tagger"])
        self.assertEqual(self.config()["task"], "tagger")
        self.assert_exports(extra=["--encoder_only"])
        self.assertEqual((self.config()["pooling"], "task" in self.config(), "labels" in self.config()), ("none", False, False))

    def test_refuses_what_a_tagger_cannot_be(self):
        self.assert_refused("task: a tagger needs --labels", labels=None)
        self.assert_refused('pooling: expected "none" or no such key for a tagger, found "max"',
                            config=small_config(task="tagger"))
        self.assert_refused("expected shape [3, 6] from the config, found [2, 6]", labels="a\nb\nc\n")
        self.assert_refused("if 'norm' is between the encoder and the output layer",
                            state=small_state(**{"norm.weight": torch.ones(6), "norm.bias": torch.ones(6)}))


if __name__ == "__main__":
    unittest.main()
