"""The forward pass of the tasks of stack.py in PyTorch, to hold the server's numbers against: with the modules of the package
"sru" where it is installed, else written from the equations, slow and obvious, in float64. Neither shares anything with the
server."""

import contextlib
import io
import warnings


def under(tensors, start):
    """The tensors whose names begin with `start`, by the rest of their names."""
    return {name[len(start):]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def norm(x, tensors):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * tensors["weight"] + tensors["bias"]


def layer(torch, x, weights, encoder):
    """One sru.SRUCell: [length][input] to [length][output]. `weights`: its tensors by name, in float64."""
    output = weights["bias"].numel() // 2
    directions = 2 if encoder["bidirectional"] else 1
    hidden = output // directions

    before = encoder["layer_norm"] and not encoder["normalize_after"]
    u = norm(x, under(weights, "layer_norm.")) if before else x
    if "weight_proj" in weights:
        u = u @ weights["weight_proj"]
    matrices = weights["weight"].shape[1] // output
    u = (u @ weights["weight"]).reshape(len(x), directions, hidden, matrices)
    bias = weights["bias"].reshape(2, directions, hidden)
    peephole = weights["weight_c"].reshape(2, directions, hidden)
    if not encoder["has_skip_term"]:
        highway = torch.zeros(len(x), directions, hidden, dtype=x.dtype)
    elif matrices == 4:
        highway = u[..., 3]
    else:
        highway = x.reshape(len(x), directions, hidden) * (weights["scale_x"] if encoder["rescale"] else 1)
    h = torch.empty(len(x), directions, hidden, dtype=x.dtype)
    for direction in range(directions):
        c = torch.zeros(hidden, dtype=x.dtype)
        steps = range(len(x)) if direction == 0 else range(len(x) - 1, -1, -1)
        for t in steps:
            candidate, forget, reset = (u[t, direction, :, i] for i in range(3))
            f = torch.sigmoid(forget + peephole[0, direction] * c + bias[0, direction])
            r = torch.sigmoid(reset + peephole[1, direction] * c + bias[1, direction])
            c = f * c + (1 - f) * candidate
            g = torch.tanh(c) if encoder["use_tanh"] else c
            h[t, direction] = r * g + (1 - r) * highway[t, direction]
    h = h.reshape(len(x), output)
    return norm(h, under(weights, "layer_norm.")) if encoder["layer_norm"] and encoder["normalize_after"] else h


def plain_encoder(torch, tensors, encoder):
    weights = {name: tensor.double() for name, tensor in tensors.items()}

    def run(x):
        x = x.double()
        if "encoder.input_to_hidden.weight" in weights:
            x = x @ weights["encoder.input_to_hidden.weight"].t()
        for i in range(encoder["num_layers"]):
            x = layer(torch, x, under(weights, f"encoder.rnn_lst.{i}."), encoder)
        return x

    return run, "a plain implementation in float64"


def package_encoder(torch, tensors, encoder):
    """The sru.SRU of the installed package; None if there is none that takes these names."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            import sru
            module = sru.SRU(**encoder).eval()
        module.load_state_dict(under(tensors, "encoder."))
    except (ImportError, TypeError, RuntimeError, OSError):
        return None

    def run(x):
        with torch.no_grad():
            return module(x.float().unsqueeze(1))[0][:, 0].double()

    return run, f"the package sru {getattr(sru, '__version__', '')}".strip()


def last_of_each_direction(torch, h, bidirectional):
    half = h.shape[1] // 2
    return torch.cat([h[-1, :half], h[0, half:]]) if bidirectional else h[-1]


# The equations of the poolings, by name: of token vectors h [length][output], one vector.
POOLS = {
    "first": lambda torch, h, bidirectional: h[0],
    "last": last_of_each_direction,
    "max": lambda torch, h, bidirectional: h.max(0).values,
    "mean": lambda torch, h, bidirectional: h.mean(0),
}


class Reference:
    """What PyTorch makes of a sequence. `config` and `tensors`: those of the Exported model."""

    def __init__(self, torch, config, tensors):
        self._torch, self._config, self._encoder = torch, config, config["encoder"]
        self._tensors = {name: tensor.double() for name, tensor in tensors.items()}
        self._run, self.name = (package_encoder(torch, tensors, self._encoder)
                                or plain_encoder(torch, tensors, self._encoder))

    def vectors(self, inputs):
        """[length][output] of ids, or of frames."""
        if isinstance(inputs, list):
            inputs = self._tensors["embedding.weight"][inputs]
        return self._run(inputs)

    def logits(self, inputs):
        pool = POOLS[self._config["pooling"]]
        pooled = pool(self._torch, self.vectors(inputs), self._encoder["bidirectional"])
        return self._tensors["out.weight"] @ pooled + self._tensors.get("out.bias", 0)

    def output_log_probs(self, inputs):
        """[length][outputs]"""
        weight = self._tensors["out.weight" if "out.weight" in self._tensors else "embedding.weight"]
        return (self.vectors(inputs) @ weight.t() + self._tensors.get("out.bias", 0)).log_softmax(-1)

    def log_probs(self, ids):
        """Of each token but the first."""
        scores = self.output_log_probs(ids)
        return self._torch.stack([scores[t, ids[t + 1]] for t in range(len(ids) - 1)]) if len(ids) > 1 else scores[:0, 0]
