#!/usr/bin/env bash
# Builds the image of config/package/Containerfile, and runs the program in it.
#
#   bash tests/package/container.sh
#
# Exit status: 0; 1 the image is wrong; 77 no container engine runs here.
set -euo pipefail
cd "$(dirname "$0")/../.."

engine=
for candidate in podman docker; do
    if "$candidate" info >/dev/null 2>&1; then engine=$candidate; fi
done
[ -n "$engine" ] || {
    echo "neither podman nor docker has a running engine here"
    exit 77
}
"$engine" build --quiet --file config/package/Containerfile --tag quorate-test .
[ "$("$engine" run --rm --entrypoint id quorate-test -u)" = 65532 ] || { echo "it runs as another user" >&2; exit 1; }
"$engine" run --rm --read-only --tmpfs /tmp --tmpfs /var/lib/quorate:uid=65532 quorate-test demo
