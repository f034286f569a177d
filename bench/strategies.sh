#!/usr/bin/env bash
# ./dev bench strategies [--json] [--only NAME ...] [--short]: real jobs, every strategy on two networks (root: it makes namespaces).
set -euo pipefail
exec python3 "$(dirname "$0")/strategies.py" "${CROWDSURF_BUILD:-build/release}/bin" "$@"
