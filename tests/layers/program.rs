//! Circles between the files of the crates, apart from the library.

use crate::{
    circular, crate_named,
    sources::{Arrow, Sources},
};
use std::fs;

/// The crate whose files have layers too, which another test checks.
const LIBRARY: &str = "quorate";
/// The crates that are not part of the program, and whose circles nothing has ended yet.
const NOT_YET: [&str; 2] = ["quorate-test", "quorate-testkit"];

#[test]
fn files_of_the_program_form_no_circles() {
    let crates = fs::read_dir(crate_named("")).unwrap();
    let names = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name != LIBRARY).collect();
    for name in NOT_YET {
        assert!(names.iter().any(|other| other == name), "there is no crate {name}");
    }
    for name in &names {
        let sources = Sources::read(&crate_named(name).join("src"));
        assert!(sources.files.len() > 3, "{name}: only {} files were found", sources.files.len());
        let problems = check(&sources);
        match NOT_YET.contains(&name.as_str()) {
            true => assert!(!problems.is_empty(), "{name} is in NOT_YET and has no circle: remove it there"),
            false => assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n")),
        }
    }
}

/// Returns the uses that are part of a circle. The root of a crate starts everything, so it may use every file.
fn check(sources: &Sources) -> Vec<String> {
    let mut arrows = sources.arrows();
    arrows.retain(|arrow| arrow.from != "lib");
    let line = |arrow: &Arrow| {
        format!("src/{}:{}: {} uses {}: part of a circle", arrow.file, arrow.line, arrow.from, arrow.to)
    };
    circular(&arrows).iter().map(|arrow| line(arrow)).collect()
}

fn sources(texts: &[(&str, &str)]) -> Sources {
    Sources::parse(
        &texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect::<Vec<_>>(),
    )
}

#[test]
fn a_circle_between_modules_or_with_the_file_above_is_reported() {
    for root in ["lib.rs", "main.rs"] {
        let texts = [
            (root, "mod a; mod b; mod c; use a::A; use b::B; fn run() {}"),
            ("a.rs", "use crate::b::B; fn f() { crate::run() }"),
            ("b.rs", "\nuse crate::a::A;"),
            ("c/mod.rs", "mod d; pub(crate) use d::D; pub(crate) struct C; fn f() { d::run() }"),
            ("c/d.rs", "use super::C;"),
        ];
        let of_two = ["src/a.rs:1: a uses b: part of a circle", "src/b.rs:2: b uses a: part of a circle"];
        let of_c =
            ["src/c/mod.rs:1: c uses c::d: part of a circle", "src/c/d.rs:1: c::d uses c: part of a circle"];
        assert_eq!(check(&sources(&texts)), [of_two, of_c].concat(), "{root}");
    }
}

#[test]
fn a_file_that_re_exports_its_parts_is_no_circle() {
    let texts = [
        ("main.rs", "mod a; mod c;"),
        ("a.rs", "use crate::c::D;"),
        ("c/mod.rs", "mod d; mod e; pub(crate) use d::D;"),
        ("c/d.rs", ""),
        ("c/e.rs", "use super::D;"),
    ];
    assert_eq!(check(&sources(&texts)), Vec::<String>::new());
}
