"""The text of --help after the flags."""

import textwrap

from .stack import POOLINGS
from .vocabulary import PREPROCESSING_NAMES, PREPROCESSINGS

EPILOG = """\
A CLASSIFIER of texts, whose module is an embedding, an sru.SRU, a pooling and a linear layer, for
example:

  export_torch.py --checkpoint question.pt --config question.json --vocab vocab.txt \\
      --labels labels.txt --out /srv/models/question/1
  sru_server --model_repository=/srv/models
  sru_client classify --model=question "How many moons does Jupiter have ?"

  question.json says what the checkpoint does not:

    {
      "sru_config": {"input_size": 128, "hidden_size": 64, "num_layers": 2, "bidirectional": true,
                     "rescale": true},
      "pooling": "max",
      "preprocessing": {"type": "sentence_classification", "lowercase": false},
      "oov_id": 1
    }

  or flags say it, and sru_config is told from the tensors:

  export_torch.py --checkpoint question.pt --sru bidirectional=true --pooling max \\
      --preprocessing whitespace --vocab vocab.txt --labels labels.txt --out /srv/models/question/1

AN ENCODER of texts, or of a classifier without its head: no --labels.

  export_torch.py --checkpoint question.pt --config question.json --vocab vocab.txt \\
      --encoder_only --out /srv/models/sentences/1
  sru_client encode --model=sentences "How many moons does Jupiter have ?"

  Of feature frames (audio, say) instead of words: no --vocab, oov_id and preprocessing either.
  {"sru_config": {"input_size": 40, "hidden_size": 256, "num_layers": 4}, "pooling": "none"}

A LANGUAGE MODEL, whose module is an embedding, an sru.SRU and a linear layer to the vocabulary:

  export_torch.py --checkpoint book.pt --config book.json --out /srv/models/book/1
  sru_client score --model=book "It was a dark and stormy night"

  of bytes:  {"task": "language_model", "unit": "byte", "vocabulary": [10, 32, 97, 98],
              "sru_config": {"input_size": 64, "hidden_size": 512, "num_layers": 4}}
  of words:  {"task": "language_model", "unit": "word", "tied": true, "sru_config": {...}},
             and --vocab vocab.txt, which has </s> for the end of a line

A TAGGER, which gives each token a label: an embedding (or feature frames), an sru.SRU in one
direction or both, and a linear layer over each token's vector:

  export_torch.py --checkpoint pos.pt --config pos.json --vocab vocab.txt --labels tags.txt \\
      --out /srv/models/pos/1
  sru_client tag --model=pos "New York is large"

    {"task": "tagger", "preprocessing": "whitespace", "oov_id": 1,
     "sru_config": {"input_size": 100, "hidden_size": 128, "num_layers": 2, "bidirectional": true}}

A READER has the options and the names of modules of the public code of DrQA with SRU:

  export_torch.py --checkpoint squad.pt --config squad.json --vocab vocab.txt \\
      --out /srv/models/squad/1
  sru_client answer --model=squad --question "Who wrote Hamlet?" plays.txt

    {"task": "reader", "vocab_size": 20000, "embedding_dim": 50, "hidden_size": 96, "doc_layers": 3,
     "question_layers": 3, "features": ["exact", "lower", "tf"], "use_qemb": true, "pos": false,
     "ner": false, "concat_rnn_layers": false, "question_merge": "self_attn", "max_len": 15,
     "lowercase": true, "unk_id": 1, "sru": {"rescale": true}}

A TRANSLATOR has the modules and names of OpenNMT-py (2018), with an sru.SRUCell in place of w_1 of
each feed-forward layer: encoder.transformer.0.feed_forward.sru.weight. Its checkpoint may also be
OpenNMT-py's own, a dict with "model" and "generator". With --subwords, or the key "subwords" (a file
beside the config), it reads and writes text, else ids only:

  export_torch.py --checkpoint multi30k.pt --config multi30k.json --subwords spm.model \\
      --out /srv/models/multi30k/1
  sru_client translate --model=multi30k "A man is reading ."

    {"task": "translator", "d_model": 256, "heads": 4, "d_sru": 512, "encoder_layers": 3,
     "decoder_layers": 3, "bidirectional_encoder": true, "shared_embeddings": true,
     "source_vocabulary": 8000, "target_vocabulary": 8000, "pad_id": 0, "unk_id": 1, "bos_id": 2,
     "eos_id": 3, "max_positions": 256, "max_length": 100, "beam_size": 5,
     "length_penalty": "gnmt", "alpha": 0.6}

IS THE EXPORT RIGHT? Shapes do not show use_tanh, has_skip_term and the pooling. So compare:

  --verify                     the server's numbers with those of PyTorch for the same weights and
                               options: with the package "sru" if it is installed, else with a plain
                               implementation. Finds a server that computes something else.
  --check mine.json            the server's numbers with those that your own module gave. Finds a
                               wrong option, pooling or vocabulary. mine.json is
                               {"ids": [[4, 8, 15], [16]], "logits": [[0.1, -2.5], [1.5, 0.25]]},
                               or "texts" in place of "ids"; "vectors" (of an encoder: the pooled
                               vectors), "log_probs" (of a language model: of each token but the
                               first, or their sum) or "probabilities" (of a tagger: of each label
                               of each token) in place of "logits". Write it in eval mode:
                                 json.dump({"ids": ids, "logits": logits.tolist()}, file)

  --verify takes every task (of a translator it compares the log-probabilities of what the server
  found, of a reader the best span), --check all but readers and translators.
  Both start sru_server (--server, or the one in build/bin or PATH).
  Exit code 2: the numbers differ. The model is then written to REPOSITORY/MODEL/.VERSION, which no
  server loads, and a command is printed that serves it all the same.

THE CHECKPOINT: a state_dict written by torch.save, a dict, list or tuple with one ("state_dict",
"model_state_dict", "model"; --weights chooses), a checkpoint of Lightning, a pickled module or a file
of safetensors, each also packed by gzip, bzip2 or xz; or a folder of Hugging Face (model.safetensors,
pytorch_model.bin, or either in several files), whose config.json is the --config then. Nothing in it
is run. Prefixes of torch.compile and DataParallel are left out, moving averages beside the weights,
too; weight_norm, spectral_norm and pruning become plain weights. The modules are found by their
shapes if they have not the usual names; --ignore 'criterion.*' leaves out tensors that are no part of
the model. A head of several linear layers or with batch norm is folded into one; one with an
activation cannot be served.

THE VOCABULARY: one word per line, line number = id from 0; or word and id, or word and count, on
each line; or JSON: a list of words, {"word": id}, or Hugging Face's tokenizer.json of words. An
embedding that is padded to a multiple of 8 or more is cut to the vocabulary. Labels are one name per
line, name and id with a tab between them, or JSON such as Hugging Face's id2label.

THE MODEL CONFIG (--config) is a JSON object with these keys; any other key is informational. A
config.json of the served format (FORMAT.md) is understood, too.
  sru_config     the arguments that sru.SRU was made with: input_size and hidden_size, and where
                 they differ from the package's defaults num_layers, bidirectional, projection_size,
                 use_tanh, layer_norm, normalize_after, has_skip_term, rescale, v1,
                 proj_input_to_hidden_first, highway_bias. What matters to training only (dropout
                 and the like) is accepted and dropped; custom_m cannot be exported. Without this
                 key they are told from the tensors, as far as these show them.
  task           what the model is for; without it --labels make a classifier, and nothing an encoder.
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
of a translator the keys of "translator" in FORMAT.md
"""


def epilog():
    def one_of(names):
        quoted = [f'"{name}"' for name in names]
        return f"{', '.join(quoted[:-1])} or {quoted[-1]}"

    named = [kind for kind in PREPROCESSINGS if kind in PREPROCESSING_NAMES]
    return (EPILOG.replace("@POOLINGS@", one_of(POOLINGS[1:]))
            .replace("@PREPROCESSINGS@", textwrap.fill(
                one_of(named), 98, initial_indent=" " * 17, subsequent_indent=" " * 17)))
