#!/usr/bin/env python3
"""Makes the models and the expected translations of tests/golden/student: students with random weights, in the files that Marian and Firefox write.

  make_student.py SSRU_DIR        with numpy, PyYAML and sentencepiece (PyPI)

SSRU_DIR has the reference in numpy: ssru_reference.py and int8_reference.py, and make/make_intgemm8.py, which quantizes. Writes beside this file:

  student/shared    float32: model.npz with one table, vocab.spm
  student/int8      the same model: model.intgemm.alphas.bin, vocab.spm, lex.bin
  student/apart     float32 with two tables: a deflated model.npz, srcvocab.spm, trgvocab.spm
  expected.jsonl in each: a sentence a line, as the reference translates it
"""
import json
import os
import shutil
import struct
import sys
import tempfile

import numpy as np
import sentencepiece
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
SENTENCES = ["the state of a model", "a", "it is a word that nobody knows: \u00e6\u00df\u2603!", "  one  line \t and another", "model state the", "1234 and 5",
             "the the the the the the the the the the the the the the the the the the the the the the", "a batch of one sequence", "__a__ and <0x41>"]


def make_vocabulary(path, pieces, text):
    with tempfile.TemporaryDirectory() as folder:
        # Paragraphs of the project's own pages, without what a small vocabulary cannot have.
        lines = [line for page in text for line in open(os.path.join(ROOT, page)) if line.isascii()]
        sample = os.path.join(folder, "sample.txt")
        open(sample, "w").writelines(lines)
        sentencepiece.SentencePieceTrainer.train(
            input=sample, model_prefix=os.path.join(folder, "v"), vocab_size=pieces, bos_id=-1, eos_id=0, unk_id=1, pad_id=-1, byte_fallback=True,
            user_defined_symbols=["__a__", "__b__"], normalization_rule_name="identity", split_digits=True, hard_vocab_limit=True, num_threads=1,
            minloglevel=2, character_coverage=0.98)
        with open(os.path.join(folder, "v.model"), "rb") as source, open(path, "wb") as target:
            target.write(source.read())
    return sentencepiece.SentencePieceProcessor(model_file=path)


def make_model(path, template, width, ffn, heads, encoder, decoder, vocabularies, deflate, seed):
    random, p = np.random.default_rng(seed), {}

    def matrix(name, rows, columns, scale=1.0):
        p[name] = (random.uniform(-1, 1, (rows, columns)) * np.sqrt(6 / (rows + columns)) * scale).astype(np.float32)

    def vector(name, size, center=0.0):
        p[name] = (center + random.uniform(-0.2, 0.2, (1, size))).astype(np.float32)

    def norm(name):
        vector(name + "_ln_scale", width, 1.0)
        vector(name + "_ln_bias", width)

    def attention(name):
        for letter in "qkvo":
            matrix(f"{name}_W{letter}", width, width)
            vector(f"{name}_b{letter}", width)
        norm(name + "_Wo")

    def feed_forward(name):
        matrix(name + "_W1", width, ffn), vector(name + "_b1", ffn)
        matrix(name + "_W2", ffn, width), vector(name + "_b2", width)
        norm(name + "_ffn")

    one = len(vocabularies) == 1
    for name, size in zip(["Wemb"] if one else ["encoder_Wemb", "decoder_Wemb"], vocabularies):
        matrix(name, size, width, 3.0)
    vector("decoder_ff_logit_out_b", vocabularies[-1])
    p["decoder_ff_logit_out_b"][0, 0] += 2.0  # so that translations end
    for i in range(1, encoder + 1):
        attention(f"encoder_l{i}_self")
        feed_forward(f"encoder_l{i}_ffn")
    for i in range(1, decoder + 1):
        matrix(f"decoder_l{i}_rnn_W", width, width), matrix(f"decoder_l{i}_rnn_Wf", width, width), vector(f"decoder_l{i}_rnn_bf", width)
        norm(f"decoder_l{i}_rnn_ffn")
        attention(f"decoder_l{i}_context")
        feed_forward(f"decoder_l{i}_ffn")
    config = yaml.safe_load(open(template))
    config.update({"dim-emb": width, "transformer-dim-ffn": ffn, "transformer-heads": heads, "enc-depth": encoder, "dec-depth": decoder,
                   "dim-vocabs": [vocabularies[0], vocabularies[-1]], "tied-embeddings-all": one, "tied-embeddings": not one})
    p["special:model.yml"] = np.frombuffer(yaml.safe_dump(config).encode() + b"\0", np.int8)
    (np.savez_compressed if deflate else np.savez)(path, **p)


def make_shortlist(path, pieces, seed):
    random, first, best = np.random.default_rng(seed), 30, 12
    lists = [sorted(random.choice(pieces, random.integers(0, best + 1), replace=False)) for _ in range(pieces - 3)] + [[], [], []]
    offsets = np.cumsum([0] + [len(words) for words in lists]).astype("<u8")
    data = struct.pack("<4Q", first, best, len(offsets), int(offsets[-1])) + offsets.tobytes() + np.array(sum(lists, []), "<u4").tobytes()
    checksum = int8_reference.hash_combine(b"\0" * 16 + data)
    open(path, "wb").write(struct.pack("<2Q", 0xF11A48D5013417F5, checksum) + data)


def expect(model, source, target, forbidden, shortlist):
    lines = []
    for text in SENTENCES:
        ids = source.encode(text)
        line = {"source": text, "source_ids": ids, "normalize": 1.0, "max_length_factor": 2.0}
        allowed = None
        if shortlist is not None:
            allowed = shortlist.of(ids + [0], target.vocab_size(), model.source_table == model.target_table)
            line["choices"] = allowed.tolist()
        out, scores, aligns, margin = ssru_reference.greedy(model, ids + [0], 2.0, forbidden, allowed)
        hypotheses, beam_margin = ssru_reference.beam_search(model, ids + [0], 4, 1.0, 2.0, forbidden, allowed)
        nbest = [{"ids": [w for w in h[2] if w != 0], "log_prob": round(h[1], 6), "score": round(h[0], 6)} for h in hypotheses]
        greedy_ids = [w for w in out if w != 0]
        line.update({"greedy": target.decode(greedy_ids), "greedy_ids": greedy_ids, "greedy_log_prob": round(sum(scores), 6),
                     "greedy_score": round(sum(scores) / len(scores), 6), "greedy_word_scores": [round(s, 6) for s in scores],
                     "greedy_alignment": [int(a.argmax()) if np.sort(a)[-1] - np.sort(a)[-2] > 0.01 else None for a in aligns],
                     "greedy_soft_alignment": [[round(float(value), 7) for value in a] for a in aligns],
                     "greedy_margin": round(float(margin), 6), "beam4_nbest": nbest, "beam4_margin": round(float(beam_margin), 6)})
        lines.append(json.dumps(line))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    ssru = sys.argv[1]
    sys.dont_write_bytecode = True
    sys.path[:0] = [ssru, os.path.join(ssru, "make")]
    import int8_reference
    import make_intgemm8
    import ssru_reference

    def at(*names):
        path = os.path.join(HERE, "student", *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    template = os.path.join(ssru, "make", "model.yml")
    shared = make_vocabulary(at("shared", "vocab.spm"), 330, ["ARCHITECTURE.md"])
    make_model(at("shared", "model.npz"), template, 16, 24, 2, 2, 2, [330], False, 1)
    float_model = ssru_reference.Model(at("shared", "model.npz"))
    open(at("shared", "expected.jsonl"), "w").write(expect(float_model, shared, shared, ssru_reference.suppressed(shared), None))

    # As make_intgemm8.py does, with the sentences above as its sample.
    watched = make_intgemm8.Watched(at("shared", "model.npz"))
    for text in SENTENCES:
        ssru_reference.greedy(watched, shared.encode(text) + [0], 2.0, ssru_reference.suppressed(shared))
    multipliers = {name: np.float32(127 / (np.mean(v) + 1.1 * np.std(v))) for name, v in watched.seen.items()}
    multipliers["Wemb"] = multipliers["none"]
    file, items = np.load(at("shared", "model.npz")), []
    for name in file.files:
        if name == "special:model.yml":
            continue
        if name in multipliers:
            q, multiplier = make_intgemm8.quantize(file[name])
            values = q if name == "Wemb" else q.T.copy()
            items.append((name, make_intgemm8.INTGEMM8, q.shape, values.tobytes() + struct.pack("<f", multiplier)))
        else:
            items.append((name, make_intgemm8.FLOAT32, file[name].shape, file[name].tobytes()))
    items += [(name + "_QuantMultA", make_intgemm8.FLOAT32, (1, 1), struct.pack("<f", m)) for name, m in multipliers.items()]
    options = file["special:model.yml"].tobytes()
    items.append(("special:model.yml", make_intgemm8.INT8, (len(options),), options))
    make_intgemm8.write(at("int8", "model.intgemm.alphas.bin"), items)
    shutil.copy(at("shared", "vocab.spm"), at("int8", "vocab.spm"))
    make_shortlist(at("int8", "lex.bin"), 330, 2)
    rounded = int8_reference.Int8Model(at("int8", "model.intgemm.alphas.bin"))
    shortlist = int8_reference.Shortlist(at("int8", "lex.bin"))
    open(at("int8", "expected.jsonl"), "w").write(expect(rounded, shared, shared, ssru_reference.suppressed(shared), shortlist))

    source = make_vocabulary(at("apart", "srcvocab.spm"), 310, ["CONTRIBUTING.md"])
    target = make_vocabulary(at("apart", "trgvocab.spm"), 320, ["README.md"])
    make_model(at("apart", "model.npz"), template, 12, 20, 3, 1, 3, [310, 320], True, 3)
    apart = ssru_reference.Model(at("apart", "model.npz"))
    open(at("apart", "expected.jsonl"), "w").write(expect(apart, source, target, ssru_reference.suppressed(target), None))
