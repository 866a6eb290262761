"""Pruning masks and the norms of torch.nn.utils: a checkpoint has their parts, which become the one tensor that PyTorch makes
of them in eval mode."""

import collections
import re

from .common import listed


def pruned(torch, original, mask):
    return mask.to(original.dtype) * original if mask.shape == original.shape else None


def weight_norm(torch, length, direction):
    kept = -1 if length.dim() == 0 else next(  # the dimension that has a length of each part
        (kept for kept in range(direction.dim()) if list(length.shape) == [
            extent if index == kept else 1 for index, extent in enumerate(direction.shape)]), None)
    return None if kept is None else torch._weight_norm(direction, length, kept)


def spectral_norm(torch, original, left, right):
    for rows in range(original.dim() if original.dim() > 1 else 0):
        matrix = original.movedim(rows, 0).flatten(1)
        if [list(left.shape), list(right.shape)] == [[extent] for extent in matrix.shape]:
            return original / torch.dot(left, torch.mv(matrix, right))
    return None


# Of other parametrizations.
REMOVE = ("a parametrization does not say in a checkpoint what is computed of its tensors: call "
          "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight') before torch.save")

# parts: what becomes of the name of the tensor. compute: the tensor; None if they are no such parts.
Fold = collections.namedtuple("Fold", "what parts compute")

FOLDS = (
    Fold("pruning", ("{}_orig", "{}_mask"), pruned),
    Fold("weight_norm", ("{}_g", "{}_v"), weight_norm),
    Fold("weight_norm", ("parametrizations.{}.original0", "parametrizations.{}.original1"), weight_norm),
    Fold("spectral_norm", ("{}_orig", "{}_u", "{}_v"), spectral_norm),
    Fold("spectral_norm", ("parametrizations.{}.original", "parametrizations.{}.0._u", "parametrizations.{}.0._v"),
         spectral_norm),
)


def fold_parametrizations(torch, state, notes):
    """The tensors without parametrizations. A fold may make a part of another."""
    for fold in FOLDS:
        first = re.compile(r"((?:.*\.)?)" + re.escape(fold.parts[0]).replace(r"\{\}", r"(\w+)"))
        made, parts = {}, set()
        for match in filter(None, map(first.fullmatch, state)):
            names = [match[1] + part.format(match[2]) for part in fold.parts]
            if match[1] + match[2] not in state and all(name in state for name in names):
                tensor = fold.compute(torch, *(state[name].detach().float() for name in names))
                if tensor is not None:
                    made[names[0]] = match[1] + match[2], tensor
                    parts.update(names[1:])
        # In its order, which that of a head's layers may be.
        state = dict(made.get(name, (name, tensor)) for name, tensor in state.items() if name not in parts)
        if made:
            notes.append(f"{fold.what} of {listed((name for name, _ in made.values()), 3)} was folded into the plain tensor, as "
                         "in eval mode")
    return state
