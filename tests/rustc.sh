#!/usr/bin/env bash
# Compiles the tests themselves without optimization: much of the time of a build went into optimizing code that runs
# for a moment. The libraries that they link stay optimized, as the profiles in Cargo.toml say.
#
# In bash: other shells do not pass on variables like `CARGO_BIN_EXE_quorate-bench`.
case " $* " in
# The model checker is generic: the code in which it spends its time is compiled with this test.
*" --crate-name model "*) exec "$@" ;;
*" --test "*) exec "$@" -C opt-level=0 ;;
*) exec "$@" ;;
esac
