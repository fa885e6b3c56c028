#!/usr/bin/env bash
# Builds the fuzz targets with a nightly compiler and runs each for a short time, two at once.
#
#   bash tests/fuzz/run.sh               20 s for each target
#   bash tests/fuzz/run.sh --libraries   only the targets of the libraries: the program takes long to build
#   SECONDS_EACH=600 bash tests/fuzz/run.sh NAME…   longer, and some targets only
#   KEEP=1 bash tests/fuzz/run.sh        adds what was found to tests/fuzz/corpus, reduced to a small set of inputs
#
# Without a nightly compiler the script says so and ends with status 0. The properties in tests/unfriendly_input.rs call
# the same functions, and need no such compiler. No sanitizer is used, since the code has no `unsafe`. So plain Cargo can
# build the targets, with the compiler flags that cargo-fuzz would set.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=$PWD/target/fuzz
seconds=${SECONDS_EACH:-20}
# The corpus of one target has at most this many files, and none longer than this.
FILES_MAX=30
BYTES_MAX=2000

# Some versions of rustup would install a compiler that is missing.
if ! RUSTUP_AUTO_INSTALL=0 rustc +nightly --version >/dev/null 2>&1; then
    echo "no nightly compiler: the fuzz targets do not run; the test unfriendly_input calls the same functions"
    exit 0
fi
features=()
sources=$(find tests/fuzz/targets -name '*.rs')
if [ "${1:-}" = --libraries ]; then
    shift
    features=(--no-default-features)
    sources=$(grep -L unfriendly_program $sources)
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for source in $(sort <<<"$sources"); do targets+=("$(basename -s .rs "$source")"); done
fi

host=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=16 -Copt-level=1 -Cdebug-assertions"
began=$SECONDS
# With --target the flags do not apply to build scripts and macros, which could not be linked with them.
RUSTFLAGS=$(xargs <<<"$coverage") cargo +nightly build --quiet --locked --release --manifest-path tests/fuzz/Cargo.toml \
    --target "$host" --target-dir "$place" ${features[@]+"${features[@]}"} "${targets[@]/#/--bin=}"
echo "built in $((SECONDS - began)) s"
built=$place/$host/release

# fuzz NAME: runs one target. Its new inputs go to target/fuzz/corpus, an input that crashes it to target/fuzz/crashes.
fuzz() {
    local name=$1 found=$place/corpus/$1 log=$place/$1.log
    mkdir -p "$found" "$place/crashes/$name" "tests/fuzz/corpus/$name"
    if "$built/$name" -max_total_time="$seconds" -timeout=60 -max_len="$BYTES_MAX" -print_final_stats=1 \
        -artifact_prefix="$place/crashes/$name/" "$found" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs"
    else
        echo "$name FAILED: $built/$name crashes with the input in $place/crashes/$name; the end of its log:"
        tail -n 40 "$log"
        return 1
    fi
}

# keep NAME: makes the committed corpus a set of inputs that reach different code, within the limits. An input that once
# crashed the target, whose name begins with `crash-`, stays.
keep() {
    local name=$1 merged=$place/merged/$1 list=$place/$1.list
    rm -rf "$merged"
    mkdir -p "$merged"
    "$built/$name" -merge=1 -timeout=60 -max_len="$BYTES_MAX" -artifact_prefix="$place/crashes/$name/" \
        "$merged" "tests/fuzz/corpus/$name" "$place/corpus/$name" >"$place/$name.merge.log" 2>&1
    find "tests/fuzz/corpus/$name" -type f ! -name 'crash-*' -delete
    find "$merged" -type f -printf '%s %p\n' | sort -n | cut -d' ' -f2- >"$list"
    # Evenly from the shortest to the longest one.
    awk -v most="$FILES_MAX" -v all="$(wc -l <"$list")" 'int(NR * most / all) > int((NR - 1) * most / all)' "$list" |
        xargs -r -I{} cp {} "tests/fuzz/corpus/$name/"
}

began=$SECONDS
failed=()
pids=()
names=()
# await_one: waits for the oldest target that runs.
await_one() {
    wait "${pids[0]}" || failed+=("${names[0]}")
    pids=("${pids[@]:1}")
    names=("${names[@]:1}")
}
for name in "${targets[@]}"; do
    [ ${#pids[@]} -lt 2 ] || await_one
    fuzz "$name" &
    pids+=($!)
    names+=("$name")
done
while [ ${#pids[@]} -gt 0 ]; do await_one; done
echo "${#targets[@]} targets ran for $((SECONDS - began)) s"

if [ -n "${KEEP:-}" ]; then for name in "${targets[@]}"; do keep "$name"; done; fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "tests/fuzz/run.sh: an input broke a property of: ${failed[*]}" >&2
    exit 1
fi
