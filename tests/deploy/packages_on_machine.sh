#!/usr/bin/env bash
# Installs the wheel and the Debian package of build/ on a fresh machine, serves with each, and removes the package. The
# package's service runs under systemd, which is process 1 of namespaces of its own. .ci/full calls this through
# scripts/fresh_machine.sh --files=build/packages.
set -euo pipefail
work=$(mktemp -d)
log=$work/log

# answers ADDRESS CLIENT
answers() {
  "$2" classify --address="$1" "Where is Lake Titicaca ?" | grep LOC
}
# serves PROGRAM CLIENT: with --demo, on ports that the system chooses, and nothing else
serves() {
  "$1" --demo --listen=127.0.0.1:0 --http_listen= --metrics_listen=127.0.0.1:0 >"$work/out" 2>"$log" &
  local server=$!
  until grep -q '^listening on ' "$work/out"; do
    kill -0 "$server" || { cat "$log"; exit 1; }
    sleep 0.1
  done
  answers "$(sed -n 's/^listening on \([^,]*\),.*/\1/p' "$work/out")" "$2"
  kill "$server"
  wait "$server"
}

echo "---- the wheel"
apt-get -qq install -y --no-install-recommends python3-venv >"$log" 2>&1 || { cat "$log"; exit 1; }
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-index build/*.whl
serves "$work/venv/bin/sru_server" "$work/venv/bin/sru_client"
"$work/venv/bin/python" -m sru_server --version

echo "---- the Debian package"
# The package's service starts when systemd does, on ports that the system chooses: the machine shares the network.
printf 'SRU_LISTEN=127.0.0.1:0\nSRU_HTTP_LISTEN=\nSRU_METRICS_LISTEN=127.0.0.1:0\n' >"$work/ports"
apt-get -qq install -y --no-install-recommends systemd systemd-sysv ./build/*.deb >"$log" 2>&1 || { cat "$log"; exit 1; }
serves /usr/bin/sru_server /usr/bin/sru_client
unit=/lib/systemd/system/sru-server.service
[ -z "$(systemd-analyze verify "$unit" 2>&1 | grep sru-server)" ]
systemd-analyze security --offline=true --threshold=20 "$unit" | tail -n 1
cat "$work/ports" >>/etc/default/sru-server

# shellcheck disable=SC2016  # expanded in there
unshare --mount --pid --cgroup --fork --kill-child bash -euc '
  mount -t proc proc /proc
  mount -t tmpfs tmpfs /sys/fs/cgroup
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /tmp  # which systemd empties
  exec env -i container=lxc /lib/systemd/systemd --system --unit=multi-user.target --log-target=journal
' </dev/null >"$log" 2>&1 &
outer=$!
trap 'kill -KILL $outer 2>/dev/null || true' EXIT
# booted COMMAND...: runs it where systemd is process 1
booted() {
  nsenter --target="$(tr -d ' ' <"/proc/$outer/task/$outer/children")" --all "$@"
}
for _ in $(seq 600); do
  state=$(booted systemctl is-active sru-server 2>/dev/null || true)
  case "$state" in active | failed) break ;; esac
  sleep 0.1
done
booted journalctl --no-pager --unit=sru-server | tail -n 30
[ "$state" = active ]
booted systemctl reload sru-server
address=$(booted journalctl --no-pager --output=cat --unit=sru-server | sed -n 's/^listening on \([^,]*\),.*/\1/p' | tail -n 1)
answers "$address" sru_client
booted systemctl show --property=User,Type sru-server
booted systemctl stop sru-server
[ "$(booted systemctl show --property=Result --value sru-server)" = success ]
kill -KILL $outer
wait $outer 2>/dev/null || true
trap - EXIT

dpkg --purge sru-server >"$log" 2>&1 || { cat "$log"; exit 1; }
for path in /usr/bin/sru_server /usr/share/sru /etc/default/sru-server "$unit"; do
  [ ! -e "$path" ] || { echo "expected the purge to remove $path"; exit 1; }
done
echo "both packages serve"
