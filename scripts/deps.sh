#!/usr/bin/env bash
# Installs the distribution's packages that are missing, and only those (Debian 12, Ubuntu 24.04).
#
#   scripts/deps.sh [GROUP...]      groups: build test lint full; default: build
#
#   build  compiler, build tools and libraries
#   test   what the tests need besides: the Python client's gRPC, nginx
#   lint   clang-format and clang-tidy
#   full   PyTorch and Chromium: without them the tests of models/export_torch.py and of the status
#          page in a browser are skipped
set -euo pipefail

build=(g++ cmake ninja-build make pkg-config libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler
  protobuf-compiler-grpc prometheus-cpp-dev libcivetweb-dev libdnnl-dev libhwy-dev libre2-dev
  libnghttp2-dev libutf8proc-dev nlohmann-json3-dev libgtest-dev libgmock-dev)
test=(python3-grpcio python3-protobuf nginx-light)
lint=(clang-format clang-tidy)
full=(python3-torch chromium chromium-driver python3-selenium)

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    lint) wanted+=("${lint[@]}") ;;
    full) wanted+=("${full[@]}") ;;
    -h | --help)
      sed -n '2,11s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "deps: unknown group '$group', expected build, test, lint or full" >&2
      exit 2
      ;;
  esac
done

if ! command -v apt-get >/dev/null; then
  echo "deps: apt-get is not here; install what corresponds to: ${wanted[*]}" >&2
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "deps: all ${#wanted[@]} packages are installed (${*:-build})"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "deps: not root and no sudo; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "deps: installing ${#missing[@]} of ${#wanted[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for step in "update" "install -y --no-install-recommends ${missing[*]}"; do
  echo "deps: apt-get ${step%% *} ..."
  # shellcheck disable=SC2086  # the step's words are separate arguments
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q $step >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "deps: 'apt-get ${step%% *}' failed; its last lines stand above" >&2
    exit 1
  fi
done
echo "deps: done"
