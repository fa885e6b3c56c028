#!/bin/sh
# Installs the program `quorate`, one file, from the downloads of a release. The checksum of the archive is verified
# first; nothing is installed if it is wrong.
#
#   sh install.sh --from URL-OR-DIR [--to DIR]
#
# --from  the place of SHA256SUMS and the archives: an address (https://…) or a directory
# --to    the directory of the program [default: /usr/local/bin for root, else ~/.local/bin]
#
# Exit status: 0; 1 nothing was installed, and the last line says why; 64 the arguments are wrong.
set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 1
}
usage() {
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

from=
to=
while [ $# -gt 0 ]; do
    case $1 in
    --from | --to) [ $# -ge 2 ] || usage ;;
    *) usage ;;
    esac
    case $1 in
    --from) from=${2%/} ;;
    --to) to=$2 ;;
    esac
    shift 2
done
[ -n "$from" ] || usage
if [ -z "$to" ]; then
    if [ "$(id -u)" -eq 0 ]; then to=/usr/local/bin; else to=$HOME/.local/bin; fi
fi
[ "$(uname -s)" = Linux ] || fail "there is a program for Linux only; elsewhere build it: cargo install quorate-cli"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# get NAME: puts a file of the release into the work directory.
get() {
    case $from in
    *://*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --output "$work/$1" "$from/$1"
        elif command -v wget >/dev/null; then
            wget --quiet --output-document="$work/$1" "$from/$1"
        else
            fail "neither curl nor wget is installed"
        fi || fail "cannot get $from/$1"
        ;;
    *) cp "$from/$1" "$work/$1" || fail "cannot read $from/$1" ;;
    esac
}

get SHA256SUMS
machine=$(uname -m)
line=$(grep -E "^[0-9a-f]{64}  quorate-[^/ ]+-$machine-linux\.tar\.gz\$" "$work/SHA256SUMS") ||
    fail "$from/SHA256SUMS names no archive for $machine"
[ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "$from/SHA256SUMS names several archives for $machine"
archive=${line#*  }
get "$archive"
printf '%s\n' "$line" | (cd "$work" && sha256sum --check --status -) ||
    fail "the checksum of $archive is wrong: nothing was installed"
tar -xzf "$work/$archive" -C "$work"

mkdir -p "$to" || fail "cannot create $to"
# A program that runs keeps its file: the new one takes its name in one step.
next=$to/.quorate.$$
install -m 755 "$work/${archive%.tar.gz}/quorate" "$next" || fail "cannot write to $to"
mv "$next" "$to/quorate"
"$to/quorate" --version || fail "$to/quorate does not run on this machine"
echo "installed: $to/quorate"
case :$PATH: in
*:"$to":*) ;;
*) echo "$to is not in PATH" ;;
esac
