#!/usr/bin/env bash
# Checks the Kubernetes manifests by the schemas of Kubernetes, and the configuration in them by PROGRAM and redis-server.
#
#   bash tests/package/kubernetes.sh PROGRAM
#   bash tests/package/kubernetes.sh --install     only installs the validator, into target/kubernetes
# Exit status: 0; 1 a manifest is wrong; 77 the validator could not be installed.
set -euo pipefail
[ "$1" = --install ] || program=$(realpath "$1")
cd "$(dirname "$0")/../.."

tools=target/kubernetes
if ! cmp -s tests/package/requirements.txt $tools/.installed; then
    rm -rf $tools
    # 17,000 small files: compiling and checking them all would take longer than the test.
    { python3 -m venv $tools && $tools/bin/pip install --quiet --no-compile --require-hashes --requirement tests/package/requirements.txt; } || {
        echo "the validator of Kubernetes manifests could not be installed"
        exit 77
    }
    cp tests/package/requirements.txt $tools/.installed
fi
[ "$1" != --install ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CONFIG_DIR=$work $tools/bin/python tests/package/kubernetes.py config/kubernetes/*.yaml

# No host of the manifest exists here, so no node answers. A wrong file would end with 78 before that.
for config in "$work"/*-quorate.toml; do
    status=0
    "$program" status --config "$config" >"$work/said" 2>&1 || status=$?
    if [ $status -ne 69 ] || [ "$(grep -c 'quorate-node-[012]' "$work/said")" -lt 3 ]; then
        cat "$work/said" >&2
        exit 1
    fi
done
# The node's own check of its file, started as the manifest starts it.
sed -i "s|^dir /data|dir $work|" "$work/redis.conf"
printf 'port 0\nunixsocket %s/socket\ndaemonize yes\npidfile %s/pid\n' "$work" "$work" >>"$work/redis.conf"
redis-server - <<EOF >/dev/null
$(cat "$work/redis.conf")
requirepass secret
EOF
for _ in $(seq 50); do [ -S "$work/socket" ] && break; sleep 0.1; done
answer=$(redis-cli -s "$work/socket" --no-auth-warning -a secret CONFIG GET appendfsync | tail -n 1)
redis-cli -s "$work/socket" --no-auth-warning -a secret SHUTDOWN NOSAVE >/dev/null 2>&1 || true
[ "$answer" = always ] || { echo "the node has appendfsync $answer" >&2; exit 1; }
