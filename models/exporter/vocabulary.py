"""How text becomes token ids: the "preprocessing" and "embedding" objects of config.json."""

import json
import os
import pathlib

from .common import (MAX_PIECES_BYTES, MAX_VOCABULARY, REQUIRED, ExportError, check_integer, count_of, is_integer,
                     shortened)
from .vocabulary_file import UNUSED, check_reachable, read_words
from .words import never_given

# models/text/tokenizer.h, each with its own keys and their defaults.
PREPROCESSINGS = {
    "whitespace": {},
    "lowercase": {},
    "sentence_classification": {"lowercase": False},
    "bytes": {"vocabulary": REQUIRED},
    "characters": {},
    "line_words": {},
    "unicode_words": {"lowercase": False},
    "sentencepiece": {},
}

# Where they differ from the others, which need oov_id and a vocabulary.
WITHOUT_OOV = ("bytes", "line_words", "sentencepiece")
OPTIONAL_OOV = ("characters",)

# How an unknown word is called by convention, in lower case.
UNKNOWN_WORDS = ("<unk>", "[unk]", "<oov>", "[oov]", "unk", "<unknown>", "__unk__", "__oov__", "oov", "unktoken", "<unk_token>")

# What a newline becomes with line_words.
END_OF_LINE = "</s>"

PREPROCESSING_NAMES = {
    **{kind: {"type": kind, **keys} for kind, keys in PREPROCESSINGS.items()
       if REQUIRED not in keys.values()},
    "none: split on whitespace": {"type": "whitespace"},
    "clean_str, case kept": {"type": "sentence_classification", "lowercase": False},
    "clean_str, lower-cased": {"type": "sentence_classification", "lowercase": True},
}


class Vocabulary:
    """The symbols of a model and how text becomes them.

    words: the lines of vocab.txt; pieces: the file that becomes spm.model; both None without.
    """

    def __init__(self, preprocessing, size, words=None, pieces=None):
        self.preprocessing, self.size, self.words, self.pieces = preprocessing, size, words, pieces


def read_preprocessing(source, value):
    if isinstance(value, str) and value in PREPROCESSING_NAMES:
        return PREPROCESSING_NAMES[value]
    if isinstance(value, dict):
        kind = value.get("type")
        keys = PREPROCESSINGS.get(kind) if isinstance(kind, str) else None
        if keys is not None and set(value) <= {"type", *keys}:
            if kind == "bytes":
                return of_bytes(f"{source}: preprocessing.vocabulary", value.get("vocabulary"))
            if all(isinstance(value.get(key, False), bool) for key in keys):
                return {"type": kind, **{key: value.get(key, keys[key]) for key in keys}}
    raise ExportError(f"{source}: preprocessing: expected one of "
                      f"{', '.join(repr(name) for name in PREPROCESSING_NAMES)}, or an object with "
                      f"type and lowercase, or type \"bytes\" and vocabulary; found "
                      f"{json.dumps(value)}")


def of_bytes(what, values):
    """The preprocessing of a vocabulary of bytes, ascending: the index of one is its id."""
    if (not isinstance(values, list) or not 1 <= len(values) <= 256
            or not all(is_integer(value) and 0 <= value <= 255 for value in values)
            or any(a >= b for a, b in zip(values, values[1:]))):
        raise ExportError(f"{what}: expected an array of 1 to 256 integers from 0 to 255, "
                          f"ascending, found {shortened(values)}")
    return {"type": "bytes", "vocabulary": values}


def check_words(what, words):
    """Entries of a vocabulary that are given in the config, which become lines."""
    if not isinstance(words, list) or not words:
        raise ExportError(f"{what}: expected an array of words, found {shortened(words)}")
    seen = set()
    for index, word in enumerate(words):
        if (not isinstance(word, str) or not word or word in seen or "\n" in word or "\r" in word
                or (index == 0 and word.startswith("\ufeff"))):
            raise ExportError(f"{what}[{index}]: expected different words that are not empty and "
                              f"have no line ends, found {shortened(word)}")
        seen.add(word)


def count_pieces(path):
    """The number of pieces in a SentencePiece model: fields with the number 1 of its ModelProto."""
    def varint(position):
        value = shift = 0
        while True:
            byte = data[position]
            value |= (byte & 0x7f) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                return value, position

    try:
        if os.path.getsize(path) > MAX_PIECES_BYTES:
            raise ExportError(f"subwords {path}: expected at most {MAX_PIECES_BYTES} bytes, found "
                              f"{os.path.getsize(path)}")
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise ExportError(f"cannot read the subwords {path}: {error.strerror}") from error
    pieces = position = 0
    try:
        while position < len(data):
            key, position = varint(position)
            kind = key & 7
            if kind == 0:
                _, position = varint(position)
            elif kind in (1, 5):
                position += 8 if kind == 1 else 4
            elif kind == 2:
                size, position = varint(position)
                position += size
            else:
                raise IndexError
            pieces += key >> 3 == 1 and kind == 2
        if position != len(data) or not pieces:
            raise IndexError
    except IndexError:
        raise ExportError(f"subwords {path}: is not a SentencePiece model, or a damaged one; "
                          "expected the .model file that its trainer writes") from None
    return pieces


def read_unit(source, config):
    """The preprocessing that "unit" and "vocabulary" of a language model describe."""
    if "preprocessing" in config:
        if "unit" in config:
            raise ExportError(f"{source}: unit and preprocessing exclude each other")
        return read_preprocessing(source, config["preprocessing"])
    unit = config.get("unit")
    if unit == "word":
        return {"type": "line_words"}
    if unit == "byte":
        return of_bytes(f"{source}: vocabulary", config.get("vocabulary"))
    raise ExportError(f"{source}: unit: expected \"byte\" or \"word\" (or the key preprocessing), "
                      f"found {json.dumps(unit)}")


def read_vocabulary(source, config, task, arguments):
    """The vocabulary of the model; None for one that takes features."""
    language_model = task == "language_model"
    given = config.get("preprocessing")
    kind = given.get("type") if isinstance(given, dict) else given
    if language_model:
        preprocessing = read_unit(source, config)
    elif arguments.vocab or arguments.subwords or kind in ("bytes", "sentencepiece"):
        if "preprocessing" not in config:
            raise ExportError(f"{source}: key 'preprocessing' is missing (see --help)")
        preprocessing = read_preprocessing(source, config["preprocessing"])
    else:
        return None  # what "preprocessing" says then is a note on how the features were made
    kind = preprocessing["type"]

    for flag, value, wanted in (("--vocab", arguments.vocab, kind not in ("bytes", "sentencepiece")),
                                ("--subwords", arguments.subwords, kind == "sentencepiece")):
        if value and not wanted:
            raise ExportError(f"{flag}: is not read with preprocessing \"{kind}\"")
    if kind == "bytes":
        return Vocabulary(preprocessing, len(preprocessing["vocabulary"]))
    if kind == "sentencepiece":
        if not arguments.subwords:
            raise ExportError("--subwords: is needed with preprocessing \"sentencepiece\"")
        return Vocabulary(preprocessing, count_pieces(arguments.subwords),
                          pieces=arguments.subwords)

    where, words = f"vocabulary {arguments.vocab}", None
    if arguments.vocab:
        words = read_words(arguments.vocab, "vocabulary", arguments.notes)
    if language_model and "vocabulary" in config:
        check_words(f"{source}: vocabulary", config["vocabulary"])
        if words is not None and words != config["vocabulary"]:
            raise ExportError(f"{where}: differs from the key vocabulary of {source}, which has "
                              f"{len(config['vocabulary'])} words; give one of them")
        where, words = f"{source}: vocabulary", config["vocabulary"]
    if words is None:
        raise ExportError(f"{source}: vocabulary: is missing; give it here or as --vocab")
    if len(words) > MAX_VOCABULARY:
        raise ExportError(f"{where}: expected at most {MAX_VOCABULARY} words, found {len(words)}")
    if kind == "line_words" and END_OF_LINE not in words:
        raise ExportError(f"{where}: the word {END_OF_LINE}, which a newline becomes, is missing")
    if not arguments.any_words:
        check_reachable(where, never_given(preprocessing, words), words, arguments.notes)
    return Vocabulary(preprocessing, len(words), words)


def fit_rows(source, name, rows, vocabulary, task, arguments):
    """Lets the vocabulary and an embedding of `rows` rows, which tensor `name` is, have the same size; returns how many
    rows are exported. Embeddings are often padded to a multiple of 8 or more."""
    size = vocabulary.size
    extra = rows - size
    if extra <= 0:
        return rows  # the shapes are checked with the others
    padded = any(rows == -(-size // multiple) * multiple for multiple in (8, 16, 32, 64, 128, 256, 512, 1024))
    choice = arguments.extra_rows or (("name" if task == "language_model" else "cut") if padded else None)
    if choice is None:
        return rows
    if choice == "cut":
        arguments.notes.append(f"the embedding has {rows:,} rows, the vocabulary {count_of(size, 'word')}: the last "
                               f"{count_of(extra, 'row')} were left out")
        return size
    if vocabulary.words is None:
        raise ExportError(f"{source}: tensor '{name}' has {rows} rows for {size} symbols of a tokenizer that cannot have more; "
                          "leave the others out with --extra_rows=cut (which changes the probabilities that the model gave "
                          "to them)")
    vocabulary.words = vocabulary.words + [UNUSED.format(number) for number in range(size, rows)]
    vocabulary.size = rows
    arguments.notes.append(f"the embedding has {rows:,} rows, the vocabulary {count_of(size, 'word')}: the others were named "
                           f"{UNUSED.format(size)} and so on")
    return rows


def read_embedding(source, config, vocabulary, arguments):
    """The "embedding" object of config.json."""
    kind = vocabulary.preprocessing["type"]
    embedding = {"vocabulary_size": vocabulary.size}
    if kind in WITHOUT_OOV:
        if "oov_id" in config:
            raise ExportError(f"{source}: oov_id: is not read with preprocessing \"{kind}\"")
    elif "oov_id" in config:
        embedding["oov_id"] = check_integer(source, "oov_id", config["oov_id"], 0, vocabulary.size - 1)
    elif kind not in OPTIONAL_OOV:
        likely = [index for index, word in enumerate(vocabulary.words or [])
                  if word.lower() in UNKNOWN_WORDS]
        if arguments.config is None and len(likely) == 1:
            arguments.notes.append(f"unknown words become '{vocabulary.words[likely[0]]}', whose id is "
                                   f"{likely[0]} (--oov_id)")
            return {**embedding, "oov_id": likely[0]}
        hint = "; ".join(f"word {index} is '{vocabulary.words[index]}'" for index in likely)
        raise ExportError(f"{source}: key 'oov_id' is missing: the id that stands for unknown words"
                          f"{' (' + hint + ')' if hint else ''}; give it there or as --oov_id")
    return embedding
