#!/usr/bin/env python3
"""Makes the tables of flags and metrics in docs/operations.md, or compares them with the server.

  scripts/check_operations_doc.py [--write] build/bin/sru_server build/bin/sru_client

The tables stand between markers. That of flags is what `sru_server --help=all` prints, that of metrics what /metrics of a
running server says of itself; --write puts both into the page, without it a difference is an error.
Needs only Python; starts a server on ports that the system picks and stops it.
"""

import difflib
import os
import re
import sys
import urllib.request

from report_common import PRETRAINED, ROOT, Process, output_of, run

DOC = os.path.join("docs", "operations.md")
# Metrics that this server does not show for want of a GPU, a certificate or a translator: type and labels.
NOT_SHOWN = {
    "sru_device_lost_total": ("counter", ["device"]),
    "sru_gpu_batches_total": ("counter", ["device", "graph"]),
    "sru_gpu_memory_bytes": ("gauge", ["device", "kind"]),
    "sru_spans_dropped_total": ("counter", ["reason"]),
    "sru_spans_exported_total": ("counter", []),
    "sru_tls_certificate_expiry_seconds": ("gauge", []),
    "sru_translate_sentences": ("gauge", ["model", "state", "version"]),
}


def markdown(text):
    """A text of the program as a cell: flags, metrics and paths as code, pages as links."""
    text = re.sub(r"<|>|\|", lambda match: "\\" + match[0], text)
    text = re.sub(r"(?<![^\s(])((?:--|sru_)\w+(?:=\w+)?|/[a-z]+(?=[ ,.)]))", r"`\1`", text)
    return re.sub(r"docs/((\w+\.md)(?:#[\w-]+)?)", r"[\2](\1)", text)


def flag_tables(server):
    """--help=all as a table for each of its headings."""
    text = output_of([server, "--help=all"])
    lines = []
    entry = r"(?m)^(\S.*):\n(?=  --)|^  --(\w+)  +(\S.*\n(?:        .*\n)*)"
    for heading, name, help_text in re.findall(entry, text):
        if heading:
            lines += ["", "### " + heading, "", "|flag|default|meaning|", "|---|---|---|"]
        else:
            meaning, _, default = " ".join(help_text.split()).partition(" (default ")
            cells = ["`--%s`" % name, "`%s`" % default[:-1] if default else "", markdown(meaning)]
            lines.append("|%s|" % "|".join(cells))
    return lines


def scrape(server, client):
    """The text of /metrics of a server that has answered calls of each kind."""
    with Process([server, f"--model_repository={PRETRAINED}", "--prefix_cache_mb=16", "--listen=127.0.0.1:0",
                  "--metrics_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0"]) as process:
        for command, *arguments in (["classify", "Who wrote Hamlet ?"], ["encode", "Who wrote Hamlet ?"], ["models"],
                                    ["generate", "--max_new_tokens=2", "Natasha"], ["classify", "--model=none", "x"]):
            run([client, command, "--address=" + process.address, *arguments])
        with urllib.request.urlopen(f"http://{process.metrics_address}/metrics", timeout=30) as response:
            return response.read().decode()


def helps_in_sources():
    """name -> help, of every metric that the sources name beside its help."""
    found = {}
    for path in (ROOT / "server").glob("**/*.cc"):
        text = re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8"))
        found.update(re.findall(r'"(sru_\w+)"\W+(?:k\w+,\s*|Help\()"([^"]*)"', text))
    return found


def metric_rows(text):
    """name -> its row, of the text of /metrics."""
    rows = {}
    for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text):
        suffix = "(?:_bucket|_sum|_count)?" if kind == "histogram" else ""
        series = [dict(re.findall(r'(\w+)="([^"]*)"', labels))
                  for labels in re.findall(r"(?m)^%s%s\{(.*)\} \S+$" % (name, suffix), text)]
        labels = sorted({label for one in series for label in one} - {"le"})
        meaning = re.search(r"(?m)^# HELP %s (.*)$" % name, text)[1]
        reasons = sorted({one["reason"] for one in series if "reason" in one})
        if not all(re.search(r"\b%s\b" % reason, meaning) for reason in reasons):
            meaning += " Reasons: %s." % ", ".join(reasons)
        rows[name] = metric_row(name, kind, labels, meaning)
    return rows


def metric_row(name, kind, labels, meaning):
    return "|`%s`|%s|%s|%s|" % (name, kind, ", ".join(labels), markdown(meaning))


def metric_table(server, client):
    rows = metric_rows(scrape(server, client))
    helps = helps_in_sources()
    for name, (kind, labels) in NOT_SHOWN.items():
        rows.setdefault(name, metric_row(name, kind, labels, helps[name]))
    return ["", "|metric|type|labels|meaning|", "|---|---|---|---|", *(rows[name] for name in sorted(rows))]


def with_table(page, name, lines):
    """The page with the lines between the markers of that name."""
    first, last = "<!-- %s -->\n" % name, "<!-- end of %s -->" % name
    before, _, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not end:
        sys.exit("%s: expected the lines '%s' and '%s'" % (DOC, first.strip(), last))
    return before + first + "\n".join(lines).lstrip("\n") + "\n" + end + after


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    server, client = (os.path.abspath(path) for path in arguments)
    page = (ROOT / DOC).read_text(encoding="utf-8")
    made = with_table(page, "flags", flag_tables(server))
    made = with_table(made, "metrics", metric_table(server, client))
    if "--write" in sys.argv:
        (ROOT / DOC).write_text(made, encoding="utf-8")
    elif made != page:
        lines = page.splitlines(), made.splitlines()
        print(*difflib.unified_diff(*lines, DOC, "the server", lineterm="", n=0), sep="\n")
        print("%s: the tables differ from the server: run with --write" % DOC)
        return 1
    print("%s: the tables are those of the server" % DOC)
    return 0


if __name__ == "__main__":
    sys.exit(main())
