#!/usr/bin/env bash
# Packs the installation that is taken to a GPU machine (scripts/gpu_report.sh --prefix), with the programs of the report:
# OUT/prefix.tar.gz and, unpacked, OUT/prefix. Fails if it takes more than 68 MB unpacked: the build must be one without the CPU backend, whose
# oneDNN alone takes 40 MB.
#
#   make gpu_prefix [WITH=cublaslt,published]      builds (preset gpu_prefix), then
#   scripts/gpu_prefix.sh [--with=...] BUILD [OUT] OUT is BUILD
#
# cublaslt: also OUT/cublaslt.tar.gz (382 MB; 542 MB unpacked) for a machine with the driver alone: --cublaslt of the report. It is not cut down to
# one architecture, since nvprune takes static libraries only. published: the prefix also has the Python package `sru`, whose kernel the report
# compiles on a machine with nvcc and PyTorch.
set -euo pipefail
most=68000000

with=
case ${1:-} in --with=*) with=${1#--with=}; shift;; esac
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
build=$1 out=${2:-$1}
rm -rf "$out/prefix" "$out/prefix.tar.gz"
prefix=$(readlink -f "$out")/prefix
{ cmake --install "$build" --prefix "$prefix" --strip && cmake --install "$build" --prefix "$prefix" --component gpu --strip
} >"$out/prefix.log" || { cat "$out/prefix.log"; exit 1; }
for library in "$prefix"/lib/libicudata.so.*; do
  [ ! -e "$library" ] || "$(dirname "$0")/../deploy/trim_icu.sh" "$library"
done
size=$(find "$out/prefix" -type f -printf '%s\n' | awk '{sum += $1} END {print sum}')
if [ "$size" -gt $most ]; then
  echo "gpu_prefix: $out/prefix has $size bytes, expected at most $most; the largest files:" >&2
  find "$out/prefix" -type f -printf '%12s %P\n' | sort -rn | awk 'NR <= 3' >&2
  exit 1
fi
for program in gpu_check gpu_bench; do
  if [ ! -x "$prefix/bin/$program" ]; then
    echo "gpu_prefix: $build has no $program, which scripts/gpu_report.sh runs; build it with: make gpu_prefix" >&2
    exit 1
  fi
done
case ,$with, in *,published,*)
  python3 -m pip install --quiet --no-deps --target "$prefix/python" sru==2.6.0
  # PyTorch 2 no longer takes what type() gives where a scalar type is expected.
  sed -i 's/\.type(), "sru/.scalar_type(), "sru/' "$prefix/python/sru/csrc/sru_cuda_kernel.cu";;
esac
tar -C "$out" -czf "$out/prefix.tar.gz" prefix
case ,$with, in *,cublaslt,*)
  folder=$(cd "$(dirname "$0")" && python3 -B -c 'import gpu_report; print(gpu_report.cublaslt_folder() or "")')
  library=$(find "${folder:-/nonexistent}" -name 'libcublasLt.so.[0-9]*' -printf '%f\n' -quit)
  tar -C "$folder" --dereference -cf - "$library" | gzip -1 >"$out/cublaslt.tar.gz"
  echo "gpu_prefix: $out/cublaslt.tar.gz, $(stat -c %s "$out/cublaslt.tar.gz") bytes";;
esac
echo "gpu_prefix: $out/prefix.tar.gz, $(stat -c %s "$out/prefix.tar.gz") bytes, $size unpacked"
