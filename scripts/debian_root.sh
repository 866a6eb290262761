#!/usr/bin/env bash
# Makes the root file system of a fresh Debian, with debootstrap and with nothing that not every Debian has.
#
#   scripts/debian_root.sh SUITE DIR
#
#   SUITE  bookworm (12), trixie (13) or sid
#   DIR    a folder that does not exist yet; it is removed again if this fails
#
# SRU_DEBIAN_MIRROR  where the packages come from; default: http://deb.debian.org/debian. A day of
#                    http://snapshot.debian.org/archive/debian/ (.../20261101T000000Z) gives the same packages each time.
#
# Needs root and debootstrap (scripts/deps.sh machine). scripts/fresh_machine.sh and deploy/build_image.sh call it.
set -euo pipefail

if [ $# -ne 2 ]; then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
suite=$1 root=$2
fail() {
  echo "debian_root: $*" >&2
  exit 1
}
case "$suite" in
  bookworm | trixie | sid) ;;
  *) fail "SUITE: expected bookworm, trixie or sid, found '$suite'" ;;
esac
[ ! -e "$root" ] || fail "DIR: $root exists already; remove it or name another folder"
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap"
command -v debootstrap >/dev/null || fail "needs debootstrap (scripts/deps.sh machine)"

mirror=${SRU_DEBIAN_MIRROR:-http://deb.debian.org/debian}
log=$(mktemp)
done=
trap 'rm -f "$log"; [ -n "$done" ] || rm -rf --one-file-system "$root"' EXIT
mkdir -p "$(dirname "$root")"
if ! debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$log" 2>&1; then
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
