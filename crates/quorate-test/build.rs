//! Passes the level of optimization to the crate, which informs the user about a slow build.

fn main() {
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=QUORATE_TEST_OPT_LEVEL={level}");
    println!("cargo::rerun-if-changed=build.rs");
}
