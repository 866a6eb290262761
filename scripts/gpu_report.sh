#!/bin/sh
# Finds out everything that we want to know about a GPU machine, in one command and at most 8 minutes; --help says how.
set -eu
cd "$(dirname "$0")/.."
if ! command -v python3 >/dev/null; then
  echo "gpu_report: needs python3" >&2
  exit 1
fi
exec python3 -B scripts/gpu_report.py "$@"
