#!/usr/bin/env bash
# Makes the root file system of a fresh Debian or Ubuntu, with debootstrap and with nothing that not every one has.
#
#   scripts/debian_root.sh SUITE DIR
#
#   SUITE  bookworm (12) or trixie (13) of Debian, noble (24.04) of Ubuntu
#   DIR    a folder that does not exist yet; it is removed again if this fails
#
# SRU_DEBIAN_MIRROR  where the packages come from; default: http://deb.debian.org/debian. A day of
#                    http://snapshot.debian.org/archive/debian/ (.../20261101T000000Z) gives the same packages each time.
# SRU_UBUNTU_MIRROR  the same for Ubuntu; default: http://archive.ubuntu.com/ubuntu
# SRU_UBUNTU_KEYRING  the keys that Ubuntu signs with; default: where its package ubuntu-keyring has them,
#                    /usr/share/keyrings/ubuntu-archive-keyring.gpg
#
# Needs root and debootstrap (scripts/deps.sh machine). scripts/fresh_machine.sh and deploy/build_image.sh call it.
set -euo pipefail

if [ $# -ne 2 ]; then
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
suite=$1 root=$2
fail() {
  echo "debian_root: $*" >&2
  exit 1
}
case "$suite" in
  bookworm | trixie | noble) ;;
  *) fail "SUITE: expected bookworm, trixie or noble, found '$suite'" ;;
esac
[ ! -e "$root" ] || fail "DIR: $root exists already; remove it or name another folder"
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap"
command -v debootstrap >/dev/null || fail "needs debootstrap (scripts/deps.sh machine)"

options=() script=()
if [ "$suite" = noble ]; then
  mirror=${SRU_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
  keyring=${SRU_UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
  [ -e "$keyring" ] || fail "SRU_UBUNTU_KEYRING: expected the keys of Ubuntu's package ubuntu-keyring, found no $keyring"
  # gRPC and other libraries are in universe. An older debootstrap does not know noble, which is made as all since gutsy.
  options=("--components=main,universe" "--keyring=$keyring")
  script=(gutsy)
else
  mirror=${SRU_DEBIAN_MIRROR:-http://deb.debian.org/debian}
fi
log=$(mktemp)
done=
trap 'rm -f "$log"; [ -n "$done" ] || rm -rf --one-file-system "$root"' EXIT
mkdir -p "$(dirname "$root")"
if ! debootstrap --variant=minbase "${options[@]}" "$suite" "$root" "$mirror" "${script[@]}" >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  fail "debootstrap of $suite from $mirror failed; its last lines stand above"
fi
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
# Copies how this machine reaches a mirror, for instance its proxies, and whether it accepts lists that have expired.
if command -v apt-config >/dev/null; then
  apt-config dump --format '%F "%v";%n' Acquire |
    grep -E '::(Proxy|Retries|Check-Valid-Until|Check-Date) ' >"$root/etc/apt/apt.conf.d/90machine" || true
fi
case "$mirror" in
  *snapshot*) # the lists of a past day have expired, and are meant
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/91snapshot"
    ;;
esac
done=yes
