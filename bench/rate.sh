#!/usr/bin/env bash
# Durable runs a second: a service with many intervals that are always due, beside a skeleton that makes the same process
# and sync calls and nothing else, before and after. Goal: 80 % of it, and 300 a second.
. "$(dirname "$0")/lib.sh"
keys=${1:-600} seconds=${2:-15}
{
	echo 'workflows: {noop: {run: "true"}}'
	echo 'schedules:'
	for i in $(seq "$keys"); do echo "  - {run: noop, key: k$i, every: 1s}"; done
} | definitions
"$dir/tool" skeleton -n 500 "$dir/warm" >/dev/null
echo "skeleton: $("$dir/tool" skeleton -n 2000 "$dir/skeleton") runs/s"
serve
sleep 3
before=$(ls "$(workspace)runs" | grep -c json)
begin=$EPOCHREALTIME
sleep "$seconds"
after=$(ls "$(workspace)runs" | grep -c json)
echo "$before $after $begin $EPOCHREALTIME" | awk '{printf "service: %.0f runs/s\n", ($2 - $1) / ($4 - $3)}'
kill "$service"
wait "$service" || :
echo "skeleton again: $("$dir/tool" skeleton -n 2000 "$dir/skeleton2") runs/s"
