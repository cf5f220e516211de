#!/usr/bin/env bash
# N runs on disk: the first page of `runs`, `status`, `show` of a run, and `why` of a key, beside `ls | tail` of the same folder. Goal for 100,000: under 100 ms.
. "$(dirname "$0")/lib.sh"
definitions <<'Y'
workflows: {job: {run: "true"}}
schedules: [{run: job, cron: "* * * * *"}]
Y
"$dir/marbles" roll job 2>/dev/null >/dev/null
"$dir/tool" mkruns "${1:-100000}" "$MARBLES_STATE" "$dir/project"
yard="ls $(workspace)runs | tail -n 50"
"$dir/tool" pair -n 10 "$dir/marbles" runs ::: sh -c "$yard"
"$dir/tool" pair -n 10 "$dir/marbles" status ::: sh -c "$yard"
"$dir/tool" pair -n 10 "$dir/marbles" runs --status failed -n 50 ::: sh -c "$yard"
last=$("$dir/marbles" runs -n 1 --json | grep -o 'rn-[a-z0-9]*' | head -n 1)
"$dir/tool" pair -n 10 "$dir/marbles" show "$last" ::: sh -c "$yard"
"$dir/tool" pair -n 10 "$dir/marbles" why job ::: sh -c "$yard"
