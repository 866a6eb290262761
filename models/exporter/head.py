"""Heads of several layers. The server's output layer is one linear map, so what is linear is folded into one, exactly up to
rounding (computed in float64), and what is not is refused."""

import collections
import re

from .common import ExportError, listed
from .modules import under

# Eval mode, with the package's default.
BATCH_NORM_EPSILON = 1e-5

# What changes nothing at inference.
IDENTITIES = ("Dropout", "Identity", "AlphaDropout", "Dropout1d", "FeatureAlphaDropout", "Flatten")

ADVICE = ("the server's output layer is one linear layer. Serve the encoder with --encoder_only and compute "
          "the head from Encode's vectors")

Layer = collections.namedtuple("Layer", "prefix kind tensors")


def read_layers(state, names):
    """The modules that hold these tensors, in the order of the checkpoint."""
    grouped = {}
    for name in names:
        prefix, _, own = name.rpartition(".")
        grouped.setdefault(prefix, {})[own] = state[name]
    layers = []
    for prefix, tensors in grouped.items():
        kind = "other"
        weight = tensors.get("weight")
        if "running_mean" in tensors and "running_var" in tensors:
            kind = "batch norm"
        elif set(tensors) <= {"weight", "bias"} and weight is not None and weight.dim() == 2:
            kind = "linear"
        elif set(tensors) <= {"weight", "bias"} and weight is not None and weight.dim() == 1:
            kind = "layer norm" if weight.numel() > 1 else "PReLU"
        layers.append(Layer(prefix, kind, tensors))
    return layers


def place(prefix):
    """(parent, index) of a module in a torch.nn.Sequential, else None."""
    match = re.fullmatch(r"(?:(.*)\.)?(\d+)", prefix)
    return (match.group(1) or "", int(match.group(2))) if match else None


def fold_head(torch, source, checkpoint, names, width, rows, folding, notes):
    """{"weight", "bias"} of the one linear layer that the tensors `names` make: from `width` values to `rows`. None if they
    are no chain of layers between these."""
    layers = read_layers(checkpoint.state, names)
    linear = [layer for layer in layers if layer.kind == "linear"]
    if not linear or linear[-1].tensors["weight"].shape[0] != rows:
        return None
    what = " - ".join(f"{layer.prefix} ({layer.kind})" for layer in layers)
    for layer in layers:
        if layer.kind not in ("linear", "batch norm"):
            raise ExportError(f"{source}: the head {what} cannot be served: '{layer.prefix}' is not a linear map, and {ADVICE}")
    check_between(source, checkpoint.classes, layers, what, folding)

    matrix, offset = torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    for layer in layers:
        tensors = {name: tensor.detach().double() for name, tensor in layer.tensors.items()
                   if tensor.is_floating_point()}
        if layer.kind == "linear":
            weight = tensors["weight"]
            bias = tensors.get("bias", torch.zeros(weight.shape[0], dtype=torch.float64))
        else:
            scale = tensors.get("weight", 1) / torch.sqrt(tensors["running_var"] + BATCH_NORM_EPSILON)
            weight, bias = torch.diag(scale), tensors.get("bias", 0) - tensors["running_mean"] * scale
        if weight.shape[1] != matrix.shape[0]:
            raise ExportError(f"{source}: the head {what}: '{layer.prefix}' takes {weight.shape[1]} values, the layer before "
                              f"it gives {matrix.shape[0]}; name the output layer with --classifier-prefix, or leave others "
                              "out with --ignore")
        matrix, offset = weight @ matrix, weight @ offset + bias
    if matrix.shape[0] != rows:
        return None
    notes.append(f"the head {what} was folded into one linear layer")
    return {"weight": matrix, "bias": offset}


def check_between(source, classes, layers, what, folding):
    """Refuses a head between whose layers there may be an activation, which leaves no trace in the weights."""
    for before, after in zip([None, *layers], layers):
        hidden = modules_between(before.prefix if before else None, after.prefix)
        kinds = {name: classes.get(name, "").rpartition(".")[2] for name in hidden or []}
        active = [f"'{name}' ({kind})" for name, kind in kinds.items() if kind and kind not in IDENTITIES]
        if active:
            raise ExportError(f"{source}: the head {what} cannot be served: it has {', '.join(active)}, and {ADVICE}")
        if before is None or folding or (hidden is not None and all(kinds.values())):
            continue
        unseen = (f"{listed(hidden)} has no weights and may be an activation" if hidden else
                  f"an activation between '{before.prefix}' and '{after.prefix}' would leave no trace in the checkpoint")
        raise ExportError(f"{source}: the head {what}: {unseen}. If there is only Dropout between its layers, say so with "
                          f"--fold_head. With an activation it cannot be served: {ADVICE}")


def modules_between(before, after):
    """The modules of a torch.nn.Sequential between two of its modules, or before its first one that has weights, as names.
    None if they are not in one Sequential, so that anything may be between them."""
    here, last = place(after), place(before) if before is not None else None
    if before is not None and (here is None or last is None or last[0] != here[0]):
        return None
    if here is None:
        return []
    start = f"{here[0]}." if here[0] else ""
    return [f"{start}{index}" for index in range(last[1] + 1 if last else 0, here[1])]


def hidden_before(prefix, classes):
    """The modules before the output layer in a Sequential that may be activations, as names."""
    return [name for name in modules_between(None, prefix) or []
            if classes.get(name, "").rpartition(".")[2] not in IDENTITIES]


def head_tensors(state, taken, prefix):
    """Names of the tensors that are no other module's, or those under `prefix`."""
    return [name for name in state if name not in taken and (prefix is None or under(name, prefix))]


def layers_before(state, names, output, width):
    """Of the tensors `names`, those of a head whose last layer is `output`: all of its torch.nn.Sequential, and linear layers
    and batch norms that take the encoder's `width` values. Empty if `output` is the whole head."""
    last = place(output)
    kept = []
    for layer in read_layers(state, names):
        here = place(layer.prefix)
        beside = last is not None and here is not None and here[0] == last[0] and here[1] < last[1]
        weight = layer.tensors.get("weight")
        takes = (weight is not None and layer.kind in ("linear", "batch norm") and weight.shape[-1] == width)
        if layer.prefix == output or beside or (takes and "bias" in layer.tensors and weight.shape[0] == width):
            kept += [name for name in names if name.rpartition(".")[0] == layer.prefix]
    return kept if any(not under(name, output) for name in kept) else []
