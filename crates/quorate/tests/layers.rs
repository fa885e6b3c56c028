//! Checks the layers of the library. Each module may use only the modules below it. The files of one module
//! must not depend on each other in a circle, except for the exceptions that this test lists.
//!
//! The test reads the sources as tokens, so it ignores comments and strings. Test code (`#[cfg(test)]`,
//! `*tests.rs`, `tests/`) may use every module.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The modules, from the bottom to the top. Each module may use only the modules before it.
const ORDER: [&str; 18] = [
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
    "scheduler",
];
/// Modules that are not in the order, each with the highest module that it may use. No module may use them.
const BESIDE: [(&str, &str); 1] = [("admin", "quorum")];
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

#[test]
fn modules_use_only_modules_below_them_and_files_form_no_circles() {
    let sources = Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(sources.files.len() > 100, "only {} files were found", sources.files.len());
    let problems = check(&sources, &CIRCLES_ALLOWED);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn check(sources: &Sources, allowed: &[(&str, &str, &str)]) -> Vec<String> {
    let mut arrows = sources.arrows();
    let mut problems: Vec<String> = arrows.iter().filter_map(forbidden).collect();
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

/// A use of one file by another: `from` uses `to`. Both are module paths, such as `lease::wait::queue`.
#[derive(Debug)]
struct Arrow {
    from: String,
    to: String,
    file: String,
    line: usize,
}

/// The files of the library, by module path. The module path of the root is empty.
#[derive(Default)]
struct Sources {
    files: BTreeMap<Vec<String>, File>,
}

#[derive(Default)]
struct File {
    name: String,
    children: BTreeSet<String>,
    /// The names that the `use` statements of the file define, each with the absolute path of the item.
    aliases: BTreeMap<String, Vec<String>>,
    uses: Vec<Use>,
}

/// A use of an item of this crate. `path` is the item's path from the root of the crate.
struct Use {
    path: Vec<String>,
    line: usize,
    /// True for a `pub use`. A file that re-exports items may also re-export those of its submodules.
    exports: bool,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let mut texts = Vec::new();
        let mut open = vec![root.to_path_buf()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|ext| ext == "rs") {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                    texts.push((name, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        Self::parse(&texts)
    }

    fn parse(texts: &[(String, String)]) -> Self {
        let mut sources = Self::default();
        for (name, text) in
            texts.iter().filter(|(name, _)| !name.ends_with("tests.rs") && !name.contains("/tests/"))
        {
            let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
            let module: Vec<String> =
                path.split('/').filter(|part| *part != "lib").map(str::to_owned).collect();
            let mut file = File { name: name.clone(), ..File::default() };
            let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            let tokens: Vec<TokenTree> = without_tests(tokens);
            file.find_children(&tokens);
            file.find_uses(&module, &tokens);
            sources.files.insert(module, file);
        }
        sources
    }

    fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = Vec::new();
        for (module, file) in &self.files {
            let from = if module.is_empty() { "lib".to_owned() } else { module.join("::") };
            for found in &file.uses {
                let target = self.resolve(&found.path, 0);
                let facade = found.exports && target.starts_with(module);
                if target != *module && !facade && !target.is_empty() {
                    let (to, file) = (target.join("::"), file.name.clone());
                    arrows.push(Arrow { from: from.clone(), to, file, line: found.line });
                }
                // The module in the path may only re-export the item. The file then depends on that module too.
                if let Some(named) = found
                    .path
                    .first()
                    .filter(|named| Some(*named) != target.first() && Some(*named) != module.first())
                    && self.files.contains_key(std::slice::from_ref(named))
                {
                    let (to, file) = (named.clone(), file.name.clone());
                    arrows.push(Arrow { from: from.clone(), to, file, line: found.line });
                }
            }
        }
        arrows
    }

    /// Finds the item with this absolute path, also through re-exports. Returns the module of the file that
    /// defines it.
    fn resolve(&self, path: &[String], depth: usize) -> Vec<String> {
        let mut at: Vec<String> = Vec::new();
        for (index, segment) in path.iter().enumerate() {
            let Some(file) = self.files.get(&at) else { break };
            let child = [&at[..], std::slice::from_ref(segment)].concat();
            if self.files.contains_key(&child) {
                at = child;
            } else if let Some(alias) = file.aliases.get(segment).filter(|_| depth < 8) {
                let rest = &path[index + 1..];
                return self.resolve(&[&alias[..], rest].concat(), depth + 1);
            } else {
                break;
            }
        }
        at
    }
}

impl File {
    fn find_children(&mut self, tokens: &[TokenTree]) {
        for window in tokens.windows(3) {
            if let [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(end)] = window
                && *word == "mod"
                && end.as_char() == ';'
            {
                self.children.insert(name.to_string());
            }
        }
    }

    fn find_uses(&mut self, module: &[String], tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) => self.find_uses(module, &without_tests(group.stream())),
                TokenTree::Ident(word) if *word == "use" => {
                    let exports = at >= 2 && is_visibility(&tokens[at - 2]);
                    let line = word.span().start().line;
                    let end = tokens[at..]
                        .iter()
                        .position(|token| is_punct(token, ';'))
                        .map_or(tokens.len(), |end| at + end);
                    for (path, name) in use_tree(&tokens[at..end]) {
                        let Some(path) = self.absolute(module, &path) else { continue };
                        if name != "*" {
                            self.aliases.insert(name, path.clone());
                        }
                        self.uses.push(Use { path, line, exports });
                    }
                    at = end;
                }
                TokenTree::Ident(word)
                    if !(at >= 2 && (is_punct(&tokens[at - 2], ':') || is_punct(&tokens[at - 2], '.'))) =>
                {
                    let mut path = vec![word.to_string()];
                    while let [TokenTree::Punct(one), TokenTree::Punct(two), TokenTree::Ident(next), ..] =
                        &tokens[at..]
                        && one.as_char() == ':'
                        && one.spacing() == Spacing::Joint
                        && two.as_char() == ':'
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    if path.len() > 1
                        && let Some(path) = self.absolute(module, &path)
                    {
                        self.uses.push(Use { path, line: word.span().start().line, exports: false });
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the path of an item from the root of this crate. Returns `None` if the path belongs to another
    /// crate, or if the name is a local one.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                let parent = module.len().checked_sub(ups)?;
                Some([&module[..parent], &path[ups..]].concat())
            }
            _ if self.children.contains(first) => Some([module, path].concat()),
            _ => None,
        }
    }
}

/// Returns the paths of a `use` statement, each with the name that the statement defines for it.
fn use_tree(tokens: &[TokenTree]) -> Vec<(Vec<String>, String)> {
    let mut path: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Ident(word) if *word == "as" => {
                let name = tokens.get(at).map(ToString::to_string).unwrap_or_default();
                return vec![(path, name)];
            }
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let trees = inner.split(|token| is_punct(token, ',')).flat_map(use_tree);
                return trees.map(|(rest, name)| ([&path[..], &rest[..]].concat(), name)).collect();
            }
            token if is_punct(token, '*') => return vec![(path, "*".to_owned())],
            _ => {}
        }
    }
    match path.last().cloned() {
        Some(last) if last == "self" => {
            path.pop();
            let name = path.last().cloned().unwrap_or_default();
            vec![(path, name)]
        }
        Some(last) => vec![(path, last)],
        None => Vec::new(),
    }
}

/// Removes attributes, and items that are compiled only for tests, from the tokens.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if !is_punct(&token, '#') {
            kept.push(token);
            continue;
        }
        tokens.next_if(|token| is_punct(token, '!'));
        let Some(TokenTree::Group(attribute)) = tokens.next() else { continue };
        if attribute.stream().to_string().replace(' ', "") != "cfg(test)" {
            continue;
        }
        for token in tokens.by_ref() {
            let body = matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            if body || is_punct(&token, ';') {
                break;
            }
        }
    }
    kept
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// Returns whether the token before `use` makes it public: `pub`, or the end of `pub(…)`.
fn is_visibility(token: &TokenTree) -> bool {
    match token {
        TokenTree::Ident(word) => *word == "pub",
        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
        _ => false,
    }
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
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scheduler")];
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
