#!/usr/bin/env bash
# Checks the published crates with the oldest Rust that they promise to support (rust-version in Cargo.toml).
#
#   bash tests/package/msrv.sh
#
# Exit status: 0; 1 they need a later Rust; 77 that toolchain is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! RUSTUP_AUTO_INSTALL=0 rustup run "$oldest" cargo --version >/dev/null 2>&1; then
    echo "Rust $oldest is not installed (rustup toolchain install --profile minimal $oldest)"
    exit 77
fi
for features in --no-default-features "" --all-features; do
    # shellcheck disable=SC2086 # an empty word is no argument
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/msrv rustup run "$oldest" cargo check --quiet --locked $features \
        -p quorate -p quorate-postgres -p quorate-operator -p quorate-web -p quorate-test -p quorate-cli
done
