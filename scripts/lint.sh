#!/usr/bin/env bash
# Checks the formatting of every C++ file and runs clang-tidy, which also checks the thread-safety
# annotations. Usage: scripts/lint.sh BUILD_FOLDER (configured, with generated headers).
set -euo pipefail
build=${1:?usage: scripts/lint.sh BUILD_FOLDER}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh')
echo "lint: clang-format on ${#sources[@]} files"
clang-format --dry-run -Werror "${sources[@]}"

# Generated headers must exist for clang to parse what includes them.
cmake --build "$build" --target sru_proto
# Without what this build leaves out, such as the stand-in for a CUDA toolkit that is there.
mapfile -t units < <(git ls-files --cached --others --exclude-standard '*.cc' | grep -v '^tests/fuzz/' |
  while read -r unit; do grep -qF "/$unit\"" "$build/compile_commands.json" && echo "$unit"; done)
echo "lint: clang-tidy on ${#units[@]} files"
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 2 clang-tidy -p "$build" --quiet --warnings-as-errors='*' 2> >(
  grep -v -E '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' >&2 || true)
echo "lint: ok"
