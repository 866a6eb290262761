"""Tasks whose network is one SRU stack: classifiers, encoders, language models and taggers."""

import collections
import json

from .checkpoint import Settings, collect_tensors, drop_ignored, rename_tensors
from .checkpoint_file import read_checkpoint
from .common import MAX_LABELS, ExportError, Exported, check_boolean, count_of, listed
from .encoder import layer_tensors, read_encoder
from .encoder_shapes import check_options, from_linear_names, infer_encoder, sizes
from .folds import REMOVE
from .head import fold_head, head_tensors, hidden_before, layers_before, read_layers
from .modules import Found, find_embedding, find_encoder, find_output, under
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
    """The names that embedding, encoder and output layer have if nothing else is said."""
    embedding, encoder, output = TASKS[task].modules
    # A language model of words may hold its table one level deeper.
    if task == "language_model" and embedding + ".embedding.weight" in state:
        embedding += ".embedding"
    return embedding, encoder, output


def read_source(torch, arguments):
    """The Checkpoint, without what --ignore names and under the names of the released package."""
    checkpoint = read_checkpoint(torch, arguments)
    source = f"checkpoint {arguments.checkpoint}"
    state = drop_ignored(source, checkpoint.state, arguments)
    state, transposed = from_linear_names(source, state)
    if transposed:
        arguments.notes.append("the checkpoint is one of sru 3.0.0.dev; its weights were transposed")
    return checkpoint._replace(state=state)


def read_arguments(torch, arguments, task, source, config, checkpoint):
    """The config with sru_config, which the checkpoint and --sru give if the config does not have it."""
    if "sru_config" in config:
        if not arguments.sru or not isinstance(config["sru_config"], dict):
            return config
        return {**config, "sru_config": {**config["sru_config"], **arguments.sru}}
    usual = usual_names(task, checkpoint.state)[1]
    prefix = find_encoder(checkpoint.state, arguments.encoder_prefix, usual).prefix
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
    """Names of modules in the checkpoint mapped to the format's, and the tensors, of which some may have been made:
    those of a head that was folded, or of a tied output layer. `outputs`: of the output layer, 0 without one."""
    state = dict(checkpoint.state)
    source = f"checkpoint {arguments.checkpoint}"
    usual_embedding, usual_encoder, usual_output = usual_names(task, state)
    encoder = find_encoder(state, arguments.encoder_prefix, usual_encoder)
    found = {"encoder": encoder}
    if vocabulary is not None:
        found["embedding"] = (find_embedding(state, encoder.prefix, arguments.embedding_prefix, usual_embedding,
                                             vocabulary.size) or Found(usual_embedding, "usual"))
    embedding = found["embedding"].prefix if vocabulary is not None else None
    if outputs:
        rows = outputs
        if task == "language_model" and embedding + ".weight" in state:
            rows = state[embedding + ".weight"].shape[0]  # both may be padded
        output = find_output(state, encoder.prefix, embedding, arguments.classifier_prefix, usual_output, rows)
        prefix = output.prefix if output is not None else arguments.classifier_prefix
        known = sizes(state, encoder.prefix)
        taken = {name for name in state if under(name, encoder.prefix) and (encoder.prefix or "rnn_lst" in name)
                 or (embedding is not None and under(name, embedding))}
        names = head_tensors(state, taken, prefix)
        if output is not None and output.prefix + ".weight" in state:
            names = layers_before(state, head_tensors(state, taken, None), output.prefix, known and known[1])
        if known is not None and names:
            folded = fold_head(torch, source, checkpoint._replace(state=state), names, known[1], rows, arguments.fold_head,
                               arguments.notes)
            if folded is not None:
                state = {name: tensor for name, tensor in state.items() if name not in names}
                state.update({f"{usual_output}.{name}": tensor for name, tensor in folded.items()})
                output = Found(usual_output, "usual")
        found["out"] = output or Found(usual_output, "usual")
        if TASKS[task].labels and known is not None:
            check_outputs(source, state, head_tensors(state, taken, None), found["out"].prefix, known[1], rows, arguments)
        hidden = hidden_before(found["out"].prefix, checkpoint.classes)
        if hidden:
            arguments.notes.append(f"{listed(hidden)} before the output layer '{found['out'].prefix}' has no weights and was "
                                   "taken for Dropout; an activation there could not be served")
    prefixes = {module.prefix: name for name, module in found.items()}
    if len(prefixes) != len(found):
        raise ExportError("--embedding-prefix, --encoder-prefix and --classifier-prefix must differ")
    if any(module.how == "found" for module in found.values()):
        names = {"embedding": "embedding", "encoder": "encoder", "out": "output layer"}
        arguments.notes.append("found by shape and name: " + ", ".join(
            f"{names[name]} '{module.prefix}'" for name, module in found.items()))
    # The longest first: a prefix may be the start of another.
    return dict(sorted(prefixes.items(), key=lambda item: -len(item[0]))), state


def prefix_of(prefixes, name):
    return next((prefix for prefix, canonical in prefixes.items() if canonical == name), None)


def is_tied(torch, state, prefixes):
    """Whether the output layer's weight is the embedding."""
    table = state.get(f"{prefix_of(prefixes, 'embedding')}.weight")
    weight = state.get(f"{prefix_of(prefixes, 'out')}.weight")
    return table is not None and weight is not None and table.shape == weight.shape and torch.equal(table, weight)


def keep_encoder(state, prefixes, notes):
    """The tensors of the modules `prefixes` alone; says what was left out."""
    def is_kept(name):
        return any(under(name, prefix) and (prefix or name.startswith(("rnn_lst.", "input_to_hidden.")))
                   for prefix in prefixes)

    left = [name for name in state if not is_kept(name)]
    if left:
        notes.append(f"left out, since only the encoder is exported: {listed(left)}. If one of them is before the encoder, its "
                     "vectors are others; --check tells")
    return {name: tensor for name, tensor in state.items() if is_kept(name)}


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


def stranger_hints(arguments, task, vocabulary, state, prefixes, encoder, rows):
    """What tensors of no module may be, if the model may need them: then it is no advice to leave them out."""
    inputs, width = encoder["input_size"], encoder["hidden_size"] * (2 if encoder["bidirectional"] else 1)
    hints, name = [], f"{prefix_of(prefixes, 'embedding')}.weight"
    if sizes(state, prefix_of(prefixes, "encoder")) is None:
        hints.append("no sru.SRU was found, whose first tensor is named ...rnn_lst.0.weight")
    if vocabulary is not None and name not in state:
        hints.append(f"no embedding was found, a table with the {inputs} columns that the encoder reads")
    if rows and f"{prefix_of(prefixes, 'out')}.weight" not in state:
        hints.append(f"no output layer was found, which has {rows} rows and {width} columns")
    for name, tensor in state.items():
        module, shape = name.rpartition(".")[0] or name, list(tensor.shape)
        if any(prefix and under(name, prefix) or name.startswith(("rnn_lst.", "input_to_hidden.")) and not prefix
               for prefix in prefixes):
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
    checkpoint = None
    if "sru_config" not in source_config:
        checkpoint = read_source(torch, arguments)
    source_config = read_arguments(torch, arguments, task, source, source_config, checkpoint)
    encoder = read_encoder(source, source_config)
    config = {}
    language_model = task == "language_model"
    if not TASKS[task].pooled:
        config["task"] = task
    config["encoder"] = encoder

    vocabulary = read_vocabulary(source, source_config, task, arguments)
    if vocabulary is not None:
        read_embedding(source, source_config, vocabulary, arguments)  # before the checkpoint is read

    labels = read_labels(arguments)
    tied = language_model and check_language_model(source, source_config, encoder)
    pooling = read_pooling(source, source_config, task, labels, arguments)

    checkpoint = checkpoint or read_source(torch, arguments)
    where = f"checkpoint {arguments.checkpoint}"
    prefixes, state = find_modules(torch, arguments, task, checkpoint, vocabulary,
                                   vocabulary.size if language_model else len(labels))
    if language_model and (f"{prefix_of(prefixes, 'out')}.weight" not in state) and (
            tied or arguments.config is None) and f"{prefix_of(prefixes, 'embedding')}.weight" in state:
        state[f"{prefix_of(prefixes, 'out')}.weight"] = state[f"{prefix_of(prefixes, 'embedding')}.weight"]
    if language_model and "tied" not in source_config and arguments.config is None:
        tied = is_tied(torch, state, prefixes)
    if arguments.encoder_only:
        state = keep_encoder(state, prefixes, arguments.notes)
    size = fit_vocabulary(where, state, prefixes, vocabulary, task, arguments) if vocabulary is not None else 0
    check_options(where, "sru_config", encoder, state, prefix_of(prefixes, "encoder"))

    if vocabulary is not None:
        config["embedding"] = read_embedding(source, source_config, vocabulary, arguments, quiet=True)
        config["preprocessing"] = vocabulary.preprocessing
    if pooling is not None:
        config["pooling"] = pooling
    if labels:
        config["labels"] = labels
    if tied:
        config["tied"] = True
    hints = stranger_hints(arguments, task, vocabulary, state, prefixes, encoder, size if language_model else len(labels))
    tensors = collect_tensors(torch, where, rename_tensors(where, state, prefixes, hints),
                              expected_tensors(encoder, size, len(labels), task), SETTINGS)
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


def fit_vocabulary(where, state, prefixes, vocabulary, task, arguments):
    """Cuts the embedding, or names its rows, where it is larger than the vocabulary; returns the vocabulary's size."""
    name = f"{prefix_of(prefixes, 'embedding')}.weight"
    if name not in state or state[name].dim() != 2:
        return vocabulary.size
    found = state[name].shape[0]
    size = fit_rows(where, name, found, vocabulary, task, arguments)
    if size > vocabulary.size or size < vocabulary.size:
        more = (f"; the first number is that of the vocabulary, which has {count_of(vocabulary.size, 'word')}"
                + ("" if size < vocabulary.size else
                   ". If the rows after them stand for no word: --extra_rows=cut, or --extra_rows=name to keep them"))
        raise ExportError(f"{where}: tensor '{name}': expected shape [{vocabulary.size}, {state[name].shape[1]}] from the "
                          f"config, found {list(state[name].shape)}{more}")
    if size < found:
        cut = {name}
        if task == "language_model":
            cut |= {f"{prefix_of(prefixes, 'out')}.weight", f"{prefix_of(prefixes, 'out')}.bias"}
        for part in cut:
            if part in state and state[part].shape[0] == found:
                state[part] = state[part][:size]
    return size


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
