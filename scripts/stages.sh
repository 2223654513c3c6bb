#!/usr/bin/env bash
# stages.sh GROUP...   makes the targets of each GROUP ("lint test-unit") side by side, and the groups one after the
# other.
#
# The output of a target goes to build/stages/TARGET.log and is printed as a whole when the target ends; once a minute a
# line says what is still running. The first target that fails ends the others, with all their processes. At the end:
# how long each target took, and each package and suite with more than 10 s.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=build/stages
rm -rf "$logs"
mkdir -p "$logs"
summary=$logs/summary
declare -A name=() began=() # by process id
ticker=

# stop ends what runs: each target has a process group of its own (set -m), which its children share.
stop() {
  local pid
  set +m # no word about each process that is ended
  for pid in "${!name[@]}" ${ticker:+"$ticker"}; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  for pid in "${!name[@]}"; do
    # A process that does not end within 20 s is killed.
    for _ in $(seq 200); do kill -0 -- "-$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    echo "==> ${name[$pid]} was stopped after $((SECONDS - began[$pid])) s; the end of $logs/${name[$pid]}.log:"
    tail -n 20 "$logs/${name[$pid]}.log"
  done
  name=()
}
trap 'status=$?; stop; exit $status' EXIT
trap 'exit 130' INT TERM
set -m

start() { # TARGET
  "${MAKE:-make}" --no-print-directory "$1" >"$logs/$1.log" 2>&1 </dev/null &
  name[$!]=$1
  began[$!]=$SECONDS
}

heartbeat() {
  local pid
  for pid in "${!name[@]}"; do
    echo "... ${name[$pid]} $((SECONDS - began[$pid])) s: $(tail -n 1 "$logs/${name[$pid]}.log" | cut -c1-80)"
  done
}

# ended PID STATUS: prints the log of a target
ended() {
  local target=${name[$1]} took=$((SECONDS - began[$1]))
  unset "name[$1]"
  echo "==> $target"
  cat "$logs/$target.log"
  if [ "$2" -ne 0 ]; then
    echo "==> $target FAILED after $took s"
    exit 1
  fi
  echo "==> $target passed after $took s"
  printf '%6d s  %s\n' "$took" "$target" >>"$summary"
  sed -n 's/^testreport: seconds: \( *[0-9.]* s\)  /  \1    /p' "$logs/$target.log" >>"$summary"
}

for group in "$@"; do
  for target in $group; do start "$target"; done
  while [ ${#name[@]} -gt 0 ]; do
    [ -n "$ticker" ] || { sleep 60 & ticker=$!; }
    status=0
    wait -n -p pid "${!name[@]}" "$ticker" || status=$?
    if [ "$pid" = "$ticker" ]; then
      ticker=
      heartbeat
    else
      ended "$pid" "$status"
    fi
  done
done
echo "==> passed: $* in $SECONDS s"
cat "$summary"
