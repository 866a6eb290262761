"""The arguments of sru.SRU, which become the "encoder" object of config.json, and its tensors."""

import json

from .common import MAX_LAYERS, MAX_WIDTH, REQUIRED, ExportError, check_boolean, check_integer, check_number

# Arguments of sru.SRU that matter for inference, with the package's defaults, in the order in which
# they are written.
ENCODER_ARGUMENTS = {
    "input_size": REQUIRED,
    "hidden_size": REQUIRED,
    "num_layers": 2,
    "bidirectional": False,
    "projection_size": 0,
    "use_tanh": False,
    "layer_norm": False,
    "normalize_after": False,
    "has_skip_term": True,
    "rescale": False,
    "v1": False,
    "proj_input_to_hidden_first": False,
    "highway_bias": 0.0,
}

# Arguments that change training, or the shape in which Python gets the result, and no number.
DROPPED_ARGUMENTS = {
    "dropout",
    "rnn_dropout",
    "weight_c_init",
    "nn_rnn_compatible_return",
    "amp_recurrence_fp16",
}


# Modules in place of the products, of the released package and of 3.0.0.dev.
CUSTOM_ARGUMENTS = ("custom_m", "transform_module")


def read_encoder(source, config):
    """The "encoder" object of config.json from the key sru_config of the model config."""
    if "sru_config" not in config:
        raise ExportError(f"{source}: key 'sru_config' is missing; it holds the arguments of "
                          "sru.SRU (see --help)")
    arguments = config["sru_config"]
    check_arguments(source, "sru_config", arguments, set(ENCODER_ARGUMENTS), "sru.SRU")
    return make_encoder(source, "sru_config", arguments)


def check_arguments(source, where, arguments, known, of):
    """Refuses what the key `where` has beside the arguments `known` of the class `of`."""
    if not isinstance(arguments, dict):
        raise ExportError(f"{source}: {where}: expected an object with the arguments of {of}")
    for key in CUSTOM_ARGUMENTS:
        if arguments.get(key) is not None:
            raise ExportError(f"{source}: {where}.{key}: a model with a custom module in place "
                              "of the matrix products cannot be exported")
    if isinstance(arguments.get("projection_size"), list):
        raise ExportError(f"{source}: {where}.projection_size: expected one size for all layers, found "
                          f"{json.dumps(arguments['projection_size'])}; lists, which only sru 3.0.0.dev takes, cannot be served")
    known = known | DROPPED_ARGUMENTS | set(CUSTOM_ARGUMENTS)
    for key in arguments:
        if key not in known:
            raise ExportError(f"{source}: {where}.{key}: is not an argument of {of}; "
                              f"expected one of {', '.join(sorted(known))}")


def make_encoder(source, where, arguments):
    """The "encoder" object from arguments that check_arguments() has accepted."""
    encoder = {}
    for key, default in ENCODER_ARGUMENTS.items():
        value = arguments.get(key, default)
        name = f"{where}.{key}"
        if value is REQUIRED:
            raise ExportError(f"{source}: {name}: is missing")
        if key == "num_layers":
            check_integer(source, name, value, 1, MAX_LAYERS)
        elif key == "projection_size":
            check_integer(source, name, value, 0, MAX_WIDTH)
        elif default is REQUIRED:
            check_integer(source, name, value, 1, MAX_WIDTH)
        elif key == "highway_bias":
            value = check_number(source, name, value, -1e6, 1e6)
        else:
            check_boolean(source, name, value)
        encoder[key] = value
    return encoder


def layer_tensors(encoder, prefix, input_size, num_layers):
    """Names and shapes of the tensors of layers, as {name: shape}.

    They are `prefix`0.weight and so on. Follows the constructor of sru.SRUCell.
    """
    output_size = encoder["hidden_size"] * (2 if encoder["bidirectional"] else 1)
    tensors = {}
    for layer in range(num_layers):
        name = f"{prefix}{layer}."
        projection = encoder["projection_size"]
        if not 0 < projection < min(input_size, output_size):
            projection = 0
        num_matrices = 4 if encoder["has_skip_term"] and input_size != output_size else 3
        if projection:
            tensors[name + "weight_proj"] = [input_size, projection]
        tensors[name + "weight"] = [projection or input_size, output_size * num_matrices]
        tensors[name + "weight_c"] = tensors[name + "bias"] = [2 * output_size]
        tensors[name + "scale_x"] = [1]
        if encoder["layer_norm"]:
            width = output_size if encoder["normalize_after"] else input_size
            tensors[name + "layer_norm.weight"] = tensors[name + "layer_norm.bias"] = [width]
        input_size = output_size
    return tensors
