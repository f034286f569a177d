#!/usr/bin/env bash
# ./dev bench pytorch [--json] [--short] [--only NAME ...]: the figures of PyTorch workers, with Debian's PyTorch.
set -euo pipefail
exec /usr/bin/python3 -B "$(dirname "$0")/pytorch.py" "${CROWDSURF_BUILD:-build/release}/bin" "$@"
