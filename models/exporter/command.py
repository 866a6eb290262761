"""Exports a PyTorch checkpoint of an SRU model to the model repository of the SRU inference server.

The checkpoint is that of a module with an embedding (torch.nn.Embedding), an encoder (sru.SRU of the
PyPI package "sru") and a classifier or another output layer (torch.nn.Linear), or of a reader or a
translator. It becomes a directory REPOSITORY/MODEL/VERSION with config.json, model.safetensors and
the tokenizer's vocab.txt or spm.model, which FORMAT.md describes.

Needs PyTorch (Debian and Ubuntu: apt install python3-torch) and nothing else; not even the package
"sru". --verify and --check also need sru_server.
"""

import argparse
import difflib
import json
import os
import sys
import textwrap

from . import reader, stack, translator
from .common import ExportError, printable, read_config, read_text
from .encoder import ENCODER_ARGUMENTS
from .model_directory import check_free, check_out, report, write_model
from .verify import compare, look_for_needs
from .vocabulary import PREPROCESSING_NAMES, PREPROCESSINGS
from .vocabulary_file import from_value

# What reads the model of each task that can be exported. What else "task" says is a note.
TASKS = {**dict.fromkeys(stack.TASKS, stack.read_model), "reader": reader.read_model,
         "translator": translator.read_model}

# The keys of a config, without those of readers and translators alone; --help explains them.
KEYS = ("sru_config", "task", "pooling", "preprocessing", "oov_id", "unit", "vocabulary", "tied")

# The values of preprocessing.unknown in config.json (FORMAT.md, "Tokenizers").
UNKNOWN = ("refuse", "skip", "replace")

# The numbers of the server differ from PyTorch's.
EXIT_DIFFERENT = 2


def read_task(source, config, arguments):
    """What the model is for. A task that the format does not know is a note of the config."""
    task = config.get("task")
    if not isinstance(task, str) or task not in TASKS:
        return "classifier" if has_labels(arguments) else "encoder"
    if arguments.encoder_only:
        if task in ("reader", "translator"):
            raise ExportError(f"--encoder_only: a model with the task \"{task}\" has no encoder of its own")
        return "encoder"
    labelled = task in stack.TASKS and stack.TASKS[task].labels
    if labelled and not has_labels(arguments):
        raise ExportError(f"{source}: task: a {task} needs --labels")
    if not labelled and arguments.labels:
        raise ExportError(f"--labels: a model with the task \"{task}\" has none")
    return task


def note_misspellings(source, config, notes):
    """Other keys and tasks than the format's are informational, but some are probably meant to be one of them."""
    words = [("key", key, KEYS) for key in config]
    if isinstance(config.get("task"), str):
        words.append(("task", config["task"], TASKS))
    for what, word, known in words:
        near = difflib.get_close_matches(word, known, 1, 0.8)
        if near and word not in known:
            notes.append(f"{source}: the {what} '{word}' was taken for information only; is '{near[0]}' meant?")


def has_labels(arguments):
    return bool(arguments.labels or arguments.config_labels) and not arguments.encoder_only


def take_labels(source, config, arguments):
    """Takes the labels of a config, in the served form or as Hugging Face's id2label, if --labels does not give them."""
    labels = config.get("labels")
    if isinstance(config.get("id2label"), dict):
        labels = from_value(f"{source}: id2label", config["id2label"], arguments.notes)
    if not isinstance(labels, list) or not labels:
        return
    if arguments.labels:
        arguments.notes.append(f"{source}: its labels were left out, since --labels gives others or the same")
    else:
        arguments.config_labels = labels


def from_served_form(source, config, notes):
    """A config.json of the served format as the exporter's config; others as they are."""
    if "sru_config" in config or not isinstance(config.get("encoder", config.get("translator")), dict):
        return config
    if config.get("task") == "reader":
        raise ExportError(f"{source}: is a config.json as the server reads it (FORMAT.md); of a reader, the options of the "
                          "public code are expected (see --help)")
    if isinstance(config.get("translator"), dict):
        return {**config, **config["translator"], "task": "translator"}
    known = {**config, "sru_config": config["encoder"]}
    if isinstance(config.get("embedding"), dict) and "oov_id" in config["embedding"]:
        known["oov_id"] = config["embedding"]["oov_id"]
    notes.append(f"{source} is in the served form (FORMAT.md) and was read as such")
    return known


def with_flags(config, arguments):
    """The config with what flags say."""
    flags = {key: getattr(arguments, key) for key in ("task", "pooling", "preprocessing", "oov_id")}
    return {**config, **{key: value for key, value in flags.items() if value is not None}}


def take_unknown(source, config, arguments):
    """Takes the key "unknown" out of the config's preprocessing, and returns what that or the flag says."""
    preprocessing = config.get("preprocessing")
    if not isinstance(preprocessing, dict) or "unknown" not in preprocessing:
        return arguments.unknown
    unknown = preprocessing.pop("unknown")
    if unknown not in UNKNOWN:
        raise ExportError(f"{source}: preprocessing.unknown: expected one of {', '.join(UNKNOWN)}; found {json.dumps(unknown)}")
    return arguments.unknown or unknown


def export(torch, arguments):
    """Writes the model unless its numbers differ from those that it is compared with. Returns whether it did."""
    out = check_out(arguments.out)
    inputs = [path for path in (arguments.checkpoint, arguments.config, arguments.vocab, arguments.subwords, arguments.labels,
                                arguments.check) if path]
    check_free(out, arguments.force, inputs)
    beside = os.path.join(arguments.checkpoint, "config.json")
    path = arguments.config or (beside if os.path.isfile(beside) else None)
    source = f"config {path}" if path else "command line"
    config = read_config(path) if path else {}
    config = with_flags(from_served_form(source, config, arguments.notes), arguments)
    unknown = take_unknown(source, config, arguments)
    take_labels(source, config, arguments)
    note_misspellings(source, config, arguments.notes)
    task = read_task(source, config, arguments)
    compared = arguments.verify or arguments.verify_text or arguments.check
    if arguments.config is None and task in ("reader", "translator"):
        raise ExportError(f"--config: is needed for a {task}; --help shows one")
    if compared and task not in stack.TASKS:
        raise ExportError(f"--verify and --check: compare a {', '.join(stack.TASKS)}; this is a {task}, all of whose options the "
                          "config names")
    model = TASKS[task](torch, arguments, task, source, config)
    if unknown is not None:
        if "preprocessing" not in model.config:
            raise ExportError("--unknown: is for a model that takes text; this one has no vocabulary")
        model.config["preprocessing"] = {**model.config["preprocessing"], "unknown": unknown}
    if compared:
        look_for_needs(torch, model, arguments)
    written = write_model(out, arguments.force, arguments.description, model,
                          lambda directory: not compared or compare(torch, model, directory, out, arguments))
    if written:
        report(out, model, arguments.notes)
    else:
        print(f"The numbers differ, so {out} was not written. To serve the model all the same, export it without --verify and "
              "--check.")
    return written


def sru_option(text):
    """KEY=VALUE of --sru, as (key, value)."""
    key, found, value = text.partition("=")
    if not found or key not in ENCODER_ARGUMENTS:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE with a key of {', '.join(ENCODER_ARGUMENTS)}; found '{text}'")
    try:
        return key, json.loads(value.lower())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{key}: expected true, false or a number, found '{value}'") from None


def epilog(program):
    """The text of --help after the flags: help.txt with the names that the code knows."""
    def one_of(names):
        quoted = [f'"{name}"' for name in names]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    named = [kind for kind in PREPROCESSINGS if kind in PREPROCESSING_NAMES]
    tokenizers = textwrap.indent(textwrap.fill(one_of(named), 81), " " * 17)
    text = read_text(os.path.join(os.path.dirname(__file__), "help.txt"), "help")
    for name, value in (("export_torch.py", program), ("@POOLINGS@", one_of(stack.POOLINGS[1:])),
                        ("@PREPROCESSINGS@", tokenizers)):
        text = text.replace(name, value)
    return text


def parse_arguments(arguments, program):
    parser = argparse.ArgumentParser(
        prog=program, description=__doc__, epilog=epilog(program),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="M.pt",
                        help="the weights: a file of torch.save or of safetensors")
    parser.add_argument("--config", metavar="C.json", help="model config, see below")
    parser.add_argument("--vocab", metavar="V.txt", help="vocabulary, one word per line, line number = id from 0")
    parser.add_argument("--subwords", metavar="SPM.model", help="SentencePiece model, for the preprocessing sentencepiece")
    parser.add_argument("--labels", metavar="L.txt",
                        help="names of the outputs, one per line, in their order: for a task whose outputs have names")
    parser.add_argument("--out", required=True, metavar="REPOSITORY/MODEL/VERSION",
                        help="directory to write; the version is a positive integer")
    parser.add_argument("--description", default="", help="free text for users of the model")
    parser.add_argument("--force", action="store_true", help="replace --out when it exists and holds only a model's files")

    group = parser.add_argument_group("what the config says, or in its place")
    group.add_argument("--task", choices=sorted(TASKS), help="what the model is for")
    group.add_argument("--sru", metavar="KEY=VALUE", action="append", type=sru_option, default=[],
                       help="an argument that sru.SRU was made with, such as use_tanh=true; may be given several times")
    group.add_argument("--pooling", help="how token vectors become the classifier's input")
    group.add_argument("--preprocessing", metavar="NAME", help="the tokenizer")
    group.add_argument("--oov_id", type=int, metavar="ID",
                       help="the id of unknown words (without a config: that of <unk> or the like)")

    group.add_argument("--unknown", choices=UNKNOWN,
                       help="what becomes of text that the vocabulary lacks, unless a call says otherwise")

    group = parser.add_argument_group("which tensors are which")
    group.add_argument("--embedding-prefix", metavar="NAME",
                       help="name of the embedding in the module (default: embedding; of a language model "
                       "embedding_layer; else the one of the right shape)")
    group.add_argument("--encoder-prefix", metavar="NAME",
                       help="name of the sru.SRU in the module; empty when the checkpoint is that of the sru.SRU itself "
                       "(default: encoder; of a language model rnn; else the one that has rnn_lst)")
    group.add_argument("--classifier-prefix", "--output-prefix", metavar="NAME", dest="classifier_prefix",
                       help="name of the classifier, or the output layer, in the module (default: out; of a language model "
                       "output_layer; else the one of the right shape)")
    group.add_argument("--weights", metavar="KEY",
                       help="the entry of the checkpoint that is exported, such as ema, if it has several state_dicts")
    group.add_argument("--ignore", metavar="PATTERN", action="append", default=[],
                       help="leave out tensors with these names, such as 'criterion.*'; may be given several times")
    group.add_argument("--encoder_only", action="store_true",
                       help="export embedding and encoder without the classifier, for Encode")
    group.add_argument("--fold_head", action="store_true",
                       help="the head's linear layers have no activation between them: make one of them")
    group.add_argument("--extra_rows", choices=("cut", "name"),
                       help="what becomes of rows of the embedding after those of the vocabulary: they are left out, or kept "
                       "under names that no text gives (default: padding to a multiple of 8 is cut, of a language model named)")
    group.add_argument("--any_words", action="store_true", help="accept a vocabulary that the preprocessing mostly cannot give")

    group = parser.add_argument_group("whether the export is right")
    group.add_argument("--verify", action="store_true", help="compare the server's numbers with PyTorch's")
    group.add_argument("--verify_text", metavar="TEXT", action="append", default=[],
                       help="verify with this text, too; may be given several times")
    group.add_argument("--check", metavar="FILE.json", help="compare the server's numbers with your own, see below")
    group.add_argument("--server", metavar="SRU_SERVER", help="the program that --verify and --check start")
    group.add_argument("--tolerance", type=float, default=1e-4, metavar="X",
                       help="largest difference that is accepted, relative to the largest number if that is over 1 (default %(default)s)")
    parsed = parser.parse_args(arguments)
    parsed.sru = dict(parsed.sru)
    parsed.notes, parsed.config_labels = [], None
    return parsed


def main(arguments=None, program="export_torch.py"):
    """Runs the command; `program` is its name in messages. Returns the exit code."""
    parsed = parse_arguments(arguments, program)
    if sys.byteorder != "little":
        print(f"{program}: error: runs on little-endian machines only", file=sys.stderr)
        return 1
    try:
        import torch  # here, so that --help works without it
    except ImportError:
        print(f"{program}: error: PyTorch is needed: apt install python3-torch, or see "
              "https://pytorch.org", file=sys.stderr)
        return 1
    try:
        return 0 if export(torch, parsed) else EXIT_DIFFERENT
    except ExportError as error:
        print(f"{program}: error: {printable(str(error))}", file=sys.stderr)
    except OSError as error:
        print(f"{program}: error: cannot write {parsed.out}: {error}", file=sys.stderr)
    return 1
