#!/usr/bin/env bash
# Makes what a release offers for download: an archive with the program, its manual pages, completions, systemd unit,
# configuration file and licences; the list of its parts (SBOM, CycloneDX); and the checksums of all files in DIR. Prints
# the path of the checksums. `config/package/install.sh` installs the program from such a directory.
#
#   bash config/package/dist.sh PROGRAM DIR
#
# PROGRAM is the static program (config/package/static.sh) or another one for this machine. It needs cargo-cyclonedx
# (cargo install cargo-cyclonedx --locked).
set -euo pipefail

[ $# -eq 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 64; }
program=$(realpath "$1")
out=$(mkdir -p "$2" && realpath "$2")
cd "$(dirname "$0")/../.."

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=quorate-$version-$(uname -m)-linux
# The times in the archive are those of the commit, so that one commit always makes the same archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name
install -D -m 755 "$program" "$root/quorate"
strip --strip-unneeded --remove-section=.comment "$root/quorate"
"$root/quorate" man --dir "$root/man"
mkdir "$root/completions"
for shell in bash zsh fish; do "$root/quorate" completions "$shell" >"$root/completions/quorate.$shell"; done
"$root/quorate" init --full "$root/quorate.toml" >/dev/null
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT config/quorate.service "$root/"
chmod -R u=rwX,go=rX "$root"
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" "$name" |
    gzip --no-name >"$out/$name.tar.gz"

cargo cyclonedx --quiet --format json --spec-version 1.5 --describe binaries \
    --manifest-path crates/quorate-cli/Cargo.toml
mv crates/quorate-cli/quorate_bin.cdx.json "$out/quorate-$version.cdx.json"

cd "$out"
sums=$(find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum)
printf '%s\n' "$sums" >SHA256SUMS
echo "$out/SHA256SUMS"
