"""Reads files of words in the forms that are about: one word per line, words with their counts or ids, JSON."""

import json
import re

from .common import ExportError, check_lines, count_of, is_integer, listed, read_text, shortened

NUMBERED = (re.compile(r"(?P<word>.*\S)(?P<gap>[\t ]+)(?P<number>\d{1,18})"),
            re.compile(r"(?P<number>\d{1,18})(?P<gap>\t)(?P<word>.*\S)"))

# What a row of the embedding is called that no word of the file has.
UNUSED = "<unused_{}>"


def read_words(path, what, notes, numbers=True):
    """The words in the order of their ids. `numbers`: whether lines may have a number, which is a count or an id, after a
    blank; after or before a tab, all may."""
    text = read_text(path, what)
    source = f"{what} {path}"
    start = text.lstrip("\ufeff \t\r\n")[:1]
    if start in ("{", "[") and path.endswith((".json", ".jsonl")) or start == "{" and _is_json(text):
        return from_json(source, text, notes)
    lines = check_lines(text, what, path)
    for form in NUMBERED:
        numbered = [form.fullmatch(line) for line in lines]
        if len(lines) > 1 and all(numbered) and (numbers or all(match["gap"] == "\t" for match in numbered)):
            return from_numbered(source, numbered, notes)
    if not numbers:
        return lines
    vectors = sum(len(line.split(" ")) > 10 and bool(re.fullmatch(r"\S+( -?\d+\.\d+(e-?\d+)?)+ ?", line)) for line in lines[:50])
    if vectors > min(len(lines), 50) // 2:
        raise ExportError(f"{source}: its lines are words with vectors, as GloVe and word2vec write them; expected one word "
                          "per line (cut -d' ' -f1), in the order of the embedding's rows")
    return lines


def _is_json(text):
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def from_numbered(source, matches, notes):
    """Words that each have a number: an id if the numbers are those of rows, else a count."""
    words = [match["word"] for match in matches]
    numbers = [int(match["number"]) for match in matches]
    separator = "a tab" if matches[0]["gap"] == "\t" else "a blank"
    first = min(numbers)
    if first in (0, 1) and sorted(numbers) == list(range(first, first + len(numbers))):
        notes.append(f"{source}: each line is a word, {separator} and its id; the words were put in the order of the ids")
        return from_ids(source, dict_of(source, zip(words, numbers)), notes)
    if any(before < after for before, after in zip(numbers[4:], numbers[5:])) and len(set(numbers)) == len(numbers):
        raise ExportError(f"{source}: each line is a word and a number, which are neither the ids 0 to {len(words) - 1} nor "
                          "counts in descending order; expected one word per line, in the order of the embedding's rows")
    notes.append(f"{source}: each line is a word, {separator} and a count; the counts were left out, and the line number from 0 "
                 "is the id")
    dict_of(source, zip(words, numbers))
    return words


def dict_of(source, pairs):
    result = {}
    for number, (word, value) in enumerate(pairs, start=1):
        if word in result:
            raise ExportError(f"{source}: line {number} has the word '{word}' again")
        result[word] = value
    return result


def from_ids(source, ids, notes):
    """The words of {word: id}, which may leave rows without a word."""
    words = {}
    for word, number in ids.items():
        if not is_integer(number) or not 0 <= number < 2 * len(ids) + 1024:
            raise ExportError(f"{source}: word '{word}': expected the id of a row, found {shortened(number)}")
        if number in words:
            raise ExportError(f"{source}: the words '{words[number]}' and '{word}' have the same id, {number}")
        if not word or "\n" in word or "\r" in word:
            raise ExportError(f"{source}: word {shortened(word)}: expected a word that is not empty and has no line end")
        words[number] = word
    missing = [number for number in range(max(words) + 1) if number not in words]
    if missing:
        notes.append(f"{source}: no word has {'the id' if len(missing) == 1 else 'the ids'} {listed(missing)}; "
                     f"{'it was' if len(missing) == 1 else 'they were'} named {UNUSED.format(missing[0])}"
                     f"{' and so on' if len(missing) > 1 else ''}")
    return [words.get(number, UNUSED.format(number)) for number in range(max(words) + 1)]


def from_json(source, text, notes):
    """A list of words, an object of ids by word, or a tokenizer.json of Hugging Face that has one."""
    try:
        value = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{source}: is not JSON: {error}") from error
    if isinstance(value, dict) and isinstance(value.get("model"), dict) and "vocab" in value["model"]:
        kind = value["model"].get("type")
        if kind not in (None, "WordLevel"):
            raise ExportError(f"{source}: is a tokenizer of the type {kind}, which the server does not have; it has words, "
                              "characters, bytes and SentencePiece (--subwords)")
        value = value["model"]["vocab"]
    for key in ("id2label", "label2id", "stoi", "token_to_idx", "word2idx", "itos", "vocab"):
        if isinstance(value, dict) and isinstance(value.get(key), (dict, list)):
            value = value[key]
    return from_value(source, value, notes)


def from_value(source, value, notes):
    """The words of a list, of {word: id}, or of {id: word}, where JSON has the ids as texts."""
    if isinstance(value, dict) and value and all(
            number.isdecimal() and isinstance(word, str) for number, word in value.items()):
        value = dict_of(source, ((word, int(number)) for number, word in value.items()))
    if isinstance(value, dict) and value and all(is_integer(number) for number in value.values()):
        words = from_ids(source, value, notes)
        notes.append(f"{source}: an object of JSON with the id of each word")
        return words
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        notes.append(f"{source}: a list of JSON, whose index is the id")
        return from_ids(source, dict_of(source, ((word, number) for number, word in enumerate(value))), notes)
    raise ExportError(f"{source}: expected a list of words or an object with the id of each word, found {shortened(value)}")


def check_reachable(source, found, words, notes):
    """Says which words no text gives; refuses a file of which that is true for most. `found`: words.never_given()."""
    if not found:
        return
    share = f"{count_of(len(found), 'word')} of {len(words):,}"
    examples = "; ".join(f"'{word}' {reason}" for word, reason in found[:3])
    if len(found) * 2 > len(words) and len(words) > 4:
        raise ExportError(f"{source}: {share} can never come out of the preprocessing: {examples}. Expected one word per line as "
                          "the preprocessing gives it; choose another preprocessing, or pass --any_words if this is meant")
    notes.append(f"{source}: {share} can never come out of the preprocessing: {examples}")
