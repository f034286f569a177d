#!/usr/bin/env bash
# ./dev bench papers [--json] [--short [--wide] | --long] [--only PART] [--seed N]
set -euo pipefail
exec "${CROWDSURF_BUILD:-build/release}/bin/bench_papers" "$@"
