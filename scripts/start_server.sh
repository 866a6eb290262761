# shellcheck shell=bash disable=SC2034  # sourced by scripts, which read what it sets
# start_server LOG COMMAND...: runs a server in the background, on ports that the system picks. Sets `server`, its process, and `address`, where
# it takes calls. Exits and shows what it said if it ends, or if it does not listen within a minute.
start_server() {
  local log=$1
  shift
  : >"$log"  # the process may not have made it when it is first read
  "$@" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 >"$log" 2>&1 &
  server=$! address=''
  for _ in $(seq 3000); do
    address=$(sed -n 's/^listening on \([^,]*\),.*/\1/p' "$log")
    [ -z "$address" ] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.02  # the server prints its port; there is nothing to be notified by
  done
  echo "$(basename "$0" .sh): the server did not become ready; it said:" >&2
  cat "$log" >&2
  exit 1
}
