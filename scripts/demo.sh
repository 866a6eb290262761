#!/usr/bin/env bash
# Starts the server on the bundled models, asks six questions, scores two sentences and shows how fast it answers.
# In a terminal the server then runs until Enter is pressed, so that its page can be seen; elsewhere it is stopped at once.
# Usage: scripts/demo.sh [FOLDER_WITH_THE_PROGRAMS]
set -eu
cd "$(dirname "$0")/.."
. scripts/start_server.sh
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

title "Starting the server on models/pretrained"
started=$(milliseconds)
start_server "$work/out" "$bin/sru_server" --model_repository=models/pretrained --http_listen=
ready=$(($(milliseconds) - started))
metrics=$(sed -n 's/^listening on .*, metrics on \(.*\)/\1/p' "$work/out")
export SRU_ADDRESS="$address"
health=$("$bin/sru_client" health)
echo "ready after $ready ms, $health at $address"
"$bin/sru_client" models

title "Six questions: what kind of answer does each want?"
echo "${dim}ABBR abbreviation, DESC description, ENTY thing, HUM person, LOC place, NUM number$reset"
"$bin/sru_client" classify \
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

if [ -t 0 ] && [ -t 1 ]; then
  title "The server still runs"
  echo "its page: http://$metrics/"
  echo "in another terminal, try: SRU_ADDRESS=$address $bin/sru_client classify \"Who wrote Hamlet ?\""
  printf 'Enter stops it: '
  read -r _ || true
fi

title "Stopping it with SIGTERM"
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=''
echo "the server finished what was in flight and ended with exit code $code"
[ "$code" -eq 0 ]

title "What to try next"
echo "  make serve                                         then open http://localhost:9090/, and in another terminal:"
echo "  $bin/sru_client classify \"Who wrote Hamlet ?\""
