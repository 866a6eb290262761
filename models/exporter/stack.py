"""Tasks whose network is one SRU stack: classifiers, encoders and language models."""

import json

from exporter.checkpoint import Settings, collect_tensors, load_state_dict, rename_tensors
from exporter.common import MAX_LABELS, ExportError, Exported, read_lines
from exporter.encoder import layer_tensors, read_encoder
from exporter.vocabulary import read_embedding, read_vocabulary

# kernels/stack_spec.h; "none" is for models without a classifier only.
POOLINGS = ("none", "first", "last", "max", "mean")

# The names of the modules: embedding, encoder, output layer.
TASKS = {
    "classifier": ("embedding", "encoder", "out"),
    "encoder": ("embedding", "encoder", "out"),
    "language_model": ("embedding_layer", "rnn", "output_layer"),
}


# What decides which tensors a model has.
SETTINGS = Settings(unknown="sru_config, --vocab and --labels",
                    missing="sru_config and the prefixes (--embedding-prefix, --encoder-prefix, "
                    "--classifier-prefix)")


def expected_tensors(encoder, vocabulary_size, num_labels, task="classifier"):
    """Names and shapes of the tensors of a model, as {name: (shape, optional)}.

    Follows the constructor of sru.SRU. A language model has no labels.
    """
    input_size, hidden = encoder["input_size"], encoder["hidden_size"]
    output_size = hidden * (2 if encoder["bidirectional"] else 1)
    tensors = {}
    if vocabulary_size:
        tensors["embedding.weight"] = ([vocabulary_size, input_size], False)
    if encoder["proj_input_to_hidden_first"] and input_size != output_size:
        tensors["encoder.input_to_hidden.weight"] = ([output_size, input_size], False)
        input_size = output_size
    tensors.update(layer_tensors(encoder, "encoder.rnn_lst.", input_size, encoder["num_layers"]))
    if num_labels:
        tensors["out.weight"] = ([num_labels, output_size], False)
        tensors["out.bias"] = ([num_labels], True)
    if task == "language_model":
        tensors["out.weight"] = ([vocabulary_size, output_size], False)
        tensors["out.bias"] = ([vocabulary_size], False)
    return tensors


def read_pooling(source, config, labels):
    poolings = [name for name in POOLINGS if name != "none" or not labels]
    pooling = config.get("pooling", None if labels else "none")
    if pooling not in poolings:
        raise ExportError(f"{source}: pooling: expected one of {', '.join(poolings)}"
                          f"{' (the model has labels)' if labels else ''}, found "
                          f"{json.dumps(pooling)}")
    return pooling


def check_language_model(source, config, encoder):
    """Checks the keys that a language model has for itself; returns whether it is tied."""
    if encoder["bidirectional"]:
        raise ExportError(f"{source}: sru_config.bidirectional: expected false for a language "
                          "model, which must not see the tokens that it predicts; found true")
    if config.get("pooling", "none") != "none":
        raise ExportError(f"{source}: pooling: expected \"none\" or no such key for a language "
                          f"model, found {json.dumps(config['pooling'])}")
    tied = config.get("tied", False)
    if not isinstance(tied, bool):
        raise ExportError(f"{source}: tied: expected true or false, found {json.dumps(tied)}")
    if tied and encoder["input_size"] != encoder["hidden_size"]:
        raise ExportError(f"{source}: tied: expected false, since sru_config.input_size "
                          f"{encoder['input_size']} is not sru_config.hidden_size "
                          f"{encoder['hidden_size']}")
    return tied


def untie(torch, source, tensors):
    """Drops the output layer's weight, which is the embedding under a second name."""
    if not torch.equal(tensors["out.weight"], tensors["embedding.weight"]):
        raise ExportError(f"{source}: the output layer's weight differs from the embedding; "
                          "\"tied\": true says that they are one tensor")
    del tensors["out.weight"]


def module_prefixes(arguments, task, state, has_vocabulary, has_output):
    """Names of modules in the checkpoint, mapped to the format's."""
    embedding, encoder, output = TASKS[task]
    # A language model of words may hold its table one level deeper.
    if task == "language_model" and embedding + ".embedding.weight" in state:
        embedding += ".embedding"

    def chosen(given, default):
        return default if given is None else given

    prefixes = {}
    if has_vocabulary:
        prefixes[chosen(arguments.embedding_prefix, embedding)] = "embedding"
    if has_output:
        prefixes[chosen(arguments.classifier_prefix, output)] = "out"
    encoder = chosen(arguments.encoder_prefix, encoder)
    if encoder in prefixes or len(prefixes) != has_vocabulary + has_output:
        raise ExportError(
            "--embedding-prefix, --encoder-prefix and --classifier-prefix must differ")
    prefixes[encoder] = "encoder"
    # The longest first: a prefix may be the start of another.
    return dict(sorted(prefixes.items(), key=lambda item: -len(item[0])))


def read_model(torch, arguments, task, source, source_config):
    """A model of one of these tasks. `source` names the config in messages."""
    encoder = read_encoder(source, source_config)
    config = {}
    language_model = task == "language_model"
    if language_model:
        config["task"] = task
    config["encoder"] = encoder

    vocabulary = read_vocabulary(source, source_config, task, arguments)
    if vocabulary is not None:
        config["embedding"] = read_embedding(source, source_config, vocabulary)
        config["preprocessing"] = vocabulary.preprocessing

    labels = read_lines(arguments.labels, "labels") if arguments.labels else []
    if len(labels) > MAX_LABELS:
        raise ExportError(f"labels {arguments.labels}: expected at most {MAX_LABELS}, "
                          f"found {len(labels)}")
    tied = language_model and check_language_model(source, source_config, encoder)
    if not language_model:
        config["pooling"] = read_pooling(source, source_config, labels)
    if labels:
        config["labels"] = labels
    if tied:
        config["tied"] = True

    state = load_state_dict(torch, arguments.checkpoint)
    size = vocabulary.size if vocabulary is not None else 0
    prefixes = module_prefixes(arguments, task, state, vocabulary is not None,
                               language_model or bool(labels))
    checkpoint = f"checkpoint {arguments.checkpoint}"
    tensors = collect_tensors(torch, checkpoint, rename_tensors(checkpoint, state, prefixes),
                              expected_tensors(encoder, size, len(labels), task), SETTINGS)
    if tied:
        untie(torch, checkpoint, tensors)
    return Exported(config, tensors, vocabulary, *describe(config, vocabulary))


def describe(config, vocabulary):
    """What the model is made of beside its weights, and how to ask it."""
    encoder, labels = config["encoder"], config.get("labels", [])
    language_model = config.get("task") == "language_model"
    symbols = {"bytes": "bytes", "characters": "characters", "sentencepiece": "pieces"}.get(
        config.get("preprocessing", {}).get("type"), "words")
    size = vocabulary.size if vocabulary is not None else 0
    last = ("a language model" + (", tied" if config.get("tied") else "") if language_model
            else f"{len(labels)} labels, pooling {config['pooling']}")
    verb = "score" if language_model else "classify" if labels else "encode"
    usage = (f"sru_client {verb} --model={{model}} 'your text'" if vocabulary is not None else
             "and send Features (proto/sru/v1/inference.proto) of "
             f"feature_size {encoder['input_size']}")
    return f"{encoder['num_layers']} layers", f"{size:,} {symbols}, {last}", usage
