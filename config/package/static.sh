#!/usr/bin/env bash
# Builds a static program, which needs no library of the machine: target/MACHINE-unknown-linux-musl/release/quorate.
# Prints its path. It needs Rust's standard library for musl (rustup target add) and musl-gcc (Debian: musl-tools).
#
#   bash config/package/static.sh
#
# Exit status: 0; 77 this machine cannot build it, and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=$(uname -m)-unknown-linux-musl
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "Rust's standard library for $target is not installed (rustup target add $target)"
    exit 77
fi
if ! command -v musl-gcc >/dev/null; then
    echo "musl-gcc is not installed (Debian and Ubuntu: apt-get install musl-tools)"
    exit 77
fi
variable=${target//-/_}
env "CC_$variable=musl-gcc" cargo build --quiet --release --locked --target "$target" -p quorate-cli
program=${CARGO_TARGET_DIR:-target}/$target/release/quorate
if readelf --program-headers "$program" | grep -q INTERP; then
    echo "$program needs a dynamic loader: it is not static" >&2
    exit 1
fi
"$program" --version >&2
echo "$program"
