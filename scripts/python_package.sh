#!/usr/bin/env bash
# Builds a wheel of client/python and tries it in clean virtual environments: its unit tests, its programs and, with a server,
# the first lines of its README.
#
#   scripts/python_package.sh [--server=PROGRAM] [PYTHON...]
#
#   --server  sru_server, which is started for the README's lines
#   PYTHON    interpreters; default: /usr/bin/python3 and, if there is one, a newer one: of python3.12 to python3.15 the newest on the
#             path or of pyenv
#
# What the package needs comes from PyPI; without a network it exits with 77, which CTest shows as skipped. On a newer Debian:
#   scripts/fresh_machine.sh trixie --command='scripts/deps.sh test clients && scripts/python_package.sh'
set -euo pipefail
root=$(readlink -f "$(dirname "$0")/..")
. "$root/scripts/start_server.sh"

program='' server='' address='' pythons=()
for argument in "$@"; do
  case "$argument" in
    -h | --help)
      sed -n '2,13s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --server=?*) program=$(readlink -f "${argument#*=}") ;;
    -*)
      echo "python_package: unexpected argument '$argument'; --help says what there is" >&2
      exit 2
      ;;
    *) pythons+=("$argument") ;;
  esac
done
if [ ${#pythons[@]} -eq 0 ]; then
  pythons=(/usr/bin/python3)
  oldest=$(/usr/bin/python3 -c 'import sys; print(sys.version_info[1])')
  for minor in 15 14 13 12; do
    [ "$minor" -gt "$oldest" ] || break
    for python in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python; do
      if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        pythons+=("$python")
        break 2
      fi
    done
  done
fi

work=$(mktemp -d)
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# Runs pip; ends with "skipped" if it found nothing because it could not connect.
pip_run() {
  if ! PIP_RETRIES=${PIP_RETRIES:-2} "$@" >"$work/log" 2>&1; then
    if grep -q 'connection broken by' "$work/log" && grep -q 'No matching distribution found' "$work/log"; then
      echo "SKIPPED: PyPI is out of reach"
      exit 77
    fi
    cat "$work/log" >&2
    exit 1
  fi
}

if [ -n "$program" ]; then
  start_server "$work/server" "$program" --model_repository="$root/models/pretrained" --http_listen=
fi

# A copy, since a build leaves files beside the sources.
mkdir "$work/checkout"
(cd "$root" && tar -c --exclude=__pycache__ --exclude='*.egg-info' --exclude=client/python/build client/python client/service_config.json \
  models/exporter LICENSE VERSION proto) | tar -x -C "$work/checkout"
package=$work/checkout/client/python

number=0
for python in "${pythons[@]}"; do
  number=$((number + 1))
  venv=$work/venv$number
  "$python" -c 'import ensurepip' 2>/dev/null || { echo "SKIPPED: $python has no ensurepip (package python3-venv)"; exit 77; }
  "$python" -m venv "$venv"
  if [ "$number" -eq 1 ]; then
    pip_run "$venv/bin/pip" wheel --no-deps -w "$work" "$package"
    wheel=$(echo "$work"/sru_inference-*.whl)
    # Only the installed package is to be found from here on.
    mv "$package/tests" "$package/README.md" "$work/"
    mkdir -p "$work/client/python" && mv "$work/tests" "$work/client/python/" && mv "$work/checkout/proto" "$work/"
    rm -rf "$work/checkout"
  fi
  pip_run "$venv/bin/pip" install --prefer-binary "$wheel"
  version=$(cd / && "$venv/bin/python" -c '
import importlib.metadata, sys
import sru_inference
print(f"{sru_inference.__version__}, Python", sys.version.split()[0],
      *("%s %s" % (name, importlib.metadata.version(name)) for name in ("grpcio", "protobuf", "numpy")))')
  echo "python_package: sru_inference $version"
  [ "${version%%,*}" = "$(cat "$root/VERSION")" ] || { echo "expected the version $(cat "$root/VERSION")" >&2; exit 1; }
  (
    cd "$work"
    "$venv/bin/python" -B client/python/tests/run.py >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    tail -n 1 "$work/log"
    "$venv/bin/sru-inference" --version
    "$venv/bin/sru-export" --help >"$work/help"
    grep -q -e '--checkpoint' "$work/help"
    if [ -n "$address" ]; then
      sed -n '/^```python$/,/^```$/{//!p;/^```$/q}' README.md | sed "s/localhost:50051/$address/" >lines.py
      [ "$(wc -l <lines.py)" -eq 4 ] || { echo "expected four lines of Python at the top of the README" >&2; exit 1; }
      "$venv/bin/python" lines.py | tee answer
      grep -q '^NUM 0\.9\|^NUM 1\.0' answer
    fi
  )
done
echo "python_package: tried with ${#pythons[@]} Pythons"
