# keep (idempotent): the arguments become note.json in the goal's folder, whole or not
# at all; the output is the note.
set -eu
args=$(cat)
home=${args#*\"home\":\"}
home=${home%%\"*}
mkdir -p "$home"
log() { printf '%s %s %s %s\n' "$1" "$DETENT_GOAL" "$DETENT_STEP" "$DETENT_ATTEMPT" >> "$home/starts.log"; }
log start
printf '%s' "$args" > ".note.$DETENT_ATTEMPT"
mv ".note.$DETENT_ATTEMPT" note.json
log end
printf '%s\n' "$args"
