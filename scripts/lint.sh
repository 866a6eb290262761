#!/usr/bin/env bash
# Checks the formatting and the include lines of every C++ file and the weight of rooms and pages, and runs clang-tidy, which also
# checks the thread-safety annotations.
#
#   scripts/lint.sh text                                      all but clang-tidy; needs no build
#   scripts/lint.sh BUILD [quick] [since=COMMIT] [part=K/N]   BUILD is configured; one that has compiled is fastest
#
#   quick   clang-tidy leaves out the sources of tests, which are half of its time
#   since   clang-tidy checks what changed since COMMIT, and what includes that; BUILD must have compiled
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
# What this build compiles: neither what it leaves out, such as the stand-in for a CUDA toolkit that is there, nor what is
# generated. Sources that it compiles together (CMAKE_UNITY_BUILD) are checked together.
mapfile -t units < <(python3 - "$build" "$@" <<'PYTHON'
import json, os, re, subprocess, sys
build = os.path.relpath(sys.argv[1])
options = dict(argument.partition("=")[::2] for argument in sys.argv[2:])
unknown = set(options) - {"quick", "since", "part"}
if unknown:
    sys.exit(f"lint: unknown: {' '.join(unknown)}; expected quick, since=COMMIT or part=K/N")
commands = json.load(open(f"{build}/compile_commands.json"))
for command in commands:  # clang cannot read the headers that GCC has compiled
    command["command"] = re.sub(r" -include \S+/cmake_pch\.hxx", "", command["command"])
os.makedirs(f"{build}/lint", exist_ok=True)
with open(f"{build}/lint/compile_commands.json", "w") as file:
    json.dump(commands, file)

changed = None
if "since" in options:
    changed = set(subprocess.check_output(["git", "diff", "--name-only", options["since"]], text=True).split())
    included = {}  # object -> files of the project
    for line in subprocess.check_output(["ninja", "-C", build, "-t", "deps"], text=True).splitlines():
        if line.startswith(" "):
            included[output].add(os.path.relpath(os.path.join(build, line.strip())))
        elif line:
            output = line.split(":")[0]
            included[output] = set()

units = set()
for command in commands:
    path = os.path.relpath(os.path.join(command["directory"], command["file"]))
    name = path
    if path.startswith(build + "/"):
        if "/Unity/" not in path:
            continue
        name = os.path.relpath(path, build)
    if not path.endswith((".cc", ".cxx")) or name.startswith(("..", "tests/fuzz/")):
        continue
    if "quick" in options and (name.startswith("tests/") or name.endswith("_test.cc")):
        continue
    output = re.search(r" -o (\S+)", command["command"])[1]
    if changed is not None and not changed & (included.get(output, set()) | {name}):
        continue
    units.add(path)
units = sorted(units)
if "part" in options:
    part, parts = map(int, options["part"].split("/"))
    units = units[part - 1 :: parts]
print(*units, sep="\n")
PYTHON
)
echo "lint: clang-tidy on ${#units[@]} units"
printf '%s\n' "${units[@]}" |
  xargs -r -P "$(nproc)" -n 1 clang-tidy -p "$build/lint" --quiet --warnings-as-errors='*' 2> >(
    grep -v -E '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' >&2 || true)
echo "lint: ok"
