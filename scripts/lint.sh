#!/usr/bin/env bash
# Checks the formatting and the include lines of every C++ file and the names that headers define, and runs clang-tidy, which also
# checks the thread-safety annotations. Usage: scripts/lint.sh BUILD_FOLDER [quick] (configured, with generated headers).
#
# quick: clang-tidy leaves out the sources of tests, which are half of its time. A build of the sanitizers, which compiles sources
# together and leaves the CUDA device out, takes half of the rest.
set -euo pipefail
build=${1:?usage: scripts/lint.sh BUILD_FOLDER [quick]}
quick=${2:-}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh')
echo "lint: clang-format on ${#sources[@]} files"
clang-format --dry-run -Werror "${sources[@]}"
echo "lint: include lines"
"$(dirname "$0")/check_includes.py"
echo "lint: names of headers"
"$(dirname "$0")/check_names.py"

# Generated headers must exist for clang to parse what includes them.
cmake --build "$build" --target sru_proto
# What this build compiles: neither what it leaves out, such as the stand-in for a CUDA toolkit that is there, nor what is
# generated. Sources that it compiles together (CMAKE_UNITY_BUILD) are checked together.
mapfile -t units < <(python3 - "$build" "$quick" <<'PYTHON'
import json, os, re, sys
build, quick = os.path.relpath(sys.argv[1]), sys.argv[2]
commands = json.load(open(f"{build}/compile_commands.json"))
for command in commands:  # clang cannot read the headers that GCC has compiled
    command["command"] = re.sub(r" -include \S+/cmake_pch\.hxx", "", command["command"])
os.makedirs(f"{build}/lint", exist_ok=True)
with open(f"{build}/lint/compile_commands.json", "w") as file:
    json.dump(commands, file)
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
    if quick and (name.startswith("tests/") or name.endswith("_test.cc")):
        continue
    units.add(path)
print(*sorted(units), sep="\n")
PYTHON
)
echo "lint: clang-tidy on ${#units[@]} units"
printf '%s\n' "${units[@]}" |
  xargs -r -P "$(nproc)" -n 2 clang-tidy -p "$build/lint" --quiet --warnings-as-errors='*' 2> >(
    grep -v -E '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' >&2 || true)
echo "lint: ok"
