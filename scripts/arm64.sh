#!/usr/bin/env bash
# Builds the server for 64-bit Arm (arm64) on a machine that is not one, and tests it there under qemu.
#
#   scripts/arm64.sh [STEP...]      steps, in this order; default: all
#
#   sysroot  a folder with Debian's libraries for arm64, of this machine's release: .cache/arm64/SUITE
#   build    cross-compiles the programs and the tests of the step `test` into build-arm64
#            (cmake/toolchains/aarch64.cmake)
#   test     runs under qemu: the kernels on every instruction set that arm64 has, against the reference and with equal bits
#            in any batch; the golden cases; tokenizers, model files and what else depends on a processor
#   server   starts the server under qemu, asks each bundled model something and compares the answers with those of x86
#   image    makes the root file system of the container image and starts the server in it
#
# The tests that only pass messages on, and those of the CUDA backend, are not run: under qemu everything takes ten times
# as long, and they do not depend on the processor. Prints how long each step took.
#
# SRU_SYSROOT        the folder of the first step; default: .cache/arm64/SUITE
# SRU_DEBIAN_MIRROR  where the packages come from; default: http://deb.debian.org/debian
#
# Needs the packages of scripts/deps.sh build arm64, and network for the first step. Nothing of the machine is changed:
# no foreign architecture, no binfmt.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start_server.sh

fail() {
  echo "arm64: $*" >&2
  exit 1
}

# The braces make bash read the script as a whole before it runs: a checkout may change meanwhile.
{
build='build-arm64'
# shellcheck disable=SC1091
suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}") || true
suite=${suite:-bookworm}
sysroot=$(realpath -m "${SRU_SYSROOT:-.cache/arm64/$suite}")
qemu=(qemu-aarch64-static -L "$sysroot")

# A test of any of these names that is there is built and run. The tiles of AMX, which no Arm processor has, are emulated in code that
# does not depend on the processor.
cpu_variants='cpu|cpu_int8|cpu_bfloat16'
programs=(backend program program_pick golden language_model reader translator translation)
tests=(cpu_program_test enum_names_test common_test tile_kernel_test parallel_runner_test scan_test program_validate_test
  state_arena_test turn_test weight_source_test allocation_test utf8_test text_table_test log_test request_outline_test
  engine_test)

make_sysroot() {
  local packages program
  for program in mmdebstrap aarch64-linux-gnu-g++ qemu-aarch64-static; do
    command -v "$program" >/dev/null || fail "needs $program (scripts/deps.sh arm64)"
  done
  packages=$(scripts/deps.sh --print build | grep -- '-dev$' | paste -sd,)
  rm -rf "$sysroot.new"
  mkdir -p "$(dirname "$sysroot")"
  # The packages are unpacked and not installed, which would run their scripts. What dpkg would remember of them is written
  # here, since deploy/image_rootfs.sh asks for it.
  # shellcheck disable=SC2016  # expanded by the hook
  mmdebstrap --quiet --variant=extract --architectures=arm64 --skip=check/qemu,check/empty \
    --include="$packages,libc6-dev,libc-bin,base-files,protobuf-compiler,protobuf-compiler-grpc" \
    --extract-hook='for deb in "$1"/var/cache/apt/archives/*.deb; do
        name=$(dpkg-deb -f "$deb" Package)
        [ "$(dpkg-deb -f "$deb" Multi-Arch)" != same ] || name=$name:arm64
        { dpkg-deb -f "$deb" && printf "Status: install ok installed\n\n"; } >>"$1/var/lib/dpkg/status"
        dpkg-deb --fsys-tarfile "$deb" | tar -t | sed "s,^\./\$,/.,; s,^\.,,; s,/\$,," >"$1/var/lib/dpkg/info/$name.list"
      done
      echo 1 >"$1/var/lib/dpkg/info/format"' \
    "$suite" "$sysroot.new" "${SRU_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
  rm -rf "$sysroot"
  mv "$sysroot.new" "$sysroot"
  echo "arm64: $sysroot: $(du -sm "$sysroot" | cut -f1) MB"
}

known() {
  ninja -C "$build" -t targets all | sed -n 's,^\([a-z0-9_]*\): phony$,\1,p'
}

make_programs() {
  [ -d "$sysroot" ] || fail "there is no $sysroot; run: scripts/arm64.sh sysroot"
  cmake --preset release -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/aarch64.cmake" \
    -DSRU_SYSROOT="$sysroot" -DSRU_CUDA=OFF -DSRU_WERROR=ON >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  mv "$build.log" "$build/configure.log"
  mapfile -t models < <(known | grep -E '^models_.*_test$')
  cmake --build "$build" --target sru_server sru_client sru_bench "${programs[@]/%/_test}" "${tests[@]}" "${models[@]}"
}

run_tests() {
  local programs_pattern tests_pattern
  programs_pattern=$(IFS='|'; echo "${programs[*]}")
  tests_pattern=$(IFS='|'; echo "${tests[*]}")
  # A processor of the cloud, without SVE. The Python tests of models/ run this machine's programs; qemu has no openat2, by which links are
  # checked.
  QEMU_CPU=neoverse-n1 ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" \
    -R "^(($programs_pattern)_($cpu_variants)|golden_reference|$tests_pattern|models_.*_test)\$" -E '^models_(export_.*|file_test|repository_test)'
  # With SVE of 512 bits oneDNN multiplies in another way.
  QEMU_CPU=max ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" \
    -R '^(backend|program|golden)_cpu$'
}

# ask ADDRESS WANTED COMMAND...: what sru_client says has to contain WANTED.
ask() {
  local address=$1 wanted=$2 said
  shift 2
  said=$("${qemu[@]}" "$prefix/bin/sru_client" "$@" --address="$address" --deadline=120s)
  grep -qF -- "$wanted" <<<"$said" || fail "sru_client $*: expected '$wanted', found: $said"
  echo "arm64: sru_client $1: $(tail -n 1 <<<"$said")"
}

# Starts a server of $prefix, asks, stops it. Arguments: what is put before its command.
serve() {
  local log metrics info
  log=$(mktemp)
  trap 'kill "$server" 2>/dev/null || true' EXIT
  start_server "$log" "$@" "$prefix/bin/sru_server" --model_repository="$repository" --http_listen=
  metrics=$(sed -n 's/^listening on .*, metrics on \([^, ]*\).*/\1/p' "$log")
  ask "$address" LOC classify "Where is Lake Titicaca ?"
  ask "$address" -19.885 score "Prince Andrew smiled."
  ask "$address" "the same ti" generate --max_new_tokens=12 "Prince Andrew smiled at"
  info=$(curl -sS --max-time 60 "http://$metrics/metrics" | grep '^sru_backend_info')
  echo "arm64: $info"
  [[ $info == *'isa="neon"'* ]] || fail "expected isa=\"neon\" in what /metrics says"
  kill "$server"
  wait "$server" || fail "the server returned $?"
  trap - EXIT
  rm -f "$log"
}

try_server() {
  prefix=$build repository=models/pretrained
  serve "${qemu[@]}"
}

try_image() {
  local work
  work=$(mktemp -d)
  cmake --install "$build" --prefix "$work/prefix" --component runtime >/dev/null
  SRU_SYSROOT=$sysroot deploy/image_rootfs.sh "$work/prefix" "$work/rootfs"
  # Only the libraries of the image are there.
  prefix=$work/rootfs/usr/local repository=$work/rootfs/models
  qemu=(qemu-aarch64-static -L "$work/rootfs")
  serve "${qemu[@]}"
  rm -rf "$work"
}

steps=("$@")
[ $# -gt 0 ] || steps=(sysroot build test server image)
times=
for step in "${steps[@]}"; do
  began=$SECONDS
  case "$step" in
    sysroot) make_sysroot ;;
    build) make_programs ;;
    test) run_tests ;;
    server) try_server ;;
    image) try_image ;;
    -h | --help)
      sed -n '2,23s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "arm64: unexpected argument '$step'; --help says what there is" >&2
      exit 2
      ;;
  esac
  times+="${times:+,} $step $((SECONDS - began))s"
done
echo "arm64:$times"
exit
}
