#!/bin/sh
# Fuzzes everything that reads bytes of strangers or of files; --help says how.
exec python3 -B "$(dirname "$0")/fuzz.py" "$@"
