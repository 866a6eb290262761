#!/bin/sh
# Finds out everything that we want to know about a GPU machine, in one command and at most 8 minutes: builds kernels/ and
# the checks, runs the benchmarks, the server, and the checks with and without compute-sanitizer, and writes OUT/gpu.md, OUT/gpu.json
# and OUT/gpu.log, all after every step. Needs python3, and --prefix or the CUDA toolkit (12.0 or newer) with g++ and CMake (3.25 or
# newer); no network. PyTorch (comparison, export of trained models), Nsight Compute (trace) and compute-sanitizer are used if they are there.
#
#   scripts/gpu_report.sh [--out DIR] [--prefix DIR] [--cublaslt TAR] [--minutes 8] [--build DIR] [--parts A,B] [--resume GPU.JSON]
#
# --parts names what is run after the goldens, which find out whether there is a GPU (default: everything, in this order):
#
#   products   our product for few rows beside the library's: bits, and times with weights from memory
#   systems    steps of the paper's translator and language model, with and without polling and our own products
#   trace      the kernels of one of these steps (Nsight Compute)
#   predict    a cluster of blocks for each row beside one block
#   fused      bfloat16 layers as one kernel each beside products and scans
#   texts      the server's tokens per second and translations (needs --prefix)
#   served     the bundled models over the wire, with the loads of Classify (needs --prefix)
#   checks     gpu_check, and synccheck and racecheck of the kernels whose warps or blocks wait for each other
#   scan, classify, gpus, sanitizers, pytorch
#
# --resume continues the report of an earlier run: its rows are kept, parts that it finished are left out, and of checks those that passed.
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
