#!/usr/bin/env bash
# Makes the Debian package of a built program: the program, the systemd units, the manual pages, the completions, and the
# configuration file. Prints the path of the package. It changes nothing but the files in DIR.
#
#   cargo build --release --locked -p quorate-cli
#   MAINTAINER='NAME <ADDRESS>' bash config/package/deb.sh target/release/quorate DIR
#
# It needs dpkg-dev and binutils, and a Debian or Ubuntu no newer than those on which the package is to be installed.
set -euo pipefail

[ $# -eq 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 64; }
program=$(realpath "$1")
out=$(mkdir -p "$2" && realpath "$2")
cd "$(dirname "$0")/../.."

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Debian orders 0.2.0~rc.1 before 0.2.0.
version=${version/-/\~}
architecture=$(dpkg --print-architecture)
maintainer=${MAINTAINER:?the Maintainer field of the package: NAME <ADDRESS>}
# The times in the package are those of the commit, so that one commit always makes the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

# place MODE FILE PATH: copies a file into the package.
place() { install -D -m "$1" "$2" "$root/$3"; }

place 755 "$program" usr/bin/quorate
strip --strip-unneeded --remove-section=.comment "$root/usr/bin/quorate"
quorate=$root/usr/bin/quorate

"$quorate" man --dir "$root/usr/share/man/man1"
"$quorate" completions bash >"$work/bash"
"$quorate" completions zsh >"$work/zsh"
"$quorate" completions fish >"$work/fish"
place 644 "$work/bash" usr/share/bash-completion/completions/quorate
place 644 "$work/zsh" usr/share/zsh/vendor-completions/_quorate
place 644 "$work/fish" usr/share/fish/vendor_completions.d/quorate.fish

install -d "$root/etc/quorate"
"$quorate" init --full "$root/etc/quorate/quorate.toml" >/dev/null

# The units of the package differ from those of the repository in the path of the program and in the user: the package
# creates one, so that /etc/quorate can be closed to other users.
for unit in quorate.service quorate-serve.service quorate-serve.socket; do
    sed -e '1,/^\[Unit\]/{/^#/d}' -e 's|/usr/local/bin/|/usr/bin/|' \
        -e '/^# systemd creates an unprivileged user/c # Jobs run as this user, too: if they need another user, set User= in a drop-in.' \
        -e '/^# User= instead\.$/d' -e 's/^DynamicUser=yes$/User=quorate\nGroup=quorate/' \
        "config/$unit" >"$work/unit"
    place 644 "$work/unit" "usr/lib/systemd/system/$unit"
done

doc=usr/share/doc/quorate
awk 'FNR == NR { text = text (FNR > 1 ? "\n" : "") ($0 == "" ? " ." : " " $0); next } $0 == "@MIT@" { $0 = text } 1' \
    LICENSE-MIT config/package/debian/copyright >"$work/copyright"
place 644 "$work/copyright" $doc/copyright
place 644 CHANGELOG.md $doc/NEWS.md
place 644 config/redis.conf $doc/examples/redis.conf
place 644 config/prometheus/quorate-alerts.yml $doc/examples/quorate-alerts.yml
place 644 config/grafana/quorate.json $doc/examples/grafana.json
cat >"$work/changelog" <<EOF
quorate ($version) stable; urgency=medium

  * Version $version. NEWS.md says what changed.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF
place 644 "$work/changelog" $doc/changelog
gzip -9n "$root/$doc/changelog" "$root/$doc/NEWS.md" "$root"/usr/share/man/man1/*.1

# dpkg-shlibdeps reads the names of the libraries' packages, and requires a source package around it.
mkdir -p "$work/debian" && printf 'Source: quorate\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$quorate" 2>"$work/shlibdeps" || { cat "$work/shlibdeps" >&2; exit 1; })
size=$(du -sk --apparent-size "$root" | cut -f1)
install -d "$root/DEBIAN"
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@MAINTAINER@|$maintainer|" \
    -e "s|@SIZE@|$size|" -e "s|@DEPENDS@|${depends#shlibs:Depends=}|" \
    config/package/debian/control >"$root/DEBIAN/control"
for script in postinst prerm postrm; do
    install -m 755 "config/package/debian/$script" "$root/DEBIAN/$script"
done
echo /etc/quorate/quorate.toml >"$root/DEBIAN/conffiles"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root"/DEBIAN/{control,conffiles,md5sums} "$root"/usr/share/man/man1/*.gz "$root/etc/quorate/quorate.toml"
find "$root" -type d -exec chmod 755 {} +
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

package=$out/quorate_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >/dev/null
echo "$package"
