#!/bin/sh
# Finds out everything that we want to know about a GPU machine, in one command and at most 8 minutes: builds kernels/ and
# the checks, runs them with and without compute-sanitizer, then runs the benchmarks, and writes OUT/gpu.md and OUT/gpu.json.
# Needs the CUDA toolkit, CMake, python3 and, for the comparison, PyTorch; no network.
#
#   scripts/gpu_report.sh [--out DIR] [--prefix DIR] [--minutes 8] [--build DIR]
#
# --prefix names an installation, or a tar archive of one (make gpu_prefix), whose server is then also run on the
# GPU. OUT is $OUT or gpu-report. Exits with 77 if there is no GPU, with 1 if a step failed.
set -eu
cd "$(dirname "$0")/.."
if ! command -v python3 >/dev/null; then
  echo "gpu_report: needs python3" >&2
  exit 1
fi
exec python3 -B scripts/gpu_report.py "$@"
