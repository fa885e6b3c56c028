#!/usr/bin/env bash
# Installs what the tests need and runs everything that CI runs. Asks for nothing.
#
#   bash tests/run.sh          all of it
#   bash tests/run.sh --fix    formats, and mends what clippy can
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

# install PROGRAM APT DNF APK BREW PACMAN: through whichever package manager this machine has.
install() {
    command -v "$1" >/dev/null && return
    say "installing $1"
    if command -v apt-get >/dev/null; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"
    elif command -v dnf >/dev/null; then
        as_root dnf install -y -q "$3"
    elif command -v apk >/dev/null; then
        as_root apk add -q "$4"
    elif command -v brew >/dev/null; then
        brew install -q "$5"
    elif command -v pacman >/dev/null; then
        as_root pacman -S --noconfirm --quiet "$6"
    fi
    command -v "$1" >/dev/null || {
        echo "tests/run.sh: $1 is missing and could not be installed; install it and run this again" >&2
        exit 1
    }
}

if [ "${1:-}" = --fix ]; then
    cargo fmt --all
    cargo clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged
    exit
fi

install cc gcc gcc build-base gcc gcc
install redis-server redis-server redis redis redis redis
install openssl openssl openssl openssl openssl openssl

# Its programs are on nobody's path: the test-kit looks where packages put them.
if ! ls /usr/lib/postgresql/*/bin/postgres /usr/libexec/postgresql*/bin/postgres >/dev/null 2>&1; then
    install postgres postgresql postgresql-server postgresql postgresql postgresql
fi

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --all-features -- -D warnings

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --quiet

say "tests, and the examples in the documentation"
cargo test --workspace --all-features

for example in examples/*.rs; do
    name=$(basename "$example" .rs)
    [ "$name" = lib ] && continue
    say "example $name"
    cargo run --quiet -p quorate-examples --example "$name"
done

say "all is well"
