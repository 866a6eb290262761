#!/usr/bin/env bash
# Runs a program of tests with the part of ICU's data that images have (deploy/trim_icu.sh).
# Usage: scripts/trimmed_icu_test.sh PROGRAM [ARGUMENT...]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
library=$(ldd "$1" | awk '$1 ~ /^libicudata/ {print $3}')
cp --dereference "$library" "$work"
"$(dirname "$0")/../deploy/trim_icu.sh" "$work/$(basename "$library")"
LD_LIBRARY_PATH=$work "$@"
