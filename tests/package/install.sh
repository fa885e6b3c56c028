#!/usr/bin/env bash
# Makes the downloads of a release from PROGRAM, and installs from them: from a directory, from a server on this machine,
# and from one whose archive was changed, which must be refused.
#
#   bash tests/package/install.sh PROGRAM
#
# Exit status: 0; 1 the downloads or the installation are wrong.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
wrong() {
    echo "$*" >&2
    exit 1
}

bash config/package/dist.sh "$1" "$work/dist"
bash config/package/dist.sh "$1" "$work/again" >/dev/null
cmp "$work"/dist/*.tar.gz "$work"/again/*.tar.gz || wrong "two archives of one commit differ"
python3 - "$work"/dist/*.cdx.json <<'PY' || wrong "the list of parts is wrong"
import json, sys
parts = json.load(open(sys.argv[1]))
names = {part["name"] for part in parts["components"]}
assert parts["bomFormat"] == "CycloneDX" and {"redis", "tokio", "quorate-redis"} <= names, sorted(names)
PY

sh config/package/install.sh --from "$work/dist" --to "$work/bin"
"$work/bin/quorate" when '0 3 * * *' >/dev/null || wrong "the installed program does not work"

python3 -u -m http.server --bind 127.0.0.1 --directory "$work/dist" 0 >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$work/server.log")
    [ -z "$port" ] || break
    sleep 0.1
done
[ -n "$port" ] || wrong "the server did not start: $(cat "$work/server.log")"
sh config/package/install.sh --from "http://127.0.0.1:$port" --to "$work/served"
cmp "$work/bin/quorate" "$work/served/quorate"

printf x >>"$(echo "$work"/dist/*.tar.gz)"
if sh config/package/install.sh --from "$work/dist" --to "$work/changed" 2>"$work/refused"; then
    wrong "a changed archive was installed"
fi
grep -q 'the checksum of .* is wrong' "$work/refused" || wrong "$(cat "$work/refused")"
[ ! -e "$work/changed/quorate" ] || wrong "a file was left behind"
status=0
sh config/package/install.sh 2>/dev/null || status=$?
[ "$status" -eq 64 ] || wrong "without arguments it ends with $status"
