#!/usr/bin/env bash
# One tick by hand: `roll` of a workflow that runs `true`, beside `sh -c true`, in turn.
# Goal: within 15 ms and 30 MiB of it.
. "$(dirname "$0")/lib.sh"
definitions <<'Y'
workflows: {noop: {run: "true"}}
Y
"$dir/tool" pair -n "${1:-30}" "$dir/marbles" roll noop ::: sh -c true
