#!/usr/bin/env bash
# ./dev bench state [--json] [--short | --long]: how fast a joiner gets the job's state. Root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${CROWDSURF_BUILD:-build/release}/bin" && pwd)
packages=(iproute2 util-linux openssl python3-numpy)

[ "$(id -u)" = 0 ] || { echo "bench state: network namespaces need root" >&2; exit 1; }
if ! dpkg-query -W -f '${db:Status-Abbrev}\n' "${packages[@]}" 2>/dev/null | awk '$1 != "ii" {bad = 1} END {exit bad || NR < '"${#packages[@]}"'}'; then
  apt-get update -q >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
fi
# The namespaces that this command makes hold the bridge and the links' memory, and end with it, also where it is killed.
exec unshare --net --mount bash -c 'mount -t tmpfs -o size=100% links /dev/shm && exec /usr/bin/python3 -B "$@"' _ \
  "$here/state.py" "$bin" "$@"
