#!/usr/bin/env bash
# Fuzzes everything that reads bytes of strangers or of files (tests/fuzz), on the address and undefined behavior
# sanitizers, and prints a table of what was run. Ends by itself, with 1 if a target failed.
#
#   scripts/fuzz.sh [--seconds=S] [--targets=A,B] [--jobs=J] [--seed=N] [--minimize] [--server_preset=asan]
#
#   --seconds=S  S seconds of each target, after the inputs that there are; default: 0
#   --targets    some of: safetensors config lines sentencepiece marian text request infer state search headers http v2 rest messages
#                texts door model http2 gateway; default: all
#   --jobs=J     targets that run at a time; default: 2
#   --minimize   afterwards adds to tests/fuzz/corpus the smallest inputs that reach what the committed ones do not, up to
#                64 files and 48 KiB for a target
#   --server_preset  the build that door, model, http2 and gateway run in: asan, or release, which is faster to build and misses
#                more
#
# The readers' targets are libFuzzer programs of the preset asan (clang: scripts/deps.sh fuzz). The other four make their inputs by
# chance, because the threads of a server make the same input reach other lines each time, and gRPC is not instrumented. What the fuzzer finds worth
# keeping is kept in build-asan/fuzz/corpus and used again by the next run.
#
# An input that makes a target fail is written to build-asan/fuzz/crashes. Moved to tests/fuzz/crashes/TARGET, under a name
# that says what was wrong, it is a test: fuzz_corpus_test and this script run every file there.
set -euo pipefail
cd "$(dirname "$0")/.."
case " $* " in
  *" --help "* | *" -h "*)
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
esac
exec python3 -B scripts/fuzz.py "$@"
