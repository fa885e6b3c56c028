//! Compares the public API of this crate with the committed listing `public-api.txt`.
//!
//! A change of the API fails the test until the listing is updated:
//!
//! ```text
//! UPDATE_PUBLIC_API=1 cargo test -p quorate --test public_api
//! ```
//!
//! The test creates the listing from the source. The listing contains every item to which other crates have a
//! path through `pub` modules that are not hidden. Each item has its signature and its shortest path. The
//! listing does not depend on the enabled features: an item that needs a feature is listed with its `cfg`.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod listing;
mod source;

use listing::Api;
use std::{env, fs, path::Path};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The largest permitted number of documented public names. More names would make the API too large for a new
/// user.
const NAMES_MAX: usize = 89;
/// The largest permitted number of documented names of the module of Redis nodes.
const REDIS_NAMES_MAX: usize = 8;
/// The largest permitted number of names at the root of the crate.
const ROOT_MAX: usize = 25;

fn api() -> Api {
    Api::read(&Path::new(ROOT).join("src"))
}

#[test]
fn the_listing_of_the_public_api_is_up_to_date() {
    let file = Path::new(ROOT).join("public-api.txt");
    let now = api().listing();
    if env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(&file, &now).expect("the listing can be written");
        return;
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    let gone = committed
        .lines()
        .filter(|line| !now.lines().any(|other| other == *line))
        .map(|line| format!("-{line}"));
    let new = now
        .lines()
        .filter(|line| !committed.lines().any(|other| other == *line))
        .map(|line| format!("+{line}"));
    let changes: Vec<String> = gone.chain(new).collect();
    assert!(
        committed == now,
        "the public API has changed:\n{}\nIf it should: UPDATE_PUBLIC_API=1 cargo test -p quorate --test public_api",
        changes.join("\n")
    );
}

#[test]
fn the_front_door_stays_small() {
    let api = api();
    let root: Vec<&str> = api.names().filter(|name| name.matches("::").count() == 1).collect();
    assert!((15..=ROOT_MAX).contains(&root.len()), "{} names at the root: {root:?}", root.len());
    let (redis, names): (Vec<&str>, Vec<&str>) =
        api.names().partition(|name| name.starts_with("quorate::redis::"));
    assert!(redis.len() <= REDIS_NAMES_MAX, "{} documented names of Redis nodes: {redis:#?}", redis.len());
    assert!(names.len() <= NAMES_MAX, "{} documented public names: {names:#?}", names.len());
}

#[test]
fn no_documented_signature_needs_a_hidden_type() {
    let api = api();
    let hidden = api.hidden_types();
    let listing = api.listing();
    let needs = listing.lines().filter(|line| {
        let signature = line.split_once(": ").map_or("", |(_, signature)| signature);
        let mut words = signature.split(|c: char| !c.is_alphanumeric() && c != '_');
        !signature.starts_with("impl") && words.any(|word| hidden.contains(word))
    });
    let needs: Vec<&str> = needs.collect();
    assert!(needs.is_empty(), "hide these too, or document the types that they name: {needs:#?}");
}

#[test]
fn each_name_at_the_root_has_an_example() {
    let api = api();
    let without = api.root_items_without_example();
    assert!(without.is_empty(), "no example in the documentation of {without:?}");
}
