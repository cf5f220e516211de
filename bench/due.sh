#!/usr/bin/env bash
# N keys due in one second: when the last one starts, beside a bare serial loop of N times `sh -c true`. Goal: no later
# than twice that. A skeleton that makes the disk's part of N starts and nothing else says what the disk takes of it.
# Then how many durable runs a second that was, beside a skeleton that makes the same process and sync calls and nothing
# else. Goal: 80 % of it.
. "$(dirname "$0")/lib.sh"
n=${1:-1000}
"$dir/tool" skeleton -n 200 "$dir/warm" >/dev/null
echo "serial loop of $n sh -c true: $("$dir/tool" serial "$n") s"
echo "skeleton of starts alone: $("$dir/tool" skeleton -starts -n "$n" "$dir/starts") starts/s"
echo "skeleton: $("$dir/tool" skeleton -n "$n" "$dir/skeleton") runs/s"
# A slot far enough away to be armed before it comes: the next minute that is at least 8 s off.
[ "$(date +%-S)" -lt 50 ] || sleep $((61 - $(date +%-S)))
{
	echo 'workflows: {noop: {run: "true"}}'
	echo 'schedules:'
	for i in $(seq "$n"); do echo "  - {run: noop, key: k$i, cron: \"* * * * *\"}"; done
} | definitions
serve ${SERVE_FLAGS:-}
sleep $((60 - $(date +%-S)))
for _ in $(seq 300); do
	runs=$(ls "$(workspace)runs" 2>/dev/null | grep -c json || :)
	idle=$(ls "$(workspace)locks" | grep -c '^schedule:' || :)
	[ "$runs" -ge "$n" ] && [ "$idle" -eq 0 ] && break
	sleep 0.1
done
"$dir/tool" spread "$MARBLES_STATE" "$dir/project"
echo "serial loop again: $("$dir/tool" serial "$n") s"
echo "skeleton again: $("$dir/tool" skeleton -n "$n" "$dir/skeleton2") runs/s"
