//! Tests every entry point with hostile input. The input is random bytes, or random sequences of pieces of
//! valid input in which some bytes are changed. The fuzz targets in `fuzz/` call the same functions.
//!
//! `QUORATE_CASES=100000` runs more cases than CI does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use quorate_tests::unfriendly::{DOORS, Door};

/// The number of cases for each entry point.
const CASES: u32 = 1_500;

/// The entry points with slow cases, because they use files or compute with calendars. They run fewer cases.
const SLOW: [&str; 2] = ["cron", "file_node"];

fn cases(door: &Door) -> u32 {
    let cases = std::env::var("QUORATE_CASES").map_or(CASES, |text| text.parse().unwrap());
    if SLOW.contains(&door.name) { cases / 6 } else { cases }
}

/// Generates random bytes, or a sequence of pieces in which some bytes are changed.
fn input(door: &Door) -> BoxedStrategy<Vec<u8>> {
    let noise = vec(any::<u8>(), 0..200).boxed();
    if door.pieces.is_empty() {
        return noise;
    }
    let pieces = vec(select(door.pieces), 0..24).prop_map(|pieces| pieces.concat().into_bytes());
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let changed = (pieces.clone(), changes).prop_map(|(mut bytes, changes)| {
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes
    });
    prop_oneof![6 => pieces, 3 => changed, 1 => noise].boxed()
}

fn look_through(name: &str) {
    let door = DOORS.iter().find(|door| door.name == name).unwrap();
    let config = Config { cases: cases(door), failure_persistence: None, ..Config::default() };
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let found = TestRunner::new_with_rng(config, seed).run(&input(door), |bytes| {
        (door.look)(&bytes);
        Ok(())
    });
    if let Err(error) = found {
        panic!("{name}: {error}");
    }
}

macro_rules! doors {
    ($($name:ident)+) => {
        $(#[test] fn $name() { look_through(stringify!($name)); })+

        #[test]
        fn no_door_is_left_out() {
            assert_eq!(DOORS.map(|door| door.name), [$(stringify!($name)),+]);
        }
    };
}

doors!(arguments config cron duration every file_node handshake marker node_url records replies secrets);
