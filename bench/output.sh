#!/usr/bin/env bash
# A step that prints 200 MB in 100-byte lines, beside the same producer into `cat > file`, in turn.
# Goal: no slower than 3 times, byte-exact when put together again, memory flat.
. "$(dirname "$0")/lib.sh"
mib=${1:-200}
export MARBLES_OUTPUT_LIMIT=0
lines=$((mib * 10000))
cat >produce.sh <<P
#!/bin/sh
# $lines lines of 100 bytes
yes 'a line of one hundred bytes, counting the newline at its end: 0123456789 0123456789 0123456789 0123' | head -n $lines
P
chmod +x produce.sh
definitions <<'Y'
workflows: {print: {run: ./produce.sh}}
Y
cat >roll.sh <<R
#!/bin/sh
exec "$dir/marbles" roll print 2>/dev/null
R
cat >cat.sh <<R
#!/bin/sh
./produce.sh | cat > "$dir/plain"
R
chmod +x roll.sh cat.sh
"$dir/tool" pair -n "${2:-5}" ./roll.sh ::: ./cat.sh
run=$("$dir/marbles" runs --json -n 1 | sed -n 's/.*"id": "\(rn-[^"]*\)".*/\1/p')
"$dir/tool" journal "$MARBLES_STATE" "$dir/project" "$run" print stdout | cmp - "$dir/plain" && echo "byte-exact: yes ($(stat -c %s "$dir/plain") bytes)"
