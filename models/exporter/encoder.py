"""The arguments of sru.SRU, which become the "encoder" object of config.json."""

import json
import math

from exporter.common import MAX_LAYERS, MAX_WIDTH, REQUIRED, ExportError, check_integer

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


def read_encoder(source, arguments):
    """The "encoder" object of config.json from the arguments of sru.SRU."""
    if not isinstance(arguments, dict):
        raise ExportError(f"{source}: sru_config: expected an object with the arguments of sru.SRU")
    if arguments.get("custom_m") is not None:
        raise ExportError(f"{source}: sru_config.custom_m: a model with a custom module in place "
                          "of the matrix products cannot be exported")
    known = set(ENCODER_ARGUMENTS) | DROPPED_ARGUMENTS | {"custom_m"}
    for key in arguments:
        if key not in known:
            raise ExportError(f"{source}: sru_config.{key}: is not an argument of sru.SRU; "
                              f"expected one of {', '.join(sorted(known))}")
    encoder = {}
    for key, default in ENCODER_ARGUMENTS.items():
        value = arguments.get(key, default)
        name = f"sru_config.{key}"
        if value is REQUIRED:
            raise ExportError(f"{source}: {name}: is missing")
        if key == "num_layers":
            check_integer(source, name, value, 1, MAX_LAYERS)
        elif key == "projection_size":
            check_integer(source, name, value, 0, MAX_WIDTH)
        elif default is REQUIRED:
            check_integer(source, name, value, 1, MAX_WIDTH)
        elif key == "highway_bias":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
                    math.isfinite(value) and abs(value) <= 1e6):
                raise ExportError(f"{source}: {name}: expected a number from -1e6 to 1e6, "
                                  f"found {json.dumps(value)}")
            value = float(value)
        elif not isinstance(value, bool):
            raise ExportError(f"{source}: {name}: expected true or false, "
                              f"found {json.dumps(value)}")
        encoder[key] = value
    return encoder
