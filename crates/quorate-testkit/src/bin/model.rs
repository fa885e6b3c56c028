//! Searches the models of the protocol within wider bounds than the tests do, and prints a table.
//!
//! `cargo run --release -p quorate-testkit --bin model -- --states 20000000`

use quorate_testkit::model::{
    Limits, Searchable,
    exclusion::Exclusion,
    fencing::Fencing,
    ledger::Ledger,
    poison::Poison,
    readwrite::{Kind, ReadWrite},
    search,
};
use std::process::ExitCode;

const USAGE: &str = "usage: model [--states N]   (states looked at in each model, at most; default 5000000)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let states = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(5_000_000),
        ["--states", number] => number.parse().ok().filter(|number| *number > 0),
        _ => None,
    };
    let Some(states) = states else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if all(Limits { states }) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Searches every model; whether none broke.
fn all(limits: Limits) -> bool {
    let fencing = Fencing::plain();
    let three = Fencing { attempts: 3, doubles: 0, apart: Some(1), ..fencing };
    let repairs = |model: Fencing| Fencing { repair: true, ..model };
    let late = |model: Fencing| Fencing { prompt: false, ..model };
    let leaders = Ledger::leaders();
    let wild = Ledger { forgets: 1, returns: 1, prunes: true, ..leaders };
    let spread = Ledger::spread();
    let exclusion = Exclusion::forgetful();
    let (both, mixed) = (&[Kind::Reads, Kind::Writes], &[Kind::Downgrades, Kind::Reads, Kind::Writes]);
    let (both, mixed) = (ReadWrite::of(both), ReadWrite::of(mixed));
    let down = ReadWrite::of(&[Kind::Downgrades, Kind::Writes]);
    let fits = [
        run("fencing, doubled twice", Fencing { doubles: 2, ..fencing }, limits),
        run("fencing, three attempts", three, limits),
        run("fencing, three attempts, replies at once", Fencing { prompt: true, ..three }, limits),
        run("fencing, a node forgets, repairs", repairs(Fencing::forgetful()), limits),
        run("fencing, a node forgets, late replies", late(Fencing::forgetful()), limits),
        run("fencing, a node comes back, repairs", repairs(Fencing::returning()), limits),
        run("fencing, counters end, repairs", repairs(Fencing::retiring()), limits),
        run("ledger, three leaders, forgets, prunes", Ledger { writers: 3, prunes: true, ..leaders }, limits),
        run("ledger, two leaders, many faults", Ledger { forgets: 2, returns: 2, ..wild }, limits),
        run("ledger, spread over three", Ledger { writers: 3, ..spread }, limits),
        run("ledger, spread, many faults", Ledger { forgets: 2, returns: 2, ..spread }, limits),
        run("poison, two of three begin", Poison { limit: 2, ..Poison::plain() }, limits),
        run("exclusion, late replies, forgets", Exclusion { prompt: false, ..exclusion }, limits),
        run("exclusion, two extensions, forgets", Exclusion { extensions: 2, ..exclusion }, limits),
        run("exclusion, retry, extension, forgets", Exclusion { attempts: 3, ..exclusion }, limits),
        run("exclusion, doubled, forgets", Exclusion { doubles: 1, ..exclusion }, limits),
        run("read-write, extensions, forgets", ReadWrite { extensions: 2, forgets: 1, ..both }, limits),
        run("read-write, a downgrade beside a writer", ReadWrite { extensions: 1, ..down }, limits),
        run("read-write, a downgrade beside both", ReadWrite { extensions: 1, ..mixed }, limits),
        run("exclusion, two nodes forget", Exclusion { forgets: 2, ..exclusion }, limits),
    ];
    fits.into_iter().all(|holds| holds)
}

fn run<M: Searchable>(name: &str, model: M, limits: Limits) -> bool {
    let bounds = format!("{model:?}");
    let found = search(model, limits);
    println!("{name:42} {found}\n    {bounds}");
    found.broken.is_empty()
}
