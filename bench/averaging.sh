#!/usr/bin/env bash
# ./dev bench averaging [--json] [--short | --long] [--only PART ...]: how long agents take to average, beside gloo, hivemind, the
# wire and a mesh of TLS streams. Root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${CROWDSURF_BUILD:-build/release}/bin" && pwd)
# Of the anchors and the network: no build needs them.
packages=(libgloo-dev iperf3 iproute2 iptables util-linux openssl python3-numpy python3-torch python3-venv)

[ "$(id -u)" = 0 ] || { echo "bench averaging: network namespaces need root" >&2; exit 1; }
if ! dpkg-query -W -f '${db:Status-Abbrev}\n' "${packages[@]}" 2>/dev/null | awk '$1 != "ii" {bad = 1} END {exit bad || NR < '"${#packages[@]}"'}'; then
  apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
fi
/usr/bin/python3 -B "$here/hivemind_venv.py"
gloo=$bin/bench_gloo
if [ "$here/anchors/gloo_allreduce.cc" -nt "$gloo" ]; then
  g++ -std=c++20 -O2 -pthread -o "$gloo" "$here/anchors/gloo_allreduce.cc" -lgloo
fi
# The namespaces that this command makes hold the bridge and the links' memory, and end with it, also where it is killed.
exec unshare --net --mount bash -c 'mount -t tmpfs -o size=100% links /dev/shm && exec /usr/bin/python3 -B "$@"' _ \
  "$here/averaging.py" "$bin" "$@"
