#!/usr/bin/env bash
# The table of docs/performance.md, measured on this machine: ours beside copying
# the same files, hashing them, a jq transform, and the store's own append loop.
#
#   benches/compare.sh [FOLDER]      needs 8 GiB there; default: a temporary one
#
# Every row is measured right after the copy that it is compared with, and the
# ratio is that of medians of RUNS runs each (default 3).
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-3}
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
for tool in jq time; do
  command -v $tool >/dev/null || [ -x /usr/bin/$tool ] || { apt-get update -qq && apt-get install -y -qq $tool; }
done

cargo build --release --locked --bin session-import --example generate_workspace
target=${CARGO_TARGET_DIR:-$PWD/target}
tool=$target/release/session-import
generate=$target/release/examples/generate_workspace

# seconds of wall time, seconds of CPU, KiB of peak memory: the median run.
measure() { # command...
  for _ in $(seq "$runs"); do
    eval "${before:-:}"
    /usr/bin/time -o "$folder/time" -f '%e %U %S %M' bash -c "$*" >/dev/null 2>"$folder/stderr" \
      || { cat "$folder/stderr" >&2; exit 1; }
    awk '{printf "%.3f %.2f %d\n", $1, $2 + $3, $4}' "$folder/time"
  done | sort -n | awk '{line[NR] = $0} END {print line[int((NR + 1) / 2)]}'
}

row() { # name, figures, figures to compare with
  awk -v name="$1" -v a="$2" -v b="$3" 'BEGIN {
    split(a, x, " "); split(b, y, " ")
    printf "| %-44s | %8.2f s | %7.2f s | %7.1f MiB | %6.2f |\n", name, x[1], x[2], x[3] / 1024, x[1] / y[1]
  }'
}

workspace() { # name, sessions, bytes
  [ -d "$folder/$1" ] || "$generate" "$folder/$1" "$2" "$3"
  cat "$folder/$1"/session_raw/* >/dev/null
}

echo "| work                                         |       wall |       CPU |      memory | / copy |"
echo "| -------------------------------------------- | ---------- | --------- | ----------- | ------ |"
for size in "big 1000 1073000" "small 20000 1500" "one8 1 8000000" "one80 1 80000000" "one800 1 800000000"; do
  set -- $size
  workspace "$1" "$2" "$3"
  w=$folder/$1
  before="rm -rf $folder/copy"
  copy=$(measure "cp -r $w/session_raw $folder/copy && sync -f $folder/copy")
  row "$1: cp -r, sync -f" "$copy" "$copy"
  before="rm -rf $w/tinyagents_store"
  ours=$(measure "$tool run -q -w $w")
  row "$1: session-import run" "$ours" "$copy"
  one=$(measure "$tool run -q -w $w -j 1")
  row "$1: session-import run -j 1" "$one" "$copy"
  before="rm -rf $w/tinyagents_store"
  dry=$(measure "$tool run -q -w $w --dry-run")
  row "$1: session-import run --dry-run" "$dry" "$copy"
  before=:
  "$tool" run -q -w "$w" >/dev/null
  again=$(measure "$tool run -q -w $w")
  row "$1: session-import run, nothing changed" "$again" "$copy"
  found=$(measure "find $w/session_raw -printf '%s %T@ %C@ %i\n'")
  row "$1: find -printf (second run is held to it)" "$found" "$copy"
  case $1 in
    big)
      hash=$(measure "sha256sum $w/session_raw/*")
      row "$1: sha256sum" "$hash" "$copy"
      transform=$(measure "cat $w/session_raw/* | jq -c '{role, content}' > $folder/jq && sync -f $folder/jq")
      row "$1: jq -c, one process" "$transform" "$copy"
      rm -f "$folder/jq"
      ;;
  esac
  rm -rf "$w/tinyagents_store" "$folder/copy"
done

# The store's own append, as the application's earlier importer used it: it
# reads the whole stream again for every message, so one small session is enough.
"$generate" "$folder/append" 1 2000000
source=$(ls "$folder"/append/session_raw/*.jsonl)
before="rm -rf $folder/append-store $folder/append/tinyagents_store"
ours=$(measure "$tool run -q -w $folder/append")
row "2 MB: session-import run" "$ours" "$ours"
(cd conformance && cargo build --release --locked --bin append-loop)
loop=$(ls "${CARGO_TARGET_DIR:-conformance/target}"/release/append-loop)
append=$(measure "$loop $source $folder/append-store")
row "2 MB: append loop of tinyagents 1.5.0 (/ ours)" "$append" "$ours"
