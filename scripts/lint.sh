#!/usr/bin/env bash
# Checks the formatting and the include lines of every C++ file and the weight of rooms and pages, and runs clang-tidy, which also
# checks the thread-safety annotations.
#
#   scripts/lint.sh text                                      all but clang-tidy; needs no build
#   scripts/lint.sh BUILD [quick] [since=COMMIT] [part=K/N]   BUILD is configured; one that has compiled is fastest
#
#   quick   clang-tidy leaves out the sources of tests, which are half of its time
#   since   clang-tidy checks what changed since COMMIT by more than comment lines, and what includes that; BUILD must have compiled
#   part    clang-tidy checks one part of N
set -euo pipefail
build=${1:?usage: scripts/lint.sh BUILD|text [quick] [since=COMMIT] [part=K/N]}
shift

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh')
echo "lint: clang-format on ${#sources[@]} files"
clang-format --dry-run -Werror "${sources[@]}"
echo "lint: include lines"
"$(dirname "$0")/check_includes.py"
echo "lint: weight"
"$(dirname "$0")/weight.py" --check
[ "$build" != text ] || exit 0

# Generated headers must exist for clang to parse what includes them.
cmake --build "$build" --target sru_proto sru_interop_proto
# Picks the sources that clang-tidy checks: those that this build compiles, but no generated ones.
# Sources that are compiled together (CMAKE_UNITY_BUILD) are checked together.
python3 - "$build" "$@" <<'PYTHON'
import json, os, re, subprocess, sys
build, options = os.path.abspath(sys.argv[1]), dict(word.partition("=")[::2] for word in sys.argv[2:])
unknown = set(options) - {"quick", "since", "part"}
if unknown:
    sys.exit(f"lint: unknown: {' '.join(unknown)}; expected quick, since=COMMIT or part=K/N")
stale = {}  # object -> whether a file that it was compiled from has changed
if "since" in options:
    output_of = lambda *command: subprocess.check_output(command, text=True)
    changes = output_of("git", "diff", "--numstat", "--no-renames", r"--ignore-matching-lines=^ *//( [^N].*)?$", options["since"])
    changed = {line.split("\t")[2] for line in changes.splitlines()}
    for block in output_of("ninja", "-C", build, "-t", "deps").split("\n\n"):
        name, *files = block.split("\n")
        paths = {os.path.relpath(os.path.join(build, file.strip())) for file in files}
        stale[name.split(":")[0]] = bool(changed & paths)
units = {}
for unit in json.load(open(f"{build}/compile_commands.json")):
    name = re.search(r" -o (\S+)", unit["command"])[1]
    generated = unit["file"].startswith(build) and "/Unity/" not in unit["file"]
    skipped = re.match(r"tests/|.*_tests?\.(cc|dir/)" if "quick" in options else "tests/fuzz/", name)
    if not generated and not skipped and stale.get(name, True):
        # clang reads neither the headers that GCC has compiled nor its parameters.
        foreign = r" -include \S+/cmake_pch\.hxx| --param=\S+| -Werror\b"
        units[unit["file"]] = {**unit, "command": re.sub(foreign, "", unit["command"])}
part, parts = map(int, options.get("part", "1/1").split("/"))
chosen = [units[file] for file in sorted(units)][part - 1 :: parts]
print(f"lint: clang-tidy on {len(chosen)} units")
os.makedirs(f"{build}/lint", exist_ok=True)
json.dump(chosen, open(f"{build}/lint/compile_commands.json", "w"))
PYTHON
run-clang-tidy -p "$build/lint" -quiet -j "$(nproc)" 2>&1 |
  sed -E '/^[0-9]+ warnings? generated/d'
echo "lint: ok"
