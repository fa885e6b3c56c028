#!/bin/sh
# Installs the program from the folder of a release, after its checksum was compared with that in SHA256SUMS. Both are in the
# folder of this script. It cannot know who made them: get the folder from a source that you trust.
#
#   sh install.sh           into /usr/local/bin, as root
#   sh install.sh ~/bin     into another folder
#
# Exit status: 0; 1 nothing was installed, and the last line says why.
set -eu
into=${1:-/usr/local/bin}
cd "$(dirname "$0")"

refuse() {
    echo "install.sh: $*; nothing was installed" >&2
    exit 1
}
program=
for file in quorate-*-"$(uname -m)"-linux; do
    [ -f "$file" ] || refuse "no program for $(uname -m) is in $(pwd)"
    [ -z "$program" ] || refuse "$program and $file are both in $(pwd); remove one"
    program=$file
done
[ -f SHA256SUMS ] || refuse "SHA256SUMS is not in $(pwd)"
expected=$(awk -v name="$program" '$2 == name || $2 == "*" name { print $1 }' SHA256SUMS)
[ -n "$expected" ] || refuse "SHA256SUMS has no line for $program"
found=$(sha256sum "$program" | cut -d ' ' -f 1)
[ "$expected" = "$found" ] || refuse "$program has the checksum $found, and SHA256SUMS has $expected: it is damaged or another file"
# A program that runs keeps its file: the new one is another file, which takes over the name.
new=$into/.quorate.$$
trap 'rm -f "$new"' EXIT
install -m 755 "$program" "$new" || refuse "cannot write to $into; run it as root, or name another folder: sh install.sh FOLDER"
"$new" --version >/dev/null || refuse "$program does not run on this machine"
mv "$new" "$into/quorate"
echo "$into/quorate: $("$into/quorate" --version | head -n 1)"
