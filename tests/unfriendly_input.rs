//! Tests every entry point with hostile input. The input is random bytes, or random sequences of pieces of
//! valid input in which some bytes are changed. The fuzz targets in `fuzz/` call the same functions. The inputs that
//! the fuzzer has found, in `fuzz/corpus`, are replayed too.
//!
//! `QUORATE_CASES=100000` runs more cases than CI does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panic, its helpers too")]

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use quorate_tests::{
    unfriendly::{DOORS, Door},
    unfriendly_program,
};
use std::{fs, path::Path};

/// The number of cases for each entry point.
const CASES: u32 = 1_500;

/// The entry points with slow cases, because they use files or compute with calendars. They run fewer cases.
const SLOW: [&str; 2] = ["cron", "file_node"];

/// Returns all entry points, those of the libraries first.
fn doors() -> impl Iterator<Item = Door> {
    DOORS.into_iter().chain(unfriendly_program::DOORS)
}

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
    let door = &doors().find(|door| door.name == name).unwrap();
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

/// Runs every input that the fuzzer has found. Each target must have some: a corpus that is missing would
/// pass unseen.
#[test]
fn the_corpus_of_the_fuzzer_breaks_no_property() {
    for door in doors() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(door.name);
        let inputs: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} has no inputs", corpus.display());
        for input in inputs {
            // A panic is reported with the file that caused it.
            println!("{}", input.display());
            (door.look)(&fs::read(&input).unwrap());
        }
    }
}

macro_rules! doors {
    ($($name:ident)+) => {
        $(#[test] fn $name() { look_through(stringify!($name)); })+

        #[test]
        fn no_door_is_left_out() {
            let names: Vec<&str> = doors().map(|door| door.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}

doors!(cron every file_node handshake marker records replies arguments config duration node_url secrets);
