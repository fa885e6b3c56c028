#!/usr/bin/env bash
# Puts what a release offers for download into a new folder: the program, its manual pages and completions, its bill of
# materials, other files that are given (such as the Debian package), install.sh, and the checksums of all of them.
#
#   bash config/package/release.sh PROGRAM FOLDER [FILE…]
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -ge 2 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
program=$1 folder=$2
shift 2
name=quorate-$("$program" --version | awk 'NR == 1 { print $2 }')-$(uname -m)-linux
mkdir "$folder"
install -m 755 "$program" "$folder/$name"
strip "$folder/$name"
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$program" man --dir "$pages/man/man1"
mkdir "$pages/completions"
for shell in bash zsh fish; do "$program" completions "$shell" >"$pages/completions/quorate.$shell"; done
# The same files give the same archive.
tar --create --gzip --file "$folder/$name-man-completions.tar.gz" --directory "$pages" \
    --sort=name --owner=0 --group=0 --mtime='2000-01-01 00:00Z' man completions
python3 config/package/sbom.py >"$folder/$name.cdx.json"
for file in config/package/install.sh "$@"; do install -m 644 "$file" "$folder"; done
(cd "$folder" && sha256sum -- * >SHA256SUMS)
echo "$folder"
