#!/usr/bin/env bash
# Checks the formatting and the include lines of every C++ file and runs clang-tidy, which also checks the thread-safety
# annotations. Usage: scripts/lint.sh BUILD_FOLDER [quick] (configured, with generated headers).
#
# quick: in the sources of tests clang-tidy leaves out the slow checks below, which are most of its time. They still
# get the cheap ones, clang's warnings and the thread-safety analysis; everything else gets every check.
set -euo pipefail
build=${1:?usage: scripts/lint.sh BUILD_FOLDER [quick]}
quick=${2:-}

# By clang-tidy --enable-check-profile.
slow_checks=(bugprone-assert-side-effect bugprone-dangling-handle bugprone-infinite-loop
  bugprone-misplaced-widening-cast bugprone-sizeof-expression bugprone-suspicious-semicolon
  bugprone-unused-raii bugprone-unused-return-value bugprone-use-after-move google-build-explicit-make-pair
  google-global-names-in-headers misc-definitions-in-headers misc-misplaced-const misc-redundant-expression
  misc-unconventional-assign-operator modernize-redundant-void-arg modernize-use-bool-literals
  modernize-use-nullptr performance-move-const-arg performance-unnecessary-copy-initialization
  readability-container-size-empty readability-redundant-control-flow)

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
# tidy OPTIONS... < list of files
tidy() {
  xargs -r -P "$(nproc)" -n 2 clang-tidy -p "$build" --quiet --warnings-as-errors='*' "$@" 2> >(
    grep -v -E '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' >&2 || true)
}
is_test='^tests/|_test\.cc$'
if [ "$quick" = quick ]; then
  mapfile -t tests < <(printf '%s\n' "${units[@]}" | grep -E "$is_test")
  mapfile -t units < <(printf '%s\n' "${units[@]}" | grep -vE "$is_test")
  echo "lint: clang-tidy on ${#tests[@]} files of tests, without the slow checks (make lint has them): ${slow_checks[*]}"
  printf '%s\n' "${tests[@]}" | tidy "--checks=$(printf -- '-%s,' "${slow_checks[@]}")"
fi
echo "lint: clang-tidy on ${#units[@]} files"
printf '%s\n' "${units[@]}" | tidy
echo "lint: ok"
