#!/usr/bin/env python3
"""Compares tests/README.md and docs/ with the tests, files, flags and metrics that there are.

  tests/pages_test.py build

Of each line of tests/README.md under "How it is tested": the files must exist, the command must be a script of this project or
select tests of the build, and it must run every test that the line names: tests of CTest, cases of GoogleTest (Suite.Case) and
methods of Python's unittest (test_...). Of each line of docs/reliability.md under "At each limit": docs/operations.md must have
the flags and metrics. Each line of docs/clients.md must name tests of CTest and the version that requirements.txt installs, and every
test of tests/clients and tests/bulk must be in a line. Links of the pages for those who run servers, and from alerts to pages, must
lead to files, and into headings. Needs only Python and ctest.
"""

import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTS = os.path.join("tests", "README.md")
PROMISES = os.path.join("docs", "reliability.md")
CLIENTS = "docs/clients.md"
LINKED = (TESTS, PROMISES, CLIENTS, "docs/bulk.md", "docs/operations.md", "docs/security.md", "deploy/README.md", "models/FORMAT.md")
ALERTS = "deploy/prometheus/alerts.yaml"


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def section(text, heading):
    found = re.search(r"(?ms)^## %s$(.*?)(?=^## |\Z)" % re.escape(heading), text)
    return found[1] if found else ""


def rows(text):
    """The cells of each line of the tables in the text, without the heads."""
    found = []
    for line in re.findall(r"(?m)^\|.*\|$", text):
        cells = [cell.strip() for cell in line.strip("|").replace("\\|", "\0").split("|")]
        found.append([cell.replace("\0", "|") for cell in cells])
    heads = [i for i, cells in enumerate(found) if set("".join(cells)) <= set("-")]
    return [cells for i, cells in enumerate(found) if i not in heads and i + 1 not in heads]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def built_tests(build):
    """name -> the programs and scripts that CTest runs for it, without folders and endings."""
    listing = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True, text=True
    )
    return {
        test["name"]: {
            os.path.splitext(os.path.basename(part.removeprefix("--entry=")))[0] for part in test.get("command", [])
        }
        for test in json.loads(listing.stdout)["tests"]
    }


def sources():
    """Case -> the stems of the files of tests that have it."""
    cases = {}
    for folder in ("base", "bench", "client", "kernels", "models", "proto", "scripts", "server", "tests"):
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*_test.*"), recursive=True):
            if not path.endswith((".cc", ".py")):
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
            found = re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text)
            names = [".".join(case) for case in found] + re.findall(r"(?m)^ +def (test_\w+)\(self\)", text)
            for name in names:
                cases.setdefault(name, set()).add(os.path.splitext(os.path.basename(path))[0])
    return cases


def check_command(command, tests):
    """The tests that it selects, and what is wrong with it."""
    ctest = re.fullmatch(r"ctest -R '(.*)'", command)
    if ctest:
        selected = {name for name in tests if re.search(ctest[1], name)}
        return selected, [] if selected else ["`%s` selects no test" % command]
    if os.path.isfile(os.path.join(ROOT, command.split()[0])):
        return set(), []
    return set(), ["`%s` is neither `ctest -R '...'` nor a file of this project" % command]


def check_tests(text, tests):
    problems = []
    cases = sources()
    lines = rows(section(text, "How it is tested"))
    if not lines:
        problems.append("found no line under 'How it is tested'")
    for cells in lines:
        if len(cells) != 4 or not all(quoted(cell) for cell in cells[1:]):
            problems.append("expected promise, files, tests and a command, found: %s" % " | ".join(cells))
            continue
        files, names, command = quoted(cells[1]), quoted(cells[2]), quoted(cells[3])[0]
        problems += ["%s: there is no file %s" % (cells[0], file) for file in files
                     if not os.path.isfile(os.path.join(ROOT, file))]  # fmt: skip
        selected, wrong = check_command(command, tests)
        problems += ["%s: %s" % (cells[0], what) for what in wrong]
        programs = set().union(*(tests[name] for name in selected)) if selected else set()
        unbuilt = sorted(name for name in selected if not tests[name])
        if unbuilt:
            problems.append("%s: not built: %s" % (cells[0], ", ".join(unbuilt)))
            continue
        for name in names:
            if name in cases:
                if not cases[name] & programs:
                    problems.append("%s: %s is in %s, which `%s` does not run" % (
                        cells[0], name, ", ".join(sorted(cases[name])), command))
            elif name not in tests and not os.path.exists(os.path.join(ROOT, name)):
                problems.append("%s: there is no test %s" % (cells[0], name))
            elif name in tests and name not in selected:
                problems.append("%s: `%s` does not run %s" % (cells[0], command, name))
    return len(lines), problems


def check_limits(text):
    known = set(re.findall(r"(?m)^\| *`((?:--|sru_)\w+)`", read("docs/operations.md")))
    lines = rows(section(text, "At each limit"))
    problems = [] if lines else ["found no line under 'At each limit'"]
    for cells in lines:
        for name in quoted(" ".join(cells)):
            if name.startswith(("--", "sru_")) and name not in known:
                problems.append("%s: docs/operations.md has no %s" % (cells[0], name))
    return len(lines), problems


def installed_versions():
    """Package -> the versions that tests install of it."""
    versions = {}
    for path in glob.glob(os.path.join(ROOT, "tests", "*", "*requirements.txt")):
        for package, version in re.findall(r"(?m)^([\w-]+)(?:\[.*\])?==([\w.]+)", read(path)):
            versions.setdefault(package, set()).add(version)
    return versions


def check_clients(text, tests, versions):
    problems, named = [], set()
    lines = rows(section(text, "Clients"))
    for cells in lines:
        if len(cells) != 5 or not quoted(cells[4]):
            problems.append("expected client, version, what works, what does not and tests, found: %s" % " | ".join(cells))
            continue
        named.update(quoted(cells[4]))
        problems += ["%s: there is no test %s" % (cells[0], name) for name in quoted(cells[4]) if name not in tests]
        for package in quoted(cells[0]):
            if cells[1] not in versions.get(package, {cells[1]}):
                problems.append("%s: version %s, but tests install %s" % (package, cells[1], ", ".join(versions[package])))
    clients = {name.removesuffix("_library") for name in tests if name.startswith(("clients_", "bulk_"))}
    problems += ["%s has no line of %s" % (CLIENTS, name) for name in sorted(clients - named)]
    return len(lines), problems


def anchors(page):
    headings = re.findall(r"(?m)^#+ (.*)$", read(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(page):
    """The links of a page, or the runbooks of the alerts in a file of YAML."""
    problems = []
    form, folder = r"\]\((?!https?:)([^)]+)\)", os.path.dirname(page)
    if not page.endswith(".md"):
        form, folder = r"runbook: *[\"']?([\w./#-]+)", ""
    for link in re.findall(form, read(page)):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(folder, path)) if path else page
        if not os.path.exists(os.path.join(ROOT, target)):
            problems.append("%s: the link %s leads nowhere" % (page, link))
        elif anchor and anchor not in anchors(target):
            problems.append("%s: the link %s leads to no heading" % (page, link))
    return problems


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tests = built_tests(sys.argv[1])
    promises, problems = check_tests(read(TESTS), tests)
    limits, more = check_limits(read(PROMISES))
    clients, wrong = check_clients(read(CLIENTS), tests, installed_versions())
    problems += more + wrong
    for page in (*LINKED, ALERTS):
        problems += check_links(page)
    for problem in problems:
        print(problem)
    if not problems:
        print("the tests of %d promises and %d clients and the names of %d limits are there, and the links lead somewhere"
              % (promises, clients, limits))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
