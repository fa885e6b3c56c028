#!/usr/bin/env bash
# Makes the Debian package of PROGRAM, examines it with lintian, and installs, uses, removes and purges it in a
# copy-on-write view of this machine's file system. The machine itself does not change.
#
#   bash tests/package/deb.sh PROGRAM
#
# Exit status: 0; 1 the package is wrong; 77 this machine cannot run the test, and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/../.."

cannot() {
    echo "$*"
    exit 77
}
for tool in dpkg dpkg-deb dpkg-shlibdeps lintian strip unshare setpriv adduser; do
    command -v "$tool" >/dev/null || cannot "$tool is not installed"
done
[ "$(id -u)" -eq 0 ] || cannot "the installation of a package needs root"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export MAINTAINER='The Quorate contributors <maintainers@example.org>'
package=$(bash config/package/deb.sh "$1" "$out/first")
again=$(bash config/package/deb.sh "$1" "$out/second")
cmp "$package" "$again" || { echo "two builds of one commit differ" >&2; exit 1; }

# No tag is suppressed. Errors and warnings fail.
lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$package"

if dpkg -s quorate >/dev/null 2>&1; then
    cannot "the package quorate is installed on this machine"
fi
before=$(dpkg-query -W | md5sum)
mkdir "$out/view"
cp "$package" "$out/view/quorate.deb"
status=0
unshare --mount --pid --fork --kill-child bash tests/package/in_view.sh "$out/view" || status=$?
[ "$(dpkg-query -W | md5sum)" = "$before" ] || { echo "the test changed this machine" >&2; exit 1; }
exit "$status"
