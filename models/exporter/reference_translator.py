"""The log-probability of a translation in PyTorch, token by token with the whole target at once: written from the equations of
models/translator.h in float64, without a search. A search of the server is held against it by what it gave."""

import math

from .reference import layer, norm, under

EPSILON = 1e-6


class TranslatorReference:

    name = "a plain implementation in float64"

    def __init__(self, torch, translator, tensors):
        self._torch, self._config = torch, translator
        self._tensors = {name: tensor.double() for name, tensor in tensors.items()}

    def _linear(self, name, x):
        return x @ self._tensors[name + ".weight"].t() + self._tensors[name + ".bias"]

    def _norm(self, name, x):
        return norm(x, under(self._tensors, name + "."), EPSILON)

    def _attend(self, name, queries, keys, causal):
        torch, heads = self._torch, self._config["heads"]
        width = queries.shape[1] // heads

        def split(x):
            return x.reshape(len(x), heads, width).transpose(0, 1)

        q = split(self._linear(name + ".linear_query", queries)) / math.sqrt(width)
        scores = q @ split(self._linear(name + ".linear_keys", keys)).transpose(1, 2)
        if causal:
            later = torch.ones(len(queries), len(keys), dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = scores.softmax(-1) @ split(self._linear(name + ".linear_values", keys))
        return self._linear(name + ".final_linear", mixed.transpose(0, 1).reshape(len(queries), heads * width))

    def _feed_forward(self, name, x, bidirectional):
        options = {"bidirectional": bidirectional, "has_skip_term": False, "layer_norm": False, "use_tanh": False}
        weights = under(self._tensors, name + ".sru.")
        return self._linear(name + ".w_2", layer(self._torch, self._norm(name + ".layer_norm", x), weights, options))

    def _embed(self, side, ids):
        torch = self._torch
        table = self._tensors.get(f"{side}.embeddings.make_embedding.emb_luts.0.weight")
        if table is None:
            table = self._tensors["encoder.embeddings.make_embedding.emb_luts.0.weight"]
        width = table.shape[1]
        position = torch.arange(len(ids), dtype=torch.float64)[:, None]
        column = torch.arange(width)
        angle = position / 10000.0 ** ((column - column % 2).double() / width)
        return table[ids] * math.sqrt(width) + torch.where(column % 2 == 0, angle.sin(), angle.cos())

    def _encode(self, source):
        x = self._embed("encoder", source)
        for i in range(self._config["encoder_layers"]):
            name = f"encoder.transformer.{i}"
            n = self._norm(name + ".layer_norm", x)
            x = x + self._attend(name + ".self_attn", n, n, False)
            x = x + self._feed_forward(name + ".feed_forward", x, self._config["bidirectional_encoder"])
        return self._norm("encoder.layer_norm", x)

    def log_prob(self, source, target):
        """Of the tokens `target` (without BOS) as a translation of the ids `source`."""
        memory = self._encode(source)
        y = self._embed("decoder", [self._config["bos_id"], *target[:-1]])
        for i in range(self._config["decoder_layers"]):
            name = f"decoder.transformer_layers.{i}"
            n = self._norm(name + ".layer_norm_1", y)
            y = y + self._attend(name + ".self_attn", n, n, True)
            y = y + self._attend(name + ".context_attn", self._norm(name + ".layer_norm_2", y), memory, False)
            y = y + self._feed_forward(name + ".feed_forward", y, False)
        scores = self._linear("generator.0", self._norm("decoder.layer_norm", y)).log_softmax(-1)
        return float(sum(scores[t, token] for t, token in enumerate(target)))
