#!/usr/bin/env python3
"""Exports a PyTorch checkpoint of an SRU model to the model repository of the SRU inference server.

The checkpoint is a state_dict (or a dict with a "state_dict" entry) written by torch.save, of a
module that holds an embedding (torch.nn.Embedding), an encoder (sru.SRU of the PyPI package "sru")
and a classifier or, in a language model, an output layer (torch.nn.Linear), or of a reader or a
translator, which are below. It becomes a directory REPOSITORY/MODEL/VERSION with config.json,
model.safetensors and the tokenizer's vocab.txt or spm.model, which FORMAT.md describes.

Needs PyTorch (Debian and Ubuntu: apt install python3-torch) and nothing else; not even the package
"sru".
"""

import argparse
import os
import sys
import textwrap

from exporter import reader, stack, translator
from exporter.common import ExportError, read_config
from exporter.model_directory import check_out, exists_message, report, write_model
from exporter.stack import POOLINGS
from exporter.vocabulary import PREPROCESSINGS

EPILOG = """\
the model config (--config) is a JSON object with these keys; any other key is informational:
  sru_config     the arguments that sru.SRU was made with: input_size and hidden_size, and where
                 they differ from the package's defaults num_layers, bidirectional, projection_size,
                 use_tanh, layer_norm, normalize_after, has_skip_term, rescale, v1,
                 proj_input_to_hidden_first, highway_bias. What matters to training only (dropout
                 and the like) is accepted and dropped; custom_m cannot be exported.
  task           "language_model", "reader" or "translator"; without it --labels make a classifier,
                 and nothing an encoder.
  pooling        @POOLINGS@: how token vectors become the classifier's input.
                 "none" for a model without a classifier.
  preprocessing  the tokenizer (FORMAT.md):
@PREPROCESSINGS@,
                 or an object with its keys such as
                 {"type": "sentence_classification", "lowercase": true} or
                 {"type": "bytes", "vocabulary": [10, 32, 97]}. Also understood:
                 "none: split on whitespace", "clean_str, case kept", "clean_str, lower-cased".
  oov_id         the line of the vocabulary, from 0, that stands for unknown words. Not for bytes,
                 line_words and sentencepiece, and optional for characters.
of a language model also
  unit           "byte" or "word", in place of preprocessing: bytes, or words as line_words has them
  vocabulary     its symbols, in the order of their ids: byte values, or words (or give --vocab)
  tied           true if the output layer's weight is the embedding (default false)
of a reader, in place of all but task, the options of the public code:
  vocab_size, embedding_dim, hidden_size, doc_layers, question_layers, features, use_qemb, pos, ner
  (with pos_size, pos_dim, ner_size, ner_dim), concat_rnn_layers, question_merge, max_len
  sru            the arguments of every sru.SRUCell, where they differ from its defaults
  lowercase      whether words are looked up in lower case; without --vocab, vocab.txt beside the
                 config is the vocabulary then. Without both the model takes ids only.
  unk_id         the line of the vocabulary, from 0, that stands for unknown words

example:
  export_torch.py --checkpoint question.pt --config question.json --vocab vocab.txt \\
      --labels labels.txt --out /srv/models/question/1
  sru_server --model_repository=/srv/models

A language model's modules are embedding_layer, rnn and output_layer if no --*-prefix says otherwise:

  export_torch.py --checkpoint book.pt --config book.json --out /srv/models/book/1
  sru_server --model_repository=/srv/models
  sru_client score --model=book "It was a dark and stormy night"

A reader has the public code's names of modules:

  export_torch.py --checkpoint squad.pt --config squad.json --vocab vocab.txt \\
      --out /srv/models/squad/1
  sru_client answer --model=squad --question "Who wrote Hamlet?" plays.txt

A translator has the modules and names of OpenNMT-py (2018), with an sru.SRUCell in place of w_1 of
each feed-forward layer: encoder.transformer.0.feed_forward.sru.weight. Its checkpoint may also be
OpenNMT-py's own, a dict with "model" and "generator". The keys of its config are those of
"translator" in FORMAT.md. With --subwords, or the key "subwords" (a file beside the config), it
reads and writes text, else ids only:

  export_torch.py --checkpoint multi30k.pt --config multi30k.json --subwords spm.model \\
      --out /srv/models/multi30k/1

A model that takes feature frames has no embedding: leave out --vocab, oov_id and preprocessing.
A model that only encodes has no classifier: leave out --labels.
"""


# What reads the model of each task that can be exported. What else "task" says is a note.
TASKS = {**dict.fromkeys(stack.TASKS, stack.read_model), "reader": reader.read_model,
         "translator": translator.read_model}


def read_task(source, config, arguments):
    """What the model is for. A task that the format does not know is a note of the config."""
    task = config.get("task")
    if not isinstance(task, str) or task not in TASKS:
        return "classifier" if arguments.labels else "encoder"
    if task == "classifier" and not arguments.labels:
        raise ExportError(f"{source}: task: a classifier needs --labels")
    if task != "classifier" and arguments.labels:
        raise ExportError(f"--labels: a model with the task \"{task}\" has none")
    return task


def export(torch, arguments):
    out = check_out(arguments.out)
    if os.path.lexists(out) and not arguments.force:
        raise ExportError(exists_message(out))
    config = read_config(arguments.config)
    source = f"config {arguments.config}"
    task = read_task(source, config, arguments)
    model = TASKS[task](torch, arguments, task, source, config)
    write_model(out, arguments.force, arguments.description, model)
    report(out, model)


def make_epilog():
    def one_of(names):
        quoted = [f'"{name}"' for name in names]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    return (EPILOG.replace("@POOLINGS@", one_of(POOLINGS[1:]))
            .replace("@PREPROCESSINGS@", textwrap.fill(
                one_of(PREPROCESSINGS), 98, initial_indent=" " * 17, subsequent_indent=" " * 17)))


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="export_torch.py", description=__doc__, epilog=make_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="M.pt",
                        help="state_dict written by torch.save")
    parser.add_argument("--config", required=True, metavar="C.json", help="model config, see below")
    parser.add_argument("--vocab", metavar="V.txt",
                        help="vocabulary, one word per line, line number = id from 0")
    parser.add_argument("--subwords", metavar="SPM.model",
                        help="SentencePiece model, for the preprocessing sentencepiece")
    parser.add_argument("--labels", metavar="L.txt",
                        help="names of the classifier's outputs, one per line, in their order")
    parser.add_argument("--out", required=True, metavar="REPOSITORY/MODEL/VERSION",
                        help="directory to write; the version is a positive integer")
    parser.add_argument("--description", default="", help="free text for users of the model")
    parser.add_argument("--embedding-prefix", metavar="NAME",
                        help="name of the embedding in the module (default: embedding; of a "
                        "language model embedding_layer)")
    parser.add_argument("--encoder-prefix", metavar="NAME",
                        help="name of the sru.SRU in the module; empty when the checkpoint is that "
                        "of the sru.SRU itself (default: encoder; of a language model rnn)")
    parser.add_argument("--classifier-prefix", "--output-prefix", metavar="NAME",
                        dest="classifier_prefix",
                        help="name of the classifier, or the output layer, in the module (default: "
                        "out; of a language model output_layer)")
    parser.add_argument("--force", action="store_true", help="replace --out when it exists")
    return parser.parse_args(arguments)


def main(arguments=None):
    parsed = parse_arguments(arguments)
    if sys.byteorder != "little":
        print("export_torch.py: error: runs on little-endian machines only", file=sys.stderr)
        return 1
    try:
        import torch  # here, so that --help works without it
    except ImportError:
        print("export_torch.py: error: PyTorch is needed: apt install python3-torch, or see "
              "https://pytorch.org", file=sys.stderr)
        return 1
    try:
        export(torch, parsed)
    except ExportError as error:
        print(f"export_torch.py: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"export_torch.py: error: cannot write {parsed.out}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
