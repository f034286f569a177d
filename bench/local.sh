#!/usr/bin/env bash
# ./dev bench local [--json] [--short] [--only NAME ...]: the figures of a job on one machine.
set -euo pipefail
exec python3 "$(dirname "$0")/local.py" "${CROWDSURF_BUILD:-build/release}/bin" "$@"
