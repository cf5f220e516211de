# A step that leaves processes behind: one in its group, one without its environment, one that does not heed SIGTERM,
# and one in a session of its own.
. ./begin.sh
sleep 600 &
env -i sleep 600 &
(trap '' TERM; exec sleep 600) &
if command -v setsid >/dev/null; then setsid sleep 600 & fi
sleep 0.5
