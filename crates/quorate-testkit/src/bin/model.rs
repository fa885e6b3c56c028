//! Searches the models of the protocol within wider bounds than the tests do, and prints a table.
//!
//! `cargo run --release -p quorate-testkit --bin model -- --states 20000000`
//!
//! `--only WORDS` searches only the models whose name contains the words.

use quorate_testkit::model::{
    Limits, Searchable,
    copies::{Begin, Copies},
    exclusion::Exclusion,
    fencing::Fencing,
    poison::Poison,
    readwrite::{Kind, ReadWrite},
    search,
};
use std::process::ExitCode;

const USAGE: &str = "usage: model [--states N] [--only WORDS]
  --states N     generate at most N states in each model (default 5000000)
  --only WORDS   search only the models whose name contains WORDS";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = Options::parse(&args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if all(&options) && copies(&options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The command line options.
struct Options {
    limits: Limits,
    only: String,
}

impl Options {
    fn parse(args: &[String]) -> Option<Self> {
        let mut options = Self { limits: Limits { states: 5_000_000 }, only: String::new() };
        for pair in args.chunks(2) {
            match pair {
                [name, number] if name == "--states" => {
                    options.limits.states = number.parse().ok().filter(|number| *number > 0)?;
                }
                [name, words] if name == "--only" => options.only.clone_from(words),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// Searches every model except that of copies. Returns `true` if no property of a searched model was
/// broken. A broken property does not end the search of the other models.
fn all(options: &Options) -> bool {
    let fencing = Fencing::plain();
    let three = Fencing { attempts: 3, doubles: 0, apart: Some(1), ..fencing };
    let repairs = |model: Fencing| Fencing { repair: true, ..model };
    let late = |model: Fencing| Fencing { prompt: false, ..model };
    let exclusion = Exclusion::forgetful();
    let (both, mixed) = (&[Kind::Reads, Kind::Writes], &[Kind::Downgrades, Kind::Reads, Kind::Writes]);
    let (both, mixed) = (ReadWrite::of(both), ReadWrite::of(mixed));
    let down = ReadWrite::of(&[Kind::Downgrades, Kind::Writes]);
    let fits = [
        run("fencing, doubled twice", Fencing { doubles: 2, ..fencing }, options),
        run("fencing, three attempts", three, options),
        run("fencing, three attempts, replies at once", Fencing { prompt: true, ..three }, options),
        run("fencing, a node forgets, repairs", repairs(Fencing::forgetful()), options),
        run("fencing, a node forgets, late replies", late(Fencing::forgetful()), options),
        run("fencing, a node comes back, repairs", repairs(Fencing::returning()), options),
        run("fencing, counters end, repairs", repairs(Fencing::retiring()), options),
        run("poison, two of three begin", Poison { limit: 2, ..Poison::plain() }, options),
        run("exclusion, late replies, forgets", Exclusion { prompt: false, ..exclusion }, options),
        run("exclusion, two extensions, forgets", Exclusion { extensions: 2, ..exclusion }, options),
        run("exclusion, retry, extension, forgets", Exclusion { attempts: 3, ..exclusion }, options),
        run("exclusion, doubled, forgets", Exclusion { doubles: 1, ..exclusion }, options),
        run("read-write, extensions, forgets", ReadWrite { extensions: 2, forgets: 1, ..both }, options),
        run("read-write, a downgrade beside a writer", ReadWrite { extensions: 1, ..down }, options),
        run("read-write, a downgrade beside both", ReadWrite { extensions: 1, ..mixed }, options),
        run(
            "exclusion, a majority first, extended",
            Exclusion { extensions: 1, ..Exclusion::majority_first() },
            options,
        ),
        run("exclusion, two nodes forget", Exclusion { forgets: 2, ..exclusion }, options),
    ];
    fits.into_iter().all(|holds| holds)
}

/// Searches the model of copies in the scopes of the table in `docs/design/ledger.md`. Returns `true` if no property was
/// broken.
fn copies(options: &Options) -> bool {
    type Three = Copies<3>;
    let led = |leaders, losses| Three { losses, ..Three::led(leaders) };
    let repeated = |model| Three { at_most_once: false, generations: 2, ..model };
    let from = |begin, model| Three { begin, ..model };
    let one = |losses| from(Begin::Assigned, Three { losses, ..Three::assigning(2, 1) });
    let two = |leaders, losses, writes| {
        let model = Three { losses, writes, generations: 2, ..Three::assigning(leaders, 2) };
        from(Begin::Assigned, model)
    };
    let founding = |begin| {
        let model = Three { timed: true, direct: true, skips: false, writes: 4, ..repeated(one(2)) };
        from(begin, model)
    };
    let shard = |leaders, losses, generations, writes| {
        let model = Three { losses, generations, writes, ..Three::assigning(leaders, 2) };
        let model = Three { timed: true, at_most_once: false, shard: true, skips: false, ..model };
        from(Begin::Started, model)
    };
    let timed = |model| Three { timed: true, ..model };
    let three = |losses| from(Begin::Leads, led(3, losses));
    let fits = [
        run("copies, leader's run, two losses", led(2, 2), options),
        run("copies, leader's run, repeated, two losses", repeated(led(2, 2)), options),
        run("copies, leader's run, three leaders, a loss", three(1), options),
        run(
            "copies, leader's run, three leaders, refusals",
            Three { passes: true, writes: 2, ..three(1) },
            options,
        ),
        run("copies, leader's run, three leaders, two losses", three(2), options),
        run("copies, leader's run, one term twice", Three { twins: true, ..led(2, 2) }, options),
        run("copies, one worker", Three::assigning(2, 1), options),
        run("copies, one worker, a loss", Three { losses: 1, ..Three::assigning(2, 1) }, options),
        run("copies, one worker, assigned, a loss", one(1), options),
        run("copies, one worker, assigned, old data", Three { snapshot: true, ..one(1) }, options),
        run("copies, one worker, assigned, two losses", one(2), options),
        run("copies, two workers, two losses", two(1, 2, 5), options),
        run("copies, two workers, two leaders", two(2, 0, 4), options),
        run("copies, two workers, repeated, two losses", repeated(two(1, 2, 5)), options),
        run("copies, two workers, repeated, two leaders", repeated(two(2, 0, 4)), options),
        run("copies, founding, from started", founding(Begin::Started), options),
        run("copies, founding, from assigned", founding(Begin::Assigned), options),
        run("copies, timed, two workers, a loss", timed(two(2, 1, 4)), options),
        run("copies, timed, two workers, repeated", timed(repeated(two(2, 0, 4))), options),
        run("copies, timed, one worker, two losses", timed(one(2)), options),
        run("copies, shard, a loss", shard(1, 1, 3, 5), options),
        run("copies, shard, two leaders", shard(2, 0, 2, 4), options),
        run("copies, five nodes, three leaders", from_leading_five(), options),
    ];
    fits.into_iter().all(|holds| holds)
}

/// Returns the model of five nodes, two leaders and a loss.
fn from_leading_five() -> Copies<5> {
    Copies { begin: Begin::Leads, losses: 1, ..Copies::led(2) }
}

fn run<M: Searchable>(name: &str, model: M, options: &Options) -> bool {
    if !name.contains(&options.only) {
        return true;
    }
    let bounds = format!("{model:?}");
    let found = search(model, options.limits);
    println!("{name:42} {found}\n    {bounds}");
    found.broken.is_empty()
}
