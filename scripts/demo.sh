#!/bin/sh
# Starts the server on the bundled models, asks six questions, scores two sentences, shows how fast it
# answers and what it measures about itself, and stops it. Usage: scripts/demo.sh [FOLDER_WITH_THE_PROGRAMS]
set -eu
cd "$(dirname "$0")/.."
bin=${1:-build/bin}

for program in sru_server sru_client sru_bench; do
  if [ ! -x "$bin/$program" ]; then
    echo "demo: $bin/$program is missing; build it with: make build" >&2
    exit 1
  fi
done

if [ -t 1 ]; then
  bold=$(printf '\033[1m') dim=$(printf '\033[2m') reset=$(printf '\033[0m')
else
  bold='' dim='' reset=''
fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$reset"; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

work=$(mktemp -d)
server=''
clean_up() {
  code=$?
  trap - EXIT HUP INT TERM
  if [ -n "$server" ]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$work"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Fetches a whole page, with curl or, if there is none, with tools that are always there.
get() {
  if command -v curl >/dev/null 2>&1; then
    curl --silent --show-error --fail --max-time 5 "http://$1$2"
  elif command -v python3 >/dev/null 2>&1; then
    python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())' "http://$1$2"
  else
    return 1
  fi
}

title "Starting the server on models/pretrained"
: >"$work/out"
started=$(milliseconds)
"$bin/sru_server" --model_repository=models/pretrained --listen=127.0.0.1:0 \
  --metrics_listen=127.0.0.1:0 --http_listen= >"$work/out" 2>"$work/log" &
server=$!
# It prints one line when it is ready: listening on ADDRESS:PORT, metrics on ADDRESS:PORT
while ! grep -q '^listening on ' "$work/out"; do
  if ! kill -0 "$server" 2>/dev/null || [ $(($(milliseconds) - started)) -gt 20000 ]; then
    echo "demo: the server did not become ready; it said:" >&2
    cat "$work/out" "$work/log" >&2
    exit 1
  fi
  sleep 0.01
done
ready=$(($(milliseconds) - started))
address=$(sed -n 's/^listening on \([^,]*\), metrics on .*/\1/p' "$work/out")
metrics=$(sed -n 's/^listening on .*, metrics on \(.*\)/\1/p' "$work/out")
export SRU_ADDRESS="$address"
health=$("$bin/sru_client" health)
echo "ready after $ready ms, $health at $address"
"$bin/sru_client" models

title "Six questions: what kind of answer does each want?"
echo "${dim}ABBR abbreviation, DESC description, ENTY thing, HUM person, LOC place, NUM number$reset"
"$bin/sru_client" classify --times --batch=1 \
  "How many legs does a ladybird have ?" \
  "Who designed the Sydney Opera House ?" \
  "Where do flamingos spend the winter ?" \
  "What does the abbreviation SRU stand for ?" \
  "Why is the sky red at sunset ?" \
  "What kind of animal is a wombat ?"

title "Two sentences: which one would a reader of War and Peace rather expect?"
echo "${dim}a language model of bytes: the more bits a byte costs, the more it surprises$reset"
"$bin/sru_client" score \
  "Prince Andrew smiled and looked at Pierre." \
  "Prince Andrew smiled at and Pierre looked."

title "1,000 calls, one after the other"
"$bin/sru_bench" load --calls=1000 --in_flight=1 --warmup=200ms 2>/dev/null >"$work/load"
sed -n '2,3p' "$work/load"

title "What the server says about itself at http://$metrics/metrics"
if get "$metrics" /metrics >"$work/metrics"; then
  grep -E '^sru_((requests|rejections)_total|models_loaded|(compute_duration_seconds|batch_tokens)_(sum|count))' \
    "$work/metrics" | head -n 12
else
  echo "neither curl nor python3 is here to read them"
fi

title "Stopping it with SIGTERM"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=''
echo "the server finished what was in flight and ended with exit code $code"
[ "$code" -eq 0 ]

title "What to try next"
cat <<END
  make serve                                            the server at localhost:50051
  $bin/sru_client classify --top_k=3 "Who wrote Hamlet ?"
  $bin/sru_client encode --json "one vector for this text"
  $bin/sru_client score --per_token "Natasha was so happy to see him."
  $bin/sru_bench load --in_flight=64                how much it can take
  python3 client/python/classify.py "Who wrote Hamlet ?"
  $bin/sru_client --help
END
