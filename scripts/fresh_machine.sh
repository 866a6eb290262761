#!/usr/bin/env bash
# Tries what is committed here on a fresh machine: it makes a new Debian or Ubuntu in a folder of its own with a new clone in it, and
# runs the README's two commands there, `make demo` and `make test`. Prints their output, and how long each step took.
#
#   scripts/fresh_machine.sh SUITE [--pages | --command=COMMAND] [--files=DIR] [--root=DIR]
#
#   SUITE      bookworm (Debian 12), trixie (13), noble (Ubuntu 24.04)
#   --pages    runs `make demo`, the README's first calls and docs/production.md, as a newcomer would; each block's seconds
#              are printed, too
#   --command  runs this instead of the two commands, in the clone, with bash
#   --files    copies the files of this folder into the clone's build/
#   --root     where the machine is made, and removed at the end; default: build/fresh_machine/SUITE
#
# Needs root, debootstrap (scripts/deps.sh machine) and a mirror: SRU_DEBIAN_MIRROR or SRU_UBUNTU_MIRROR, as
# scripts/debian_root.sh uses them. The machine has processes, mounts and semaphores of its own, which end with it however it ends; it shares
# the network. After a failure the logs stay in DIR.logs. The exit code is that of the command that failed.
set -euo pipefail

fail() {
  echo "fresh_machine: $*" >&2
  exit 1
}
wrong_usage() {
  echo "fresh_machine: $*; --help says what there is" >&2
  exit 2
}

# The braces make bash read the script as a whole before it runs, because a checkout may change in the hour that it takes.
{
suite='' root='' files='' commands=() steps=()
for argument in "$@"; do
  case "$argument" in
    -h | --help)
      sed -n '2,17s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --command=?*) commands=("${argument#*=}") steps=("${argument#*=}") ;;
    --pages)
      # Each command in the clone, which `make demo` has built. PyTorch, in which a newcomer has trained, is there beforehand.
      serve='make serve >build/server.log 2>&1 & until curl -sf localhost:9090/readyz >build/ready.log; do kill -0 $! || exit 1; sleep 0.1; done'
      steps=("make demo" "README: a first call" "PyTorch" "docs/production.md")
      commands=("make demo"
        "scripts/run_page.py README.md --section 'A first call' --with=network --timeout=600 --setup='$serve'"
        "apt-get -qq install -y --no-install-recommends python3-torch >build/torch.log"
        "scripts/run_page.py docs/production.md --with=network --timeout=600")
      ;;
    --files=?*) files=${argument#*=} ;;
    --root=?*) root=${argument#*=} ;;
    bookworm | trixie | noble)
      [ -z "$suite" ] || wrong_usage "expected one SUITE, found $suite and $argument"
      suite=$argument
      ;;
    -*) wrong_usage "unexpected argument '$argument'" ;;
    *) wrong_usage "SUITE: expected bookworm, trixie or noble, found '$argument'" ;;
  esac
done
[ -n "$suite" ] || wrong_usage "SUITE: expected bookworm, trixie or noble, found none"
[ ${#commands[@]} -gt 0 ] || { commands=("make demo" "make test") steps=("make demo" "make test"); }

[ -z "$files" ] || [ -d "$files" ] || fail "--files: expected a folder, found $files"
source=$(readlink -f "$(dirname "$0")/..")
root=$(realpath -m "${root:-$source/build/fresh_machine/$suite}")
[ ! -e "$root" ] || fail "--root: $root exists; remove it or name another folder"
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap and mounts"
for program in debootstrap git unshare setpriv; do
  command -v "$program" >/dev/null || fail "needs $program (scripts/deps.sh machine)"
done
revision=$(git -C "$source" rev-parse --short HEAD) || fail "needs a git checkout, to clone what is committed"
unshare --mount --pid --ipc --uts --fork true 2>/dev/null ||
  fail "this machine lets nobody make namespaces (in a container: it needs the capability SYS_ADMIN)"

logs=$root.logs
rm -rf "$logs"
mkdir -p "$logs"
exec 3>&1 4>&2 > >(trap '' HUP INT TERM; exec tee "$logs/all.log") 2>&1
tee=$!

running='' step='' times='' began=$SECONDS
clean_up() {
  local code=$?
  trap - EXIT
  trap '' HUP INT TERM PIPE
  # Its death ends the namespace, and with it each of the machine's processes and mounts.
  if [ -n "$running" ]; then
    kill -KILL "$running" 2>/dev/null || true
    wait "$running" 2>/dev/null || true
  fi
  if [ "$code" -ne 0 ]; then
    cp "$root"/root/sru_server/build/{configure.log,Testing/Temporary/LastTest.log} "$logs" 2>/dev/null || true
  fi
  # The second time removes what a process wrote while it ended.
  rm -rf --one-file-system "$root" 2>/dev/null || { sleep 1; rm -rf --one-file-system "$root"; }
  if [ "$code" -eq 0 ]; then
    echo "fresh_machine: $suite:$times; all ${SECONDS}s"
  else
    echo "fresh_machine: $suite: '$step' failed with $code after $((SECONDS - began))s; logs: $logs"
  fi
  exec 1>&3 2>&4 3>&- 4>&-
  wait "$tee" || true
  [ "$code" -ne 0 ] || rm -rf "$logs"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# run STEP COMMAND...: runs the command as process 1 of a machine's namespaces; it also ends with this script. It runs in
# the background, so that this script can handle signals meanwhile. A shell makes background processes ignore INT and
# QUIT, which tests send, so their defaults are restored.
run() {
  step=$1 began=$SECONDS
  shift
  printf '\n==== %s: %s (%ss)\n' "$suite" "$step" "$SECONDS"
  env --default-signal=INT,QUIT setpriv --pdeathsig=KILL \
    unshare --mount --pid --ipc --uts --propagation=private --mount-proc --fork --kill-child "$@" \
    </dev/null 3>&- 4>&- &
  running=$!
  local code=0
  wait "$running" || code=$?
  running=
  [ "$code" -eq 0 ] || exit "$code"
  times+="${times:+,} $step $((SECONDS - began))s"
}

# Makes the mounts that every machine has, then runs a command there. It does not exec, since process 1 must reap.
in_machine() {
  # shellcheck disable=SC2016  # expanded in there
  run "$1" bash -euc '
    root=$1 command=$2
    hostname fresh
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    proxies=()
    for name in http_proxy https_proxy no_proxy; do
      [ -z "${!name:-}" ] || proxies+=("$name=${!name}")
    done
    # chroot would not do: namespaces that are made inside do not know of it, and their / would be the root of this machine.
    cd "$root"
    pivot_root . .
    umount -l .
    cd /
    code=0
    env -i "${proxies[@]}" HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive bash -euc "cd /root/sru_server 2>/dev/null || cd /root; $command" ||
      code=$?
    exit "$code"
  ' in_machine "$root" "$2"
}

system=Debian
[ "$suite" != noble ] || system=Ubuntu
run "a fresh $system" "$source/scripts/debian_root.sh" "$suite" "$root"
# These files are as in an installed Debian. No service of a package starts: it would meet this machine's on the network.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 fresh\n' >"$root/etc/hosts"
# How this machine reaches PyPI, where a proxy signs with an authority of its own.
if [ -n "${PIP_CERT:-}" ]; then
  cp -L "$PIP_CERT" "$root/etc/pip_cert.pem"
  printf '[global]\ncert = /etc/pip_cert.pem\n' >"$root/etc/pip.conf"
fi
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"
# The two commands need nothing else beforehand.
in_machine make 'apt-get -qq update && apt-get -qq install -y --no-install-recommends make'
if [ -n "$(git -C "$source" status --porcelain --untracked-files=no)" ]; then
  echo "fresh_machine: what is not committed here is not tried"
fi
echo "fresh_machine: commit $revision"
git clone --quiet --depth=1 "file://$source" "$root/root/sru_server"
[ -z "$files" ] || { mkdir "$root/root/sru_server/build" && cp -L "$files"/* "$root/root/sru_server/build/"; }
for i in "${!commands[@]}"; do
  in_machine "${steps[i]}" "${commands[i]}"
done
exit
}
