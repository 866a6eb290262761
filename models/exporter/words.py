"""How the server's tokenizers cut text into words (FORMAT.md, Tokenizers), in Python, to tell which words of a vocabulary no
text can ever give, and what a text becomes. Written from the definitions; shares nothing with the server."""

import re
import unicodedata

# Names such as <unk>, [PAD] or __eos__ are for programs; no text is expected to give them.
SYMBOL = re.compile(r"<.*>|\[[^\[\]]+\]|__.+__|\{\{.*\}\}")

ASCII_SPACE = re.compile(r"[ \t\r\f\v]+")


def lower(text):
    """Simple lower case, character by character."""
    return "".join({"\u0130": "i"}.get(c, c.lower() if len(c.lower()) == 1 else c) for c in text)


def clean(text):
    """clean_str of Kim (2014)."""
    text = re.sub(r"[^A-Za-z0-9(),!?'`]", " ", text)
    text = re.sub(r"('s|'ve|n't|'re|'d|'ll)", r" \1", text)
    return re.sub(r"([,!()?])", r" \1 ", text).split(" ")


def unicode_words(text):
    words, run = [], ""
    for character in text:
        if unicodedata.category(character)[0] in "LMN":
            run += character
            continue
        words += [run, "" if character.isspace() else character]
        run = ""
    return words + [run]


def split(preprocessing, text):
    """The words of a text as they are looked up. None for tokenizers that do not look up words."""
    kind = preprocessing["type"]
    if kind == "whitespace":
        words = text.split()
    elif kind == "lowercase":
        words = [lower(word) for word in text.split()]
    elif kind == "sentence_classification":
        words = clean(text)
    elif kind == "unicode_words":
        words = unicode_words(text)
    elif kind == "characters":
        words = [{"\n": "\\n", "\r": "\\r"}.get(character, character) for character in text]
    elif kind == "line_words":
        words = [word for line in text.split("\n") for word in (*ASCII_SPACE.split(line), "</s>")][:-1]
    else:
        return None
    if preprocessing.get("lowercase"):
        words = [lower(word) for word in words]
    return [word for word in words if word]


def never_given(preprocessing, words):
    """The words that no text gives, without the names of symbols, as (word, reason)."""
    result = []
    if split(preprocessing, "") is None:
        return result
    kind = preprocessing["type"]
    for word in words:
        if kind == "characters":
            if len(word) > 1 and word not in ("\\n", "\\r") and not SYMBOL.fullmatch(word):
                result.append((word, "is more than one character"))
            continue
        text = "\n" if word == "</s>" and kind == "line_words" else word
        given = split(preprocessing, text)
        if given == [word] or SYMBOL.fullmatch(word):
            continue
        if word != lower(word) and given and lower(word) == "".join(given):
            reason = "has a capital, and text is looked up in lower case"
        elif any(character.isspace() for character in word):
            reason = "has white space in it"
        else:
            reason = f"becomes {' '.join(given)!r}" if given else "has no character that is kept"
        result.append((word, reason))
    return result
