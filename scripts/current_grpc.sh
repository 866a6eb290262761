#!/usr/bin/env bash
# Lets apt take a current gRPC on a Debian sid: gRPC and protobuf for C++ come from experimental, everything else from
# sid, Abseil too, because that gRPC is built with sid's. Every other distribution keeps its own gRPC: there this script
# says so and does nothing.
#
#   scripts/current_grpc.sh [--minimum=VERSION]      default: 1.60, the first that bounds what a stranger can make it do
#
# For machines made for this purpose (images, scripts/fresh_machine.sh): it changes what apt installs from then on. Needs
# root. Fails if the packages that it would install are older than VERSION or do not fit together.
set -euo pipefail

minimum=1.60
case "${1:-}" in
  '') ;;
  --minimum=?*) minimum=${1#*=} ;;
  -h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  *)
    echo "current_grpc: unexpected argument '$1'; --help says what there is" >&2
    exit 2
    ;;
esac
fail() {
  echo "current_grpc: $*" >&2
  exit 1
}
other() {
  echo "current_grpc: not a Debian sid, so gRPC stays the distribution's"
  exit 0
}
# Debian testing has sid in this file too; only apt's lists distinguish the two.
grep -q sid /etc/debian_version 2>/dev/null || other
[ "$(id -u)" -eq 0 ] || fail "needs root, for apt"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
  if ! apt-get -q "$@" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "'apt-get $1' failed; its last lines stand above"
  fi
}
apt_get update
# shellcheck disable=SC2016  # apt expands it
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
  awk '$2 == "sid" || $2 == "unstable" {print $1; exit}')
[ -n "$mirror" ] || other

key=
for key in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
  [ ! -e "$key" ] || break
done
cat >/etc/apt/sources.list.d/experimental.sources <<END
Types: deb
URIs: $mirror
Suites: experimental
Components: main
Signed-By: $key
END
# Python's gRPC stays sid's: the one in experimental does not load, and only tests of the Python client need it. The first
# entry that matches wins.
cat >/etc/apt/preferences.d/current_grpc <<'END'
Package: python3-grpcio* python3-protobuf*
Pin: release a=experimental
Pin-Priority: 1

Package: src:grpc src:protobuf
Pin: release a=experimental
Pin-Priority: 990
END

apt_get update
# A simulation finds packages that do not fit together before anything is fetched.
apt_get install -s --no-install-recommends \
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
candidate() { apt-cache policy "$1" | awk '$1 == "Candidate:" {print $2}'; }
grpc=$(candidate libgrpc++-dev)
dpkg --compare-versions "$grpc" ge "$minimum" || fail "expected gRPC $minimum or newer, found $grpc"
echo "current_grpc: gRPC $grpc, protobuf $(candidate libprotobuf-dev), Abseil $(candidate libabsl-dev)"
