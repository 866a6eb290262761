#!/usr/bin/env python3
"""Trains a small tagger on made-up labels with the published package (README.md beside this file): of each number in a row of
numbers, whether the next one is larger (rises), smaller (falls), the same (stays) or not there (ends). Writes a version's
directory of a model (models/FORMAT.md), and expected.safetensors beside it.

Needs PyTorch and the package `sru` 2.6.0 from PyPI (pip install sru==2.6.0).

Example:

  make_tagger.py --encoder '{"input_size": 8, "hidden_size": 12, "num_layers": 2, "bidirectional": true}' \\
      --lengths 5 1 12 --out tests/golden/tagger/words
"""

import argparse
import json
import os

import sru
import torch
from make_golden import write_safetensors

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LABELS = ("rises", "falls", "stays", "ends")
BATCH = 32
TRAINED_LENGTH = 12


def labels_of(values):
    """[length][batch] of numbers to the indices of their labels."""
    following = values.roll(-1, 0)
    labels = torch.where(following > values, 0, torch.where(following < values, 1, 2))
    labels[-1] = 3
    return labels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="arguments of sru.SRU as JSON; bidirectional, or it cannot learn the task")
    parser.add_argument("--features", action="store_true", help="the model takes feature frames in place of words")
    parser.add_argument("--lengths", required=True, type=int, nargs="+", help="tokens per sequence")
    parser.add_argument("--steps", type=int, default=400, help="of training")
    parser.add_argument("--seed", type=int, default=3000)
    parser.add_argument("--out", required=True, help="the directory to write")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    arguments = json.loads(args.encoder)
    encoder = sru.SRU(**arguments)
    vocabulary = 1 + len(NUMBERS)  # row 0 is that of unknown words
    embedding = torch.nn.Embedding(vocabulary, arguments["input_size"])
    out = torch.nn.Linear(encoder.output_size, len(LABELS))
    parameters = [*encoder.parameters(), *out.parameters(), *embedding.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.02)

    def log_probs(values):
        return torch.log_softmax(out(encoder(embedding(values + 1))[0]), -1)

    for step in range(args.steps):
        values = torch.randint(len(NUMBERS), (TRAINED_LENGTH, BATCH))
        loss = torch.nn.functional.nll_loss(log_probs(values).flatten(0, 1), labels_of(values).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.4f}")

    encoder.eval()
    with torch.no_grad():
        sequences = [torch.randint(len(NUMBERS), (length, 1)) for length in args.lengths]
        expected = [log_probs(values)[:, 0] for values in sequences]
        right = sum((found.argmax(-1) == labels_of(values)[:, 0]).sum().item() for found, values in zip(expected, sequences))
        ids = torch.cat(sequences)[:, 0] + 1
        frames = embedding(ids)

    os.makedirs(args.out, exist_ok=True)
    config = {"format_version": 1, "task": "tagger", "description": "whether the next number is larger", "encoder": arguments}
    tensors = {"encoder." + name: tensor for name, tensor in encoder.state_dict().items()}
    tensors.update({"out.weight": out.weight.detach(), "out.bias": out.bias.detach()})
    if not args.features:
        config["embedding"] = {"vocabulary_size": vocabulary, "oov_id": 0}
        config["preprocessing"] = {"type": "whitespace"}
        tensors["embedding.weight"] = embedding.weight.detach()
        with open(os.path.join(args.out, "vocab.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(("<unk>", *NUMBERS)) + "\n")
    config["labels"] = LABELS
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    write_safetensors(os.path.join(args.out, "model.safetensors"), tensors, {})
    inputs = {"input.features": frames} if args.features else {"input.tokens": ids}
    inputs.update({"input.lengths": torch.tensor(args.lengths), "expected.log_probs": torch.cat(expected)})
    metadata = {"generator": f"sru 2.6.0, torch {torch.__version__}, seed {args.seed}"}
    write_safetensors(os.path.join(args.out, "expected.safetensors"), inputs, metadata)
    print(f"wrote {args.out}: {len(ids)} tokens, {right} labels are right")


if __name__ == "__main__":
    main()
