#!/usr/bin/env python3
"""Compares docs/operations.md with what the server really has.

  scripts/check_operations_doc.py build/bin/sru_server build/bin/sru_client

Every flag of `sru_server --help` must be in the tables of flags with its default, every metric that a
running server shows in the tables of metrics with its type, labels and reasons, every alert of deploy/ must have
a section; and nothing else may be there. Missing rows are printed as lines to paste. Needs only Python;
starts a server on ports that the system picks and stops it.
"""

import glob
import os
import re
import subprocess
import sys
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DOC = os.path.join("docs", "operations.md")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").replace("\\|", "\0").split("|")]


def documented_flags(text):
    """name -> defaults, from rows such as | `--poll_interval_s` | `5` | ... |; a default that
    depends on the build is `A` or `B`."""
    flags = {}
    for line in re.findall(r"(?m)^\| *`--.*$", text):
        name, default = cells(line)[:2]
        flags[name.strip("`")[2:]] = [one.strip("`") for one in default.split(" or ")]
    return flags


def real_flags(server):
    """name -> (default, help) as --help prints them."""
    text = subprocess.run([server, "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout
    flags = {}
    for match in re.finditer(r"(?m)^  --(\w+)(?:=(.*?))?  \[SRU_\w+\]\n((?:      .*\n)*)", text):
        flags[match[1]] = (match[2] or "", " ".join(match[3].split()))
    return flags


def documented_metrics(text):
    """name -> (type, labels, only with, meaning), from rows such as
    | `sru_queue_tokens` | gauge | `model` `version` | | meaning |"""
    metrics = {}
    for line in re.findall(r"(?m)^\| *`(?:sru|process)_.*$", text):
        name, kind, labels, only, meaning = cells(line)[:5]
        metrics[name.strip("`")] = (kind, set(re.findall(r"`(\w+)`", labels)), only, meaning)
    return metrics


def scrape(server, client):
    """The text of /metrics of a server that has answered calls of each kind."""
    process = subprocess.Popen(
        [server, "--model_repository=" + os.path.join(ROOT, "models", "pretrained"),
         "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        grpc_port, metrics_port = re.findall(r"127\.0\.0\.1:(\d+)", process.stdout.readline())[:2]
        for arguments in (["classify", "Who wrote Hamlet ?"], ["encode", "Who wrote Hamlet ?"],
                          ["models"], ["classify", "--model=none", "x"]):
            subprocess.run([client, arguments[0], "--address=127.0.0.1:" + grpc_port, *arguments[1:]],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        url = "http://127.0.0.1:%s/metrics" % metrics_port
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.read().decode()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def real_metrics(text):
    """name -> (type, labels, help, reasons)"""
    metrics = {}
    for name, kind in re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text):
        suffix = "(?:_bucket|_sum|_count)?" if kind == "histogram" else ""
        labels, reasons = set(), set()
        for line in re.findall(r"(?m)^%s%s\{(.*)\} \S+$" % (name, suffix), text):
            labels.update(re.findall(r'(\w+)="', line))
            reasons.update(re.findall(r'\breason="(\w+)"', line))
        help_text = re.search(r"(?m)^# HELP %s (.*)$" % name, text)
        metrics[name] = (kind, labels - {"le"}, help_text[1] if help_text else "", reasons)
    return metrics


def rule_alerts():
    """Names of the alerts that deploy/ has rules for."""
    names = set()
    for path in glob.glob(os.path.join(ROOT, "deploy", "**", "*.y*ml"), recursive=True):
        with open(path) as file:
            names.update(re.findall(r"(?m)^\s*-?\s*alert:\s*(\w+)", file.read()))
    return names


def documented_alerts(text):
    section = re.search(r"(?ms)^## Alerts$(.*?)^## ", text)
    return set(re.findall(r"(?m)^### (\w+)$", section[1])) if section else set()


def label_cell(labels):
    return " ".join("`%s`" % label for label in sorted(labels))


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    server, client = (os.path.abspath(path) for path in sys.argv[1:3])
    with open(sys.argv[3] if len(sys.argv) == 4 else os.path.join(ROOT, DOC)) as file:
        text = file.read()
    problems = []

    flags, in_doc = real_flags(server), documented_flags(text)
    if not flags:
        problems.append("found no flag in `%s --help`; has its form changed?" % server)
    for name, (default, help_text) in flags.items():
        if name not in in_doc:
            problems.append("the flag --%s is missing; add\n    | `--%s` | %s | %s |" % (
                name, name, "`%s`" % default if default else "", help_text.replace("|", "\\|")))
        elif default not in in_doc[name]:
            problems.append("--%s: the default is '%s', the table says '%s'" % (
                name, default, " or ".join(in_doc[name])))
    for name in sorted(set(in_doc) - set(flags)):
        problems.append("the server has no flag --%s; remove its row" % name)

    metrics, in_doc = real_metrics(scrape(server, client)), documented_metrics(text)
    if not metrics:
        problems.append("found no metric on a running server")
    for name, (kind, labels, help_text, reasons) in metrics.items():
        if name not in in_doc:
            problems.append("the metric %s is missing; add\n    | `%s` | %s | %s | | %s |" % (
                name, name, kind, label_cell(labels), help_text.replace("|", "\\|")))
            continue
        if in_doc[name][0] != kind:
            problems.append("%s is a %s, the table says '%s'" % (name, kind, in_doc[name][0]))
        if in_doc[name][1] != labels:
            problems.append("%s has the labels %s, the table says %s" % (
                name, label_cell(labels) or "none", label_cell(in_doc[name][1]) or "none"))
        for reason in sorted(reasons):
            if "`%s`" % reason not in in_doc[name][3]:
                problems.append("%s: its row does not say what the reason `%s` means" % (name, reason))
    for name, (_, _, only, _) in sorted(in_doc.items()):
        if name not in metrics and not only:
            problems.append("a running server has no metric %s; remove its row, or say in its column "
                            "'only with' when it is there" % name)

    alerts, in_doc = rule_alerts(), documented_alerts(text)
    if not in_doc:
        problems.append("found no alert under '## Alerts'")
    for name in sorted(alerts - in_doc):
        problems.append("the alert %s has no section '### %s' under '## Alerts'" % (name, name))
    for name in sorted(in_doc - alerts) if alerts else []:
        problems.append("deploy/ has no rule for the alert %s; remove its section" % name)

    for problem in problems:
        print("%s: %s" % (DOC, problem))
    if not problems:
        print("%s: %d flags, %d metrics and %d alerts agree with the server" % (
            DOC, len(flags), len(metrics), len(in_doc)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
