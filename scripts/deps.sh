#!/usr/bin/env bash
# Installs the packages of the distribution that are missing, and only those (Debian 12 and 13, Ubuntu 24.04).
#
#   scripts/deps.sh [--print] [GROUP...]      groups: build cpp_client test lint fuzz full bench deploy clients bulk languages
#                                             machine packages arm64; default: build
#
#   --print  prints the names of the packages and installs nothing
#   build  compiler, build tools and libraries; curl, openssl and python3-venv, which the first pages use
#   cpp_client  those of `build` that the C++ client library needs (client/README.md)
#   test   what the tests need in addition: the Python client's gRPC, curl, openssl to make certificates, nginx,
#          SentencePiece, whose ids ours are compared with
#   lint   clang-format, clang-tidy and the omp.h that it reads
#   fuzz   clang, which compiles the preset asan and with it the libFuzzer programs, and lld, which links what has sanitizers
#   full   PyTorch and Chromium: without them the tests of models/export_torch.py and of the status
#          page in a browser are skipped
#   bench  what `make bench` compares with: PyTorch, a fast BLAS under it, and what compiles the
#          published package's operator; h2load for scripts/report.py
#   deploy Prometheus (its service, on port 9090, starts where there is systemd), kubectl, buildah, and
#          kubernetes-validate and Helm's library from PyPI in .cache/deploy-venv: the tests of deploy/ skip what is missing
#   clients  clients that others wrote, from PyPI in .cache/clients-venv: the tests of tests/clients skip without
#          them
#   bulk   Java, and from PyPI Spark, Ray, Beam and lm_eval in .cache/bulk-venv and .cache/beam-venv (2.4 GB), for tests/bulk
#   languages  gRPC for Go, Java and Ruby, for tests/interop/languages_test.py
#   machine  what scripts/fresh_machine.sh needs to make a machine
#   packages  what makes a Debian package (`make deb`)
#   arm64  what scripts/arm64.sh needs in addition to `build`
# shellcheck disable=SC2034  # the groups are read by name
set -euo pipefail

build=(g++ cmake ninja-build make pkg-config libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler
  protobuf-compiler-grpc prometheus-cpp-dev libboost-dev libcld2-dev libcli11-dev libdeflate-dev libdnnl-dev libhwy-dev libicu-dev
  libre2-dev libsimdjson-dev
  libnghttp2-dev libjemalloc-dev libssl-dev libutf8proc-dev libyaml-cpp-dev libzip-dev zlib1g-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev
  libbenchmark-dev python3 python3-venv curl openssl)
cpp_client=(g++ cmake ninja-build pkg-config libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler
  protobuf-compiler-grpc libcli11-dev libssl-dev libutf8proc-dev nlohmann-json3-dev)
test=(curl openssl python3-grpcio python3-h2 python3-numpy python3-protobuf nginx-light libsentencepiece-dev)
lint=(clang-format clang-tidy libomp-dev)
fuzz=(clang libclang-rt-dev libomp-dev lld)
full=(python3-torch chromium chromium-driver python3-selenium)
bench=(python3-torch libtorch-dev libopenblas0-pthread python3-dev python3-pip ninja-build g++ nghttp2-client)
# netavark: from 1.33 on, buildah does not start without it.
deploy=(prometheus python3-yaml python3-venv buildah netavark debootstrap)
clients=(python3-venv libb64-0d)
bulk=(python3-venv default-jre-headless)
languages=(golang-go golang-google-grpc-dev golang-goprotobuf-dev protoc-gen-go-grpc ruby-grpc default-jdk-headless libgrpc-java
  libnetty-java libperfmark-java libprotobuf-java protobuf-compiler-grpc-java-plugin)
machine=(debootstrap git util-linux)
packages=(dpkg-dev)
arm64=(g++-aarch64-linux-gnu qemu-user-static mmdebstrap)
# kubectl also comes in packages with other names, and Ubuntu has none.
if ! command -v kubectl >/dev/null && grep -q '^ID=debian' /etc/os-release 2>/dev/null; then
  deploy+=(kubernetes-client)
fi

print=
if [ "${1:-}" = --print ]; then
  print=yes
  shift
fi
wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build | cpp_client | test | lint | fuzz | full | bench | deploy | clients | bulk | languages | machine | packages | arm64)
      declare -n of_group=$group
      wanted+=("${of_group[@]}")
      ;;
    -h | --help)
      sed -n '2,26s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "deps: unknown group '$group', expected build, cpp_client, test, lint, fuzz, full, bench, deploy," \
        "clients, bulk, languages, machine, packages or arm64" >&2
      exit 2
      ;;
  esac
done

if [ -n "$print" ]; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi

# make_venv NAME [FILE]: makes .cache/NAME-venv from FILE, by default tests/NAME/requirements.txt. Without a network the tests that need
# it are skipped.
make_venv() {
  local root venv file
  root=$(cd "$(dirname "$0")/.." && pwd)
  venv=$root/.cache/$1-venv
  file=${2:-tests/$1/requirements.txt}
  if [ -x "$venv/bin/python" ] && cmp -s "$root/$file" "$venv/requirements.txt"; then
    return
  fi
  echo "deps: making .cache/$1-venv"
  if /usr/bin/python3 -m venv "$venv" && "$venv/bin/pip" install -q -r "$root/$file"; then
    cp "$root/$file" "$venv/requirements.txt"
  else
    echo "deps: not everything of $file could be had from PyPI; tests that need it are skipped" >&2
  fi
}

# Called last, once the packages are installed.
make_venvs() {
  local group
  for group in "${@:-build}"; do
    case "$group" in
      deploy | clients) make_venv "$group" ;;
      bulk) make_venv bulk && make_venv beam tests/bulk/beam_requirements.txt ;;
    esac
  done
}

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
  make_venvs "$@"
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
make_venvs "$@"
echo "deps: done"
