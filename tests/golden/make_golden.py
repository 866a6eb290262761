#!/usr/bin/env python3
"""Makes one golden case with the published package (README.md beside this file).

Needs PyTorch and the package `sru` 2.6.0 from PyPI (pip install sru==2.6.0), which compiles its CPU
operator at the first import and therefore needs ninja and a C++ compiler.

Example, a stack with an initial state and sequences of 6 and 4 tokens:

  make_golden.py --config '{"input_size": 16, "hidden_size": 8, "num_layers": 2, "bidirectional": true}' \\
      --lengths 6 4 --initial-state --out tests/golden/bi_initial_state.safetensors
"""

import argparse
import json
import struct

import sru
import torch


def write_safetensors(path, tensors, metadata):
    """Writes float32 and int64 tensors: 8 bytes of header length, JSON header, data."""
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in tensors.items():
        array = tensor.detach().contiguous().numpy()
        dtype = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        blob = array.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="arguments of sru.SRU as JSON")
    parser.add_argument("--lengths", required=True, type=int, nargs="+", help="tokens per sequence")
    parser.add_argument("--initial-state", action="store_true", help="a random c0 instead of zeros")
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--out", required=True, help="the .safetensors file to write")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    config = json.loads(args.config)
    model = sru.SRU(**config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # The constructor sets these to constants, which would hide mistakes.
            if name.endswith(".bias") or "layer_norm" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))
        length, batch = max(args.lengths), len(args.lengths)
        x = torch.randn(length, batch, config["input_size"])
        lengths = torch.tensor(args.lengths, dtype=torch.int64)
        padding = torch.arange(length)[:, None] >= lengths[None, :]
        c0 = None
        if args.initial_state:
            c0 = torch.randn(config["num_layers"], batch, model.output_size)
        h, c = model(x, c0=c0, mask_pad=padding)
        h = h.masked_fill(padding[:, :, None], 0.0)

    tensors = dict(model.state_dict())
    tensors.update({"input.x": x, "input.lengths": lengths, "output.h": h, "output.c": c})
    if c0 is not None:
        tensors["input.c0"] = c0
    metadata = {
        "sru_config": json.dumps(config),
        "generator": f"sru 2.6.0, torch {torch.__version__}, seed {args.seed}",
    }
    write_safetensors(args.out, tensors, metadata)
    print(f"wrote {args.out}: h {tuple(h.shape)}, c {tuple(c.shape)}")


if __name__ == "__main__":
    main()
