#!/usr/bin/env bash
# N parked runs of a dead owner: a service adopts them all and keeps them, beside one that has none.
# Goal for 10,000: under 20 MiB more, and no CPU while nobody answers.
. "$(dirname "$0")/lib.sh"
ulimit -n "$(ulimit -Hn)"
n=${1:-10000}
definitions <<'Y'
workflows:
  release:
    steps:
      - {name: ok, approve: Publish?}
      - {name: publish, run: "true"}
Y
"$dir/marbles" roll release >/dev/null 2>&1
for many in 0 "$n"; do
	begin=$EPOCHREALTIME
	[ "$many" = 0 ] || "$dir/tool" mkparked "$many" "$MARBLES_STATE" "$dir/project"
	serve
	if [ "$many" != 0 ]; then
		for _ in $(seq 600); do
			[ "$(grep -c ' recovered ' "$dir/log")" -ge "$many" ] && break
			sleep 0.1
		done
		adopted_s=$(echo "$EPOCHREALTIME $begin" | awk '{printf "%.1f", $1 - $2}')
		echo "$many parked: adopted after ${adopted_s} s"
	fi
	sleep 20 # the heap that adoption needed is given back
	before=$("$dir/tool" proc "$service")
	sleep 20
	after=$("$dir/tool" proc "$service")
	echo "$many parked: ${after}; CPU over 20 s: $(echo "$before $after" | awk '{printf "%.2f", $8 - $4}') s"
	kill "$service"
	wait "$service" || :
done
