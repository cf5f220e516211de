#!/usr/bin/env bash
# 20 runs a second for M minutes with retention on: what the service uses must level off. Prints a line each half minute:
# resident memory, CPU seconds so far, open files, run files and bytes on disk, and the runs that have ended in that time with the CPU of each.
. "$(dirname "$0")/lib.sh"
minutes=${1:-10}
cat >"$dir/marbles.yaml" <<Y
sources: [$dir/project/.foundry/marbles]
keep_runs: 500
keep_age: 5m
Y
{
	echo 'workflows:'
	echo '  job: {run: "echo one line of output; true"}'
	echo '  two: {steps: [{name: a, run: "true"}, {name: b, run: "true", needs: []}, {name: c, run: "true", needs: [a, b]}]}'
	echo 'schedules:'
	for i in $(seq 20); do
		name=job
		[ $((i % 4)) != 0 ] || name=two
		echo "  - {run: $name, key: k$i, every: 1s}"
	done
} | definitions
serve --config "$dir/marbles.yaml"
line() {
	local runs bytes open now ended
	runs=$(ls "$(workspace)runs" | grep -c '\.json$' || :)
	bytes=$( (du -sb "$(workspace)" 2>/dev/null || :) | cut -f1)
	open=$(ls /proc/"$service"/fd | wc -l)
	now=$("$dir/tool" proc "$service")
	ended=$(cat "$(workspace)"slots/*.jsonl 2>/dev/null | grep -c '"ran"' || :)
	echo "$SECONDS s: $now, $open open, $runs run files, $bytes bytes;" \
		"$(echo "${was:-$now} $now ${ended_was:-0} $ended" | awk '$10 > $9 {printf "%d runs, %.2f ms of CPU each", $10 - $9, ($8 - $4) * 1000 / ($10 - $9)}')"
	was=$now ended_was=$ended
}
SECONDS=0
line
for _ in $(seq $((minutes * 2))); do
	sleep 30
	line
done
kill "$service"
wait "$service" || :
"$dir/marbles" doctor || :
