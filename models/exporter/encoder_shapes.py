"""What the tensors of an sru.SRU say about the arguments that it was made with.

Shapes give the sizes, the number of layers, projection and layer norm. Not to be seen in them are `bidirectional` and
`use_tanh`, and in some modules `has_skip_term`, `normalize_after` and `highway_bias`.
"""

import math
import re

from .common import ExportError

LAYER = re.compile(r"rnn_lst\.(\d+)\.(.+)")

# Names of sru 3.0.0.dev, whose products are torch.nn.Linear, and of the released package, whose weights are transposed.
LINEAR_NAMES = {"transform_module.weight": "weight", "transform_module.0.weight": "weight_proj",
                "transform_module.1.weight": "weight"}


def from_linear_names(source, state):
    """The tensors under the names of the released package; and whether any had those of sru 3.0.0.dev."""
    converted, found = {}, False
    for name, tensor in state.items():
        match = re.fullmatch(r"(.*rnn_lst\.\d+\.)(transform_module\..+)", name)
        if match is None:
            converted[name] = tensor
            continue
        if match.group(2) not in LINEAR_NAMES or tensor.dim() != 2:
            kind = ("an SRUpp, the layer with attention (SRU++) of sru 3.0.0.dev"
                    if re.search(r"\.(linear[123]\.|alpha$|layer_norm\.)", name) else "a custom transform_module")
            raise ExportError(f"{source}: tensor '{name}' is of {kind}, which the server does not have; it serves sru.SRU, "
                              "of the released package (2.x) and of 3.0.0.dev")
        converted[match.group(1) + LINEAR_NAMES[match.group(2)]] = tensor.t()
        found = True
    return converted, found


def layers_of(state, prefix):
    """The tensors of each layer under a prefix, as {index: {name: tensor}}."""
    start = prefix + "." if prefix else ""
    layers = {}
    for name, tensor in state.items():
        match = LAYER.fullmatch(name[len(start):]) if name.startswith(start) else None
        if match is not None:
            layers.setdefault(int(match.group(1)), {})[match.group(2)] = tensor
    return layers


def scale_of(layer):
    """The factor of the skip term; 1 if the tensors do not say it."""
    scale = layer.get("scale_x")
    return scale.double().flatten()[0].item() if scale is not None and scale.numel() == 1 else 1


def sizes(state, prefix):
    """(input_size, output_size) of an encoder, or None if its tensors do not say them."""
    start = prefix + "." if prefix else ""
    first = layers_of(state, prefix).get(0, {})
    weight = first.get("weight_proj", first.get("weight"))
    if weight is None or weight.dim() != 2 or "bias" not in first or first["bias"].dim() != 1:
        return None
    output = first["bias"].numel() // 2
    before = state.get(start + "input_to_hidden.weight")
    return (before if before is not None and before.dim() == 2 else weight.t()).shape[1], output


def infer_encoder(source, state, prefix, options):
    """The arguments of sru.SRU, and which of them are only the package's defaults.

    options: hyper-parameters of the checkpoint, which count where tensors are silent.
    """
    layers = layers_of(state, prefix)
    known = sizes(state, prefix)
    if known is None or sorted(layers) != list(range(len(layers))):
        raise ExportError(f"{source}: the layers '{prefix}' are not those of an sru.SRU; write its arguments to a --config "
                          "(see --help)")
    input_size, output = known
    start = prefix + "." if prefix else ""
    result = {"input_size": input_size, "num_layers": len(layers)}
    assumed = []
    if start + "input_to_hidden.weight" in state:
        result["proj_input_to_hidden_first"] = True

    def option(key, default):
        value = options.get(key)
        if isinstance(value, bool):
            return value
        assumed.append(f"{key}={str(default).lower()}")
        return default

    widths = [layers[0].get("weight_proj", layers[0]["weight"]).shape[0]] + [output] * (len(layers) - 1)
    matrices = [layer["weight"].shape[1] // output if "weight" in layer else 0 for _, layer in sorted(layers.items())]
    result["projection_size"] = projection_of(source, prefix, layers)
    differing = [count for count, width in zip(matrices, widths) if width != output]
    scale = next((value for value in map(scale_of, layers.values()) if abs(value - 1) > 1e-6), None)
    if differing:
        result["has_skip_term"] = differing[0] == 4
    elif scale is not None:
        result["has_skip_term"] = True  # without the term the package leaves the scale at 1
    else:
        result["has_skip_term"] = option("has_skip_term", True)
    result["rescale"] = scale is not None
    if scale is not None and scale * scale > 1:
        result["highway_bias"] = round(math.log((scale * scale - 1) / 2), 4)
    result["layer_norm"] = any("layer_norm.weight" in layer for layer in layers.values())
    if result["layer_norm"]:
        norms = [layers[i]["layer_norm.weight"].numel() for i, width in enumerate(widths)
                 if width != output and "layer_norm.weight" in layers[i]]
        result["normalize_after"] = norms[0] == output if norms else option("normalize_after", False)
    result["v1"] = all("weight_c" in layer and not bool(layer["weight_c"].any()) for layer in layers.values())
    result["use_tanh"] = option("use_tanh", False)
    result["bidirectional"] = infer_directions(output, options)
    if result["bidirectional"] is None:
        raise ExportError(
            f"{source}: bidirectional: the tensors of '{prefix}' give {output} values per token, which may be one direction "
            f"of {output} or two of {output // 2}; say --sru bidirectional=false or --sru bidirectional=true")
    result["hidden_size"] = output // (2 if result["bidirectional"] else 1)
    return result, assumed


def infer_directions(output, options):
    """Whether there are two, or None if nothing says so."""
    if isinstance(options.get("bidirectional"), bool) and (output % 2 == 0 or not options["bidirectional"]):
        return options["bidirectional"]
    if output % 2:
        return False
    for key in ("hidden_size", "hidden_dim", "hidden", "d_hidden", "n_hidden"):
        hidden = options.get(key)
        if isinstance(hidden, int) and not isinstance(hidden, bool) and hidden in (output, output // 2):
            return hidden != output
    return None


def projection_of(source, prefix, layers):
    """projection_size, which is one number for all layers that can have it."""
    widths = {}
    for index, layer in sorted(layers.items()):
        if "weight_proj" in layer:
            widths.setdefault(layer["weight_proj"].shape[1], index)
    if len(widths) > 1:
        raise ExportError(f"{source}: the layers of '{prefix}' have projections of different sizes, "
                          f"{', '.join(map(str, widths))} (a list as projection_size, which only sru 3.0.0.dev takes); the "
                          "server has one size for all layers")
    return next(iter(widths), 0)


def check_options(source, where, encoder, state, prefix):
    """Refuses options that contradict the tensors, where shapes alone would not show it."""
    for index, layer in sorted(layers_of(state, prefix).items()):
        name = f"{prefix + '.' if prefix else ''}rnn_lst.{index}."
        scale = scale_of(layer)
        if abs(scale - 1) > 1e-6:
            reason = f"since tensor '{name}scale_x' is {scale:.6g}, and 1 without"
            for key in ("rescale", "has_skip_term"):
                if not encoder[key]:
                    raise ExportError(f"{source}: {where}.{key}: expected true, {reason}; found false")
        weight_c = layer.get("weight_c")
        if encoder["v1"] and weight_c is not None and bool(weight_c.any()):
            raise ExportError(f"{source}: {where}.v1: expected false, since tensor '{name}weight_c' is not zeros; "
                              "found true")
