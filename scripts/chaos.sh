#!/bin/sh
# Servers under load while everything goes wrong; fails if anything is lost. --help says what happens and what is wanted.
#
#   scripts/chaos.sh                          an hour, three replicas; writes build/reports/chaos.md
#   scripts/chaos.sh --minutes=1 --servers=2  what chaos_test runs, into a folder of its own
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
case " $* " in
  *" --out="* | *" --help "* | *" -h "* | *" --list "*) ;;
  *)
    case " $* " in
      *" --minutes="* | *" --servers="* | *" --faults="*) ;;
      *) set -- "$@" "--out=$root/build/reports/chaos.md" ;;
    esac
    ;;
esac
python=/usr/bin/python3
[ -x "$python" ] || python=python3
exec "$python" -B "$root/tests/chaos/chaos.py" "$@"
