#!/usr/bin/env bash
# ./dev bench kernels [--json] [--short | --long]: the kernels over tensor bytes beside intrinsics written by hand.
set -euo pipefail
exec /usr/bin/python3 -B "$(dirname "$0")/kernels.py" "${CROWDSURF_BUILD:-build/release}/bin" "$@"
