#!/usr/bin/env bash
# N files of 1 KiB under one monitor: the first look beside `find | xargs -0 -P2 sha256sum`, an unchanged look beside
# `git status` of the same tree, and the memory a file takes in between. Goals for 100,000: neither slower.
. "$(dirname "$0")/lib.sh"
tree=$dir/tree
"$dir/tool" mkfiles "${1:-100000}" "$tree"
git -C "$tree" init -q
git -C "$tree" add .
git -C "$tree" -c user.name=bench -c user.email=bench@localhost commit -qm files
sleep 3 # so that no file's time is so near that its digest, or git's index, cannot be trusted
git -C "$tree" status --porcelain >/dev/null
"$dir/tool" looks "${2:-5}" "$tree"
