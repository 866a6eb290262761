#!/usr/bin/env python3
"""Makes trec_questions.jsonl: what the published Python package computes for the bundled model.

Each line has a question of trec_questions.txt, its tokens, the predicted label and the logits. The
tests compare the server with it. Neither the tokenisation nor the forward pass shares code with the
server: the first follows the published recipe with Python's `re` (Kim, 2014), the second is the
module `sru.SRU`.

Needs PyTorch and the package sru 2.6.0. On Debian and Ubuntu:

  apt install python3-torch libtorch-dev ninja-build python3-dev python3-venv
  python3 -m venv --system-site-packages venv
  venv/bin/pip install --no-deps sru==2.6.0
  venv/bin/python tests/data/make_trec_questions.py

The package compiles its CPU operator when it is imported for the first time, and warns that its
CUDA kernels did not load, which does not matter here.
"""

import json
import os
import re
import struct

import torch
import sru

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "../../models/pretrained/trec/1")
OUT = os.path.join(HERE, "trec_questions.jsonl")


def tokenize(text, lowercase):
    text = re.sub(r"[^A-Za-z0-9(),!?'`]", " ", text)
    for ending in ("'s", "'ve", "n't", "'re", "'d", "'ll"):
        text = text.replace(ending, " " + ending)
    text = re.sub(r"([,!()?])", r" \1 ", text)
    text = re.sub(r"\s{2,}", " ", text).strip()
    return (text.lower() if lowercase else text).split()


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def main():
    with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(MODEL, "vocab.txt"), encoding="utf-8", newline="\n") as file:
        ids = {word: number for number, word in enumerate(file.read().rstrip("\n").split("\n"))}
    assert config["preprocessing"]["type"] == "sentence_classification"
    assert config["pooling"] == "max"

    tensors = read_safetensors(os.path.join(MODEL, "model.safetensors"))
    encoder = sru.SRU(**config["encoder"])
    prefix = "encoder."
    encoder.load_state_dict({name[len(prefix):]: value for name, value in tensors.items()
                             if name.startswith(prefix)})
    encoder.eval()

    with open(os.path.join(HERE, "trec_questions.txt"), encoding="utf-8", newline="\n") as file:
        questions = file.read().rstrip("\n").split("\n")
    with open(OUT, "w", encoding="utf-8", newline="\n") as file, torch.no_grad():
        for text in questions:
            tokens = tokenize(text, config["preprocessing"]["lowercase"])
            token_ids = [ids.get(token, config["embedding"]["oov_id"]) for token in tokens]
            x = tensors["embedding.weight"][torch.tensor(token_ids)].unsqueeze(1)
            h, _ = encoder(x)
            pooled = h.squeeze(1).max(dim=0).values
            logits = tensors["out.weight"] @ pooled + tensors["out.bias"]
            label = config["labels"][int(logits.argmax())]
            file.write(json.dumps({"text": text, "tokens": tokens, "label": label,
                                   "logits": logits.tolist()}, ensure_ascii=False) + "\n")
    print(f"wrote {len(questions)} questions to {OUT}")


if __name__ == "__main__":
    main()
