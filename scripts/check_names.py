#!/usr/bin/env python3
"""Checks that no two headers of the project define the same name at the same namespace scope.

  scripts/check_names.py [FOLDER]

FOLDER is the project (by default the one that this script is in). Prints `file:line: what` for each second
definition and exits with 1 then. Part of `make lint`.

Two definitions that differ violate the one-definition rule as soon as one program includes both. No compiler says
so unless one source includes both, and the linker takes either.

A definition is a class, an enum, an alias, a variable or a function with a body. Functions that differ in a
parameter are overloads. Declarations, `extern`, specialisations and what a nameless namespace holds define nothing
that another header could see.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_includes  # noqa: E402

TOKEN = re.compile(r"""
    (?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\\\n]|\\.)* )
  | (?P<text>    (?:u8|[uUL])?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)" | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
  | \d(?:[\w.]|'\w)* | \w+ | :: | \[\[ | \]\] | .""", re.VERBOSE | re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[^\W\d]\w*\Z")
BUILT_IN = ("bool", "char", "const", "double", "float", "int", "long", "short", "signed", "unsigned")
CLOSING = {"(": ")", "[": "]", "[[": "]]", "{": "}", "<": ">"}
# Headers that a program includes instead of others.
STAND_INS = {"tests/kernels/cuda_host/launch_shim.h": "kernels/cuda/kernels/shared_memory.cuh"}


def tokens(text):
    """(token, line) of a header, without comments and preprocessor lines. Texts become empty ones."""
    line, found = 1, []
    for match in TOKEN.finditer(text):
        if not match["skipped"]:
            found.append(('""' if match["text"] else match[0], line))
        line += match[0].count("\n")
    return found


def past(parts, at):
    """The position behind the group that opens at `at`."""
    depth = 0
    for i, part in enumerate(parts[at:], at + 1):
        depth += (part == parts[at]) - (part == CLOSING[parts[at]])
        if depth == 0:
            return i
    return len(parts)


def without_template(parts):
    """(the parameter lists, the declaration that follows them)."""
    lists = []
    while parts[:1] == ["template"] and parts[1:2] == ["<"]:
        end = past(parts, 1)
        lists += parts[1:end]
        parts = parts[end:]
    return lists, parts


def parameters(parts):
    """The types in a list of parameters, given with its parentheses: without names and defaults."""
    types, one, i = [], [], 1
    while i < len(parts):
        end = past(parts, i) if parts[i] in ("(", "[", "<") else i + 1
        if i == len(parts) - 1 or parts[i] == ",":
            one = one[:one.index("=")] if "=" in one else one
            named = (len(one) > 1 and WORD.match(one[-1]) and one[-1] not in BUILT_IN and
                     one[-2] not in ("::", "const", "enum", "struct", "typename"))
            types.append(" ".join(one[:-1] if named else one))
            one = []
        else:
            one += parts[i:end]
        i = end
    return ", ".join(types)


def defined(parts):
    """What a declaration defines: a name, for a function with its parameters; None where it defines nothing.
    A body is one token, `{}`."""
    lists, parts = without_template(parts)
    while parts and parts[0] == "[[":
        parts = parts[past(parts, 0):]
    if not parts or lists == ["<", ">"] or parts[0] in ("namespace", "static_assert", "template"):
        return None
    if parts[0] == "using":
        return parts[1] if parts[2:3] == ["="] else None
    if parts[0] == "typedef":
        return next((part for part in reversed(parts) if WORD.match(part)), None)

    # The name is the last word ahead of `=`, a body, `[`, or a list of parameters.
    keyword = parts[0] in ("class", "struct", "union", "enum")
    name, qualified, i = "", False, 0
    while i < len(parts):
        part = parts[i]
        if part == "operator":
            end = i + 3 if parts[i + 1:i + 3] == ["(", ")"] else parts.index("(", i)
            name, i = "".join(parts[i:end]), end
            continue
        if part == "<":
            if keyword and not qualified:
                return None  # a specialisation
            i = past(parts, i)
            continue
        if part == "(":
            end = past(parts, i)
            if keyword or name.startswith("__"):  # the argument of an attribute
                i = end
                continue
            if "{}" not in parts[end:] or "=" in parts[end:end + 1]:
                return None  # declares a function, or calls a macro
            return "%s(%s)%s" % (name, parameters(parts[i:end]), " ".join(lists))
        if part in ("=", "[", "{}") or (part == ":" and keyword):
            break
        if WORD.match(part) and part != "final":
            qualified = i > 0 and parts[i - 1] == "::"
            name = part
        i += 1
    if keyword and "{}" not in parts:
        return None  # declares a class or an enum
    return None if parts[0] == "extern" and "=" not in parts or name == parts[0] else name


def is_function(parts):
    """Whether a body ends the declaration: it has parameters, with no `=` ahead of them."""
    parts = without_template(parts)[1]
    if "(" not in parts or parts.count("(") != parts.count(")") or parts[0] in ("class", "struct", "union"):
        return False
    ahead = parts[:parts.index("(")]
    return "=" not in ahead or "operator" in ahead


def definitions(text):
    """(namespace, name, line) of all that a header defines at namespace scope."""
    found, scopes, parts = [], [], []
    stream = tokens(text)
    plain = [token for token, _ in stream]
    i = start = 0
    while i < len(plain):
        token = plain[i]
        if not parts:
            start = stream[i][1]
        if token == "{":
            head = [part for part in parts if part != "inline"]
            if head[:1] == ["namespace"] and len(head) > 1 or head == ["extern", '""']:
                scopes.append("".join(head[1:]) if head[0] == "namespace" else "")
                parts, i = [], i + 1
                continue
            end = past(plain, i)
            parts, i = parts + ["{}"], end
            following = plain[i] if i < len(plain) else ";"
            if head == ["namespace"]:
                parts = []
            elif is_function(parts) and following not in (",", "{"):  # which follow `: member_{1}`
                found.append(("::".join(filter(None, scopes)), defined(parts), start))
                parts = []
            continue
        if token == "}" and scopes:
            scopes.pop()
            parts = []
        elif token == ";":
            found.append(("::".join(filter(None, scopes)), defined(parts), start))
            parts = []
        else:
            parts.append(token)
        i += 1
    return [entry for entry in found if entry[1]]


def check(root):
    """All second definitions, as lines to print."""
    first, problems = {}, []
    for path in check_includes.sources(root):
        if not path.endswith((".h", ".cuh")):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for namespace, name, line in definitions(text):
            other, other_line = first.setdefault((namespace, name), (path, line))
            if path != other != STAND_INS.get(path):
                problems.append("%s:%d: %s::%s is also defined at %s:%d" %
                                (path, line, namespace, name, other, other_line))
    return problems


if __name__ == "__main__":
    sys.exit(check_includes.main(check, __doc__))
