"""Reads a checkpoint and checks its tensors."""

import collections
import inspect
import re
import sys

from exporter.common import ExportError

# What the user is told to check when a tensor is there that the config does not have, or the other
# way round.
Settings = collections.namedtuple("Settings", "unknown missing")


def load_checkpoint(torch, path):
    """What torch.save wrote, whatever it is."""
    options = {"map_location": "cpu"}
    if "weights_only" in inspect.signature(torch.load).parameters:
        options["weights_only"] = True
    else:
        print(f"warning: this PyTorch ({torch.__version__}) has no weights_only loading: a "
              "checkpoint can run code when it is loaded. Export only files that you trust.",
              file=sys.stderr)
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        reason = error.strerror or error
        raise ExportError(f"cannot read the checkpoint {path}: {reason}") from error
    try:
        return torch.load(path, **options)
    # torch.load raises many types for a broken or foreign file: for one that is cut short even an
    # OSError, of which "Invalid argument" is all that it says.
    except Exception as error:
        first_line = (str(error).strip() or "no reason given").split("\n")[0]
        raise ExportError(
            f"checkpoint {path}: cannot be loaded ({type(error).__name__}: {first_line}); expected "
            "a file written by torch.save(model.state_dict(), path); is it whole?") from error


def load_state_dict(torch, path):
    return state_dict_of(torch, path, load_checkpoint(torch, path))


def state_dict_of(torch, path, checkpoint):
    """The tensors by name, of a state_dict or of a dict that has one."""
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("state_dict"), dict):
        checkpoint = checkpoint["state_dict"]
        if isinstance(checkpoint.get("network"), dict):  # the public code of readers
            checkpoint = checkpoint["network"]
    if not isinstance(checkpoint, dict) or not checkpoint:
        raise ExportError(f"checkpoint {path}: expected a state_dict, found "
                          f"{type(checkpoint).__name__}; save model.state_dict()")
    for name, value in checkpoint.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ExportError(f"checkpoint {path}: entry '{name}' is a {type(value).__name__}, "
                              "expected a tensor; save model.state_dict()")
    if all(name.startswith("module.") for name in checkpoint):  # torch.nn.DataParallel
        checkpoint = {name[len("module."):]: value for name, value in checkpoint.items()}
    return checkpoint


def rename_tensors(source, state, prefixes):
    """Gives the tensors the format's names; `prefixes` maps names of modules to the format's."""
    renamed = {}
    for name, tensor in state.items():
        for prefix, canonical in prefixes.items():
            start = prefix + "." if prefix else ""
            if name.startswith(start):
                # An empty prefix matches every name, so only what the module can hold is taken.
                if (prefix or canonical != "encoder"
                        or re.match(r"rnn_lst\.|input_to_hidden\.", name)):
                    renamed[canonical + "." + name[len(start):]] = (name, tensor)
                    break
        else:
            raise ExportError(
                f"{source}: tensor '{name}' belongs to no module of the model; the modules are "
                f"{', '.join(repr(prefix) for prefix in prefixes)} (--embedding-prefix, "
                "--encoder-prefix and --classifier-prefix name them)")
    return renamed


def collect_tensors(torch, source, given, expected, settings):
    """The tensors in the order of `expected`, as {name: float32 tensor}, all checked.

    given: {name in the format: (name in the checkpoint, tensor)}
    expected: {name: (shape, optional)}
    """
    for name, (original, _) in given.items():
        if ".custom_m." in name:
            raise ExportError(f"{source}: tensor '{original}': a model with a custom module "
                              "(custom_m) cannot be exported")
        if name not in expected:
            raise ExportError(f"{source}: tensor '{original}' is not part of a model with this "
                              f"config; check {settings.unknown}")
    tensors = {}
    for name, (shape, optional) in expected.items():
        if name not in given:
            if optional:
                continue
            raise ExportError(f"{source}: tensor '{name}' is missing (shape {shape}); check "
                              f"{settings.missing}")
        original, tensor = given[name]
        tensors[name] = checked_tensor(torch, source, original, tensor, shape)
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
