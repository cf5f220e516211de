#!/usr/bin/env bash
# 50 processes roll one key at once, 100 rounds: exactly one runs at a time, every other says who holds it and exits 0.
set -euo pipefail
cd "$(dirname "$0")/.."
MARBLES_CONTENTION_ROUNDS=${1:-100} go test -count=1 -run 'TestContention' -v ./cmd/marbles
