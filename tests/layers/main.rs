//! Checks the layers of the library. Each module may use only the modules below it. The same holds for the rooms of
//! the scheduler, which are its direct submodules. The files of one module must not depend on each other in a circle,
//! except for the exceptions that this test lists. [`program`] does the same for the crates of the program.
//!
//! The test reads the sources as tokens, so it ignores comments and strings. Test code (`#[cfg(test)]`,
//! `*tests.rs`, `tests/`) may use every module.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

mod program;
mod sources;

use proc_macro2::{TokenStream, TokenTree};
use sources::{Arrow, Sources, is_punct, without_tests};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The modules, from the bottom to the top. Each module may use only the modules before it.
const ORDER: [&str; 20] = [
    "env",
    "plain",
    "backoff",
    "panic",
    "setting_error",
    "measure",
    "node",
    "sabotage",
    "config",
    "trust",
    "vote",
    "driver",
    "lease",
    "quorum",
    "ledger",
    "election",
    "claim",
    "session",
    "shards",
    "scheduler",
];
/// The module whose rooms have an order too.
const WITH_ROOMS: &str = "scheduler";
/// The rooms of the scheduler, from the bottom to the top. Each room may use only the rooms before it, and names an
/// item of another room by that room.
const ROOMS: [&str; 15] = [
    "wire", "schedule", "policy", "alert", "job", "counts", "registry", "store", "check", "run", "plan",
    "control", "leader", "handle", "builder",
];
/// Modules that are not in the order, each with the highest module that it may use. No module may use them.
const BESIDE: [(&str, &str); 3] = [("admin", "quorum"), ("error", "scheduler"), ("redis", "claim")];
/// The files that only re-export items. They may use every module, and no module may use them.
const FACADES: [&str; 2] = ["lib", "internals"];
/// The uses that may be part of a circle. Each has the file that uses the other, the other file, and the
/// reason.
const CIRCLES_ALLOWED: [(&str, &str, &str); 4] = [
    (
        "claim::claims",
        "claim::dead_letter",
        "Claims holds the hook; the file of the hook has the methods that run it",
    ),
    (
        "claim::stream::consume",
        "claim::stream::run",
        "Consume is the builder and starts the run with its own options",
    ),
    ("node::file", "node::file::worker", "FileNode starts the worker, which reads the settings of FileNode"),
    (
        "node::file::boot",
        "node::file::machine",
        "systems without a file for the machine id digest it with machine's function",
    ),
];

fn crate_named(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates").join(name)
}

#[test]
fn modules_use_only_modules_below_them_and_files_form_no_circles() {
    let sources = Sources::read(&crate_named("quorate").join("src"));
    assert!(sources.files.len() > 100, "only {} files were found", sources.files.len());
    let problems = check(&sources, &CIRCLES_ALLOWED);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn check(sources: &Sources, allowed: &[(&str, &str, &str)]) -> Vec<String> {
    let mut arrows = sources.arrows();
    let mut problems: Vec<String> = arrows
        .iter()
        .filter_map(|arrow| forbidden(arrow).or_else(|| forbidden_in_scheduler(arrow)))
        .collect();
    arrows.retain(|arrow| {
        let module = top(&arrow.from);
        module == top(&arrow.to) && !FACADES.contains(&module)
    });
    for (from, to, _) in allowed {
        let all: Vec<&Arrow> = circular(&arrows);
        if !all.iter().any(|arrow| arrow.from == *from && arrow.to == *to) {
            problems.push(format!(
                "{from} -> {to} is in CIRCLES_ALLOWED and is not part of a circle: remove it there"
            ));
        }
    }
    arrows.retain(|arrow| !allowed.iter().any(|(from, to, _)| arrow.from == *from && arrow.to == *to));
    for arrow in circular(&arrows) {
        problems.push(format!(
            "src/{}:{}: {} uses {}: part of a circle",
            arrow.file, arrow.line, arrow.from, arrow.to
        ));
    }
    problems
}

/// Returns an error message if the order of the modules does not allow the use `arrow`.
fn forbidden(arrow: &Arrow) -> Option<String> {
    let (from, to) = (top(&arrow.from), top(&arrow.to));
    let rank = |module: &str| ORDER.iter().position(|other| *other == module);
    let below =
        BESIDE.iter().find(|(module, _)| *module == from).map(|(_, highest)| rank(highest).map(|at| at + 1));
    let may_use = match below.unwrap_or_else(|| rank(from)) {
        _ if from == to || FACADES.contains(&from) => true,
        Some(limit) => rank(to).is_some_and(|to| to < limit),
        None => false,
    };
    (!may_use).then(|| format!("src/{}:{}: {from} may not use {to}", arrow.file, arrow.line))
}

/// Returns an error message if the order of the rooms does not allow the use `arrow` of one room by another.
fn forbidden_in_scheduler(arrow: &Arrow) -> Option<String> {
    let place = format!("src/{}:{}", arrow.file, arrow.line);
    let from = room(&arrow.from).filter(|_| top(&arrow.to) == WITH_ROOMS)?;
    let Some(to) = room(&arrow.to) else {
        return Some(format!("{place}: {from} must name the room of what it uses from {WITH_ROOMS}"));
    };
    let rank = |room: &str| ROOMS.iter().position(|other| *other == room);
    let may_use = from == to || rank(to).is_some_and(|to| rank(from).is_some_and(|from| to < from));
    (!may_use).then(|| format!("{place}: {WITH_ROOMS}::{from} may not use {WITH_ROOMS}::{to}"))
}

/// Returns the room of a file of the scheduler. `None` for the scheduler's own file, and for other modules.
fn room(module: &str) -> Option<&str> {
    module.strip_prefix(WITH_ROOMS)?.strip_prefix("::")?.split("::").next()
}

/// Returns the uses that are part of a circle. This means that the used file also uses the first file, directly
/// or through other files.
fn circular(arrows: &[Arrow]) -> Vec<&Arrow> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for arrow in arrows {
        next.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    let reaches = |from: &str, goal: &str| {
        let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(at) = open.pop() {
            if at == goal {
                return true;
            }
            open.extend(next.get(at).into_iter().flatten().copied().filter(|to| seen.insert(to)));
        }
        false
    };
    arrows.iter().filter(|arrow| reaches(&arrow.to, &arrow.from)).collect()
}

fn top(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

fn sources(texts: &[(&str, &str)]) -> Sources {
    let facade = |module: &str, children: &str| (format!("{module}/mod.rs"), children.to_owned());
    let mut all = vec![
        facade("lease", "mod a; mod b; pub(crate) use {a::A, b::B};"),
        facade("quorum", "mod q; pub use q::Quorum; pub use crate::config::Config;"),
        ("quorum/q.rs".to_owned(), String::new()),
        ("config.rs".to_owned(), String::new()),
        ("lib.rs".to_owned(), "mod lease; mod quorum; mod config; pub use quorum::Quorum;".to_owned()),
    ];
    all.extend(texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
    Sources::parse(&all)
}

#[test]
fn an_arrow_to_a_higher_module_is_reported_with_file_and_line() {
    for text in [
        "\n use crate::quorum::Quorum;",
        "\n use crate::{config::Config, quorum::Quorum};",
        "\n fn f() -> crate::quorum::Quorum {}",
        "\n fn f() { assert!(matches!(x, crate::quorum::q::Q { .. })) }",
        "\n use super::super::quorum;",
        "\n use crate::quorum::Config;",
        "\n #[cfg(not(test))] use crate::quorum::Quorum;",
    ] {
        let found = check(&sources(&[("lease/a.rs", text), ("lease/b.rs", "")]), &[]);
        assert_eq!(found, ["src/lease/a.rs:2: lease may not use quorum"], "{text}");
    }
    let admin = [("admin.rs", "use crate::election::Election;"), ("election.rs", "use crate::admin::A;")];
    let found = check(&sources(&admin), &[]);
    assert_eq!(
        found,
        ["src/admin.rs:1: admin may not use election", "src/election.rs:1: election may not use admin"]
    );
}

#[test]
fn an_arrow_to_a_higher_room_of_the_scheduler_is_reported_and_no_re_export_hides_it() {
    let check_store = |text: &str| {
        let texts = [
            ("scheduler/mod.rs", "mod job; mod plan; mod store; pub use {job::Job, plan::Plan}; struct Own;"),
            ("scheduler/job.rs", ""),
            ("scheduler/plan.rs", "pub(crate) use crate::scheduler::{job::Job, store::Row};"),
            ("scheduler/store/mod.rs", "mod a; mod b;"),
            ("scheduler/store/a.rs", text),
            (
                "scheduler/store/b.rs",
                "use crate::scheduler::{job::Job, store::a::A}; pub(in crate::scheduler) struct B;",
            ),
        ];
        check(&sources(&texts), &[])
    };
    let place = "src/scheduler/store/a.rs:2: ";
    let (up, unnamed) = (
        "scheduler::store may not use scheduler::plan",
        "store must name the room of what it uses from scheduler",
    );
    for (text, expect) in [
        ("\n use crate::scheduler::job::Job;", vec![]),
        ("\n use crate::scheduler::plan::Plan;", vec![up]),
        ("\n use super::super::plan;", vec![up]),
        ("\n fn f() -> crate::scheduler::plan::Plan {}", vec![up]),
        ("\n use crate::scheduler::plan::Job;", vec![up]),
        ("\n use crate::scheduler::Job;", vec![unnamed]),
        ("\n use crate::scheduler::Plan;", vec![up, unnamed]),
        ("\n use crate::scheduler::Own;", vec![unnamed]),
        ("\n use crate::scheduler::*;", vec![unnamed]),
    ] {
        let expect: Vec<String> = expect.into_iter().map(|problem| format!("{place}{problem}")).collect();
        assert_eq!(check_store(text), expect, "{text}");
    }
}

#[test]
fn every_room_of_the_scheduler_is_in_the_order() {
    let sources = Sources::read(&crate_named("quorate").join("src"));
    let rooms = sources.files.keys().filter(|module| module.len() == 2 && module[0] == WITH_ROOMS);
    let rooms: BTreeSet<&str> = rooms.map(|module| module[1].as_str()).collect();
    assert_eq!(rooms, BTreeSet::from(ROOMS));
}

#[test]
fn comments_strings_tests_and_lower_modules_do_not_count() {
    let text = r#"
        //! [`Quorum`](crate::quorum::Quorum)
        use crate::config::Config;
        const TEXT: &str = "crate::quorum";
        #[cfg(test)]
        use crate::quorum::Quorum;
        #[cfg(test)]
        #[expect(dead_code)]
        mod tests { use crate::quorum::Quorum; }
    "#;
    let tests = "use crate::quorum::Quorum;";
    let found =
        check(&sources(&[("lease/a.rs", text), ("lease/b.rs", ""), ("lease/a_tests.rs", tests)]), &[]);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_circle_of_files_is_reported_and_an_exception_must_be_part_of_one() {
    let circle = [("lease/a.rs", "use crate::lease::B;"), ("lease/b.rs", "\nuse super::a::A;")];
    let ends = ["lease::a uses lease::b: part of a circle", "lease::b uses lease::a: part of a circle"];
    assert_eq!(
        check(&sources(&circle), &[]),
        [format!("src/lease/a.rs:1: {}", ends[0]), format!("src/lease/b.rs:2: {}", ends[1])]
    );
    let allowed = [("lease::b", "lease::a", "a reason")];
    assert_eq!(check(&sources(&circle), &allowed), Vec::<String>::new());
    let straight = [("lease/a.rs", "use crate::lease::B;"), ("lease/b.rs", "")];
    let found = check(&sources(&straight), &allowed);
    assert!(found.len() == 1 && found[0].contains("remove it there"), "{found:?}");
}

/// Constants of the scheduler that several files define, each with the reason.
const DEFINED_TWICE: [(&str, &str); 2] = [
    ("SECOND", "a field of a cron line; elsewhere a duration of tests"),
    ("MINUTE", "a field of a cron line; elsewhere a duration of tests"),
];

#[test]
fn no_constant_of_the_scheduler_is_defined_twice() {
    let mut texts = Vec::new();
    let mut open = vec![crate_named("quorate").join("src/scheduler")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap().to_owned();
            if path.is_dir() {
                open.push(path);
            } else if !name.ends_with("tests.rs") && !name.contains("/tests/") {
                texts.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(texts.len() > 40, "only {} files were found", texts.len());
    let found = constants_defined_twice(&texts);
    assert!(found.is_empty(), "one definition each, or different names:\n{}", found.join("\n"));
}

/// Returns the constants outside of `impl` blocks that several of the files define. Each result has the name
/// and the files.
fn constants_defined_twice(texts: &[(String, String)]) -> Vec<String> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, text) in texts {
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        for window in without_tests(tokens).windows(3) {
            if let [TokenTree::Ident(word), TokenTree::Ident(constant), colon] = window
                && *word == "const"
                && is_punct(colon, ':')
            {
                files.entry(constant.to_string()).or_default().insert(name);
            }
        }
    }
    let twice = files.into_iter().filter(|(constant, files)| {
        files.len() > 1 && !DEFINED_TWICE.iter().any(|(allowed, _)| allowed == constant)
    });
    twice.map(|(constant, files)| format!("{constant}: {files:?}")).collect()
}

#[test]
fn a_constant_in_two_files_is_reported_and_associated_and_test_constants_are_not() {
    let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let both = [text("a.rs", "pub(super) const TRIES: u32 = 1;"), text("b.rs", "const TRIES: usize = 2;")];
    assert_eq!(constants_defined_twice(&both), [r#"TRIES: {"a.rs", "b.rs"}"#]);
    let others = [
        text("a.rs", "const TRIES: u32 = 1; impl A { const KEY: u8 = 1; } const fn f() {}"),
        text("b.rs", "impl B { const KEY: u8 = 2; } #[cfg(test)] mod tests { const TRIES: u32 = 2; }"),
    ];
    assert_eq!(constants_defined_twice(&others), Vec::<String>::new());
}
