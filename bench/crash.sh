#!/usr/bin/env bash
# kill -9 of the service and of `roll` at many points, N times each; see cmd/marbles/crash_test.go for what must hold.
set -euo pipefail
cd "$(dirname "$0")/.."
MARBLES_CRASH_ROUNDS=${1:-100} go test -count=1 -timeout 30m -run 'TestCrash' -v ./cmd/marbles
