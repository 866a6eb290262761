"""Finds the embedding, the encoder and the output layer in a checkpoint, by their shapes and names."""

import re

from .common import ExportError, listed
from .encoder_shapes import sizes

# What may be the prefix of an encoder.
ENCODER = re.compile(r"(?:(.*)\.)?rnn_lst\.0\.(?:weight|weight_proj|transform_module\.(?:0\.)?weight)")


def under(name, prefix):
    return name.startswith(prefix + ".") if prefix else True


def of_module(name, prefix):
    """Whether a tensor is of the module `prefix`. It is empty if the checkpoint is that of the sru.SRU itself, which has these names."""
    return name.startswith(prefix + "." if prefix else ("rnn_lst.", "input_to_hidden."))


def choose(what, flag, given, usual, candidates):
    """The module that is `what`: by its flag, else by its usual name, else the only candidate. None if there is none."""
    if given is not None:
        return given
    if usual in candidates:
        return usual
    if len(candidates) > 1:
        raise ExportError(f"{what}: several modules may be it; choose one with {flag}: {listed(candidates)}")
    return candidates[0] if candidates else None


def find_encoder(state, given, usual):
    """The sru.SRU; its usual name if there is none, for the error message then."""
    candidates = list(dict.fromkeys(match[1] or "" for match in map(ENCODER.fullmatch, state) if match))
    return choose("encoder (sru.SRU)", "--encoder-prefix", given, usual, candidates or [usual])


def tables(state, encoder, width):
    """Modules outside of the encoder whose weight has `width` columns, as {prefix: rows}."""
    found = {}
    for name, tensor in state.items():
        if name.endswith(".weight") and tensor.dim() == 2 and tensor.shape[1] == width and (
                not encoder or not under(name, encoder)) and not re.search(r"(^|\.)rnn_lst\.|^input_to_hidden\.", name):
            found[name[:-len(".weight")]] = tensor.shape[0]
    return found


def find_embedding(state, encoder, given, usual, rows):
    """The torch.nn.Embedding for a vocabulary of `rows` words; its usual name if nothing looks like it."""
    known = sizes(state, encoder)
    if given is not None or known is None:
        return usual if given is None else given
    found = tables(state, encoder, known[0])
    if usual in found:
        return usual
    # A linear layer has a bias, an embedding none.
    plain = {prefix: count for prefix, count in found.items() if prefix + ".bias" not in state}
    for fits in (lambda count: count == rows, lambda count: count > rows, lambda count: True):
        candidates = [prefix for prefix, count in plain.items() if fits(count)]
        if candidates:
            return choose("embedding", "--embedding-prefix", None, usual, candidates)
    return usual


def find_output(state, encoder, embedding, given, usual, rows):
    """The linear layer with `rows` outputs after the encoder. None if nothing of that shape is there."""
    known = sizes(state, encoder)
    if given is None and (known is None or usual + ".weight" in state):
        return usual
    candidates = [prefix for prefix, count in tables(state, encoder, known and known[1]).items()
                  if count == rows and prefix != embedding]
    return choose("output layer", "--classifier-prefix", given, usual, candidates)
