"""Translators: a Transformer with SRUs in place of its feed-forward layers, under the names of OpenNMT-py (2018)."""

import json
import os
import re

from .checkpoint import collect_tensors, drop_ignored
from .checkpoint_file import load_checkpoint, read_checkpoint
from .common import (MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, ExportError, Exported, check_number, read_boolean, read_integer,
                     refuse_flags)
from .vocabulary import Vocabulary, count_pieces

# The limits of the server (models/translator_config.h, models/decoding/search_options.h).
MAX_POSITIONS = 1 << 20
MAX_BEAM = 64
MAX_ALPHA = 10
LENGTH_PENALTIES = ("gnmt", "power", "none")

# What a checkpoint has beside the weights: constants of OpenNMT-py, and the scale of the highway term,
# which these layers do not have.
IGNORED = re.compile(r".*\.make_embedding\.pe\.pe|decoder\.transformer_layers\.\d+\.mask|"
                     r".*\.feed_forward\.sru\.scale_x")

SOURCE_TABLE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
TARGET_TABLE = "decoder.embeddings.make_embedding.emb_luts.0.weight"


def read_translator(source, config):
    """The "translator" object of config.json, all checked."""
    result = {}

    def integer(key, low, high):
        return result.setdefault(key, read_integer(source, config, key, low, high))

    def boolean(key):
        return result.setdefault(key, read_boolean(source, config, key))

    width = integer("d_model", 1, MAX_WIDTH)
    if width % integer("heads", 1, width) != 0:
        raise ExportError(f"{source}: heads: expected a divisor of d_model {width}, "
                          f"found {result['heads']}")
    integer("d_sru", 1, MAX_WIDTH)
    integer("encoder_layers", 1, MAX_LAYERS)
    integer("decoder_layers", 1, MAX_LAYERS)
    if boolean("bidirectional_encoder") and result["d_sru"] % 2 != 0:
        raise ExportError(f"{source}: d_sru: expected an even number beside bidirectional_encoder, "
                          f"found {result['d_sru']}")
    shared = boolean("shared_embeddings")
    integer("source_vocabulary", 1, MAX_VOCABULARY)
    integer("target_vocabulary", 1, MAX_VOCABULARY)
    if shared and result["source_vocabulary"] != result["target_vocabulary"]:
        raise ExportError(f"{source}: target_vocabulary: expected {result['source_vocabulary']} as "
                          "source_vocabulary, since shared_embeddings is true, "
                          f"found {result['target_vocabulary']}")
    for key in ("pad_id", "unk_id", "bos_id", "eos_id"):
        integer(key, 0, result["target_vocabulary"] - 1)
    integer("max_length", 1, integer("max_positions", 1, MAX_POSITIONS))
    integer("beam_size", 1, MAX_BEAM)
    result["length_penalty"] = config.get("length_penalty")
    if result["length_penalty"] not in LENGTH_PENALTIES:
        raise ExportError(f"{source}: length_penalty: expected one of {', '.join(LENGTH_PENALTIES)}, found "
                          f"{json.dumps(result['length_penalty'])}")
    result["alpha"] = check_number(source, "alpha", config.get("alpha"), 0, MAX_ALPHA)
    for key in ("source_language", "target_language"):
        if key in config:
            if not isinstance(config[key], str):
                raise ExportError(f"{source}: {key}: expected a string, found {json.dumps(config[key])}")
            result[key] = config[key]
    return result


def expected_tensors(translator):
    """Names and shapes of the tensors of a translator, as {name: shape}."""
    width, d_sru = translator["d_model"], translator["d_sru"]
    tensors = {SOURCE_TABLE: [translator["source_vocabulary"], width]}
    if not translator["shared_embeddings"]:
        tensors[TARGET_TABLE] = [translator["target_vocabulary"], width]

    def norm(name):
        tensors[name + ".weight"] = tensors[name + ".bias"] = [width]

    def linear(name, outputs, inputs):
        tensors[name + ".weight"] = [outputs, inputs]
        tensors[name + ".bias"] = [outputs]

    def attention(name):
        for part in ("linear_keys", "linear_values", "linear_query", "final_linear"):
            linear(f"{name}.{part}", width, width)

    def feed_forward(name):
        norm(name + ".layer_norm")
        tensors[name + ".sru.weight"] = [width, 3 * d_sru]
        tensors[name + ".sru.weight_c"] = tensors[name + ".sru.bias"] = [2 * d_sru]
        linear(name + ".w_2", width, d_sru)

    for i in range(translator["encoder_layers"]):
        layer = f"encoder.transformer.{i}"
        norm(layer + ".layer_norm")
        attention(layer + ".self_attn")
        feed_forward(layer + ".feed_forward")
    for i in range(translator["decoder_layers"]):
        layer = f"decoder.transformer_layers.{i}"
        norm(layer + ".layer_norm_1")
        norm(layer + ".layer_norm_2")
        attention(layer + ".self_attn")
        attention(layer + ".context_attn")
        feed_forward(layer + ".feed_forward")
    norm("encoder.layer_norm")
    norm("decoder.layer_norm")
    linear("generator.0", translator["target_vocabulary"], width)
    return tensors


def load_tensors(torch, arguments):
    """The state_dict of a checkpoint. OpenNMT-py keeps the generator apart."""
    loaded = load_checkpoint(torch, arguments.checkpoint)
    if (isinstance(loaded, dict) and isinstance(loaded.get("model"), dict)
            and isinstance(loaded.get("generator"), dict)):
        generator = {f"generator.{name}": value for name, value in loaded["generator"].items()}
        loaded = {**loaded["model"], **generator}
    state = read_checkpoint(torch, arguments, loaded).state
    return drop_ignored(f"checkpoint {arguments.checkpoint}", state, arguments)


def collect(torch, source, state, translator):
    """The tensors that the format has, as {name: float32 tensor}, all checked."""
    expected, shared = expected_tensors(translator), translator["shared_embeddings"]
    if shared:  # one table under two names
        expected[TARGET_TABLE] = expected[SOURCE_TABLE]
    given = {name: (name, tensor) for name, tensor in state.items() if not IGNORED.fullmatch(name)}
    tensors = collect_tensors(torch, source, given, expected, (TARGET_TABLE,) if shared else ())
    if shared and not torch.equal(tensors.pop(TARGET_TABLE, tensors[SOURCE_TABLE]), tensors[SOURCE_TABLE]):
        raise ExportError(f"{source}: tensor '{TARGET_TABLE}' differs from '{SOURCE_TABLE}'; "
                          "\"shared_embeddings\": true says that they are one tensor")
    return tensors


def find_subwords(source, config, arguments):
    """The path of the SentencePiece file, or None."""
    if arguments.subwords is not None:
        return arguments.subwords
    name = config.get("subwords")
    if name is None:
        return None
    if not isinstance(name, str):
        raise ExportError(f"{source}: subwords: expected the name of a file, "
                          f"found {json.dumps(name)}")
    return os.path.join(os.path.dirname(os.path.abspath(arguments.config)), name)


def check_subwords(path, translator):
    pieces = count_pieces(path)
    for key in ("source_vocabulary", "target_vocabulary"):
        if pieces != translator[key]:
            raise ExportError(f"subwords {path}: expected {translator[key]} pieces ({key}), "
                              f"found {pieces}")


def read_model(torch, arguments, task, source, source_config):
    refuse_flags(arguments, task, "vocab", "embedding_prefix", "encoder_prefix", "classifier_prefix")
    translator = read_translator(source, source_config)
    config = {"task": task, "translator": translator}
    vocabulary = None
    subwords = find_subwords(source, source_config, arguments)
    if subwords is not None:
        check_subwords(subwords, translator)
        config["preprocessing"] = {"type": "sentencepiece"}
        vocabulary = Vocabulary(config["preprocessing"], translator["source_vocabulary"],
                                pieces=subwords)
    tensors = collect(torch, f"checkpoint {arguments.checkpoint}", load_tensors(torch, arguments), translator)
    return Exported(
        config, tensors, vocabulary,
        f"{translator['encoder_layers']} encoder and {translator['decoder_layers']} decoder layers",
        "a translator" + ("" if vocabulary else " of ids: it has no subwords"),
        "sru_client translate --model={model} 'your text'" if vocabulary else
        "and send TokenIds (proto/sru/v1/inference.proto)")
