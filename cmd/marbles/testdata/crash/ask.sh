# A handler that asks for a launch which names the version it saw.
. ./begin.sh
printf '{"workflow":"quick","input":{"version":%s}}' "$(cat data/a.txt)" >"$MARBLES_LAUNCH_FILE"
