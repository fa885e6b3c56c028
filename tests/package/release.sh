#!/usr/bin/env bash
# Makes the folder of a release with PROGRAM, and installs from it: install.sh refuses a damaged program, a program without a
# checksum and a folder that it cannot write to, and replaces a program that runs.
#
#   bash tests/package/release.sh PROGRAM
#
# Exit status: 0; 1 the folder or the installer is wrong; 77 this machine cannot run the test, and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/../.."

for tool in strip tar sha256sum python3; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed"; exit 77; }
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "$*" >&2; exit 1; }

echo 'as if it were the Debian package' >"$out/quorate_amd64.deb"
bash config/package/release.sh "$1" "$out/release" "$out/quorate_amd64.deb"
cd "$out/release"
sha256sum --check --quiet SHA256SUMS
[ "$(wc -l <SHA256SUMS)" = "$(find . -type f ! -name SHA256SUMS | wc -l)" ] || fail "a file has no checksum"
tar --list --file ./*.tar.gz | grep '^man/man1/quorate-run.1$' >/dev/null || fail "a manual page is missing"
python3 - ./*.cdx.json <<'P'
import json, sys

document = json.load(open(sys.argv[1]))
names = {component["name"] for component in document["components"]}
assert document["bomFormat"] == "CycloneDX" and {"quorate", "redis", "tokio"} <= names, names
assert not names & {"quorate-testkit", "pulldown-cmark"}, "development dependencies are not in the program"
P

mkdir ../bin
sh install.sh ../bin
# A program that runs is replaced, and its process goes on.
../bin/quorate exec --local --lock release -- sleep 1000 &
running=$!
trap 'kill "$running" 2>/dev/null; rm -rf "$out"' EXIT
sh install.sh ../bin
kill -0 "$running" || fail "the replaced program has ended"
before=$(sha256sum ../bin/quorate)

refused() {
    if sh install.sh "$1" >../said 2>&1; then fail "it was not refused: $2"; fi
    grep -q "$2" ../said || fail "it does not say $2: $(cat ../said)"
    [ "$(sha256sum ../bin/quorate)" = "$before" ] || fail "it was installed: $2"
    [ -z "$(find ../bin -name '.quorate.*')" ] || fail "it left a file: $2"
}
refused ../none 'cannot write to'
program=$(echo quorate-*-linux)
printf x >>"$program"
refused ../bin 'damaged or another file'
sed -i "/ $program\$/d" SHA256SUMS
refused ../bin 'no line for'
rm "$program"
refused ../bin 'no program for'
