#!/usr/bin/env bash
# Checks that the installation of cmake --install runs from any folder and uses no library except its own and the C and C++
# runtime, that it translates texts with the part of ICU's data that images have, and that the installation for GPU machines keeps within its
# bound.
# Usage: scripts/install_test.sh BUILD
set -euo pipefail
build=$(readlink -f "$1")
source=$(readlink -f "$(dirname "$0")/..")
. "$source/scripts/start_server.sh"
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/made" --strip >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/made" "$work/moved"
cd /

for program in sru_server sru_client sru_bench; do
  foreign=$(env -i ldd "$work/moved/bin/$program" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' |
            grep -v -E "^$work/moved/|/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so[^/]*)$" || true)
  if [ -n "$foreign" ]; then
    printf '%s loads from outside of the installation:\n%s\n' "$program" "$foreign"
    exit 1
  fi
done

start() {  # FLAG...
  start_server "$work/server" env -i "$work/moved/bin/sru_server" --backend=auto "$@"
}
stop() {
  kill "$server"
  wait "$server"
  server=
}

start --model_repository="$work/moved/share/sru/models" --http_listen=
answer=$(env -i "$work/moved/bin/sru_client" classify --address="$address" "Where is Lake Titicaca ?")
echo "$answer" | grep -q LOC || { echo "wrong answer: $answer"; exit 1; }
stop

# The installation for GPU machines is this one without the CPU backend, and with a part of ICU's data. Here the largest library alone puts it over the
# bound. Without that library this installation, which is still larger than one built without the backend, is within it.
bound=68000000
for library in "$work"/moved/lib/libicudata.so.*; do
  [ ! -e "$library" ] || "$source/deploy/trim_icu.sh" "$library"
done
cp -r "$source/tests/data/models/old_translator/1" "$work/translator"
sed -i 's/"target_language": "xx"/"target_language": "pt-BR"/' "$work/translator/config.json"
start --model="enpt:$work/translator" --http_listen=127.0.0.1:0
http=$(sed -n 's/^listening on .*, HTTP on \([^, ]*\).*/\1/p' "$work/server")
answer=$(curl -sS "http://$http/v2/languages?type=target")
echo "$answer" | grep -qF '"name":"Portuguese (Brazil)"' || { echo "wrong languages with trimmed data: $answer"; exit 1; }
answer=$(curl -sS "http://$http/translate" -d format=html -d source=en -d target=pt-BR --data-urlencode 'q=<p>The <b>b´ook</b> book.</p>')
echo "$answer" | grep -qE '</b>.*</p>' || { echo "wrong translation with trimmed data: $answer"; exit 1; }
stop
if ls "$work"/moved/lib/libdnnl* >/dev/null 2>&1; then
  mkdir "$work/gpu"
  if "$source/scripts/gpu_prefix.sh" "$build" "$work/gpu" >"$work/log" 2>&1 || ! grep -q "expected at most $bound" "$work/log"; then
    echo "gpu_prefix.sh: expected it to refuse an installation with oneDNN, found:"
    cat "$work/log"
    exit 1
  fi
  rest=$(find "$work/moved" -type f ! -name 'libdnnl*' -printf '%s\n' | awk '{sum += $1} END {print sum}')
else
  rest=$(find "$work/moved" -type f -printf '%s\n' | awk '{sum += $1} END {print sum}')
fi
if [ "$rest" -gt "$bound" ]; then
  echo "the installation without oneDNN has $rest bytes, expected at most $bound"
  exit 1
fi
echo "installation: $(du -sm --apparent-size "$work/moved" | cut -f1) MB"
