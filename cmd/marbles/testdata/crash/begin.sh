# Sourced by every step: it says that this step of this run began.
echo "$MARBLES_RUN_ID $MARBLES_STEP" >>begun
