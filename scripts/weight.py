#!/usr/bin/env python3
"""Prints how heavy the project is, and holds it to its budgets.

  scripts/weight.py            lines of product and of tests by room and by language, words by page; where there is a folder build/,
                               how many files its targets compile, and how many seconds it took
  scripts/weight.py --check    prints only what is over its budget, and exits with 1 then; part of `make lint`

A line is a line of a tracked source file, blank or not. A test is a file named *_test.*, or in a folder tests/ or testing/;
all else is product. A room is a row of the table in scripts/check_includes.py, whose last column has its two budgets, product
and tests; a file belongs to the row of the nearest folder above it. PAGES below has the budgets in words. Who needs more changes the
table in the same commit and says why in its message.
"""
import collections
import fnmatch
import os
import re
import subprocess
import sys

import check_includes

LANGUAGES = {
    "C++": (".h", ".cc"), "CUDA": (".cu", ".cuh"), "Python": (".py",), "shell": (".sh", ".ci/run", ".ci/full"),
    "JavaScript": (".js",), "proto": (".proto",), "CMake": ("CMakeLists.txt", ".cmake"),
}
# Made by a program from sources that are counted already.
GENERATED = ("*_pb2.py", "*_pb2_grpc.py")

# page or pages -> words, together; ALL is the budget of README.md, CONTRIBUTING.md, ARCHITECTURE.md and docs/
ALL = 36000
PAGES = {
    "README.md": 1200,
    "docs/README.md": 300,
    "CHANGELOG.md": 500,
    "SECURITY.md": 250,
    "docs/production.md": 900,
    "docs/rest.md": 2030,
    "docs/open_inference.md": 1350,
    "docs/bulk.md": 800,
    "docs/clients.md": 800,
    "docs/translation.md": 900,
    "docs/firefox.md": 700,
    "client/README.md client/python/README.md": 1150,
    "docs/operations.md": 6020,
    "docs/security.md": 3000,
    "docs/reliability.md": 1600,
    "deploy/README.md": 1300,
    "models/FORMAT.md": 4700,
    "ARCHITECTURE.md": 4000,
    "CONTRIBUTING.md": 2500,
    "docs/figures.md": 1500,
}
DECISION = 350  # each page of docs/decisions


def tracked(root):
    """Paths of the project's files, relative to the root: those that git tracks or would track; not links."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"],
                            stdout=subprocess.PIPE, text=True, check=True)
    return sorted({path for path in listed.stdout.splitlines()
                   if os.path.isfile(os.path.join(root, path)) and not os.path.islink(os.path.join(root, path))})


def language_of(path):
    """The name in LANGUAGES; None for a file that is no source."""
    if any(fnmatch.fnmatch(path, pattern) for pattern in GENERATED):
        return None
    return next((name for name, ends in LANGUAGES.items() if path.endswith(ends)), None)


def is_test(path):
    return bool(re.search(r"_test\.\w+$|(^|/)(tests|testing)/", path))


def room_of(path, rooms):
    """The row of a file: its own, that of the nearest folder above it, or of all folders beside that one ("tasks/*")."""
    if path in rooms:
        return path
    folder = os.path.dirname(path)
    while folder:
        siblings = os.path.dirname(folder) + "/*"
        if folder in rooms or siblings in rooms:
            return folder if folder in rooms else siblings
        folder = os.path.dirname(folder)
    return "."


def text_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def lines_by_room(root, rooms):
    """({room: [product, tests]}, {language: [product, tests]})"""
    by_room = collections.defaultdict(lambda: [0, 0])
    by_language = collections.defaultdict(lambda: [0, 0])
    for path in tracked(root):
        language = language_of(path)
        if language is not None:
            lines = text_of(root, path).count("\n")
            by_room[room_of(path, rooms)][is_test(path)] += lines
            by_language[language][is_test(path)] += lines
    return by_room, by_language


def words_by_page(root):
    """{page or pages of PAGES, or another page of docs/: words}, as `wc -w` counts them."""
    words = {pages: sum(len(text_of(root, page).split()) for page in pages.split()
                        if os.path.exists(os.path.join(root, page))) for pages in PAGES}
    named = {page for pages in PAGES for page in pages.split()}
    for path in tracked(root):
        if path.startswith("docs/") and path.endswith(".md") and path not in named:
            words[path] = len(text_of(root, path).split())
    return words


def compiled_by_target(log):
    """{target: [files, seconds]} from the text of a .ninja_log. The seconds are those of a clock, also while others compile."""
    took = {}
    for line in log.splitlines():
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.split("\t")
        # The commands for one output have its path twice where it is absolute.
        if output.endswith((".o", ".gch")) and not output.startswith("/"):
            took[output] = (int(end) - int(start)) / 1000
    by_target = collections.defaultdict(lambda: [0, 0])
    for output, seconds in took.items():
        named = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
        target = by_target[named.group(1) if named else os.path.dirname(output)]
        target[0] += 1
        target[1] += seconds
    return by_target


def budget_of_page(page):
    """Words; None where a page has no row, which is over any budget."""
    return DECISION if page.startswith("docs/decisions/") else PAGES.get(page)


def of_all(words):
    """The words of what ALL counts."""
    return sum(count for page, count in words.items() if page.split()[0].startswith(
        ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/")))


def excess(by_room, words, budgets):
    """A line for each budget that is exceeded."""
    problems = []
    for room, lines in sorted(by_room.items()):
        for count, budget, kind in zip(lines, budgets.get(room, (0, 0)), ("product", "tests")):
            if count > budget:
                problems.append(f"weight: {room} has {count:,} lines of {kind}, {count - budget:,} more than its "
                                f"budget of {budget:,} (scripts/check_includes.py)")
    for page, count in words.items():
        budget = budget_of_page(page)
        if budget is None:
            problems.append(f"weight: {page} has no budget of words (PAGES in scripts/weight.py)")
        elif count > budget:
            problems.append(f"weight: {page} has {count:,} words, {count - budget:,} more than its budget of {budget:,} "
                            "(scripts/weight.py)")
    if of_all(words) > ALL:
        problems.append(f"weight: README.md, CONTRIBUTING.md, ARCHITECTURE.md and docs/ have {of_all(words):,} words, "
                        f"{of_all(words) - ALL:,} more than their budget of {ALL:,} (scripts/weight.py)")
    return problems


def print_all(by_room, by_language, words, budgets):
    print(f"{'room':40}{'product':>10}{'budget':>10}{'tests':>10}{'budget':>10}")
    for room, (product, tests) in sorted(by_room.items()):
        most = budgets.get(room, (0, 0))
        print(f"{room:40}{product:>10,}{most[0]:>10,}{tests:>10,}{most[1]:>10,}")
    print(f"\n{'language':40}{'product':>10}{'':10}{'tests':>10}")
    for language in LANGUAGES:
        print(f"{language:40}{by_language[language][0]:>10,}{'':10}{by_language[language][1]:>10,}")
    print(f"{'all':40}{sum(p for p, _ in by_room.values()):>10,}{'':10}{sum(t for _, t in by_room.values()):>10,}")
    print(f"\n{'page':60}{'words':>10}{'budget':>10}")
    for page, count in words.items():
        print(f"{page:60}{count:>10,}{budget_of_page(page) or 0:>10,}")
    print(f"{'README.md, CONTRIBUTING.md, ARCHITECTURE.md and docs/':60}{of_all(words):>10,}{ALL:>10,}")


def print_compiled(by_target, most=25):
    """The targets that take longest, and the sum of all."""
    print(f"\n{'target':40}{'files':>10}{'seconds':>10}")
    for target, (files, seconds) in sorted(by_target.items(), key=lambda item: -item[1][1])[:most]:
        print(f"{target:40}{files:>10,}{seconds:>10,.0f}")
    print(f"{'all':40}{sum(f for f, _ in by_target.values()):>10,}{sum(s for _, s in by_target.values()):>10,.0f}")


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    budgets = check_includes.read_budgets(check_includes.TABLE)
    by_room, by_language = lines_by_room(root, budgets)
    words = words_by_page(root)
    problems = excess(by_room, words, budgets)
    if not sys.argv[1:]:
        print_all(by_room, by_language, words, budgets)
        if os.path.exists(os.path.join(root, "build/.ninja_log")):
            print_compiled(compiled_by_target(text_of(root, "build/.ninja_log")))
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
