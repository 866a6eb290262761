"""--verify and --check: the numbers of the served model beside those of PyTorch, as a table."""

import base64
import itertools
import math
import struct

from .common import ExportError, is_integer, progress, read_config, shortened
from .reference import POOLS, Reference
from .served_model import find_server, served_model
from .stack import POOLINGS, TASKS, expected_tensors
from .words import split

# Of the sequences that are made up: short ones, and longer than what a scan computes at once.
LENGTHS = (1, 2, 3, 7, 20, 50)

# A server gives no more labels for one token.
MOST_LABELS = 128

# Options that the tensors of many models do not show.
UNSEEN = ("use_tanh", "has_skip_term", "normalize_after", "bidirectional")

# How far the rounding of all weights may move a model's numbers.
ROUNDINGS = {"bfloat16": 5e-2, "float16": 5e-3}


def ids_of(model, text):
    """The ids of a text as the model's tokenizer gives them, and how many of its words are unknown."""
    preprocessing = model.config["preprocessing"]
    kind = preprocessing["type"]
    if kind == "bytes":
        index = {value: number for number, value in enumerate(preprocessing["vocabulary"])}
        missing = [byte for byte in text.encode("utf-8") if byte not in index]
        if missing:
            raise ExportError(f"--verify_text: the vocabulary has no byte {missing[0]}")
        return [index[byte] for byte in text.encode("utf-8")], 0
    if kind == "sentencepiece":
        try:
            import sentencepiece
        except ImportError:
            raise ExportError("--verify_text: needs the Python package sentencepiece for this model") from None
        return sentencepiece.SentencePieceProcessor(model_file=model.vocabulary.pieces).encode(text), 0
    index = {word: number for number, word in enumerate(model.vocabulary.words)}
    oov = model.config["embedding"].get("oov_id", index.get("<unk>"))
    words = split(preprocessing, text)
    unknown = [word for word in words if word not in index]
    if unknown and oov is None:
        raise ExportError(f"--verify_text: the vocabulary has no '{unknown[0]}', and nothing stands for unknown words")
    return [index.get(word, oov) for word in words], len(unknown)


def made_up(torch, model):
    """Sequences of several lengths: lists of ids, or tensors of frames."""
    generator = torch.Generator().manual_seed(20)
    if model.vocabulary is None:
        return [torch.randn(length, model.config["encoder"]["input_size"], generator=generator) for length in LENGTHS]
    return [torch.randint(model.vocabulary.size, (length,), generator=generator).tolist() for length in LENGTHS]


def sequence(value):
    """A Sequence of the call: of a text, ids or frames."""
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, list):
        return {"token_ids": {"values": value}}
    frames = value.flatten().tolist()
    data = base64.b64encode(struct.pack(f"<{len(frames)}f", *frames)).decode()
    return {"features": {"data": data, "feature_size": value.shape[1]}}


def numbers(values):
    """JSON has those that are not finite as texts."""
    return [float(value) for value in values]


def served_logits(served, value, *_):
    """In the order of the labels."""
    labels = served("classify", sequences=[sequence(value)])["classifications"][0]["labels"]
    return numbers(label["logit"] for label in sorted(labels, key=lambda label: label["index"]))


def served_vectors(served, value, *_, pooling="POOLING_DEFAULT"):
    return numbers(served("encode", sequences=[sequence(value)], pooling=pooling)["encodings"][0]["values"])


def served_log_probs(served, value, *_):
    """Of each token but the first."""
    return numbers(served("score", sequences=[sequence(value)], token_log_probs=True)["scores"][0]["token_log_probs"])


def served_probabilities(served, value, expected, num_labels):
    """[length][labels]. The server sends the MOST_LABELS most probable ones; the others, which cannot be more probable than
    these, count as `expected` where that is so."""
    wanted, found = iter(expected), []
    tagging = served("tag", sequences=[sequence(value)], top_k=min(num_labels, MOST_LABELS))["taggings"][0]
    for token in tagging["tokens"]:
        sent = {label["index"]: float(label["probability"]) for label in token["labels"]}
        least = min(sent.values())
        found += [sent.get(index, min(least, next(wanted, 0))) for index in range(num_labels)]
    return found


# By the kinds of numbers in stack.TASKS: what gets them from the server, and what PyTorch makes of ids or frames.
NUMBERS = {
    "logits": (served_logits, lambda reference, inputs: reference.logits(inputs)),
    "vectors": (served_vectors, lambda reference, inputs: reference.vectors(inputs)),
    "log_probs": (served_log_probs, lambda reference, inputs: reference.log_probs(inputs)),
    "probabilities": (served_probabilities, lambda reference, inputs: reference.output_log_probs(inputs).exp()),
}


def task_of(model):
    return model.config.get("task") or ("classifier" if model.config.get("labels") else "encoder")


class Table:
    """Rows of a comparison, the counts of unknown words, and the verdict."""

    def __init__(self, tolerance):
        self._tolerance, self._rows, self.different, self._words, self._unknown = tolerance, [], 0, 0, 0
        self.worst = 0.0

    def add(self, what, tokens, unknown, expected, found):
        not_finite = [f"{name}[{index}] is {value}" for name, values in (("expected", expected), ("found", found))
                      for index, value in enumerate(values) if not math.isfinite(value)]
        difference, largest, relative = None, None, math.inf
        if len(expected) == len(found):
            largest = max((abs(value) for value in expected), default=0.0)
            difference = max((abs(a - b) for a, b in zip(expected, found)), default=0.0)
            relative = math.inf if not_finite else difference / max(1.0, largest)
        good, self.worst = relative <= self._tolerance, max(self.worst, relative)
        self.different += not good
        if unknown is not None:
            self._words, self._unknown = self._words + tokens, self._unknown + unknown
        self._rows.append((what, "" if tokens is None else str(tokens), "" if unknown is None else str(unknown),
                           f"{len(expected)} != {len(found)}" if difference is None else str(len(expected)),
                           "" if largest is None else f"{largest:.4g}", "" if difference is None else f"{difference:.2g}",
                           "same" if good else ": ".join(["DIFFERENT", *not_finite[:1]])))

    def print(self, against):
        head = ("sequence", "tokens", "unknown", "numbers", "largest", "difference", "verdict")
        widths = [max(len(row[i]) for row in [head, *self._rows]) for i in range(len(head))]
        print(f"The server beside {against}:")
        for row in [head, *self._rows]:
            print("  " + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]))
        if self._words:
            print(f"  {self._unknown:,} of {self._words:,} words ({self._unknown / self._words:.0%}) are unknown to the "
                  "vocabulary")
        print(f"{self.different} of {len(self._rows)} differ: the server does not compute what {against} does."
              if self.different else f"All {len(self._rows)} are the same within {self._tolerance:g}.")


def texts_to_verify(model, arguments):
    """Those of --verify_text, as (text, (ids, how many words are unknown))."""
    if arguments.verify_text and model.vocabulary is None:
        raise ExportError("--verify_text: the model takes ids or features, not text")
    texts = [(text, ids_of(model, text)) for text in arguments.verify_text]
    for text, (ids, _) in texts:
        if not ids:
            raise ExportError(f"--verify_text: no token is left of {shortened(text)}")
    return texts


def verify(torch, model, served, arguments, table):
    """Compares with PyTorch; returns the name of what it was compared with."""
    reference = Reference(torch, model.config, model.tensors)
    items = [(f"made up, {len(value)}", value, value, None) for value in made_up(torch, model)]
    items += [(shortened(text)[:30], text, *ids) for text, ids in texts_to_verify(model, arguments)]
    for what, given, inputs, unknown in items:
        length = len(inputs)
        for kind in reversed(TASKS[task_of(model)].numbers):
            from_server, from_reference = NUMBERS[kind]
            expected = from_reference(reference, inputs).flatten().tolist()
            if kind == "vectors":  # of each token
                found = served_vectors(served, given, pooling="POOLING_NONE")
            elif expected:
                found = from_server(served, given, expected, len(model.config.get("labels", [])))
            else:
                continue
            table.add(f"{what}: {kind.replace('_', '-')}", length, None if kind == "vectors" else unknown, expected, found)
    return f"PyTorch ({reference.name})"


def flat(source, value):
    if isinstance(value, list):
        return [number for item in value for number in flat(source, item)]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ExportError(f"{source}: expected numbers, found {shortened(value)}")
    return [float(value)]


def read_checked(torch, path, model):
    """(kind of numbers, items) of --check. An item: what the server is sent, the ids or frames of it and its unknown words (None
    if that is not known), and the numbers."""
    source = f"--check {path}"
    given = read_config(path, "check")
    inputs = [key for key in ("ids", "texts", "features") if key in given]
    known = TASKS[task_of(model)].numbers
    kinds = [kind for kind in known if kind in given]
    if len(inputs) != 1 or len(kinds) != 1:
        raise ExportError(f"{source}: expected an object with one of ids, texts and features, and one of "
                          f"{', '.join(known)}; found {', '.join(given) or 'nothing'}")
    sequences, expected = given[inputs[0]], given[kinds[0]]
    if not isinstance(sequences, list) or not isinstance(expected, list) or not sequences or len(sequences) != len(expected):
        raise ExportError(f"{source}: expected lists of the same length, one entry per sequence, as {inputs[0]} and {kinds[0]}")
    for index, value in enumerate(sequences):
        good = {"ids": isinstance(value, list) and value and all(is_integer(number) and number >= 0 for number in value),
                "texts": isinstance(value, str),
                "features": isinstance(value, list) and value and all(isinstance(frame, list) for frame in value)}
        if not good[inputs[0]]:
            raise ExportError(f"{source}: {inputs[0]}[{index}]: found {shortened(value)}")
    items = []
    for index, (value, wanted) in enumerate(zip(sequences, expected)):
        given, ids, unknown = value, None, None
        if isinstance(value, list):
            given = ids = torch.tensor(value, dtype=torch.float32) if isinstance(value[0], list) else value
        elif model.config.get("preprocessing", {}).get("type") not in (None, "sentencepiece"):
            ids, unknown = ids_of(model, value)
        items.append((given, ids, unknown, flat(f"{source}: {kinds[0]}[{index}]", wanted)))
    return kinds[0], items


def check(model, served, kind, items, table):
    """Compares with the numbers of a file."""
    for index, (given, ids, unknown, wanted) in enumerate(items):
        found = NUMBERS[kind][0](served, given, wanted, len(model.config.get("labels", [])))
        if kind == "log_probs" and len(wanted) == 1:
            found = [sum(found)]
        table.add(f"{index}: {kind}", None if ids is None else len(ids), unknown, wanted, found)


def alternatives(model):
    """The configs that differ in what the tensors do not show, as (flags, config), those with the fewest flags first."""
    config, encoder, pooling = model.config, model.config["encoder"], model.config.get("pooling")
    width = encoder["hidden_size"] * (2 if encoder["bidirectional"] else 1)
    pools = [None] if pooling is None else [name for name in POOLINGS if name != "none" or not config.get("labels")]
    found = []
    for pool, *values in itertools.product(pools, *[(False, True)] * len(UNSEEN)):
        changed = {**encoder, **dict(zip(UNSEEN, values))}
        changed["hidden_size"] = width // (2 if changed["bidirectional"] else 1)
        flags = [f"--pooling {pool}"] * (pool != pooling) + [
            f"--sru {key}={str(changed[key]).lower()}" for key in UNSEEN if changed[key] != encoder[key]]
        if expected_tensors(changed, 0, 0) == expected_tensors(encoder, 0, 0):
            found.append((" ".join(flags), {**config, "encoder": changed, "pooling": pool}))
    return sorted(found, key=lambda item: item[0].count("--"))[1:]


def agrees(torch, model, config, kind, items, tolerance):
    """Whether a model with this config gives the numbers of --check."""
    reference, table = Reference(torch, config, model.tensors), Table(tolerance)
    for _, ids, _, wanted in sorted(items, key=lambda item: len(item[1])):
        found = NUMBERS[kind][1](reference, ids)
        if kind == "vectors" and config["pooling"] in POOLS:
            found = POOLS[config["pooling"]](torch, found, config["encoder"]["bidirectional"])
        found = found.sum() if kind == "log_probs" and len(wanted) == 1 else found
        table.add("", None, None, wanted, found.flatten().tolist())
        if table.different:
            return False
    return True


def explain(torch, model, kind, items, worst, tolerance):
    """Says what may be behind numbers of --check that differ by up to `worst`."""
    rounded = next((name for name in ROUNDINGS if all(
        torch.equal(tensor, tensor.to(getattr(torch, name)).float()) for tensor in model.tensors.values())), None)
    if rounded and worst <= ROUNDINGS[rounded]:
        print(f"The weights are {rounded} numbers, whose rounding moves a model's numbers by about as much. If yours were "
              f"computed before it, --tolerance {2 * worst:.1g} accepts them.")
    elif all(ids is not None for _, ids, _, _ in items):
        found = []
        with progress("trying other options"):
            for flags, config in alternatives(model):
                if found and flags.count("--") > found[0].count("--"):
                    break
                if agrees(torch, model, config, kind, items, max(tolerance, ROUNDINGS.get(rounded, 0))):
                    found.append(flags)
        print("They are the same with " + ", or with ".join(found) + "." if found else
              f"No other pooling and no other {', '.join(UNSEEN)} gives these numbers: are vocabulary and weights the same?")


def look_for_needs(torch, model, arguments):
    """Refuses what --verify, --verify_text and --check cannot do, before a model is written."""
    find_server(arguments.server)
    texts_to_verify(model, arguments)
    if arguments.check is not None:
        read_checked(torch, arguments.check, model)


def compare(torch, model, directory, out, arguments):
    """Runs what --verify, --verify_text and --check ask for on the model in `directory`, which is to be `out`; returns whether
    all numbers are the same."""
    tables = []
    with served_model(find_server(arguments.server), directory, out) as served:
        if arguments.verify or arguments.verify_text:
            tables.append(Table(arguments.tolerance))
            tables[-1].print(verify(torch, model, served, arguments, tables[-1]))
        if arguments.check is not None:
            kind, items = read_checked(torch, arguments.check, model)
            tables.append(Table(arguments.tolerance))
            check(model, served, kind, items, tables[-1])
            tables[-1].print(f"the numbers of {arguments.check}")
    if arguments.check is not None and tables[-1].different:
        explain(torch, model, kind, items, tables[-1].worst, arguments.tolerance)
    return not any(table.different for table in tables)
