"""Gives the tensors of a checkpoint the format's names, and checks them."""

import fnmatch

from .common import ExportError, listed
from .folds import REMOVE
from .modules import of_module


def drop_ignored(source, state, arguments):
    """The tensors without those that --ignore names."""
    kept = state
    for pattern in arguments.ignore:
        before, kept = kept, {name: tensor for name, tensor in kept.items() if not fnmatch.fnmatchcase(name, pattern)}
        if len(kept) == len(before):
            raise ExportError(f"--ignore {pattern}: no tensor of the {source} has such a name; the first are "
                              f"{listed(kept, 4)}")
    if len(kept) < len(state):
        arguments.notes.append(f"left out by --ignore: {listed(name for name in state if name not in kept)}. If they are part of "
                               "what gives the answer, as a pooling or a norm is, this is another model; --check tells")
    return kept


def strangers_message(source, names, prefixes, hints):
    """Which tensors are no module's, and what can be done: `hints` if the model may need them, else to leave them out."""
    groups = list(dict.fromkeys(name.split(".")[0] + ".*" if "." in name else name for name in names))
    more = f" ({len(names)} such tensors)" if len(names) > 1 else ""
    # A pattern that would take a module of the model along is no advice.
    safe = [pattern for pattern in groups if not any((prefix + ".").startswith(pattern[:-1]) for prefix in prefixes)]
    flags = " ".join(f"--ignore '{pattern}'" for pattern in (safe if len(safe) == len(groups) else names)[:6])
    return (f"{source}: tensor '{names[0]}' belongs to no module of the model{more}; the modules are "
            f"{', '.join(repr(prefix) for prefix in prefixes)} (--embedding-prefix, --encoder-prefix and --classifier-prefix "
            f"name them)" + ("; " + "; ".join(hints) if hints else f". If the answer does not depend on the rest: {flags}"))


def rename_tensors(source, state, modules, hints=()):
    """Gives the tensors the format's names; `modules` has the name in the checkpoint of each module of the format."""
    renamed, strangers = {}, []
    for name, tensor in state.items():
        module = next((module for module, prefix in modules.items() if of_module(name, prefix)), None)
        if module is None:
            strangers.append(name)
        else:
            prefix = modules[module]
            renamed[f"{module}.{name[len(prefix) + 1:] if prefix else name}"] = (name, tensor)
    if strangers:
        raise ExportError(strangers_message(source, strangers, modules.values(), hints))
    return renamed


def collect_tensors(torch, source, given, expected, optional=(), unknown="the config", missing="the config"):
    """The tensors in the order of `expected`, as {name: float32 tensor}, all checked.

    given: {name in the format: (name in the checkpoint, tensor)}
    expected: {name: shape}. Those named in `optional` may be missing.
    unknown, missing: what the user is told to check when a tensor is there that the config does not have, or the other way round
    """
    for name, (original, _) in given.items():
        if ".custom_m." in name:
            raise ExportError(f"{source}: tensor '{original}': a model with a custom module "
                              "(custom_m) cannot be exported")
        if ".parametrizations." in name:
            raise ExportError(f"{source}: tensor '{original}': {REMOVE}")
        if name not in expected:
            raise ExportError(f"{source}: tensor '{original}' is not part of a model with this "
                              f"config; check {unknown}")
    tensors = {}
    for name, shape in expected.items():
        if name in given:
            tensors[name] = checked_tensor(torch, source, *given[name], shape)
        elif name not in optional:
            raise ExportError(f"{source}: tensor '{name}' is missing (shape {shape}); check {missing}")
    return tensors


def checked_tensor(torch, source, name, tensor, shape):
    """The tensor in float32."""
    if tensor.layout != torch.strided or not tensor.is_floating_point():
        raise ExportError(f"{source}: tensor '{name}': expected floating-point numbers, "
                          f"found {tensor.dtype} ({tensor.layout})")
    if list(tensor.shape) != shape:
        raise ExportError(f"{source}: tensor '{name}': expected shape {shape} from the "
                          f"config, found {list(tensor.shape)}")
    tensor = tensor.detach().to(device="cpu", dtype=torch.float32).contiguous()
    if not bool(torch.isfinite(tensor).all()):
        raise ExportError(f"{source}: tensor '{name}' holds values that are not finite in "
                          "float32")
    return tensor
