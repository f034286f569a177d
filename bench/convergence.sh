#!/usr/bin/env bash
# ./dev bench convergence [--json] [--short] [--seed N] [--only PART]
set -euo pipefail
exec "${CROWDSURF_BUILD:-build/release}/bin/bench_convergence" "$@"
