#!/usr/bin/env python3
"""Makes tests/data/models: a small model of each kind, written by the first exporter that knew the kind.

    make_old_models.py [--root=tests/data/models]

Run it in the repository, with its history: the exporters come out of that, as they were. Needs PyTorch and the package
`sru` 2.6.0 (pip install sru==2.6.0), which compute what expected.json holds. The weights are random, from fixed seeds.
"""

import argparse
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

import sru
import torch

# The first commit whose exporter knew each kind of model.
EXPORTERS = {
    "old_classifier": "6b12ef32bef4",
    "old_encoder": "6b12ef32bef4",
    "old_language_model": "556fd15520c0",
    "old_translator": "d530ef41b113",
    "old_reader": "eee95ae8df85",
}
WORDS = ["<pad>", "<oov>", "who", "wrote", "the", "book", "?", "where", "is", "river"]
BYTES = sorted(b"\n abcdefghijklmnopqrstuvwxyz.")


def exporter(commit, folder):
    """The path of export_torch.py as a commit has it."""
    archive = subprocess.run(["git", "archive", commit, "models"], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for entry in files:
            if entry.name.endswith(".py"):
                files.extract(entry, folder)
    return os.path.join(folder, "models", "export_torch.py")


def export(name, root, state, config, **files):
    """Writes root/name/1. `files` are arguments of the exporter whose contents are given."""
    out = os.path.join(root, name, "1")
    shutil.rmtree(os.path.dirname(out), ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, exporter(EXPORTERS[name], folder), "--out", out]
        torch.save(state, os.path.join(folder, "checkpoint"))
        files = {"config": json.dumps(config).encode(), **files}
        for argument, contents in files.items():
            with open(os.path.join(folder, argument), "wb") as file:
                file.write(contents)
        for argument in ("checkpoint", *files):
            command += ["--" + argument, os.path.join(folder, argument)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})


def lines(words):
    return "".join(word + "\n" for word in words).encode()


def randomize(encoder):
    """The constructor sets these to constants, which would hide mistakes."""
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name.endswith(".bias") or "layer_norm" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))


def parts_state(**parts):
    """The state_dict of a module with these parts, by their names in it."""
    return {
        part + "." + name: value
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }


def make_classifier(root):
    torch.manual_seed(1)
    arguments = {"input_size": 8, "hidden_size": 6, "num_layers": 2, "bidirectional": True, "rescale": True}
    embedding, encoder = torch.nn.Embedding(len(WORDS), 8), sru.SRU(**arguments).eval()
    out = torch.nn.Linear(12, 3)
    randomize(encoder)
    config = {
        "sru_config": arguments,
        "pooling": "max",
        "preprocessing": "clean_str, lower-cased",
        "oov_id": 1,
    }
    export(
        "old_classifier", root, parts_state(embedding=embedding, encoder=encoder, out=out), config,
        vocab=lines(WORDS), labels=lines(["PERSON", "PLACE", "OTHER"]),
    )  # fmt: skip
    ids = [2, 3, 4, 1, 6]
    vectors, _ = encoder(embedding(torch.tensor(ids)).unsqueeze(1))
    return {"text": "Who wrote the novel?", "token_ids": ids, "logits": out(vectors[:, 0].max(0).values).tolist()}


def make_encoder(root):
    torch.manual_seed(2)
    arguments = {
        "input_size": 5, "hidden_size": 6, "num_layers": 3, "projection_size": 3, "layer_norm": True, "use_tanh": True,
    }  # fmt: skip
    encoder = sru.SRU(**arguments).eval()
    randomize(encoder)
    export("old_encoder", root, parts_state(encoder=encoder), {"sru_config": arguments, "pooling": "none"})
    features = torch.randn(4, 5)
    vectors, _ = encoder(features.unsqueeze(1))
    return {"features": features.tolist(), "vectors": vectors[:, 0].tolist()}


def make_language_model(root):
    torch.manual_seed(3)
    arguments = {"input_size": 6, "hidden_size": 10, "num_layers": 2, "rescale": True, "highway_bias": -1.0}
    size = len(BYTES)
    embedding, rnn = torch.nn.Embedding(size, 6), sru.SRU(**arguments).eval()
    output = torch.nn.Linear(10, size)
    randomize(rnn)
    config = {
        "task": "language_model", "unit": "byte", "tied": False, "vocabulary": BYTES, "sru_config": arguments,
    }  # fmt: skip
    parts = {"embedding_layer": embedding, "rnn": rnn, "output_layer": output}
    export("old_language_model", root, parts_state(**parts), config)
    text = "the old model still speaks.\n"
    ids = torch.tensor([BYTES.index(byte) for byte in text.encode()])
    vectors, _ = rnn(embedding(ids).unsqueeze(1))
    log_probs = torch.log_softmax(output(vectors[:, 0]), -1)
    picked = log_probs[torch.arange(len(ids) - 1), ids[1:]]
    return {"text": text, "token_log_probs": picked.tolist()}


def make_reader(root):
    torch.manual_seed(4)
    size, width = len(WORDS), 4  # of the embedding, and of both directions
    config = {
        "task": "reader", "vocab_size": size, "embedding_dim": 4, "hidden_size": 2, "doc_layers": 2,
        "question_layers": 1, "features": ["exact", "tf"], "num_features": 2, "use_qemb": True, "pos": False,
        "ner": False, "concat_rnn_layers": False, "question_merge": "self_attn", "max_len": 15, "lowercase": True,
        "pad_id": 0, "unk_id": 1, "sru": {"highway_bias": -1.5},
    }  # fmt: skip
    shapes = {
        "embedding.weight": (size, 4), "qemb_match.linear.weight": (4, 4), "qemb_match.linear.bias": (4,),
        "doc_rnn.rnns.0.weight": (10, 16), "doc_rnn.rnns.1.weight": (4, 12), "question_rnn.rnns.0.weight": (4, 12),
        "self_attn.linear.weight": (1, width), "self_attn.linear.bias": (1,),
    }  # fmt: skip
    for cell in ("doc_rnn.rnns.0", "doc_rnn.rnns.1", "question_rnn.rnns.0"):
        shapes.update({cell + ".weight_c": (8,), cell + ".bias": (8,), cell + ".scale_x": (1,)})
    for end in ("start_attn", "end_attn"):
        shapes.update({end + ".linear.weight": (width, width), end + ".linear.bias": (width,)})
    state = {name: torch.randn(*shape) for name, shape in shapes.items()}
    export("old_reader", root, state, config, vocab=lines(WORDS))


def piece(text, score, kind):
    """A piece of a SentencePiece ModelProto."""
    fields = b"\x0a" + bytes([len(text.encode())]) + text.encode() + b"\x15" + struct.pack("<f", score)
    fields += b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(fields)]) + fields


def make_translator(root):
    torch.manual_seed(5)
    normal, unknown, control = 1, 2, 3
    pieces = [("<blank>", control), ("<unk>", unknown), ("<s>", control), ("</s>", control)]
    pieces += [(text, normal) for text in ("\u2581", "\u2581the", "\u2581book", "e", "s", "a", "o")]
    size, width, inner = len(pieces), 4, 6
    config = {
        "task": "translator", "d_model": width, "heads": 2, "d_sru": inner, "encoder_layers": 2, "decoder_layers": 1,
        "bidirectional_encoder": True, "shared_embeddings": True, "source_vocabulary": size,
        "target_vocabulary": size, "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "max_positions": 100,
        "max_length": 12, "beam_size": 3, "length_penalty": "gnmt", "alpha": 0.6, "source_language": "en",
        "target_language": "xx",
    }  # fmt: skip
    shapes = {}

    def linear(name, rows, columns):
        shapes.update({name + ".weight": (rows, columns), name + ".bias": (rows,)})

    def attention(name):
        for part in ("linear_keys", "linear_values", "linear_query", "final_linear"):
            linear(name + "." + part, width, width)

    def norm(name):
        shapes.update({name + ".weight": (width,), name + ".bias": (width,)})

    def feed_forward(name):
        norm(name + ".layer_norm")
        shapes.update({name + ".sru.weight": (width, 3 * inner), name + ".sru.weight_c": (2 * inner,)})
        shapes[name + ".sru.bias"] = (2 * inner,)
        linear(name + ".w_2", width, inner)

    for stack in ("encoder", "decoder"):
        shapes[stack + ".embeddings.make_embedding.emb_luts.0.weight"] = (size, width)
        norm(stack + ".layer_norm")
    for layer in ("encoder.transformer.0", "encoder.transformer.1"):
        norm(layer + ".layer_norm")
        attention(layer + ".self_attn")
        feed_forward(layer + ".feed_forward")
    layer = "decoder.transformer_layers.0"
    for part in ("layer_norm_1", "layer_norm_2"):
        norm(layer + "." + part)
    for part in ("self_attn", "context_attn"):
        attention(layer + "." + part)
    feed_forward(layer + ".feed_forward")
    linear("generator.0", size, width)
    state = {name: torch.randn(*shape) for name, shape in shapes.items()}
    # No unknown pieces, and others than the most probable one of an untrained model.
    state["generator.0.weight"] *= 4
    state["generator.0.bias"][:8] = torch.tensor([-60.0, -60.0, -60.0, -7.0, -8.0, -2.0, 0.0, -5.0])
    table = "%s.embeddings.make_embedding.emb_luts.0.weight"
    state[table % "decoder"] = state[table % "encoder"]
    for name in [name for name in state if name.endswith(".sru.weight")]:
        state[name.replace(".weight", ".scale_x")] = torch.ones(1)
    subwords = b"".join(piece(text, -float(i), kind) for i, (text, kind) in enumerate(pieces))
    export("old_translator", root, state, config, subwords=subwords)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "models"))
    root = parser.parse_args().root
    with torch.no_grad():
        expected = {
            "old_classifier": make_classifier(root),
            "old_encoder": make_encoder(root),
            "old_language_model": make_language_model(root),
        }
    make_reader(root)
    make_translator(root)
    with open(os.path.join(root, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
