#!/usr/bin/env bash
# N URLs, each on a host of its own, every 10 s: CPU of the service and the requests that came, over 30 s after a warm-up.
# Goal for 1,000 at their full rate: under 5 % of one core, by https too. TMPDIR says where the state lies.
. "$(dirname "$0")/lib.sh"
n=${1:-1000}
for scheme in http https; do
	rm -rf .foundry/marbles "$MARBLES_STATE"
	"$dir/tool" urls "$n" "$scheme" "$PWD/.foundry/marbles" >"$dir/urls" &
	server=$!
	services+=("$server")
	until grep -q ready "$dir/urls"; do sleep 0.1; done
	count=$scheme://127.0.0.1:$(cut -d' ' -f2 "$dir/urls")/count
	serve
	sleep 25
	before="$("$dir/tool" proc "$service") $("$dir/tool" count "$count")"
	sleep 30
	after="$("$dir/tool" proc "$service") $("$dir/tool" count "$count")"
	echo "$n URLs by $scheme: ready ${ready_s} s; ${after% *}; over 30 s: $(echo "$before $after" |
		awk '{printf "%.1f %% of a core, %.1f requests a second", 100 * ($9 - $4) / 30, ($10 - $5) / 30}')"
	kill "$service" "$server"
	wait "$service" "$server" || :
done
