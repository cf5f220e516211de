# Sourced by every script here: builds the binary and the measuring tool once, and gives each script a folder of its own
# that goes with it. Nothing is written outside that folder.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$(mktemp -d)
services=()
clean() {
	for pid in "${services[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || :; done
	wait 2>/dev/null || :
	rm -rf "$dir"
}
trap clean EXIT
(cd "$here/.." && CGO_ENABLED=0 go build -trimpath -o "$dir/marbles" ./cmd/marbles && go build -o "$dir/tool" ./bench/tool)
export HOME=$dir/home MARBLES_STATE=$dir/state
mkdir -p "$HOME" "$dir/project/.foundry/marbles"
cd "$dir/project"

# definitions: standard input becomes the project's definition file.
definitions() { cat >.foundry/marbles/jobs.yaml; }

# serve: starts the service, waits until it says that it is ready, and sets $service and $ready_s (seconds).
serve() {
	local begin=$EPOCHREALTIME
	"$dir/marbles" --log-format json run "$@" 2>"$dir/log" &
	service=$!
	services+=("$service")
	for _ in $(seq 600); do
		grep -q 'service is ready' "$dir/log" && break
		kill -0 "$service" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
		sleep 0.05
	done
	ready_s=$(echo "$EPOCHREALTIME $begin" | awk '{printf "%.2f", $1 - $2}')
}

# workspace: the only workspace's folder below the state root.
workspace() { echo "$MARBLES_STATE"/*/; }
