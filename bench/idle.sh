#!/usr/bin/env bash
# N schedules that never fire: seconds until ready, steady memory, CPU while idle; beside a service with ten.
# Goal for 100,000 on two cores: ready within 2 s, under 120 MiB, no measurable CPU.
. "$(dirname "$0")/lib.sh"
for n in 10 "${1:-100000}"; do
	rm -rf .foundry/marbles "$MARBLES_STATE"
	"$dir/tool" schedules "$n" 100 .foundry/marbles
	for start in first second; do
		serve
		sleep 3
		before=$("$dir/tool" proc "$service")
		sleep 20
		after=$("$dir/tool" proc "$service")
		echo "$n schedules, $start start: ready ${ready_s} s; ${after}; idle CPU over 20 s: $(echo "$before $after" | awk '{printf "%.2f", $8 - $4}') s"
		kill "$service"
		wait "$service" || :
	done
done
