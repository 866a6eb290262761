#!/usr/bin/env bash
# mypy --strict over the package (pyproject.toml), in the environment of scripts/deps.sh clients. Exits with 77 where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
mypy=../../.cache/clients-venv/bin/mypy
if ! "$mypy" --version >/dev/null 2>&1 || ! "${mypy%/*}/python" -c 'import importlib.metadata as m; m.version("types-grpcio")' 2>/dev/null; then
  echo "SKIPPED: there is no mypy, or it has no types of grpcio (scripts/deps.sh clients)"
  exit 77
fi
exec "$mypy" --config-file pyproject.toml --cache-dir "../../.cache/mypy"
