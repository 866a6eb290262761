#!/usr/bin/env python3
"""Writes war_and_peace_scores.jsonl: sentences and the log-probability of each of their bytes.

  python3 tests/data/make_war_and_peace_scores.py

Computes the bundled language model by its equations, in float64, from its files alone; it shares no
code with the server and none with the package that trained the model. Needs numpy.

  y = x, or x P where there is a weight_proj         U = y W, four or three columns per unit
  f = sigmoid(U1 + v_f c' + b_f)   r = sigmoid(U2 + v_r c' + b_r)   c = f c' + (1 - f) U0
  h = r c + (1 - r) s,   s = U3 if there are four columns, else scale_x x
  log p = z - log sum exp z,   z = out.weight h + out.bias
"""

import json
import os
import struct

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "../../models/pretrained/war_and_peace/1")
SENTENCES = [
    "Prince Andrew smiled and looked at Pierre.",
    "Prince Andrew smiled at and Pierre looked.",
    "It was a dark and stormy night.\n",
    "Moscow was burning; nobody put out the fire.",
    "What is the meaning of all this? asked the count, turning to his wife.",
    "xqzj",
    "Caf\u00e9, r\u00e9giment, \u00e0 la bonne heure!",
    "A\n",
]


def load(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[begin:end], "<f4").astype(np.float64)
            tensors[name] = values.reshape(entry["shape"])
    return config, tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_probs(config, tensors, text):
    """Of each byte but the first, given those before it."""
    ids = [config["preprocessing"]["vocabulary"].index(byte) for byte in text.encode("utf-8")]
    x = tensors["embedding.weight"][ids]
    hidden = config["encoder"]["hidden_size"]
    for layer in range(config["encoder"]["num_layers"]):
        part = {name.split(".", 3)[3]: tensor for name, tensor in tensors.items()
                if name.startswith(f"encoder.rnn_lst.{layer}.")}
        y = x @ part["weight_proj"] if "weight_proj" in part else x
        u = (y @ part["weight"]).reshape(len(ids), hidden, -1)
        v_f, v_r = part["weight_c"].reshape(2, hidden)
        b_f, b_r = part["bias"].reshape(2, hidden)
        skip = u[:, :, 3] if u.shape[2] == 4 else part["scale_x"] * x
        c, h = np.zeros(hidden), []
        for t in range(len(ids)):
            f = sigmoid(u[t, :, 1] + v_f * c + b_f)
            r = sigmoid(u[t, :, 2] + v_r * c + b_r)
            c = f * c + (1 - f) * u[t, :, 0]
            h.append(r * c + (1 - r) * skip[t])
        x = np.array(h)
    z = x @ tensors["out.weight"].T + tensors["out.bias"]
    z -= z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return [float(log_p[t, ids[t + 1]]) for t in range(len(ids) - 1)]


def main():
    config, tensors = load(MODEL)
    with open(os.path.join(HERE, "war_and_peace_scores.jsonl"), "w", encoding="utf-8") as file:
        for text in SENTENCES:
            values = [round(value, 6) for value in log_probs(config, tensors, text)]
            file.write(json.dumps({"text": text, "log_probs": values}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
