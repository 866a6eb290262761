#!/usr/bin/env python3
"""Makes one golden language model with the published package (README.md beside this file): a version's
directory of a model (models/FORMAT.md) with random weights, and expected.safetensors beside it.

Needs PyTorch and the package `sru` 2.6.0 from PyPI (pip install sru==2.6.0).

Example, two layers that go on from a state:

  make_language_model.py --encoder '{"input_size": 6, "hidden_size": 10, "num_layers": 2}' --vocabulary 17 \\
      --lengths 5 1 12 --initial-state --out tests/golden/language_model/two_layers
"""

import argparse
import json
import os

import sru
import torch
from make_golden import write_safetensors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", required=True, help="arguments of sru.SRU as JSON")
    parser.add_argument("--vocabulary", required=True, type=int, help="tokens (bytes from 32 on)")
    parser.add_argument("--tied", action="store_true", help="the output layer is the embedding")
    parser.add_argument("--lengths", required=True, type=int, nargs="+", help="tokens per sequence")
    parser.add_argument("--initial-state", action="store_true", help="random states to go on from")
    parser.add_argument("--seed", type=int, default=2000)
    parser.add_argument("--out", required=True, help="the directory to write")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    arguments = json.loads(args.encoder)
    encoder = sru.SRU(**arguments).eval()
    size, width = args.vocabulary, encoder.output_size
    embedding = torch.randn(size, arguments["input_size"])
    weight = embedding if args.tied else torch.randn(size, width) / width**0.5
    bias = 0.5 * torch.randn(size)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name.endswith(".bias") or "layer_norm" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))

    tokens, log_probs, last_c, last_h, first_c, first_h = [], [], [], [], [], []
    layers = arguments["num_layers"]
    with torch.no_grad():
        for length in args.lengths:
            ids = torch.randint(size, (length,))
            c0 = torch.randn(layers, 1, width) if args.initial_state else torch.zeros(layers, 1, width)
            h0 = torch.tanh(torch.randn(width))
            h, c = encoder(embedding[ids].unsqueeze(1), c0)
            before = torch.cat([h0.unsqueeze(0), h[:-1, 0]])
            p = torch.log_softmax(before @ weight.T + bias, -1)[torch.arange(length), ids]
            if not args.initial_state:
                p[0] = 0.0  # nothing predicts it
            tokens.append(ids)
            log_probs.append(p)
            last_c.append(c[:, 0])
            last_h.append(h[-1, 0])
            first_c.append(c0[:, 0])
            first_h.append(h0)

    os.makedirs(args.out, exist_ok=True)
    config = {
        "format_version": 1,
        "task": "language_model",
        "description": "random weights",
        "encoder": arguments,
        "embedding": {"vocabulary_size": size},
        "preprocessing": {"type": "bytes", "vocabulary": list(range(32, 32 + size))},
    }
    if args.tied:
        config["tied"] = True
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    tensors = {"encoder." + name: tensor for name, tensor in encoder.state_dict().items()}
    tensors.update({"embedding.weight": embedding, "out.bias": bias})
    if not args.tied:
        tensors["out.weight"] = weight
    write_safetensors(os.path.join(args.out, "model.safetensors"), tensors, {})
    expected = {
        "input.tokens": torch.cat(tokens),
        "input.lengths": torch.tensor(args.lengths),
        "expected.log_probs": torch.cat(log_probs),
        "expected.c": torch.stack(last_c),
        "expected.h": torch.stack(last_h),
    }
    if args.initial_state:
        expected.update({"input.c": torch.stack(first_c), "input.h": torch.stack(first_h)})
    metadata = {"generator": f"sru 2.6.0, torch {torch.__version__}, seed {args.seed}"}
    write_safetensors(os.path.join(args.out, "expected.safetensors"), expected, metadata)
    print(f"wrote {args.out}: {sum(args.lengths)} tokens")


if __name__ == "__main__":
    main()
