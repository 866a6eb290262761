"""Document readers: DrQA with SRU, whose options and modules have the names of the public code."""

import os

from .checkpoint import collect_tensors, drop_ignored
from .checkpoint_file import read_checkpoint
from .common import (MAX_ANSWER_TOKENS, MAX_LAYERS, MAX_TAGS, MAX_VOCABULARY, MAX_WIDTH, ExportError, Exported, check_lines,
                     read_boolean, read_integer, read_text, refuse_flags, shortened)
from .encoder import check_arguments, layer_tensors, make_encoder
from .vocabulary import Vocabulary

# models/reader_config.h
FEATURES = ("exact", "lower", "lemma", "tf")
QUESTION_MERGES = ("self_attn", "avg")

# Arguments of sru.SRUCell and the keys of "encoder" that they become.
CELL_ARGUMENTS = {
    "n_proj": "projection_size",
    **{name: name for name in ("use_tanh", "layer_norm", "normalize_after", "has_skip_term",
                               "rescale", "v1", "highway_bias")},
}

# The public code keeps a copy of the rows of the embedding that were not trained.
IGNORED_TENSORS = ("fixed_embedding",)


def read_model(torch, arguments, task, source, config):
    refuse_flags(arguments, task, "subwords", "embedding_prefix", "encoder_prefix", "classifier_prefix")
    reader = read_options(source, config)
    layers = read_integer(source, config, "doc_layers", 1, MAX_LAYERS)
    encoder = read_cells(source, config, reader, layers)
    size = read_integer(source, config, "vocab_size", 1, MAX_VOCABULARY)
    vocabulary = read_words(source, config, arguments, size)

    exported = {"task": task, "encoder": encoder, "embedding": {"vocabulary_size": size}}
    if vocabulary is not None:
        exported["embedding"]["oov_id"] = read_integer(source, config, "unk_id", 0, size - 1)
        exported["preprocessing"] = vocabulary.preprocessing
    exported["reader"] = reader

    checkpoint = f"checkpoint {arguments.checkpoint}"
    state = drop_ignored(checkpoint, read_checkpoint(torch, arguments).state, arguments)
    given = {name: (name, tensor) for name, tensor in state.items() if name not in IGNORED_TENSORS}
    tensors = collect_tensors(torch, checkpoint, given, expected_tensors(encoder, reader, size))
    usage = ("sru_client answer --model={model} --question 'your question' FILE"
             if vocabulary is not None else
             "but it has no vocabulary, so that it can be loaded and yet answer no text")
    return Exported(exported, tensors, vocabulary,
                    f"{layers} + {reader['question_layers']} layers",
                    f"{size:,} words, a reader with answers of at most {reader['max_len']} tokens",
                    usage)


def read_options(source, config):
    """The "reader" object of config.json."""
    reader = {
        "embedding_dim": read_integer(source, config, "embedding_dim", 1, MAX_WIDTH),
        "question_layers": read_integer(source, config, "question_layers", 1, MAX_LAYERS),
        "features": read_features(source, config),
        "use_qemb": read_boolean(source, config, "use_qemb"),
    }
    for tags in ("pos", "ner"):
        if read_boolean(source, config, tags):
            reader[f"{tags}_size"] = read_integer(source, config, f"{tags}_size", 1, MAX_TAGS)
            reader[f"{tags}_dim"] = read_integer(source, config, f"{tags}_dim", 1, MAX_WIDTH)
    reader["concat_rnn_layers"] = read_boolean(source, config, "concat_rnn_layers")
    merge = config.get("question_merge")
    if merge not in QUESTION_MERGES:
        raise ExportError(f"{source}: question_merge: expected one of "
                          f"{', '.join(QUESTION_MERGES)}, found {shortened(merge)}")
    reader["question_merge"] = merge
    reader["max_len"] = read_integer(source, config, "max_len", 1, MAX_ANSWER_TOKENS)
    return reader


def read_features(source, config):
    names = config.get("features")
    if not isinstance(names, list) or names != [name for name in FEATURES if name in names]:
        raise ExportError(f"{source}: features: expected an array of {', '.join(FEATURES)}, in "
                          f"this order and each at most once, found {shortened(names)}")
    if config.get("num_features", len(names)) != len(names):
        raise ExportError(f"{source}: num_features: expected {len(names)}, the number of features, "
                          f"found {shortened(config['num_features'])}")
    return names


def read_cells(source, config, reader, layers):
    """The "encoder" object of config.json: the layers over passages."""
    given = config.get("sru", {})
    check_arguments(source, "sru", given, {*CELL_ARGUMENTS, "bidirectional"}, "sru.SRUCell")
    if given.get("bidirectional", True) is not True:
        raise ExportError(f"{source}: sru.bidirectional: expected true, as all cells of a reader "
                          f"are, found {shortened(given['bidirectional'])}")
    arguments = {key: given[name] for name, key in CELL_ARGUMENTS.items() if name in given}
    arguments.setdefault("rescale", True)  # the cell's default, which is not that of sru.SRU
    arguments.update(bidirectional=True, num_layers=layers,
                     hidden_size=read_integer(source, config, "hidden_size", 1, MAX_WIDTH),
                     input_size=passage_input_size(reader))
    if arguments["input_size"] > MAX_WIDTH:
        raise ExportError(f"{source}: embedding_dim, features, pos_dim and ner_dim: the layers "
                          f"over passages would read {arguments['input_size']} values, expected at most "
                          f"{MAX_WIDTH}")
    return make_encoder(source, "sru", arguments)


def passage_input_size(reader):
    return (reader["embedding_dim"] * (2 if reader["use_qemb"] else 1) + len(reader["features"])
            + reader.get("pos_dim", 0) + reader.get("ner_dim", 0))


def read_words(source, config, arguments, size):
    """The vocabulary: --vocab, or vocab.txt beside a config that says how words are looked up. None
    for a model that takes ids only."""
    path = arguments.vocab
    if path is None and "lowercase" in config:
        path = os.path.join(os.path.dirname(arguments.config), "vocab.txt")
    if path is None:
        return None
    lowercase = read_boolean(source, config, "lowercase")
    words = check_lines(read_text(path, "vocabulary"), "vocabulary", path)
    if len(words) != size:
        raise ExportError(f"vocabulary {path}: expected {size} words, as many as vocab_size says, "
                          f"found {len(words)}")
    return Vocabulary({"type": "unicode_words", "lowercase": lowercase}, size, words)


def expected_tensors(encoder, reader, vocabulary_size):
    """Names and shapes of the tensors of a reader, as {name: shape}."""
    def linear(module, rows, columns):
        tensors[module + ".linear.weight"] = [rows, columns]
        tensors[module + ".linear.bias"] = [rows]

    width = reader["embedding_dim"]
    tensors = {"embedding.weight": [vocabulary_size, width]}
    for tags in ("pos", "ner"):
        if f"{tags}_size" in reader:
            tensors[f"{tags}_embedding.weight"] = [reader[f"{tags}_size"], reader[f"{tags}_dim"]]
    if reader["use_qemb"]:
        linear("qemb_match", width, width)
    layers, question_layers = encoder["num_layers"], reader["question_layers"]
    tensors.update(layer_tensors(encoder, "doc_rnn.rnns.", encoder["input_size"], layers))
    tensors.update(layer_tensors(encoder, "question_rnn.rnns.", width, question_layers))
    concatenated = reader["concat_rnn_layers"]
    output = 2 * encoder["hidden_size"]
    question_output = output * (question_layers if concatenated else 1)
    if reader["question_merge"] == "self_attn":
        linear("self_attn", 1, question_output)
    for end in ("start_attn", "end_attn"):
        linear(end, output * (layers if concatenated else 1), question_output)
    return tensors
