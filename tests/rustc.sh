#!/usr/bin/env bash
# Compiles the code of this workspace for CI. On the way it lints the code with Clippy's compiler, and checks the
# documentation: `cargo clippy` and `cargo doc` would check all dependencies once more, and read each file again.
#
# The tests themselves are compiled without optimization: much of the time of a build went into optimizing code that runs
# for a moment. The libraries that they link stay optimized, as the profiles in Cargo.toml say.
#
# In bash: other shells do not pass on variables like `CARGO_BIN_EXE_quorate-bench`.
set -euo pipefail

# only_checks EMITS COMMAND…: runs a compiler whose result nothing needs. EMITS is in place of the argument `--emit=…`.
only_checks() {
    local emits=$1 arguments=() argument before= place
    shift
    place=$(mktemp -d)
    for argument; do
        case $before$argument in
        # rustdoc emits nothing that is to be named.
        --emit=*) [ -n "$emits" ] && argument=$emits || continue ;;
        # Cargo would take the reported file for one of the build.
        --json=*) argument=${argument/,artifacts/} ;;
        --out-dir*) [ "$argument" = --out-dir ] || argument=$place ;;
        esac
        before=
        if [ "$argument" = --out-dir ]; then before=$argument; fi
        arguments+=("$argument")
    done
    "${arguments[@]}" -D warnings && rm -r "$place"
}

tests= optimized=
case " $* " in *" --test "*) tests=yes ;; esac
case " $* " in
# The model checker is generic: the code in which it spends its time is compiled with this test.
*" --crate-name model "*) optimized=yes ;;
*" --test "*) set -- "$@" -C opt-level=0 ;;
*" -C opt-level="*) optimized=yes ;;
esac
case " $* " in
*" --emit="*link*) ;;
# A question about the compiler, or a check.
*) exec "$@" ;;
esac

if [ -z "$optimized" ]; then
    clippy-driver "$@" -D warnings
else
    # Clippy's compiler leaves out some optimizations.
    "$@"
    only_checks --emit=metadata clippy-driver "$@"
fi
if [ -z "$tests" ]; then
    case " $* " in
    *" --crate-name build_script_"*) ;;
    # As `cargo doc` does for programs.
    *" --crate-type bin "*)
        only_checks "" rustdoc "${@:2}" --document-private-items -A rustdoc::private-intra-doc-links
        ;;
    *) only_checks "" rustdoc "${@:2}" ;;
    esac
fi
