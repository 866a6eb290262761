"""Tasks whose network is one SRU stack: classifiers, encoders and language models."""

import json
import os
import shutil

from exporter.checkpoint import collect_tensors, load_state_dict
from exporter.common import FORMAT_VERSION, MAX_LABELS, ExportError, read_lines
from exporter.encoder import read_encoder
from exporter.model_directory import (check_out, config_text, exists_message, write_directory,
                                      write_safetensors)
from exporter.vocabulary import read_embedding, read_vocabulary

# kernels/stack_spec.h; "none" is for models without a classifier only.
POOLINGS = ("none", "first", "last", "max", "mean")

# Tasks that can be exported, and the names of their modules (embedding, encoder, output layer).
# What else "task" says is a note, unless the format may have a meaning for it one day.
TASKS = {
    "classifier": ("embedding", "encoder", "out"),
    "encoder": ("embedding", "encoder", "out"),
    "language_model": ("embedding_layer", "rnn", "output_layer"),
}

OTHER_TASKS = ("reader",)


def read_task(source, config, arguments):
    """What the model is for. A task that the format does not know is a note of the config."""
    task = config.get("task")
    if task in OTHER_TASKS:
        raise ExportError(f"{source}: task: a {task} cannot be exported; expected one of "
                          f"{', '.join(TASKS)}")
    if not isinstance(task, str) or task not in TASKS:
        return "classifier" if arguments.labels else "encoder"
    if task == "classifier" and not arguments.labels:
        raise ExportError(f"{source}: task: a classifier needs --labels")
    if task != "classifier" and arguments.labels:
        raise ExportError(f"--labels: a model with the task \"{task}\" has none")
    return task


def expected_tensors(encoder, vocabulary_size, num_labels, task="classifier"):
    """Names and shapes of the tensors of a model, as {name: (shape, optional)}.

    Follows the constructors of sru.SRU and sru.SRUCell. A language model has no labels.
    """
    input_size, hidden = encoder["input_size"], encoder["hidden_size"]
    output_size = hidden * (2 if encoder["bidirectional"] else 1)
    tensors = {}
    if vocabulary_size:
        tensors["embedding.weight"] = ([vocabulary_size, input_size], False)
    if encoder["proj_input_to_hidden_first"] and input_size != output_size:
        tensors["encoder.input_to_hidden.weight"] = ([output_size, input_size], False)
        input_size = output_size
    for layer in range(encoder["num_layers"]):
        prefix = f"encoder.rnn_lst.{layer}."
        projection = encoder["projection_size"]
        if not 0 < projection < min(input_size, output_size):
            projection = 0
        num_matrices = 4 if encoder["has_skip_term"] and input_size != output_size else 3
        if projection:
            tensors[prefix + "weight_proj"] = ([input_size, projection], False)
        tensors[prefix + "weight"] = ([projection or input_size, output_size * num_matrices], False)
        tensors[prefix + "weight_c"] = ([2 * output_size], False)
        tensors[prefix + "bias"] = ([2 * output_size], False)
        tensors[prefix + "scale_x"] = ([1], False)
        if encoder["layer_norm"]:
            width = output_size if encoder["normalize_after"] else input_size
            tensors[prefix + "layer_norm.weight"] = ([width], False)
            tensors[prefix + "layer_norm.bias"] = ([width], False)
        input_size = output_size
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


def export(torch, arguments, source_config):
    out = check_out(arguments.out)
    if os.path.lexists(out) and not arguments.force:
        raise ExportError(exists_message(out))

    source = f"config {arguments.config}"
    if "sru_config" not in source_config:
        raise ExportError(f"{source}: key 'sru_config' is missing; it holds the arguments of "
                          "sru.SRU (see --help)")
    task = read_task(source, source_config, arguments)
    encoder = read_encoder(source, source_config["sru_config"])
    config = {"format_version": FORMAT_VERSION}
    if arguments.description:
        config["description"] = arguments.description
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
    tensors = collect_tensors(torch, checkpoint, state, prefixes,
                              expected_tensors(encoder, size, len(labels), task))
    if tied:
        untie(torch, checkpoint, tensors)

    def write(directory):
        with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
            file.write(config_text(config))
        write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
        if vocabulary is not None and vocabulary.words is not None:
            with open(os.path.join(directory, "vocab.txt"), "w", encoding="utf-8",
                      newline="\n") as file:
                file.write("\n".join(vocabulary.words) + "\n")
        if vocabulary is not None and vocabulary.pieces is not None:
            shutil.copyfile(vocabulary.pieces, os.path.join(directory, "spm.model"))

    write_directory(out, arguments.force, write)
    report(out, config, vocabulary, tensors)


def report(out, config, vocabulary, tensors):
    """Says what was written and how to use it."""
    repository = os.path.dirname(os.path.dirname(out))
    model = os.path.basename(os.path.dirname(out))
    weights = sum(tensor.numel() for name, tensor in tensors.items()
                  if not name.endswith(".scale_x"))  # a constant, not a weight
    encoder, labels = config["encoder"], config.get("labels", [])
    language_model = config.get("task") == "language_model"
    symbols = {"bytes": "bytes", "characters": "characters", "sentencepiece": "pieces"}.get(
        config.get("preprocessing", {}).get("type"), "words")
    size = vocabulary.size if vocabulary is not None else 0
    last = ("a language model" + (", tied" if config.get("tied") else "") if language_model
            else f"{len(labels)} labels, pooling {config['pooling']}")
    print(f"wrote {out}:")
    for name in sorted(os.listdir(out)):
        print(f"  {name}  {os.path.getsize(os.path.join(out, name)):,} bytes")
    print(f"{encoder['num_layers']} layers, {weights:,} weights, {size:,} {symbols}, {last}.")
    print("Serve it and ask it:")
    print(f"  sru_server --model_repository={repository}")
    verb = "score" if language_model else "classify" if labels else "encode"
    print(f"  sru_client {verb} --model={model} 'your text'" if vocabulary is not None else
          "  and send Features (proto/sru/v1/inference.proto) of "
          f"feature_size {encoder['input_size']}")
