"""Tests of the exporter on the checkpoints and vocabularies that people have. Exits with 77, which CTest shows as skipped,
without PyTorch."""

import argparse
import bz2
import collections
import contextlib
import gzip
import io
import json
import lzma
import os
import pathlib
import pickle
import struct
import tempfile
import unittest
import zipfile

from testing.export_test_case import ExportTestCase, sru_state

import torch
import torch.nn.utils.prune
from torch.nn import Linear

from exporter import words
from exporter.common import progress
from exporter.encoder_shapes import infer_encoder

LABELS = "no\nyes\n"
FLAGS = ["--preprocessing", "whitespace", "--pooling", "max"]  # in place of a config
WORDS = ["<pad>", "<unk>", "the", "film", "good", "bad", "!"]


def make_state(rows=7, width=4, hidden=3, layers=1, directions=2, names=("emb", "net.rnn", "head"), **options):
    """The state_dict of a classifier whose modules have these names."""
    encoder = {"input_size": width, "hidden_size": hidden, "num_layers": layers, "bidirectional": directions == 2}
    return sru_state(encoder, rows, 2 if names[2] else 0, names=names, **options)


def config(**changes):
    made = {"sru_config": {"input_size": 4, "hidden_size": 3, "num_layers": 1, "bidirectional": True}, "pooling": "max",
            "preprocessing": "whitespace", "oov_id": 1, **changes}
    return {key: value for key, value in made.items() if value is not None}


def safetensors(state):
    header, data = {}, b""
    for name, tensor in state.items():
        values = struct.pack(f"<{tensor.numel()}f", *tensor.flatten().tolist())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


Saved = collections.namedtuple("Saved", "epoch weights")


class HyperParameters:
    """A class of the user's own program."""

    def __init__(self):
        self.bidirectional = True
        self.hidden_size = 3


class CheckpointsTest(ExportTestCase):

    def defaults(self):
        return {"config": config(), "state": make_state(), "vocabulary": "\n".join(WORDS) + "\n", "labels": LABELS}

    def assert_exported(self, state, names=("emb", "net.rnn", "head")):
        """The model has the tensors of `state`."""
        tensors = self.tensors()
        for name, tensor in state.items():
            for module, canonical in zip(names, ("embedding", "encoder", "out")):
                if name.startswith(module + "."):
                    self.assertTrue(torch.equal(tensors[canonical + name[len(module):]], tensor), name)
        self.assertEqual(len(tensors), len(state))

    def assert_read(self, path, state, **arguments):
        self.assert_exports(checkpoint=path, **arguments)
        self.assert_exported(state)

    def saved(self, state, **options):
        """The bytes that torch.save() writes."""
        torch.save(state, self.path("m.pt"), **options)
        with open(self.path("m.pt"), "rb") as file:
            return file.read()

    # ------------------------------------------------------------ forms of checkpoints

    def test_dicts_around_the_weights(self):
        state = make_state()
        optimizer = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
        for given in ({"model_state_dict": state, "optimizer_state_dict": optimizer, "epoch": 3},
                      {"model": state, "optimizer": optimizer},
                      {"model": state, "ema": make_state(seed=8)},
                      {"net": {"state_dict": state}}, (state, {"epoch": 3, "loss": torch.tensor(0.1)}), [optimizer, state],
                      [{"model": state, "epoch": 1}, optimizer], Saved(3, state),
                      {"_orig_mod." + name: tensor for name, tensor in state.items()},
                      {"module._orig_mod." + name: tensor for name, tensor in state.items()},
                      {"n_averaged": torch.tensor(3), **{"module." + name: tensor for name, tensor in state.items()}},
                      {**state, **{"ema_model." + name: -tensor for name, tensor in state.items()}}):
            with self.subTest(str(list(given)[:2])[:80]):
                self.assert_exports(state=given)
                self.assert_exported(state)
        self.assert_exports(state={"model": make_state(seed=8), "ema": state}, extra=["--weights", "ema"])
        self.assert_exported(state)

    def test_several_state_dicts_need_a_choice(self):
        state = {"teacher": make_state(), "student": make_state(seed=8)}
        self.assert_refused("choose one with --weights: 'teacher', 'student'", state=state)
        self.assert_refused("--weights nobody: the checkpoint", state=state, extra=["--weights", "nobody"])
        self.assert_exports(state=state, extra=["--weights", "student"])
        self.assert_exported(state["student"])

    def test_lightning_files_with_objects(self):
        state = {"model." + name: tensor for name, tensor in make_state().items()}
        file = {"epoch": 1, "state_dict": state, "hyper_parameters": argparse.Namespace(
            bidirectional=True, root=pathlib.Path("/data"), own=HyperParameters()),
                "callbacks": {"checkpoint": HyperParameters()}, "counts": collections.Counter("abc")}
        try:
            import numpy
            file["best"] = numpy.float64(0.5)
            file["array"] = numpy.zeros(3)
        except ImportError:
            pass
        self.assert_exports(config=None, state=file, extra=FLAGS)
        self.assertTrue(self.config()["encoder"]["bidirectional"])
        self.assert_exported(state, ("model.emb", "model.net.rnn", "model.head"))

    def test_hyper_parameters_of_a_class_of_ones_own(self):
        self.assert_exports(config=None, state={"state_dict": make_state(), "hparams": HyperParameters()}, extra=FLAGS)
        self.assertEqual(self.config()["encoder"]["hidden_size"], 3)

    def test_a_whole_pickled_module(self):
        module = torch.nn.Module()
        module.emb = torch.nn.Embedding(7, 4)
        module.net = torch.nn.Module()
        module.net.rnn = SRU()
        module.head = torch.nn.Sequential(torch.nn.Dropout(0.5), Linear(6, 2))
        output = self.assert_exports(config=None, state=module, extra=FLAGS)
        self.assertEqual(self.config()["encoder"]["use_tanh"], True)
        self.assertEqual(self.config()["encoder"]["bidirectional"], True)
        self.assertNotIn("taken for Dropout", output)
        self.assertTrue(torch.equal(self.tensors()["out.weight"], module.head[1].weight))
        module.head = torch.nn.Sequential(Linear(6, 5), torch.nn.ReLU(), Linear(5, 2))
        output = self.assert_refused("'head.1' (ReLU)", config=None, state=module, extra=FLAGS)
        self.assertIn("--encoder_only", output)

    def test_an_attack_is_refused_in_every_form(self):
        marker = self.path("marker")

        class Evil:
            def __init__(self, *made):
                self.made = made

            def __reduce__(self):
                return self.made

        for evil, message in ((Evil(eval, (f"__import__('os').mkdir({marker!r})",)), "builtin__.eval, which no checkpoint needs"),
                              (Evil(os.mkdir, (marker,)), "mkdir, which no checkpoint needs")):
            for is_zip in (True, False):
                self.saved({"state_dict": make_state(), "x": evil}, _use_new_zipfile_serialization=is_zip)
                self.assert_refused(message, checkpoint=self.path("m.pt"))
        self.assertFalse(os.path.exists(marker))

    def test_both_forms_with_every_protocol(self):
        state = make_state()
        for is_zip in (True, False):
            for protocol in range(1, 6):
                with self.subTest(zip=is_zip, protocol=protocol):
                    self.saved({"state_dict": state}, pickle_protocol=protocol, _use_new_zipfile_serialization=is_zip)
                    self.assert_read(self.path("m.pt"), state)

    def test_cut_files_of_the_old_form(self):
        whole = self.saved(make_state(), _use_new_zipfile_serialization=False)
        for kept in range(1, len(whole), len(whole) // 40):
            self.assert_refused("write it anew: torch.save(", checkpoint=self.write("cut.pt", whole[:kept]))
        self.assert_refused("a pickle that torch.save did not write",
                            checkpoint=self.write("m.pkl", pickle.dumps({"a": 1})))

    def test_the_negative_bit(self):
        class View:
            """What PyTorch writes of a tensor that is a view with another sign, whatever this PyTorch writes."""

            def __init__(self, tensor, metadata):
                self.made = (tensor.storage(), 0, tuple(tensor.shape), tensor.stride(), False, {}, metadata)

            def __reduce__(self):
                return torch._utils._rebuild_tensor_v2, self.made

        state = make_state()
        for is_zip in (True, False):
            for metadata, expected in (({"neg": True}, -state["head.weight"]), ({}, state["head.weight"]), ({"conj": True}, None)):
                saved = {**state, "head.weight": View(state["head.weight"], metadata)}
                self.saved({"state_dict": saved, "tensors": [state]}, _use_new_zipfile_serialization=is_zip)
                given = {"checkpoint": self.path("m.pt"), "extra": ["--weights", "state_dict"]}
                if expected is None:
                    self.assert_refused("tensor.resolve_conj()", **given)
                else:
                    self.assert_exports(**given)
                    self.assert_exported({**state, "head.weight": expected})

    def test_packed_files(self):
        whole = self.saved(make_state())
        for pack in (gzip.compress, bz2.compress, lzma.compress):
            self.assert_read(self.write("m.packed", pack(whole)), make_state())
            for contents, message in ((pack(whole)[:-20], "cannot be loaded"), (pack(bytes(100 << 20)), "which no checkpoint's do")):
                self.assert_refused(message, checkpoint=self.write("m.packed", contents))

    def test_archives_of_other_programs(self):
        state = make_state()
        torch.save(state, self.path("m.pt"))
        with zipfile.ZipFile(self.path("m.pt")) as given, zipfile.ZipFile(self.path("mac.pt"), "w") as mac:
            for name in given.namelist():
                mac.writestr(f"__MACOSX/{os.path.dirname(name)}/._{os.path.basename(name)}", b"Mac OS X")
            for name in given.namelist():
                mac.writestr(name, given.read(name))
        self.assert_read(self.path("mac.pt"), state)

    def test_folders_of_hugging_face(self):
        state = make_state()
        parts = dict(list(state.items())[:3]), dict(list(state.items())[3:])
        index = json.dumps({"metadata": {}, "weight_map": {name: f"part{number}.bin" for number, part in enumerate(parts)
                                                           for name in part}})
        for files in ({"model.safetensors": state}, {"pytorch_model.bin": state, "training_args.bin": {}},
                      {"part0.bin": parts[0], "part1.bin": parts[1], "pytorch_model.bin.index.json": index}):
            with self.subTest(list(files)), tempfile.TemporaryDirectory() as folder:
                for name, contents in files.items():
                    path = os.path.join(folder, name)
                    if name.endswith(".json"):
                        self.write(path, contents)
                    elif name.endswith(".bin"):
                        torch.save(contents, path)
                    else:
                        self.write(path, safetensors(contents))
                self.write(os.path.join(folder, "config.json"), json.dumps({
                    "model_type": "sru", "hidden_size": 3, "num_labels": 2, "id2label": {"1": "yes", "0": "no"}}))
                self.assert_read(folder, state, config=None, labels=None, extra=FLAGS)
                self.assertEqual((self.config()["labels"], self.config()["encoder"]["bidirectional"]), (["no", "yes"], True))
                if "part1.bin" in files:
                    self.assert_read(os.path.join(folder, "pytorch_model.bin.index.json"), state)
                    os.remove(os.path.join(folder, "part1.bin"))
                    self.assert_refused("part1.bin: No such file", checkpoint=folder)
        os.mkdir(self.path("empty"))
        self.assert_refused("is a folder without model.safetensors", checkpoint=self.path("empty"))
        for bad in ({"weight_map": {"a": "../part0.bin"}}, {"weight_map": []}, {}):
            self.assert_refused('expected an object "weight_map"', checkpoint=self.write("x.index.json", json.dumps(bad)))

    def test_safetensors(self):
        contents = safetensors(make_state())
        for kept in (len(contents) - 4, 40):
            self.assert_refused("damaged", checkpoint=self.write("m.safetensors", contents[:kept]))
        self.assert_read(self.write("m.safetensors", contents), make_state())
        for header in ('{"a": 1}', '{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
                       '{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
                       '{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}',
                       '{"b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
                       '"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'):
            contents = struct.pack("<Q", len(header)) + header.encode() + bytes(4)
            self.assert_refused("tensor 'a'", checkpoint=self.write("x.safetensors", contents))

    def test_damaged_archives(self):
        whole = self.saved(make_state())
        for position in range(0, len(whole), len(whole) // 60):
            damaged = bytearray(whole)
            damaged[position] ^= 0xff
            code, output = self.export("--checkpoint", self.write("d.pt", bytes(damaged)), "--encoder_only", "--force",
                                       "--sru", "bidirectional=true", "--out", self.out, "--ignore", "emb.*")
            # Padding between the archive's members may change; tensors have checksums.
            self.assertIn(code, (0, 1), output)
            if code == 0:
                self.assert_exported({name: value for name, value in make_state().items() if ".rnn." in name})

    def test_files_that_are_something_else(self):
        for contents, message in ((b"", "it is empty"), (b"<html>404</html>", "a page of the web"),
                                  (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS")):
            self.assert_refused(message, checkpoint=self.write("m.pt", contents))

    def test_slow_steps_are_announced(self):
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            with progress("reading"):
                pass
            self.assertEqual(output.getvalue(), "")
            with progress("reading") as say:
                say()  # what the timer does
        self.assertEqual(output.getvalue(), "reading ...\n  done after 0 s\n")

    # ------------------------------------------------------------ modules

    def test_names_are_found(self):
        output = self.assert_exports()
        self.assertIn("found by shape and name: encoder 'net.rnn', embedding 'emb', output layer 'head'", output)
        self.assert_exported(make_state())

    def test_candidates_are_listed(self):
        state = {**make_state(), "other.rnn_lst.0.weight": torch.ones(4, 24)}
        self.assert_refused("choose one with --encoder-prefix: 'net.rnn', 'other'", state=state)
        state = {**make_state(), "char_emb.weight": torch.ones(7, 4)}
        self.assert_refused("choose one with --embedding-prefix: 'emb', 'char_emb'", state=state)
        state = {**make_state(), "head2.weight": torch.ones(2, 6), "head2.bias": torch.ones(2)}
        self.assert_refused("choose one with --classifier-prefix: 'head', 'head2'", state=state)

    def test_further_tensors(self):
        state = {**make_state(), "criterion.weight": torch.ones(2), "bn.num_batches_tracked": torch.tensor(3)}
        self.assert_refused("tensor 'criterion.weight' belongs to no module of the model", state=state)
        self.assert_refused("--ignore 'criterion.*'", state=state)
        self.assert_refused("--ignore nothing.*: no tensor of the checkpoint", state=state, extra=["--ignore", "nothing.*"])
        self.assert_exports(state=state, extra=["--ignore", "criterion.*"])
        self.assert_exported(make_state())

    def test_ignored_tensors_are_noted(self):
        state = {**make_state(), "att.weight": torch.ones(1, 6), "att.bias": torch.ones(1)}
        output = self.assert_exports(state=state, extra=["--ignore", "att.*"])
        self.assertIn("left out by --ignore: 'att.weight', 'att.bias'.", output)
        self.assertIn("--check tells", output)

    def test_what_the_model_may_need_is_no_advice_for_ignore(self):
        state = make_state()
        three = {**state, "head.weight": torch.ones(3, 6), "head.bias": torch.ones(3)}
        usual = make_state(names=("embedding", "encoder", "out"))
        projected = {**state, "emb.weight": torch.ones(7, 10), "proj.weight": torch.ones(4, 10), "proj.bias": torch.ones(4)}
        deep = {**make_state(names=("emb", "net.rnn", None)), "a.weight": torch.ones(5, 6), "a.bias": torch.ones(5),
                "b.weight": torch.ones(3, 5), "b.bias": torch.ones(3)}
        for given, labels, message in (
                (three, "a\nb\nc\nd\n", "the head 'head' has 3 outputs, "),
                (three, "a\nb\nc\nd\n", "l.txt 4 lines"),
                (three, LABELS, "l.txt 2 lines"),
                (usual, "a\nb\nc\n", "the head 'out' has 2 outputs, "),
                (deep, "a\nb\nc\nd\n", "the head 'b' has 3 outputs, "),
                (projected, LABELS, "no embedding was found, a table with the 4 columns that the encoder reads"),
                (projected, LABELS, "if 'proj' is before the encoder, the model cannot be served"),
                ({**state, "proj.weight": torch.ones(4, 4), "proj.bias": torch.ones(4)}, LABELS, "if 'proj' is before the encoder"),
                ({**state, "att.weight": torch.ones(1, 6), "att.bias": torch.ones(1)}, LABELS,
                 "if 'att' is between the pooling and the output layer or behind it, as a norm, a pooling with weights"),
                ({**state, "query": torch.ones(6)}, LABELS, "if 'query' is between"),
                ({**state, "crf.transitions": torch.ones(2, 2)}, LABELS, "if 'crf' is between the pooling and the output layer or"),
                (make_state(names=("emb", "net.rnn", None)), LABELS, "tensor 'out.weight' is missing"),
                ({"emb.weight": torch.ones(7, 4), "rnn.weight_ih_l0": torch.ones(12, 4), "head.weight": torch.ones(2, 6)}, LABELS,
                 "no sru.SRU was found"),
                (state, None, "a classifier's output layer needs --labels, or pass --encoder_only")):
            self.assertNotIn("--ignore", self.assert_refused(message, state=given, labels=labels))
        six = {**config()["sru_config"], "input_size": 6}
        for changes, given, vocabulary, message in (
                ({"preprocessing": None, "oov_id": None}, state, None, "an embedding needs --vocab"),
                ({"sru_config": six}, {**make_state(width=6), "proj.weight": torch.ones(6, 6)}, "\n".join(WORDS),
                 "if 'proj' is before the encoder, or between")):
            output = self.assert_refused(message, config=config(**changes), state=given, vocabulary=vocabulary)
            self.assertNotIn("--ignore", output)

    def test_labels_with_ids(self):
        for labels in ("1\tyes\n0\tno\n", "yes\t1\nno\t0\n", '{"0": "no", "1": "yes"}', '{"yes": 1, "no": 0}',
                       json.dumps({"model_type": "sru", "id2label": {"1": "yes", "0": "no"}, "label2id": {"no": 0, "yes": 1}})):
            with self.subTest(labels):
                output = self.assert_exports(labels=labels)
                self.assertEqual(self.config()["labels"], ["no", "yes"])
                self.assertIn(" id", output)
        self.assert_exports(labels="0 stars\n1 star\n")
        self.assertEqual(self.config()["labels"], ["0 stars", "1 star"])
        ids = "".join(f"{number}\t{word}\n" for number, word in reversed(list(enumerate(WORDS))))
        self.assert_words(ids, WORDS, "each line is a word, a tab and its id")

    def test_labels_of_the_config(self):
        for given in ({"labels": ["no", "yes"]}, {"id2label": {"1": "yes", "0": "no"}}):
            self.assert_exports(config=config(**given), labels=None)
            self.assertEqual(self.config()["labels"], ["no", "yes"])
            output = self.assert_exports(config=config(**given), labels="never\nalways\n")
            self.assertEqual(self.config()["labels"], ["never", "always"])
            self.assertIn("its labels were left out, since --labels", output)

    def test_encoder_only(self):
        state = make_state()
        self.assert_refused("--encoder_only", state=state, labels=None)
        output = self.assert_exports(state=state, labels=None, extra=["--encoder_only"])
        self.assertIn("left out, since only the encoder is exported: 'head.weight', 'head.bias'. If one of them is before the "
                      "encoder, its vectors are others", output)
        self.assertNotIn("labels", self.config())
        self.assertEqual(self.config()["pooling"], "max")
        self.assertNotIn("out.weight", self.tensors())

    def test_padded_embedding(self):
        state = make_state(rows=8)
        output = self.assert_exports(state=state)
        self.assertIn("the embedding has 8 rows, the vocabulary 7 words", output)
        self.assertTrue(torch.equal(self.tensors()["embedding.weight"], state["emb.weight"][:7]))
        state = make_state(rows=9)
        output = self.assert_refused("expected shape [7, 4] from the config, found [9, 4]", state=state)
        self.assertIn("--extra_rows=cut", output)
        self.assert_exports(state=state, extra=["--extra_rows=name"])
        self.assertEqual(self.words().split(), WORDS + ["<unused_7>", "<unused_8>"])

    def test_padded_language_model_keeps_its_probabilities(self):
        state = make_state(rows=8, hidden=4, directions=1, names=("wte", "rnn", None))
        state.update({"lm_head.weight": torch.randn(8, 4), "lm_head.bias": torch.randn(8)})
        lm = {"task": "language_model", "unit": "word", "sru_config": {"input_size": 4, "hidden_size": 4, "num_layers": 1}}
        self.assert_exports(config=lm, state=state, labels=None, vocabulary="\n".join([*WORDS[:6], "</s>"]) + "\n")
        self.assertEqual(self.config()["embedding"], {"vocabulary_size": 8})
        self.assertTrue(torch.equal(self.tensors()["out.weight"], state["lm_head.weight"]))

    # ------------------------------------------------------------ parametrizations

    def test_folds_give_the_tensor_of_eval_mode(self):
        utils = torch.nn.utils
        new = utils.parametrizations
        for make in (utils.weight_norm, lambda m: utils.weight_norm(m, dim=1), lambda m: utils.weight_norm(m, dim=None),
                     utils.spectral_norm, new.spectral_norm, lambda m: utils.prune.l1_unstructured(m, "weight", 0.5),
                     *([new.weight_norm] if hasattr(new, "weight_norm") else [])):
            head = Linear(6, 2)
            make(head)
            for _ in range(3):
                head(torch.randn(4, 6))  # moves the vectors of spectral norm
            with torch.no_grad():
                for parameter in head.parameters():
                    parameter += 0.1 * torch.randn_like(parameter)
            head.eval()(torch.randn(4, 6))
            given = self.with_head({"head": head})
            with self.subTest(list(given)[-3:]):
                output = self.assert_exports(state=given)
                self.assertIn("folded into the plain tensor", output)
                self.assert_head(head)
                self.assertTrue(torch.equal(self.tensors()["out.weight"], head.weight))

    def test_new_weight_norm_by_its_names(self):
        state = make_state()
        length, direction = torch.rand(6, 1) + 0.5, torch.randn(6, 24)
        weight = state["net.rnn.rnn_lst.0.weight"]
        given = {name: tensor for name, tensor in state.items() if tensor is not weight}
        for names in (("weight_g", "weight_v"), ("parametrizations.weight.original0", "parametrizations.weight.original1")):
            self.assert_exports(state={
                **given, "net.rnn.rnn_lst.0." + names[0]: weight.norm(dim=1, keepdim=True),
                "net.rnn.rnn_lst.0." + names[1]: 3 * weight})
            self.assertTrue(torch.allclose(self.tensors()["encoder.rnn_lst.0.weight"], weight, atol=1e-6))
        # Parts that do not fit are no pair.
        output = self.assert_refused("belongs to no module", state={**state, "att.x_g": length, "att.x_v": direction[:5]})
        self.assertNotIn("folded", output)

    def test_other_parametrizations_say_what_to_do(self):
        head = Linear(6, 2)
        torch.nn.utils.parametrizations.orthogonal(head)
        for name in ("head", "out"):
            state = self.with_head({name: head})
            self.assert_refused("torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')", state=state)
        self.assert_exports(state=state, labels=None, extra=["--encoder_only"])

    # ------------------------------------------------------------ heads

    def with_head(self, modules):
        """The state_dict of a classifier whose head is these modules, by name."""
        head = {f"{name}.{key}": tensor for name, module in modules.items() for key, tensor in module.state_dict().items()}
        return {**make_state(names=("emb", "net.rnn", None)), **head}

    def assert_head(self, module):
        """The output layer computes what the module does."""
        x, tensors = torch.randn(3, 6), self.tensors()
        self.assertTrue(torch.allclose(x @ tensors["out.weight"].t() + tensors["out.bias"], module(x), atol=1e-5))

    def test_linear_heads_are_folded(self):
        first, second = Linear(6, 5), Linear(5, 2)
        for names, extra in ((("head.0", "head.1"), []), (("fc1", "fc2"), ["--fold_head"]),
                             (("head.0", "head.3"), ["--fold_head"])):
            state = self.with_head(dict(zip(names, (first, second))))
            if extra:
                self.assert_refused("--fold_head", state=state)
            self.assert_exports(state=state, extra=extra)
            self.assert_head(torch.nn.Sequential(first, second))

    def test_batch_norm_is_folded(self):
        norm = torch.nn.BatchNorm1d(6)
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
        norm.weight.data.uniform_(-1, 1)
        norm.bias.data.uniform_(-1, 1)
        head = torch.nn.Sequential(norm, torch.nn.Dropout(), Linear(6, 2)).eval()
        self.assert_exports(state=self.with_head({"head": head}), extra=["--fold_head"])
        self.assert_head(head)

    def test_other_heads_are_refused(self):
        norm, out = torch.nn.LayerNorm(6), Linear(6, 2)
        for modules, message in (
                ({"head.0": Linear(6, 5), "head.2": Linear(5, 2)}, "'head.1' has no weights and may be an activation"),
                ({"head.0": norm, "head.1": out}, "'head.0' is not a linear map, and the server's output layer is one linear layer"),
                ({"norm": norm, "head": out}, "if 'norm' is between the pooling and the output layer"),
                ({"head.0": Linear(6, 6), "head.2": out}, "With an activation it cannot be served"),
                ({"fc1": Linear(6, 6), "fc2": out}, "With an activation it cannot be served")):
            self.assert_refused(message, state=self.with_head(modules))

    def test_dropout_before_the_head(self):
        output = self.assert_exports(state=self.with_head({"head.1": Linear(6, 2)}))
        self.assertIn("'head.0' before the output layer 'head.1' has no weights", output)

    # ------------------------------------------------------------ sru 3.0.0.dev

    def test_names_of_sru_3(self):
        state = make_state()
        new = {name.replace(".0.weight", ".0.transform_module.weight")
               if name.endswith("rnn_lst.0.weight") else name: tensor for name, tensor in state.items()}
        new["net.rnn.rnn_lst.0.transform_module.weight"] = state["net.rnn.rnn_lst.0.weight"].t().contiguous()
        output = self.assert_exports(state=new)
        self.assertIn("sru 3.0.0.dev", output)
        self.assert_exported(state)

    def test_what_only_sru_3_has_is_refused(self):
        state = make_state()
        del state["net.rnn.rnn_lst.0.weight"]
        output = self.assert_refused(
            "SRU++", state={**state, "net.rnn.rnn_lst.0.transform_module.linear1.weight": torch.ones(2, 2)})
        self.assertIn("3.0.0.dev", output)
        self.assert_refused("lists, which only sru 3.0.0.dev takes", state=make_state(),
                            config=config(sru_config={"input_size": 4, "hidden_size": 3, "projection_size": [2, 3]}))
        self.assert_refused("sru_config.transform_module: a model with a custom module", state=make_state(),
                            config=config(sru_config={"input_size": 4, "hidden_size": 3, "transform_module": "x"}))
        state = make_state(layers=3, hidden=8, width=16, directions=1)
        for i, size in ((1, 2), (2, 3)):
            state[f"net.rnn.rnn_lst.{i}.weight_proj"] = torch.ones(8, size)
            state[f"net.rnn.rnn_lst.{i}.weight"] = torch.ones(size, 24)
        self.assert_refused("projections of different sizes, 2, 3", config=None, state=state,
                            extra=[*FLAGS, "--sru", "bidirectional=false"])

    # ------------------------------------------------------------ options

    def test_config_is_told_from_the_tensors(self):
        output = self.assert_exports(config=None, extra=[*FLAGS, "--sru", "bidirectional=true"])
        self.assertIn("the package's defaults were taken: use_tanh=false", output)
        self.assertIn("unknown words become '<unk>', whose id is 1", output)
        made = self.config()
        self.assertEqual((made["encoder"]["hidden_size"], made["encoder"]["input_size"], made["pooling"]), (3, 4, "max"))
        self.assert_refused("--pooling: is needed", config=None, extra=[*FLAGS[:2], "--sru", "bidirectional=true"])

    def test_inferred_arguments(self):
        def infer(state, **options):
            return infer_encoder("c", state, "net.rnn", {"bidirectional": False, **options})[0]

        state = make_state(layers=2, hidden=5, directions=1)
        self.assertEqual(infer(state)["num_layers"], 2)
        self.assertTrue(infer(state)["has_skip_term"])
        self.assertFalse(infer(make_state(layers=2, hidden=5, directions=1, matrices=3))["has_skip_term"])
        state["net.rnn.rnn_lst.1.scale_x"] = torch.tensor([3 ** 0.5])
        self.assertEqual((infer(state)["rescale"], infer(state)["highway_bias"]), (True, 0.0))
        for norm, after in ((4, False), (5, True)):
            state["net.rnn.rnn_lst.0.layer_norm.weight"] = torch.ones(norm)
            self.assertEqual((infer(state)["layer_norm"], infer(state)["normalize_after"]), (True, after))
        self.assertFalse(infer(state)["v1"])
        for i in range(2):
            state[f"net.rnn.rnn_lst.{i}.weight_c"].zero_()
        self.assertTrue(infer(state)["v1"])

    def test_options_that_contradict_the_tensors(self):
        state = make_state()
        state["net.rnn.rnn_lst.0.scale_x"] = torch.tensor([1.73])
        self.assert_refused("sru_config.rescale: expected true, since tensor 'net.rnn.rnn_lst.0.scale_x' is 1.73",
                            state=state)
        self.assert_exports(state=state, extra=["--sru", "rescale=true"])
        self.assert_refused("sru_config.v1: expected false, since tensor", extra=["--sru", "v1=true"])

    def test_weights_are_counted_as_the_server_does(self):
        state = make_state()
        state["net.rnn.rnn_lst.0.weight_c"].zero_()
        self.assertIn("150 weights", self.assert_exports(state=state, extra=["--sru", "v1=true"]))  # 162 with weight_c

    def test_config_in_the_served_form(self):
        self.assert_exports()
        before = self.config()
        output = self.assert_exports(config=before, labels=None)
        self.assertIn("served form", output)
        self.assertEqual(self.config(), before)

    # ------------------------------------------------------------ vocabularies

    def assert_words(self, vocabulary, expected, note):
        output = self.assert_exports(vocabulary=vocabulary)
        self.assertIn(note, output)
        self.assertEqual(self.words().split("\n")[:-1], expected)

    def test_vocabularies_with_numbers(self):
        counts = [0, 0, 900, 70, 70, 8, 3]
        for separator, name in (("\t", "a tab"), (" ", "a blank")):
            self.assert_words("".join(f"{word}{separator}{count}\n" for word, count in zip(WORDS, counts)), WORDS,
                              f"each line is a word, {name} and a count; the counts were left out")
            ids = sorted(enumerate(WORDS), key=lambda pair: pair[1])
            self.assert_words("".join(f"{word}{separator}{number}\n" for number, word in ids), WORDS,
                              f"each line is a word, {name} and its id")

    def test_vocabularies_of_json(self):
        ids = {word: index for index, word in enumerate(WORDS)}
        self.assert_words(json.dumps(ids), WORDS, "an object of JSON with the id of each word")
        self.assert_words(json.dumps({"model": {"type": "WordLevel", "vocab": ids}}), WORDS, "the id of each word")
        self.assert_words(json.dumps({**{w: i for w, i in ids.items() if i != 5}}), [*WORDS[:5], "<unused_5>", "!"], "no word has")
        self.assert_refused("tokenizer of the type BPE", vocabulary=json.dumps({"model": {"type": "BPE", "vocab": ids}}))
        self.assert_refused("have the same id, 1", vocabulary=json.dumps({"a": 1, "b": 1}))

    def test_words_that_no_text_gives(self):
        output = self.assert_exports(vocabulary="\n".join([*WORDS[:5], "New York", "!"]))
        self.assertIn("1 word of 7 can never come out of the preprocessing: 'New York' has white space in it",
                      output)
        capitals = "\n".join(word.title() for word in ["aa", "bb", "cc", "dd", "ee", "ff", "gg"])
        self.assert_refused("has a capital, and text is looked up in lower case", config=config(preprocessing="lowercase"),
                            vocabulary=capitals)
        self.assert_exports(config=config(preprocessing="lowercase"), vocabulary=capitals, extra=["--any_words"])

    def test_words_as_tokenizers_give_them(self):
        clean = {"type": "sentence_classification", "lowercase": True}
        self.assertEqual(words.split(clean, "Don't (stop)!"), ["do", "n't", "(", "stop", ")", "!"])
        self.assertEqual([word for word, _ in words.never_given(clean, ["'s", "n't", "do", "<unk>", "don't", "a-b", "Do"])],
                         ["don't", "a-b", "Do"])
        self.assertEqual(words.split({"type": "unicode_words", "lowercase": False}, "3,000.50 don't"),
                         ["3", ",", "000", ".", "50", "don", "'", "t"])
        self.assertEqual(words.split({"type": "line_words"}, "a  b\nc\n"), ["a", "b", "</s>", "c", "</s>"])
        self.assertEqual(words.split({"type": "whitespace"}, "a\u3000b"), ["a", "b"])


class SRU(torch.nn.Module):
    """The attributes that sru.SRU has."""

    def __init__(self):
        super().__init__()
        self.bidirectional, self.has_skip_term = True, True
        cell = torch.nn.Module()
        cell.rescale, cell.v1, cell.normalize_after, cell.activation = False, False, False, "tanh"
        cell.weight = torch.nn.Parameter(torch.randn(4, 24))
        cell.weight_c = torch.nn.Parameter(torch.randn(12))
        cell.bias = torch.nn.Parameter(torch.randn(12))
        cell.register_buffer("scale_x", torch.ones(1))
        self.rnn_lst = torch.nn.ModuleList([cell])


if __name__ == "__main__":
    unittest.main()
