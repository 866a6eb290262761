#!/usr/bin/env bash
# Checks the formatting and the include lines of every C++ file and runs clang-tidy, which also checks the thread-safety
# annotations. Usage: scripts/lint.sh BUILD_FOLDER [quick] (configured, with generated headers).
#
# quick: clang-tidy leaves out the sources of tests, which are half of its time. GCC's warnings are errors there as well.
set -euo pipefail
build=${1:?usage: scripts/lint.sh BUILD_FOLDER [quick]}
quick=${2:-}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh')
echo "lint: clang-format on ${#sources[@]} files"
clang-format --dry-run -Werror "${sources[@]}"
echo "lint: include lines"
"$(dirname "$0")/check_includes.py"

# Generated headers must exist for clang to parse what includes them.
cmake --build "$build" --target sru_proto
# Without what this build leaves out, such as the stand-in for a CUDA toolkit that is there.
mapfile -t units < <(git ls-files --cached --others --exclude-standard '*.cc' | grep -v '^tests/fuzz/' |
  while read -r unit; do grep -qF "/$unit\"" "$build/compile_commands.json" && echo "$unit"; done)
if [ "$quick" = quick ]; then
  mapfile -t units < <(printf '%s\n' "${units[@]}" | grep -vE '^tests/|_test\.cc$')
fi
echo "lint: clang-tidy on ${#units[@]} files"
printf '%s\n' "${units[@]}" |
  xargs -r -P "$(nproc)" -n 2 clang-tidy -p "$build" --quiet --warnings-as-errors='*' 2> >(
    grep -v -E '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' >&2 || true)
echo "lint: ok"
