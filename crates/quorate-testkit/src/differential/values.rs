//! The tables of values to which the numbers of a history refer. Proptest shrinks towards zero, so zero is
//! the plainest value of each kind.

use quorate::node::{Incarnation, Owner, Resource, engine::RESULT_MAX};
use std::sync::Arc;

pub(super) const RESOURCES: u8 = 10;
pub(super) const OWNERS: u8 = 7;
pub(super) const SUCCESSORS: u8 = 8;
pub(super) const LEDGERS: u8 = 5;
/// The ledgers whose copies are led. Their numbers follow those of the other ledgers.
pub(super) const COPIES: u8 = 2;
pub(super) const COPY_KEYS: u8 = 4;
pub(super) const KEYS: u8 = 9;
pub(super) const VALUES: u8 = 9;
pub(super) const RESULTS: u8 = 8;
pub(super) const PAYLOADS: u8 = 4;
pub(super) const ATTEMPTS: u8 = 8;
pub(super) const MARKERS: u8 = 8;

/// Returns a resource. The names are alike, so that the keys of two resources could collide on a faulty node.
pub(super) fn resource(number: u8) -> Resource {
    let made = match number % RESOURCES {
        0 => Resource::lock("r"),
        1 => Resource::claim("s", "1"),
        2 => Resource::lock("r:fence"),
        3 => Resource::election("r"),
        4 => Resource::claim("s", "1:claim"),
        5 => Resource::claim("s", "a/../b *?[x]'\";\\%2F{g}"),
        6 => Resource::lock("R"),
        7 => Resource::lock(&"ü".repeat(256)),
        8 => Resource::claim("s", &"n".repeat(512)),
        _ => Resource::lock(" ünïcödé\u{202e}\u{feff} "),
    };
    #[expect(clippy::expect_used, reason = "the table above is of names that may be used")]
    made.expect("a name that may be used")
}

/// Returns an owner: an owner token of Quorate, or another value that a node may store as an owner.
pub(super) fn owner(number: u8) -> Owner {
    match number % OWNERS {
        0 => Owner::sign("a", 1, 1),
        1 => Owner::sign("a", 1, 2),
        2 => Owner::sign("b", 1, 1),
        3 => Owner::from_node("a"),
        4 => Owner::from_node(""),
        5 => Owner::sign(" ü\0\r\n\t:\"{}\u{7f} ", 1, 1),
        _ => Owner::sign(&"w".repeat(512), 1, 1),
    }
}

/// Returns a successor for a reservation, or a value that only looks like one.
pub(super) fn successor(number: u8) -> Owner {
    match number % SUCCESSORS {
        0 => Owner::reserve("a", 2, 1),
        1 => Owner::reserve("b", 2, 1),
        2 => Owner::sign("a", 2, 1),
        3 => Owner::reserve("", 2, 1),
        4 => Owner::from_node(":reserved"),
        5 => Owner::from_node("a:0000000000000002000000000000000g:reserved"),
        6 => Owner::from_node("a:000000000000002:reserved"),
        _ => Owner::reserve(" ü\0\r\n\t:\"{}\u{7f} ", 2, 1),
    }
}

pub(super) fn ledger(number: u8) -> Arc<str> {
    ["g", "h", "g/k", "*?[g]\\", "ü ", "led", "led é\n"][usize::from(number % (LEDGERS + COPIES))].into()
}

/// Returns the key of a record. Some keys are also the names of fields that a Redis server stores in a
/// ledger.
pub(super) fn key(number: u8) -> Arc<str> {
    ["k", "l", "", "t", "w", "r:k", "K", "é\n\0", "~"][usize::from(number % KEYS)].into()
}

/// Returns the key of a record of a copy. The last one may not be used.
pub(super) fn copy_key(number: u8) -> Arc<str> {
    ["k", "l", "k:0@é\n\0", "!"][usize::from(number % COPY_KEYS)].into()
}

pub(super) fn value(number: u8) -> Arc<str> {
    let long = "v".repeat(20_000);
    ["v", "", ":", "1:2:1:x", "a\r\nb\0", "{\"ü\":1}", "-1", "\u{fffd}\u{10ffff}", &long]
        [usize::from(number % VALUES)]
    .into()
}

/// Returns the result of a claim. Some are as long as a done record can store, and some are longer.
pub(super) fn result(number: u8) -> Arc<str> {
    let (most, beyond) = ("r".repeat(RESULT_MAX), "r".repeat(RESULT_MAX + 1));
    let far = "ü".repeat(50_000);
    ["ok", "", ":", "7:x", "a\r\nb\0\"", &most, &beyond, &far][usize::from(number % RESULTS)].into()
}

/// Returns the fingerprint of a payload. Some have the longest permitted length.
pub(super) fn payload(number: u8) -> Option<Arc<str>> {
    let long = "0f".repeat(32);
    [None, Some("aa"), Some("00"), Some(&*long)][usize::from(number % PAYLOADS)].map(Into::into)
}

/// Returns a number of counted attempts. Compared as text, 10 would be less than 9.
pub(super) fn attempts(number: u8) -> u32 {
    [1, 2, 3, 0, 9, 10, u32::MAX - 1, u32::MAX][usize::from(number % ATTEMPTS)]
}

pub(super) fn node(number: u8) -> Arc<str> {
    ["redis://a:6379/0", "file:///ü \n", "c"][usize::from(number % 3)].into()
}

/// Returns a marker. Number 0 is the one that a node stores when a sequence of steps begins.
pub(super) fn marker(number: u8) -> Arc<str> {
    let two = Incarnation::from_number(2);
    let memory =
        [&*format!("of a\nmemory={two}\nand b"), &format!("memory={two}"), &format!("memory={two}0")];
    ["{\"run\":1}", "{\"run\":2}", "", " ü\r\n\0", "{\"run\":1} ", memory[0], memory[1], memory[2]]
        [usize::from(number % MARKERS)]
    .into()
}
