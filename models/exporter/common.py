"""What every file of the exporter uses: its error, the limits of the format, and the reading of
text files."""

import collections
import contextlib
import json
import pathlib
import sys
import threading
import time

REQUIRED = object()
PATIENCE_S = 2.0

FORMAT_VERSION = 1

# The limits of the server (models/config.h, reader_config.h).
MAX_WIDTH = 16384
MAX_LAYERS = 256
MAX_VOCABULARY = 1 << 24
MAX_LABELS = 65536
MAX_PIECES_BYTES = 256 << 20
MAX_TAGS = 65536
MAX_ANSWER_TOKENS = 1 << 20


class ExportError(Exception):
    """What is wrong with the input, in one line for the user."""


# A model that can be written: the object of config.json without the keys that all tasks have, the
# tensors by name and the vocabulary (None for a model without text). For the user: its layers, what
# is said after the number of its weights, and how to ask a server ("{model}" is its name).
Exported = collections.namedtuple("Exported",
                                  "config tensors vocabulary layers summary usage")


@contextlib.contextmanager
def progress(what):
    """Says on standard error what takes longer than PATIENCE_S, and how long it took. Yields what the timer calls."""
    said = []

    def say():
        said.append(what)
        print(f"{what} ...", file=sys.stderr, flush=True)

    timer, start = threading.Timer(PATIENCE_S, say), time.monotonic()
    timer.daemon = True
    timer.start()
    try:
        yield say
    finally:
        timer.cancel()
        if said:
            print(f"  done after {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def listed(names, most=6):
    """'a', 'b' and 3 more"""
    names = list(names)
    text = ", ".join(f"'{name}'" for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def printable(text):
    """The text without what steers a terminal and what has no end, as names in a file may."""
    return "".join(character if character.isprintable() else "?" for character in text[:4000])


def count_of(number, thing):
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def read_text(path, what):
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise ExportError(f"cannot read the {what} {path}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ExportError(f"{what} {path}: not valid UTF-8 at byte {error.start}") from error


def check_lines(text, what, path):
    """The lines of a text with one entry per line: none empty, none twice."""
    if text.startswith("\ufeff"):
        raise ExportError(f"{what} {path}: starts with a byte order mark; remove it")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise ExportError(f"{what} {path}: is empty; expected one entry per line")
    first_line = {}
    for number, line in enumerate(lines, start=1):
        if "\r" in line:
            raise ExportError(
                f"{what} {path}: line {number} has a carriage return; lines must end with a "
                "newline alone (convert the file, for instance with dos2unix)")
        if not line:
            raise ExportError(f"{what} {path}: line {number} is empty")
        if line in first_line:
            raise ExportError(f"{what} {path}: line {number} repeats line {first_line[line]}: "
                              f"'{line}'")
        first_line[line] = number
    return lines


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def check_integer(source, key, value, low, high):
    if not is_integer(value) or not low <= value <= high:
        raise ExportError(f"{source}: {key}: expected an integer from {low} to {high}, "
                          f"found {json.dumps(value)}")
    return value


def check_boolean(source, key, value):
    if not isinstance(value, bool):
        raise ExportError(f"{source}: {key}: expected true or false, found {json.dumps(value)}")
    return value


def check_number(source, key, value, low, high):
    # NaN is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ExportError(f"{source}: {key}: expected a number from {low} to {high}, found {json.dumps(value)}")
    return float(value)


def read_integer(source, config, key, low, high):
    if key not in config:
        raise ExportError(f"{source}: key '{key}' is missing; expected an integer from {low} to {high}")
    return check_integer(source, key, config[key], low, high)


def read_boolean(source, config, key):
    if key not in config:
        raise ExportError(f"{source}: key '{key}' is missing; expected true or false")
    return check_boolean(source, key, config[key])


def refuse_flags(arguments, task, *names):
    """Refuses flags that a task has no use for."""
    for name in names:
        if getattr(arguments, name) is not None:
            raise ExportError(f"--{name.replace('_', '-')}: a model with the task \"{task}\" has none")


def shortened(value):
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def read_config(path, what="config"):
    def no_duplicates(pairs):
        result = {}
        for key, value in pairs:
            if key in result:
                raise ExportError(f"{what} {path}: key '{key}' appears twice")
            result[key] = value
        return result

    try:
        config = json.loads(read_text(path, what), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{what} {path}: is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ExportError(f"{what} {path}: expected a JSON object")
    return config
