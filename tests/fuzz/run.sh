#!/usr/bin/env bash
# Fuzzes the entry points for bytes from outside, beginning with the inputs in tests/fuzz/corpus.
#
#   bash tests/fuzz/run.sh                     every target for 20 s, two at once
#   bash tests/fuzz/run.sh --seconds 120 cron  one target, for longer
#   bash tests/fuzz/run.sh --keep              also adds inputs that reach new code to the corpus, which is then minimized
#
# It needs a nightly compiler of rustup, and builds cargo-fuzz into target/fuzz-tools if the machine has none. There is no
# address sanitizer: the crates forbid unsafe code, and without it a run makes more tries.
# Exit status: 0; 1 an input breaks a property, and its file is named; 77 there is no nightly compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
CARGO_FUZZ=0.13.2
build=$PWD/target/fuzz corpus=$PWD/tests/fuzz/corpus
seconds=20 keep='' targets=()
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 && shift ;;
    --keep) keep=1 ;;
    -*) echo "tests/fuzz/run.sh: unknown option $1; there are --seconds N and --keep" >&2 && exit 2 ;;
    *) targets+=("$1") ;;
    esac
    shift
done

if ! RUSTUP_AUTO_INSTALL=0 rustup run nightly cargo --version >/dev/null 2>&1; then
    echo "a nightly compiler is not installed (rustup toolchain install --profile minimal nightly)"
    exit 77
fi
PATH="$PWD/target/fuzz-tools/bin:$PATH"
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "installing cargo-fuzz"
    CARGO_TARGET_DIR=$PWD/target/fuzz-tools/build cargo install --quiet --locked --debug --version "$CARGO_FUZZ" \
        --root target/fuzz-tools cargo-fuzz
    rm -rf target/fuzz-tools/build
fi

cargo +nightly fuzz build --fuzz-dir tests/fuzz --sanitizer none --target-dir "$build"
[ "${#targets[@]}" -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir tests/fuzz)
programs=$build/$(rustc +nightly --print host-tuple)/release
mkdir -p "$build/found" "$build/logs"
# The file of an input that broke a property in an earlier run is not reported again.
rm -rf "${build:?}/broken" && mkdir -p "$build/broken"

# fuzz TARGET: exits with 0 if no input broke a property.
fuzz() {
    local target=$1 found=$build/found/$1 log=$build/logs/$1
    rm -rf "$found" && mkdir -p "$found" "$corpus/$target"
    if ! "$programs/$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="$build/broken/$target-" "$found" "$corpus/$target" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "$target: an input breaks a property; run it again: $programs/$target $build/broken/$target-*" >&2
        return 1
    fi
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, $(find "$found" -type f | wc -l) new inputs"
}

# keep TARGET: replaces the corpus by the fewest inputs that reach as much code.
keep() {
    local target=$1 merged=$build/merged/$1
    rm -rf "$merged" && mkdir -p "$merged"
    "$programs/$target" -merge=1 -max_len=4096 "$merged" "$corpus/$target" "$build/found/$target" >/dev/null 2>&1
    rm -rf "${corpus:?}/$target" && mv "$merged" "$corpus/$target"
    echo "$target: $(find "$corpus/$target" -type f | wc -l) inputs kept"
}

# Two at once, also after a failure, so that one run reports all.
running=0 failed=''
for target in "${targets[@]}"; do
    if [ "$running" -eq 2 ]; then
        wait -n || failed=1
        running=1
    fi
    fuzz "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
[ -z "$failed" ] || exit 1
[ -z "$keep" ] || for target in "${targets[@]}"; do keep "$target"; done
