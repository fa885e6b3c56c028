#!/usr/bin/env bash
# Makes the packages of all published crates, builds each from its package alone, rehearses the publication, and runs the
# examples in the documentation of the packages, unpacked into a workspace of their own.
#
#   bash tests/package/crates.sh
#
# It reads crates.io's index and publishes nothing. Exit status: 0; 1 a package is wrong.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}

# The crates without `publish = false`, each with its version.
crates() {
    cargo metadata --format-version 1 --no-deps --locked |
        python3 -c 'import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] is None: print(package["name"], package["version"])'
}
mapfile -t published < <(crates)
[ "${#published[@]}" -gt 0 ] || { echo "no crate is published" >&2; exit 1; }
selected=()
for crate in "${published[@]}"; do selected+=(-p "${crate% *}"); done

# Uncommitted changes are packaged too, so that this can run before a commit.
echo "packages, each built from its own files"
cargo package --locked --allow-dirty "${selected[@]}"
echo "publication, rehearsed"
cargo publish --dry-run --no-verify --locked --allow-dirty "${selected[@]}"

echo "the examples in the documentation of the packages"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    printf '[workspace]\nresolver = "3"\nmembers = ['
    printf '"%s", ' "${published[@]/ /-}"
    printf ']\n[patch.crates-io]\n'
    for crate in "${published[@]}"; do printf '%s = { path = "%s" }\n' "${crate% *}" "${crate/ /-}"; done
} >"$work/Cargo.toml"
for crate in "${published[@]}"; do
    tar --extract --gzip --directory "$work" --file "$target/package/${crate/ /-}.crate"
done
# The versions that were tested, so that the build has nothing new to compile.
cp Cargo.lock "$work/"
log=$work/log
(cd "$work" && CARGO_TARGET_DIR=$target/package/documentation cargo test --doc --workspace --all-features) 2>&1 | tee "$log"
# A crate without examples would pass too.
for crate in quorate quorate_postgres quorate_test quorate_web; do
    awk -v crate="$crate" '$1 == "Doc-tests" { current = $2 } /^test result: ok/ && current == crate && $4 > 0 { found = 1 } END { exit !found }' \
        "$log" || { echo "no example of $crate ran" >&2; exit 1; }
done
