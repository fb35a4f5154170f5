#!/usr/bin/env bash
# The tables of docs/performance.md, measured on this machine: ours beside copying
# the same files, hashing them, a jq transform, and the store's own append loop;
# then each goal with what was reached.
#
#   benches/compare.sh [FOLDER]      needs 16 GiB there; default: a temporary one
#
# A figure is the median of RUNS runs (default 3). Every row of a size comes right
# after the copy that it is compared with.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${RUNS:-3}
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
trap 'rm -rf "$folder"/out' EXIT
for tool in jq time; do
  command -v $tool >/dev/null || [ -x /usr/bin/$tool ] || { apt-get update -qq && apt-get install -y -qq $tool; }
done

cargo build --release --locked --bin session-import --example generate_workspace
target=${CARGO_TARGET_DIR:-$PWD/target}
tool=$target/release/session-import
generate=$target/release/examples/generate_workspace

# Seconds of wall time, seconds of CPU, KiB of peak memory: the median run. Each
# run finds in $out a name that was never used. What they leave is removed after
# the measurement, not before the next run: ext4 goes slow about places of files
# that were removed within the last minutes, for whoever makes the next ones.
# Short commands are repeated REPEAT times, and the figures divided.
measure() { # command
  local repeat=${REPEAT:-1} began ended
  mkdir -p "$folder/out"
  for _ in $(seq "$runs"); do
    out=$(mktemp -u "$folder/out/XXXXXX")
    export out
    sync -f "$folder"
    began=$EPOCHREALTIME
    /usr/bin/time -o "$folder/time" -f '%U %S %M' \
      bash -c "for _ in $(seq -s ' ' "$repeat"); do $1; done" >/dev/null 2>"$folder/stderr" \
      || { cat "$folder/stderr" >&2; exit 1; }
    ended=$EPOCHREALTIME
    awk -v began="$began" -v ended="$ended" -v n="$repeat" \
      '{printf "%.4f %.4f %d\n", (ended - began) / n, ($1 + $2) / n, $3}' "$folder/time"
  done | sort -n | awk '{line[NR] = $0} END {print line[int((NR + 1) / 2)]}'
  [ -n "${KEEP:-}" ] || rm -rf "$folder/out"
}

row() { # name, figures, figures to compare with
  awk -v name="$1" -v a="$2" -v b="$3" 'BEGIN {
    split(a, x, " "); split(b, y, " ")
    printf "| %-46s | %8.2f s | %7.2f s | %7.1f MiB | %6.2f |\n", name, x[1], x[2], x[3] / 1024, x[1] / y[1]
  }'
}

goals=()
goal() { # name, limit, reached
  goals+=("$(printf '| %-58s | %8s | %8s |' "$1" "$2" "$3")")
}
ratio() { # figures, figures, which: 1 wall, 2 CPU
  awk -v a="$1" -v b="$2" -v i="$3" 'BEGIN {split(a, x, " "); split(b, y, " "); printf "%.2f", x[i] / y[i]}'
}
mib() { # figures
  awk '{printf "%.1f", $3 / 1024}' <<<"$1"
}

workspace() { # name, sessions, bytes
  [ -d "$folder/$1" ] || "$generate" "$folder/$1" "$2" "$3"
  cat "$folder/$1"/session_raw/* >/dev/null
}

echo "| work                                           |       wall |       CPU |      memory | / copy |"
echo "| ---------------------------------------------- | ---------- | --------- | ----------- | ------ |"
# `small` makes and leaves so many files that it comes last.
for size in "big 1000 1073000" "one8 1 8000000" "one80 1 80000000" "one800 1 800000000" "small 20000 1500"; do
  set -- $size
  workspace "$1" "$2" "$3"
  w=$folder/$1
  KEEP=$([ "$1" = small ] && echo yes || true)
  copy=$(measure "cp -r $w/session_raw \$out && sync -f \$out")
  row "$1: cp -r, sync -f" "$copy" "$copy"
  ours=$(measure "$tool run -q -w $w --store \$out")
  row "$1: session-import run" "$ours" "$copy"
  one=$(measure "$tool run -q -w $w --store \$out -j 1")
  row "$1: session-import run -j 1" "$one" "$copy"
  dry=$(measure "$tool run -q -w $w --store \$out --dry-run")
  row "$1: session-import run --dry-run" "$dry" "$copy"
  "$tool" run -q -w "$w" --store "$folder/again" >/dev/null
  again=$(REPEAT=20 measure "$tool run -q -w $w --store $folder/again")
  row "$1: session-import run, nothing changed" "$again" "$copy"
  found=$(REPEAT=20 measure "find $w/session_raw -printf '%s %T@ %C@ %i\n'")
  row "$1: find -printf" "$found" "$copy"
  goal "$1: peak memory of a run, MiB" 16 "$(mib "$ours")"
  goal "$1: dry run / run, CPU" 0.6 "$(ratio "$dry" "$ours" 2)"
  case $1 in
    big)
      goal "big: run / (cp -r, sync -f), wall" 1.2 "$(ratio "$ours" "$copy" 1)"
      hash=$(measure "sha256sum $w/session_raw/*")
      row "big: sha256sum" "$hash" "$copy"
      transform=$(measure "cat $w/session_raw/* | jq -c '{role, content}' > \$out && sync -f \$out")
      row "big: jq -c, one process" "$transform" "$copy"
      ;;
    one80 | one800)
      goal "$1: run / run of a tenth, CPU" 11 "$(ratio "$ours" "$tenth" 2)"
      ;;
    small)
      goal "small: run / (cp -r, sync -f), wall" 3 "$(ratio "$ours" "$copy" 1)"
      goal "small: run with nothing changed / find, wall" 1.5 "$(ratio "$again" "$found" 1)"
      goal "small: the same, CPU" 1.5 "$(ratio "$again" "$found" 2)"
      ;;
  esac
  tenth=$ours
  rm -rf "$folder/again"
done
KEEP=

# One line of 64 MiB.
line=$folder/line/session_raw
mkdir -p "$line"
{
  cat "$folder"/one8/session_raw/* | head -n 1
  printf '{"role":"user","content":"'
  head -c $((64 << 20)) /dev/zero | tr '\0' x
  printf '"}\n'
} >"$line/1780000000_orchestrator.jsonl" || true
long=$(measure "$tool run -q -w $folder/line --store \$out")
row "a line of 64 MiB: session-import run" "$long" "$long"
goal "a line of 64 MiB: peak memory, MiB" 144 "$(mib "$long")"

# The store's own append, as the application's earlier importer used it: it
# reads the whole stream again for every message, so one small session is enough.
workspace append 1 2000000
ours=$(REPEAT=5 measure "rm -rf \$out; $tool run -q -w $folder/append --store \$out")
row "2 MB: session-import run" "$ours" "$ours"
(cd conformance && cargo build --release --locked --bin append-loop)
loop=${CARGO_TARGET_DIR:-$PWD/conformance/target}/release/append-loop
append=$(measure "$loop $folder/append/session_raw/*.jsonl \$out")
row "2 MB: append loop of tinyagents 1.5.0 (/ ours)" "$append" "$ours"

echo
echo "| goal                                                       |  at most |  reached |"
echo "| ---------------------------------------------------------- | -------- | -------- |"
printf '%s\n' "${goals[@]}"
