#!/usr/bin/env bash
# The part of deb.sh that runs in a mount namespace: mounts a copy-on-write view of / on DIR/root, and uses the package
# DIR/quorate.deb there. All writes go to a file system in memory, which ends with the namespace.
set -euo pipefail

dir=$1
mount --make-rprivate /
mkdir "$dir/memory" "$dir/root"
mount -t tmpfs none "$dir/memory"
mkdir "$dir/memory/upper" "$dir/memory/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/memory/upper,workdir=$dir/memory/work" "$dir/root" || {
    echo "this machine cannot mount a copy-on-write view of its file system"
    exit 77
}
cp "$dir/quorate.deb" "$dir/root/quorate.deb"
# Without /run, no maintainer script reaches the machine's systemd.
mount -t tmpfs none "$dir/root/run"
mount -t tmpfs none "$dir/root/tmp"
mount -t proc none "$dir/root/proc"
mount --rbind /dev "$dir/root/dev"
exec chroot "$dir/root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    bash -euo pipefail -s <<'EOF'
fail() { echo "FAILED: $*" >&2; exit 1; }
owner() { stat -c '%U:%G %a' "$1"; }
as_quorate() { setpriv --reuid quorate --regid quorate --clear-groups "$@"; }
config=/etc/quorate/quorate.toml

echo "install"
rm -rf /etc/quorate
dpkg -i /quorate.deb >/dev/null
[ "$(owner /etc/quorate)" = "root:quorate 750" ] || fail "/etc/quorate is $(owner /etc/quorate)"
[ "$(getent passwd quorate | cut -d: -f6,7)" = /var/lib/quorate:/usr/sbin/nologin ] || fail "$(getent passwd quorate)"
[ -z "$(dpkg --verify quorate)" ] || fail "$(dpkg --verify quorate)"
[ -e /etc/systemd/system/multi-user.target.wants/quorate.service ] && fail "the service is enabled"
dpkg-query -W -f '${Conffiles}\n' quorate | grep -q "^ $config " || fail "$config is no conffile"
as_quorate quorate run --check --config $config >/dev/null || fail "the packaged configuration is wrong"
setpriv --reuid daemon --clear-groups cat $config 2>/dev/null && fail "every user can read /etc/quorate"
for page in quorate quorate-run quorate-jobs-list; do
    [ -s "/usr/share/man/man1/$page.1.gz" ] || fail "no manual page $page"
done
bash -c 'source /usr/share/bash-completion/completions/quorate; complete -p quorate' >/dev/null || fail "completions"

echo "the unit"
unit=/usr/lib/systemd/system/quorate.service
for line in User=quorate Group=quorate 'ExecStart=/usr/bin/quorate run --config /etc/quorate/quorate.toml'; do
    grep -qxF "$line" $unit || fail "the unit lacks $line"
done
grep -q 'DynamicUser\|/usr/local' $unit && fail "the unit is that of the repository"
if command -v systemd-analyze >/dev/null; then
    said=$(systemd-analyze verify --man=no $unit 2>&1 | grep quorate || true)
    [ -z "$said" ] || fail "$said"
fi

grep -q '^ExecStartPre=' $unit && fail "systemd would restart a wrong configuration without a limit"

getent group quorate-clients >/dev/null || fail "there is no group for the clients of quorate serve"
for line in User=quorate 'ExecStart=/usr/bin/quorate serve --config /etc/quorate/quorate.toml --listen systemd'; do
    grep -qxF "$line" /usr/lib/systemd/system/quorate-serve.service || fail "the unit of serve lacks $line"
done
grep -qx SocketGroup=quorate-clients /usr/lib/systemd/system/quorate-serve.socket || fail "the socket is for other users"

echo "use: the daemon, as the unit starts it"
install -d -o quorate -g quorate -m 700 /var/lib/quorate /var/log/quorate
cat >$config <<'CONFIG'
nodes = ["file:///var/lib/quorate/node"]
group = "package"
trust_new_nodes = true
[[job]]
name = "beat"
every = "200ms"
shell = "id -un >> /var/lib/quorate/beats"
CONFIG
cd /var/lib/quorate
(exec setpriv --reuid quorate --regid quorate --clear-groups $(sed -n 's/^ExecStart=//p' $unit)) 2>/tmp/log &
daemon=$!
for _ in $(seq 100); do [ -s beats ] && break; sleep 0.1; done
[ "$(head -n 1 beats)" = quorate ] || fail "no job ran: $(cat /tmp/log)"
as_quorate quorate status --config $config election/package | grep -q 'held by' || fail "no leader"
kill -TERM $daemon
wait $daemon || fail "the daemon ended with $?: $(cat /tmp/log)"
cd /

echo "install again: the administrator's file stays"
dpkg -i --force-confold /quorate.deb >/dev/null
grep -q 'group = "package"' $config || fail "the configuration was replaced"

echo "remove"
files=$(dpkg -L quorate | while read -r path; do [ -d "$path" ] || echo "$path"; done)
dpkg -r quorate >/dev/null
[ -s $config ] && [ -d /var/lib/quorate ] || fail "a removal deletes the configuration or the data"
[ ! -e /usr/bin/quorate ] || fail "the program is still there"

echo "purge"
dpkg -P quorate >/dev/null
for path in $files /var/lib/quorate /var/log/quorate /etc/quorate; do
    [ ! -e "$path" ] || fail "$path is left"
done
! dpkg -s quorate >/dev/null 2>&1 || fail "dpkg still knows the package"
[ -z "$(find /etc/systemd /var/lib/systemd -name 'quorate*')" ] || fail "$(find /etc/systemd /var/lib/systemd -name 'quorate*')"
EOF
