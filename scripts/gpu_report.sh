#!/bin/sh
# Finds out everything that we want to know about a GPU machine, in one command and at most 8 minutes: builds kernels/ and
# the checks, runs them with and without compute-sanitizer, then runs the benchmarks, and writes OUT/gpu.md, OUT/gpu.json
# and OUT/gpu.log, all after every step. Needs python3, and --prefix or the CUDA toolkit (12.0 or newer) with g++ and CMake (3.25 or
# newer); no network. For the comparison PyTorch is used if it is there.
#
#   scripts/gpu_report.sh [--out DIR] [--prefix DIR] [--cublaslt TAR] [--minutes 8] [--build DIR]
#
# --prefix names an installation, or a tar archive of one (make gpu_prefix), whose server is then also run on the GPU and
# whose programs are used instead of building them; --cublaslt is for a machine without that library. OUT is $OUT or gpu-report. One GPU is used:
# CUDA_VISIBLE_DEVICES, or the one with the most free memory. Steps come in the order of their worth, should time run out. Exits with 77 if
# nvidia-smi shows no GPU, with 1 if a step failed; at once, with the reason, if our programs cannot use the GPU.
set -eu
cd "$(dirname "$0")/.."
if ! command -v python3 >/dev/null; then
  echo "gpu_report: needs python3" >&2
  exit 1
fi
exec python3 -B scripts/gpu_report.py "$@"
