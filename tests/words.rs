//! Checks that comments, strings and documents use plain technical English. `docs/words.txt` lists words that
//! they had better not use. A doc comment had better begin with a verb or a noun phrase. A finding is a warning: no test
//! fails, and `tests/run.sh` prints the findings at its end.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files that are not checked, each with the reason why it needs a listed word. A directory ends with `/`.
const EXCEPTIONS: [(&str, &str); 5] = [
    ("docs/words.txt", "the list"),
    ("crates/quorate/public-api.txt", "a listing of names"),
    ("tests/words.rs", "this test shows the words that it finds"),
    ("crates/quorate-testkit/src/postgres/programs.rs", "`nobody` is a user of Unix systems"),
    ("tests/command_end.rs", "`nobody` is a user of Unix systems"),
];

/// Question words with which no doc comment may begin.
const QUESTIONS: [&str; 7] = ["What", "How", "Whether", "Who", "Whom", "Whose", "That"];

/// One entry of the list of words: the words to find, and what to write in their place.
struct Rule {
    words: Vec<String>,
    any_ending: bool,
    instead: String,
}

/// A piece of text for people, with the line on which it begins.
struct Piece {
    line: usize,
    text: String,
    /// True for a doc comment, whose first word is checked too.
    begins_documentation: bool,
}

#[test]
fn texts_use_plain_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned();
    let rules = rules(&fs::read_to_string(root.join("docs/words.txt")).expect("the list of words"));
    assert!((5..=10).contains(&rules.len()), "the words that matter, and no others: {} entries", rules.len());
    let mut files = Vec::new();
    for folder in ["crates", "tests", "examples", "docs", "config"] {
        collect(&root.join(folder), &mut files);
    }
    files.extend(fs::read_dir(&root).expect("the repository").filter_map(|entry| {
        let path = entry.expect("an entry").path();
        path.extension().is_some_and(|extension| extension == "md").then_some(path)
    }));
    assert!(files.len() > 300, "the sources were found: {} files", files.len());
    let mut findings = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).expect("below the root").display().to_string();
        if EXCEPTIONS.iter().any(|(path, _)| *path == name || (path.ends_with('/') && name.starts_with(path)))
        {
            continue;
        }
        let text = fs::read_to_string(&file).expect("UTF-8");
        let pieces = if name.ends_with(".rs") { pieces(&text) } else { vec![Piece::whole(&text)] };
        findings.extend(
            pieces.iter().flat_map(|piece| piece.findings(&rules)).map(|found| format!("{name}:{found}")),
        );
    }
    warn(&findings);
}

/// Hands the findings to `tests/run.sh`, which names the file. Without it they are printed.
fn warn(findings: &[String]) {
    let text: String = findings.iter().map(|found| format!("{found}\n")).collect();
    match std::env::var_os("TESTS_WARNED") {
        Some(file) => fs::write(file, text).expect("the file of warnings"),
        None => eprint!("{text}"),
    }
}

#[test]
fn the_check_finds_words_in_comments_strings_and_documents() {
    let rules = rules("mend* = fix\nwhat stands = the stored value\n");
    let found = |text: &str| {
        pieces(text).iter().flat_map(|piece| piece.findings(&rules)).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(found("let a = 1; // mended\n"), "1: `mended`: write fix");
    assert_eq!(found("fn a() {}\nlet b = \"What  stands\";"), "2: `what stands`: write the stored value");
    assert_eq!(found("// one\n// what\n// stands"), "2: `what stands`: write the stored value");
    assert_eq!(found("let mended = 'm'; let s = r#\"recommended\"#; // recommend\n"), "");
    assert_eq!(
        found("/// Whether it is so.\n/// What else?\nfn a() {}\n"),
        "1: a doc comment begins with `Whether`"
    );
}

fn rules(list: &str) -> Vec<Rule> {
    let entries =
        list.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let rule = |(words, instead): (&str, &str)| Rule {
        words: words.trim_end_matches('*').split(' ').map(str::to_lowercase).collect(),
        any_ending: words.ends_with('*'),
        instead: instead.to_owned(),
    };
    entries.map(rule).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !["target", "corpus", "artifacts", "node_modules"].contains(&name) {
                collect(&path, files);
            }
        } else if [".rs", ".md", ".toml", ".sh", ".lua", ".txt", ".service"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            files.push(path);
        }
    }
}

impl Piece {
    fn whole(text: &str) -> Self {
        Self { line: 1, text: text.to_owned(), begins_documentation: false }
    }

    fn findings(&self, rules: &[Rule]) -> Vec<String> {
        let mut found = Vec::new();
        let words = words(&self.text);
        for rule in rules {
            let matches = |at: &[(usize, String)]| {
                at.iter().zip(&rule.words).enumerate().all(|(index, ((_, word), wanted))| {
                    word == wanted
                        || (rule.any_ending
                            && index + 1 == rule.words.len()
                            && word.starts_with(wanted.as_str()))
                })
            };
            for at in words.windows(rule.words.len()).filter(|at| matches(at)) {
                let shown = at.iter().map(|(_, word)| word.as_str()).collect::<Vec<_>>().join(" ");
                found.push(format!("{}: `{shown}`: write {}", self.line + at[0].0, rule.instead));
            }
        }
        if self.begins_documentation {
            let first = self
                .text
                .trim_start_matches(['/', '!', ' '])
                .split([' ', '\n', ','])
                .next()
                .unwrap_or_default();
            if QUESTIONS.contains(&first) {
                found.push(format!("{}: a doc comment begins with `{first}`", self.line));
            }
        }
        found
    }
}

/// Returns the words of `text` in lower case, each with its line from 0. An identifier with `_` or `-` is one word.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '\'');
        for word in line.split(|c| !part(c)).filter(|word| !word.is_empty()) {
            words.push((number, word.to_lowercase()));
        }
    }
    words
}

/// Returns the comments and string literals of a Rust source. Comment lines that follow one another are one piece.
fn pieces(source: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let bytes = source.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut last_comment = (0, "");
    while at < bytes.len() {
        let rest = &source[at..];
        let end = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            let kind =
                ["///", "//!", "//"].into_iter().find(|kind| rest.starts_with(kind)).unwrap_or_default();
            let text = &rest[..end];
            match pieces.last_mut() {
                Some(piece) if last_comment == (line - 1, kind) => {
                    piece.text.push('\n');
                    piece.text.push_str(text);
                }
                _ => pieces.push(Piece { line, text: text.to_owned(), begins_documentation: kind != "//" }),
            }
            last_comment = (line, kind);
            end
        } else if let Some(end) = string_end(rest) {
            pieces.push(Piece { line, text: rest[..end].to_owned(), begins_documentation: false });
            end
        } else {
            character_end(rest)
        };
        line += rest[..end].matches('\n').count();
        at += end;
    }
    pieces
}

/// Returns the length of the string literal at the beginning of `rest`, if there is one.
fn string_end(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r').map(|raw| raw.bytes().take_while(|byte| *byte == b'#').count());
    if let Some(hashes) = hashes
        && rest[1 + hashes..].starts_with('"')
    {
        let close = format!("\"{}", "#".repeat(hashes));
        let begin = hashes + 2;
        return Some(rest[begin..].find(&close).map_or(rest.len(), |end| begin + end + close.len()));
    }
    rest.starts_with('"').then(|| {
        let mut escaped = false;
        let close = |c: char| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        };
        rest[1..].find(close).map_or(rest.len(), |end| end + 2)
    })
}

/// Returns the length of the token at the beginning of `rest`: a character literal, an identifier, or any other
/// character.
fn character_end(rest: &str) -> usize {
    let first = rest.chars().next().map_or(1, char::len_utf8);
    if let Some(inner) = rest.strip_prefix('\'') {
        // The quote begins a character literal if its end follows. Otherwise it begins a lifetime.
        if let Some(escape) = inner.strip_prefix('\\') {
            return escape.find('\'').map_or(first, |end| end + 3).max(if escape.starts_with('\'') {
                4
            } else {
                0
            });
        }
        let length = inner.chars().next().map_or(0, char::len_utf8);
        return if inner[length..].starts_with('\'') { length + 2 } else { first };
    }
    let identifier = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    // An identifier is consumed as a whole, so that its last letter is not read as the `r` of a raw string.
    if identifier > 1 { identifier } else { first }
}
