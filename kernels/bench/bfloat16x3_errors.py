#!/usr/bin/env python3
"""What float32 products made of bfloat16 products would cost in precision, in numpy.

A float32 value is split into parts of 8 significant bits: x = x1 + x2 (+ x3), likewise W. A product x W is
then a sum of bfloat16 products with sums in float32, which the tile units compute:

  three   x1 W1 + x1 W2 + x2 W1           two parts each, the smallest product left out
  four    ... + x2 W2                     two parts each, all products
  six     x1 W1 + x1 W2 + x2 W1 + x2 W2 + x1 W3 + x3 W1     three parts each, the smallest left out

All else (scan, layer norm, what one layer passes to the next) is float32 in every variant, as it is
in the CPU backend. Errors are the largest absolute differences from the same model in float64; they are
compared with those of plain float32 products. Needs numpy; for --checkpoints also PyTorch.

  bfloat16x3_errors.py                                    the golden cases of tests/golden
  bfloat16x3_errors.py --checkpoints DIR/trec,DIR/sst2    and the labels of trained classifiers
"""

import argparse
import json
import pathlib
import statistics
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Pairs (part of x, part of W) that are multiplied, the smallest first, and into how many parts.
VARIANTS = {
    "one": (1, [(0, 0)]),
    "three": (2, [(1, 0), (0, 1), (0, 0)]),
    "four": (2, [(1, 1), (1, 0), (0, 1), (0, 0)]),
    "six": (3, [(2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)]),
}
LIMIT = 8  # times float32's errors


def bfloat16(values):
    """The nearest bfloat16 values, ties to even, as float32."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def split(values, parts):
    rest = np.asarray(values, np.float32)
    result = []
    for _ in range(parts):
        result.append(bfloat16(rest))
        rest = rest - result[-1]
    return result


class Plain:
    """Products and all else in one type."""

    def __init__(self, dtype):
        self.dtype = dtype

    def product(self, x, w):
        return x @ w.astype(self.dtype)


class Split:
    """Products of bfloat16 parts, summed in float32 in one product of all of them."""

    dtype = np.float32

    def __init__(self, parts, pairs):
        self.parts = parts
        self.pairs = pairs

    def product(self, x, w):
        x, w = split(x, self.parts), split(w, self.parts)
        return (np.concatenate([x[i] for i, _ in self.pairs], axis=1)
                @ np.concatenate([w[j] for _, j in self.pairs], axis=0))


def sigmoid(z):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-z))


def layer_norm(x, weight, bias):
    centered = x - x.mean(axis=1, keepdims=True)
    variance = (centered * centered).mean(axis=1, keepdims=True)
    return centered / np.sqrt(variance + x.dtype.type(1e-5)) * weight + bias


def run(arithmetic, config, tensors, x, states):
    """The token vectors and final states of one sequence. `tensors` is the package's state_dict."""
    dtype = arithmetic.dtype
    x = x.astype(dtype)
    hidden = config["hidden_size"]
    directions = 2 if config.get("bidirectional") else 1
    after = config.get("normalize_after", False)
    if "input_to_hidden.weight" in tensors:
        x = arithmetic.product(x, tensors["input_to_hidden.weight"].T)
    finals = []
    for i in range(config["num_layers"]):
        part = {name.split(".", 2)[2]: value for name, value in tensors.items()
                if name.startswith(f"rnn_lst.{i}.")}
        normed = [part[f"layer_norm.{name}"].astype(dtype) for name in ("weight", "bias")
                  if config.get("layer_norm")]
        y = layer_norm(x, *normed) if normed and not after else x
        if "weight_proj" in part:
            y = arithmetic.product(y, part["weight_proj"])
        u = arithmetic.product(y, part["weight"]).reshape(len(x), directions, hidden, -1)
        v = part["weight_c"].astype(dtype).reshape(2, directions, hidden)
        b = part["bias"].astype(dtype).reshape(2, directions, hidden)
        if config.get("v1"):
            v = np.zeros_like(v)
        if u.shape[3] == 4:
            highway = u[..., 3]
        else:
            highway = x.reshape(len(x), directions, hidden)
            if config.get("rescale"):
                highway = highway * part["scale_x"].astype(dtype)
        if config.get("has_skip_term") is False:
            highway = np.zeros_like(highway)
        h = np.empty((len(x), directions, hidden), dtype)
        final = np.empty((directions, hidden), dtype)
        for d in range(directions):
            c = states[i].astype(dtype).reshape(directions, hidden)[d]
            for t in range(len(x))[::-1 if d else 1]:
                f = sigmoid(u[t, d, :, 1] + v[0, d] * c + b[0, d])
                r = sigmoid(u[t, d, :, 2] + v[1, d] * c + b[1, d])
                c = f * c + (1 - f) * u[t, d, :, 0]
                g = np.tanh(c) if config.get("use_tanh") else c
                h[t, d] = r * g + (1 - r) * highway[t, d]
            final[d] = c
        x = h.reshape(len(x), -1)
        if normed and after:
            x = layer_norm(x, *normed)
        finals.append(final.reshape(-1))
    return x, np.array(finals)


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    types = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return metadata, tensors


def case_values(arithmetic, config, tensors):
    """All token vectors and final states of a golden case, in one row."""
    x = tensors["input.x"]
    width = tensors["output.c"].shape[2]
    values = []
    for b, length in enumerate(tensors["input.lengths"]):
        states = tensors["input.c0"][:, b] if "input.c0" in tensors else np.zeros(
            (config["num_layers"], width))
        for part in run(arithmetic, config, tensors, x[:length, b], states):
            values.append(part.astype(np.float64).ravel())
    return np.concatenate(values)


def golden(directory):
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        sys.exit(f"bfloat16x3_errors.py: no golden cases in {directory}")
    print("| case | float32 error | " + " | ".join(f"{name} / float32" for name in VARIANTS) + " |")
    print("|---" * (2 + len(VARIANTS)) + "|")
    ratios = {name: [] for name in VARIANTS}
    for path in files:
        metadata, tensors = read_safetensors(path)
        config = json.loads(metadata["sru_config"])
        exact = case_values(Plain(np.float64), config, tensors)
        own = np.abs(case_values(Plain(np.float32), config, tensors) - exact).max()
        for name, variant in VARIANTS.items():
            error = np.abs(case_values(Split(*variant), config, tensors) - exact).max()
            ratios[name].append(error / own)
        print(f"| {path.stem} | {own:.1e} | "
              + " | ".join(f"{ratios[name][-1]:.1f}" for name in VARIANTS) + " |")
    for label, choose in (("median", statistics.median), ("largest", max)):
        print(f"| {label} | | " + " | ".join(f"{choose(ratios[name]):.1f}" for name in VARIANTS) + " |")
    print(f"\ncases within {LIMIT} times float32's error, of {len(files)}: "
          + ", ".join(f"{name} {sum(r <= LIMIT for r in ratios[name])}" for name in VARIANTS))


def classifier(directory):
    import torch  # pylint: disable=import-outside-toplevel

    config = json.loads((directory / "config.json").read_text())
    state = {name: value.numpy() for name, value in
             torch.load(directory / "checkpoint.pt", map_location="cpu").items()}
    tensors = {name[len("encoder."):]: value for name, value in state.items()
               if name.startswith("encoder.")}
    encoder = config["sru_config"]
    directions = 2 if encoder.get("bidirectional") else 1
    zeros = np.zeros((encoder["num_layers"], directions * encoder["hidden_size"]))
    vocabulary = {word: i for i, word in
                  enumerate((directory / "vocab.txt").read_text().split("\n"))}
    lines = [json.loads(line) for line in (directory / "expected.jsonl").open()]
    variants = {"float32": Plain(np.float32),
                **{name: Split(*variant) for name, variant in VARIANTS.items()}}
    differ = dict.fromkeys(variants, 0)
    worst = dict.fromkeys(variants, 0.0)
    for line in lines:
        ids = [vocabulary.get(word, config["oov_id"]) for word in line["tokens"]]
        x = state["embedding.weight"][ids]

        def logits(arithmetic):
            h = run(arithmetic, encoder, tensors, x, zeros)[0]
            pooled = {"max": h.max(axis=0), "mean": h.mean(axis=0), "first": h[0],
                      "last": np.concatenate([h[-1, :encoder["hidden_size"]],
                                              h[0, encoder["hidden_size"]:]])}[config["pooling"]]
            return (pooled @ state["out.weight"].T + state["out.bias"]).astype(np.float64)

        exact = logits(Plain(np.float64))
        for name, arithmetic in variants.items():
            found = logits(arithmetic)
            differ[name] += int(found.argmax() != exact.argmax())
            worst[name] = max(worst[name], float(np.abs(found - exact).max()))
    print(f"\n{directory.name}, {len(lines)} sentences, labels that differ from float64's and the largest"
          " error of a logit: "
          + ", ".join(f"{name} {differ[name]}, {worst[name]:.1e}" for name in variants))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=pathlib.Path, default=ROOT / "tests" / "golden",
                        help="folder of golden cases (default: tests/golden)")
    parser.add_argument("--checkpoints", default="",
                        help="folders of trained classifiers, with commas between them")
    arguments = parser.parse_args()
    golden(arguments.golden)
    for name in filter(None, arguments.checkpoints.split(",")):
        classifier(pathlib.Path(name))


if __name__ == "__main__":
    main()
