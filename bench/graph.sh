#!/usr/bin/env bash
# One run of N steps that are `true`, one after the other and as a graph 16 wide, beside N times `sh -c true` in a loop.
# Goal for 1,000: at most twice the loop.
. "$(dirname "$0")/lib.sh"
n=${1:-1000}
{
	echo 'workflows:'
	for shape in line graph; do
		echo "  $shape:"
		echo '    steps:'
		for i in $(seq 0 $((n - 1))); do
			needs=
			if [ "$shape" = graph ]; then
				needs=', needs: []'
				[ "$i" -lt 16 ] || needs=", needs: [s$((i - 16))]"
			fi
			echo "      - {name: s$i, run: \"true\"$needs}"
		done
	done
} | definitions
for shape in line graph; do
	"$dir/tool" pair -n 5 "$dir/marbles" roll "$shape" ::: "$dir/tool" serial "$n"
done
