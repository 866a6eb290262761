"""Tasks whose network is one SRU stack: classifiers, encoders, language models and taggers."""

import collections
import json

from .checkpoint import collect_tensors, drop_ignored, rename_tensors
from .checkpoint_file import read_checkpoint
from .common import MAX_LABELS, ExportError, Exported, check_boolean, count_of, listed
from .encoder import layer_tensors, read_encoder
from .encoder_shapes import check_options, from_linear_names, infer_encoder, sizes
from .folds import REMOVE
from .head import fold_head, head_tensors, hidden_before, layers_before, read_layers
from .modules import find_embedding, find_encoder, find_output, of_module, under
from .reference import POOLS
from .vocabulary import fit_rows, read_embedding, read_vocabulary
from .vocabulary_file import read_words

# kernels/stack_spec.h; "none" is for models without a classifier only.
POOLINGS = ("none", *POOLS)

# modules: the names of embedding, encoder and output layer. labels: whether the outputs have names. pooled: whether token
# vectors become one; a task without pooling is named in config.json, the others follow from the labels. verb: the subcommand
# of sru_client. numbers: what --verify and --check compare (NUMBERS of verify.py).
Task = collections.namedtuple("Task", "modules labels pooled verb numbers")

TASKS = {
    "classifier": Task(("embedding", "encoder", "out"), labels=True, pooled=True, verb="classify",
                       numbers=("logits", "vectors")),
    "encoder": Task(("embedding", "encoder", "out"), labels=False, pooled=True, verb="encode",
                    numbers=("vectors",)),
    "language_model": Task(("embedding_layer", "rnn", "output_layer"), labels=False, pooled=False, verb="score",
                           numbers=("log_probs",)),
    "tagger": Task(("embedding", "encoder", "out"), labels=True, pooled=False, verb="tag",
                   numbers=("probabilities",)),
}


def expected_tensors(encoder, vocabulary_size, num_labels, task="classifier"):
    """Names and shapes of the tensors of a model, as {name: shape}.

    Follows the constructor of sru.SRU. A language model has no labels.
    """
    input_size, hidden = encoder["input_size"], encoder["hidden_size"]
    output_size = hidden * (2 if encoder["bidirectional"] else 1)
    tensors = {}
    if vocabulary_size:
        tensors["embedding.weight"] = [vocabulary_size, input_size]
    if encoder["proj_input_to_hidden_first"] and input_size != output_size:
        tensors["encoder.input_to_hidden.weight"] = [output_size, input_size]
        input_size = output_size
    tensors.update(layer_tensors(encoder, "encoder.rnn_lst.", input_size, encoder["num_layers"]))
    outputs = vocabulary_size if task == "language_model" else num_labels
    if outputs:
        tensors["out.weight"], tensors["out.bias"] = [outputs, output_size], [outputs]
    return tensors


def read_pooling(source, config, task, labels, arguments):
    """None for a task that has none."""
    if not TASKS[task].pooled:
        if config.get("pooling", "none") != "none":
            raise ExportError(f"{source}: pooling: expected \"none\" or no such key for a {task.replace('_', ' ')}, found "
                              f"{json.dumps(config['pooling'])}")
        return None
    poolings = [name for name in POOLINGS if name != "none" or not labels]
    pooling = config.get("pooling", None if labels else "none")
    if pooling is None and arguments.config is None:
        raise ExportError(f"--pooling: is needed beside --labels: {', '.join(poolings)}; how token vectors become the "
                          "classifier's input does not show in a checkpoint")
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
    tied = check_boolean(source, "tied", config.get("tied", False))
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


def usual_names(task, state):
    """The names that embedding, encoder and output layer have if nothing else is said, by the format's."""
    usual = dict(zip(("embedding", "encoder", "out"), TASKS[task].modules))
    # A language model of words may hold its table one level deeper.
    if task == "language_model" and usual["embedding"] + ".embedding.weight" in state:
        usual["embedding"] += ".embedding"
    return usual


def read_source(torch, arguments):
    """The Checkpoint, without what --ignore names and under the names of the released package."""
    checkpoint = read_checkpoint(torch, arguments)
    source = f"checkpoint {arguments.checkpoint}"
    state = drop_ignored(source, checkpoint.state, arguments)
    state, transposed = from_linear_names(source, state)
    if transposed:
        arguments.notes.append("the checkpoint is one of sru 3.0.0.dev; its weights were transposed")
    return checkpoint._replace(state=state)


def read_arguments(arguments, task, config, checkpoint):
    """The config with sru_config, which the checkpoint and --sru give if the config does not have it."""
    if "sru_config" in config:
        if not arguments.sru or not isinstance(config["sru_config"], dict):
            return config
        return {**config, "sru_config": {**config["sru_config"], **arguments.sru}}
    prefix = find_encoder(checkpoint.state, arguments.encoder_prefix, usual_names(task, checkpoint.state)["encoder"])
    if sizes(checkpoint.state, prefix) is None:
        raise ExportError(f"checkpoint {arguments.checkpoint}: no sru.SRU was found in it (tensors named "
                          f"...rnn_lst.0.weight); it has {listed(checkpoint.state, 4)}")
    inferred, assumed = infer_encoder(f"checkpoint {arguments.checkpoint}", checkpoint.state, prefix,
                                      {**checkpoint.options, **config, **arguments.sru})
    inferred.update(arguments.sru)
    shown = ", ".join(f"{key}={json.dumps(value)}" for key, value in inferred.items() if value not in (False, 0))
    arguments.notes.append(f"the checkpoint says: sru.SRU({shown})")
    assumed = [text for text in assumed if text.split("=")[0] not in arguments.sru]
    if assumed:
        arguments.notes.append(f"the checkpoint does not say, so the package's defaults were taken: {', '.join(assumed)}. If "
                               "the module was made with others, say so with --sru KEY=VALUE; --check tells")
    return {**config, "sru_config": inferred}


def find_modules(torch, arguments, task, checkpoint, vocabulary, outputs):
    """Names of modules in the checkpoint by the format's, and the tensors, of which some may have been made: those of a
    head that was folded. `outputs`: of the output layer, 0 without one."""
    state = dict(checkpoint.state)
    source = f"checkpoint {arguments.checkpoint}"
    usual = usual_names(task, state)
    given = dict(zip(usual, (arguments.embedding_prefix, arguments.encoder_prefix, arguments.classifier_prefix)))
    encoder, embedding = find_encoder(state, given["encoder"], usual["encoder"]), None
    modules = {"encoder": encoder}
    if vocabulary is not None:
        embedding = find_embedding(state, encoder, given["embedding"], usual["embedding"], vocabulary.size)
        modules["embedding"] = embedding
    if outputs:
        rows = outputs
        if task == "language_model" and embedding + ".weight" in state:
            rows = state[embedding + ".weight"].shape[0]  # both may be padded
        output = find_output(state, encoder, embedding, given["out"], usual["out"], rows)
        known = sizes(state, encoder)
        taken = {name for name in state if of_module(name, encoder) or (embedding is not None and under(name, embedding))}
        names = head_tensors(state, taken, output)
        if output is not None and output + ".weight" in state:
            names = layers_before(state, head_tensors(state, taken, None), output, known and known[1])
        if known is not None and names:
            folded = fold_head(torch, source, checkpoint._replace(state=state), names, known[1], rows, arguments.fold_head,
                               arguments.notes)
            if folded is not None:
                state = {name: tensor for name, tensor in state.items() if name not in names}
                state.update({f"{usual['out']}.{name}": tensor for name, tensor in folded.items()})
                output = usual["out"]
        output = modules["out"] = usual["out"] if output is None else output
        if TASKS[task].labels and known is not None:
            check_outputs(source, state, head_tensors(state, taken, None), output, known[1], rows, arguments)
        hidden = hidden_before(output, checkpoint.classes)
        if hidden:
            arguments.notes.append(f"{listed(hidden)} before the output layer '{output}' has no weights and was "
                                   "taken for Dropout; an activation there could not be served")
    if len(set(modules.values())) != len(modules):
        raise ExportError("--embedding-prefix, --encoder-prefix and --classifier-prefix must differ")
    if any(given[name] is None and prefix != usual[name] for name, prefix in modules.items()):
        arguments.notes.append("found by shape and name: " + ", ".join(
            f"{'output layer' if name == 'out' else name} '{prefix}'" for name, prefix in modules.items()))
    # The longest first: a prefix may be the start of another.
    return dict(sorted(modules.items(), key=lambda item: -len(item[1]))), state


def keep_encoder(state, prefixes, notes):
    """The tensors of the modules `prefixes` alone; says what was left out."""
    kept = {name: tensor for name, tensor in state.items() if any(of_module(name, prefix) for prefix in prefixes)}
    if len(kept) < len(state):
        notes.append(f"left out, since only the encoder is exported: {listed(name for name in state if name not in kept)}. If one "
                     "of them is before the encoder, its vectors are others; --check tells")
    return kept


def check_outputs(source, state, names, prefix, width, rows, arguments):
    """Refuses a head that has not `rows` outputs, as many as there are labels. It is the output layer `prefix`, or else the last
    linear layer behind the encoder's `width` values."""
    head = next((layer for layer in read_layers(state, names) if layer.prefix == prefix), None)
    widths = {width}
    for layer in read_layers(state, names) if head is None else ():
        # A layer with one output scores tokens or a text; it is the head only if nothing else is.
        if layer.kind == "linear" and layer.tensors["weight"].shape[1] in widths and (
                head is None or layer.tensors["weight"].shape[0] > 1):
            head = layer
            widths.add(layer.tensors["weight"].shape[0])
    if head is not None and head.kind == "linear" and head.tensors["weight"].shape[0] != rows:
        found = list(head.tensors["weight"].shape)
        labels = (f"{arguments.labels} {count_of(rows, 'line')}" if arguments.labels else f"the config {count_of(rows, 'label')}")
        raise ExportError(f"{source}: tensor '{head.prefix}.weight': expected shape [{rows}, {found[1]}] from the config, found "
                          f"{found}: the head '{head.prefix}' has {count_of(found[0], 'output')}, {labels}")


def stranger_hints(task, vocabulary, state, modules, encoder, rows):
    """What tensors of no module may be, if the model may need them: then it is no advice to leave them out."""
    inputs, width = encoder["input_size"], encoder["hidden_size"] * (2 if encoder["bidirectional"] else 1)
    hints = []
    if sizes(state, modules["encoder"]) is None:
        hints.append("no sru.SRU was found, whose first tensor is named ...rnn_lst.0.weight")
    if vocabulary is not None and f"{modules['embedding']}.weight" not in state:
        hints.append(f"no embedding was found, a table with the {inputs} columns that the encoder reads")
    if rows and f"{modules['out']}.weight" not in state:
        hints.append(f"no output layer was found, which has {rows} rows and {width} columns")
    for name, tensor in state.items():
        module, shape = name.rpartition(".")[0] or name, list(tensor.shape)
        if any(of_module(name, prefix) for prefix in modules.values()):
            continue
        if ".parametrizations." in name:
            hints.append(f"'{module}': {REMOVE}")
        elif "rnn_lst." in name:
            hints.append(f"'{module}' is of another sru.SRU, and a model has one")
        elif vocabulary is None and len(shape) == 2 and shape[1] == inputs and module + ".bias" not in state:
            hints.append("an embedding needs --vocab")
        elif width in shape and task == "encoder":
            hints.append("a classifier's output layer needs --labels, or pass --encoder_only to leave it out")
        elif width in shape or shape == [rows, rows]:
            hints.append(f"if '{module}' is {'before the encoder, or ' if width == inputs else ''}between the "
                         f"{'pooling' if TASKS[task].pooled else 'encoder'} and the output layer or behind it, as a norm, a pooling "
                         "with weights or a layer with an activation, the model cannot be served as a "
                         f"{task.replace('_', ' ')}, but --encoder_only can; a head of another task may be left out (see --help)")
        elif inputs in shape:
            hints.append(f"if '{module}' is before the encoder, the model cannot be served")
    return list(dict.fromkeys(hints))[:4]


def read_model(torch, arguments, task, source, source_config):
    """A model of one of these tasks. `source` names the config in messages."""
    checkpoint = None if "sru_config" in source_config else read_source(torch, arguments)
    source_config = read_arguments(arguments, task, source_config, checkpoint)
    encoder = read_encoder(source, source_config)
    config = {}
    language_model = task == "language_model"
    if not TASKS[task].pooled:
        config["task"] = task
    config["encoder"] = encoder

    vocabulary = read_vocabulary(source, source_config, task, arguments)
    if vocabulary is not None:
        embedding = read_embedding(source, source_config, vocabulary, arguments)

    labels = read_labels(arguments)
    tied = language_model and check_language_model(source, source_config, encoder)
    pooling = read_pooling(source, source_config, task, labels, arguments)

    checkpoint = checkpoint or read_source(torch, arguments)
    where = f"checkpoint {arguments.checkpoint}"
    modules, state = find_modules(torch, arguments, task, checkpoint, vocabulary,
                                  vocabulary.size if language_model else len(labels))
    table, weight = (f"{modules.get(name)}.weight" for name in ("embedding", "out"))
    if language_model and table in state and (tied or arguments.config is None):
        state.setdefault(weight, state[table])
        if "tied" not in source_config and arguments.config is None:
            tied = torch.equal(state[table], state[weight])
    if arguments.encoder_only:
        state = keep_encoder(state, modules.values(), arguments.notes)
    size = 0
    if vocabulary is not None:
        fit_vocabulary(where, state, modules, vocabulary, task, arguments)
        size = vocabulary.size
        config["embedding"] = {**embedding, "vocabulary_size": size}
        config["preprocessing"] = vocabulary.preprocessing
    check_options(where, "sru_config", encoder, state, modules["encoder"])
    if pooling is not None:
        config["pooling"] = pooling
    if labels:
        config["labels"] = labels
    if tied:
        config["tied"] = True
    hints = stranger_hints(task, vocabulary, state, modules, encoder, size if language_model else len(labels))
    tensors = collect_tensors(torch, where, rename_tensors(where, state, modules, hints),
                              expected_tensors(encoder, size, len(labels), task), () if language_model else ("out.bias",),
                              unknown="sru_config, --vocab and --labels",
                              missing="sru_config and the prefixes (--embedding-prefix, --encoder-prefix, --classifier-prefix)")
    if tied:
        untie(torch, where, tensors)
    return Exported(config, tensors, vocabulary, *describe(task, config, vocabulary))


def read_labels(arguments):
    if arguments.labels:
        labels = read_words(arguments.labels, "labels", arguments.notes, numbers=False)
        source = f"labels {arguments.labels}"
    else:
        labels, source = arguments.config_labels or [], f"config {arguments.config}: labels"
        if not isinstance(labels, list) or not all(isinstance(label, str) and label for label in labels) or (
                len(set(labels)) != len(labels)):
            raise ExportError(f"{source}: expected different names, found {json.dumps(labels)[:80]}")
    if arguments.encoder_only:
        return []
    if len(labels) > MAX_LABELS:
        raise ExportError(f"{source}: expected at most {MAX_LABELS}, found {len(labels)}")
    return labels


def fit_vocabulary(where, state, modules, vocabulary, task, arguments):
    """Cuts the embedding, or names its rows, where it is larger than the vocabulary."""
    name = f"{modules['embedding']}.weight"
    if name not in state or state[name].dim() != 2:
        return
    found = state[name].shape[0]
    size = fit_rows(where, name, found, vocabulary, task, arguments)
    if size != vocabulary.size:
        more = (f"; the first number is that of the vocabulary, which has {count_of(vocabulary.size, 'word')}"
                + ("" if size < vocabulary.size else
                   ". If the rows after them stand for no word: --extra_rows=cut, or --extra_rows=name to keep them"))
        raise ExportError(f"{where}: tensor '{name}': expected shape [{vocabulary.size}, {state[name].shape[1]}] from the "
                          f"config, found {list(state[name].shape)}{more}")
    outputs = [f"{modules['out']}.{part}" for part in ("weight", "bias") if task == "language_model"]
    for part in (name, *outputs):
        if part in state and state[part].shape[0] == found:
            state[part] = state[part][:size]


def describe(task, config, vocabulary):
    """What the model is made of beside its weights, and how to ask it."""
    encoder, labels = config["encoder"], config.get("labels", [])
    symbols = {"bytes": "bytes", "characters": "characters", "sentencepiece": "pieces"}.get(
        config.get("preprocessing", {}).get("type"), "words")
    size = vocabulary.size if vocabulary is not None else 0
    last = ("a language model" + (", tied" if config.get("tied") else "") if task == "language_model"
            else f"{len(labels)} labels" if labels else "an encoder")
    last += f", pooling {config['pooling']}" if "pooling" in config else " of each token" if labels else ""
    usage = (f"sru_client {TASKS[task].verb} --model={{model}} 'your text'" if vocabulary is not None else
             "and send Features (proto/sru/v1/inference.proto) of "
             f"feature_size {encoder['input_size']}")
    return f"{encoder['num_layers']} layers", f"{size:,} {symbols}, {last}", usage
