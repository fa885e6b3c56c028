#!/usr/bin/env bash
# Compares the public interface of the published crates with that of the last release, by cargo-semver-checks. The last
# release is the newest tag vX.Y.Z before this commit.
#
#   bash tests/package/semver.sh
#
# Exit status: 0; 1 the version number must grow more; 77 there is nothing to compare, and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/../.."
CHECKER=0.51.0

last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD 2>/dev/null) || {
    echo "no release to compare with: no commit has a tag like v0.1.0"
    exit 77
}
PATH="$PWD/target/semver-checks/bin:$PATH"
if ! cargo semver-checks --version >/dev/null 2>&1; then
    CARGO_TARGET_DIR=$PWD/target/semver-checks/build cargo install --quiet --locked --version "$CHECKER" \
        --root target/semver-checks cargo-semver-checks || {
        echo "cargo-semver-checks $CHECKER could not be installed"
        exit 77
    }
    rm -rf target/semver-checks/build
fi
# quorate-cli has a binary; its library is not a public interface.
cargo semver-checks --baseline-rev "$last" -p quorate -p quorate-postgres -p quorate-web -p quorate-test
