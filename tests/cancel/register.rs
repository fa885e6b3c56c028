//! Checks that the list of tested futures has every public future of the libraries.

use crate::{TRIED, hands, operated, replace, servers, stream};
use std::{collections::BTreeMap, fs, path::Path};

/// The public futures in the sources of the libraries, by type and name, with their documentation. These are
/// `async fn`, `-> impl Future` and `-> BoxFuture` on a public type or trait, and types that are futures.
#[derive(Debug, Default)]
struct Register {
    found: BTreeMap<String, String>,
}

impl Register {
    fn read(dirs: &[&str]) -> Self {
        let mut register = Self::default();
        for dir in dirs {
            register.read_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(dir));
        }
        register
    }

    fn read_dir(&mut self, dir: &Path) {
        let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.read_dir(&path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("src/redis/probe.rs")
            {
                self.read_source(&fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Reads a source file as rustfmt has formatted it: items begin at the margin, and members are indented by
    /// four spaces.
    fn read_source(&mut self, source: &str) {
        let (mut of, mut in_trait, mut docs) = (String::new(), false, String::new());
        let mut lines = source.lines().peekable();
        while let Some(line) = lines.next() {
            let text = line.trim_start();
            let depth = line.len() - text.len();
            if let Some(doc) = text.strip_prefix("///") {
                docs += doc;
                docs.push('\n');
                continue;
            }
            if text.starts_with("#[") {
                continue;
            }
            if depth == 0 && (text.starts_with("impl") || text.starts_with("pub trait ")) {
                in_trait = text.starts_with("pub trait ");
                of = type_of(text);
                if text.contains(" Future for ") {
                    let how = "# Cancel safety\nA future by itself: its type says what dropping it does.";
                    self.found.insert(format!("{of} as Future"), how.to_owned());
                }
            }
            let public = (depth == 4 && in_trait) || text.starts_with("pub ");
            if public && depth <= 4 && (text.contains("fn ")) && !text.starts_with("pub const ") {
                let mut signature = text.to_owned();
                while !signature.contains('{') && !signature.ends_with(';') {
                    let Some(next) = lines.next() else { break };
                    signature += " ";
                    signature += next.trim();
                }
                if is_future(&signature) {
                    let of = if depth == 0 { "" } else { &of };
                    self.found.insert(format!("{of}::{}", name_of(&signature)), std::mem::take(&mut docs));
                }
            }
            docs.clear();
        }
    }
}

/// Returns the type or the trait in a header such as `impl<T: Send> Future for Task<T> where …`, `impl Lock {`,
/// or `pub trait Node: Send {`.
fn type_of(header: &str) -> String {
    let header = header.trim_start_matches("pub trait ");
    // The generic arguments are kept, because `impl Lock<ReadLease>` has other methods than `impl Lock`.
    let is_concrete = header.starts_with("impl ") && !header.contains(" for ");
    let header = match header.strip_prefix("impl") {
        Some(rest) if rest.starts_with('<') => {
            let mut open = 0;
            let end = rest.char_indices().find(|(_, c)| {
                open += i32::from(*c == '<') - i32::from(*c == '>');
                open == 0
            });
            &rest[end.map_or(0, |(at, _)| at + 1)..]
        }
        Some(rest) => rest,
        None => header,
    };
    let header = header.split(" for ").last().unwrap_or(header).trim();
    if is_concrete {
        return header.split([' ', '{']).next().unwrap_or_default().to_owned();
    }
    header.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
}

fn is_future(signature: &str) -> bool {
    let returns = signature.split_once(" -> ").map_or("", |(_, returns)| returns);
    signature.contains("async fn ") || returns.contains("impl Future") || returns.contains("BoxFuture")
}

fn name_of(signature: &str) -> &str {
    let after = signature.split_once("fn ").map_or("", |(_, after)| after);
    after.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The futures that no user can name. The cases of the requests that they answer drop them. The module `redis::probe`
/// is left out too: it is hidden, and for the test-kit only.
const INTERNAL: [&str; 1] = ["BatchReplyFuture as Future"];

#[test]
fn every_public_future_is_tried_and_says_whether_it_is_cancel_safe() {
    let register = Register::read(&["quorate/src"]);
    assert!(register.found.len() > 30, "the sources have been read: {:?}", register.found.keys());
    let tried =
        [TRIED, hands::TRIED, servers::TRIED, replace::TRIED, stream::TRIED, operated::TRIED].concat();
    let mut wrong = Vec::new();
    for (name, docs) in register.found.iter().filter(|(name, _)| !INTERNAL.contains(&&***name)) {
        if !tried.contains(&&**name) {
            wrong.push(format!("{name} is not tried: add a case to tests/cancel/main.rs"));
        }
        if !docs.contains("# Cancel safety") {
            wrong.push(format!("{name} has no section `# Cancel safety` in its documentation"));
        }
    }
    for name in tried {
        if !register.found.contains_key(name) {
            wrong.push(format!("{name} is tried, and is not there: take it off the list"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sources_are_read_as_they_are_written() {
    let mut register = Register::default();
    register.read_source(
        "impl<T: Into<u8>> Future for Task<T> {\n    fn poll(self) {}\n}\nimpl Lock {\n    /// Waits.\n    ///\n    \
         /// # Cancel safety\n    /// Safe.\n    #[must_use]\n    pub async fn wait<'a>(\n        &self,\n    ) -> u8 {\n    }\n    \
         pub(crate) async fn hidden() {}\n    pub fn spawn(work: impl Future<Output = ()>) {}\n}\n\
         pub trait Node: Send {\n    fn open(&self) -> impl Future<Output = u8>;\n    fn name(&self) -> &str;\n}\n\
         pub fn lone() -> impl Future<Output = u8> {}\n",
    );
    let names: Vec<&str> = register.found.keys().map(String::as_str).collect();
    assert_eq!(names, ["::lone", "Lock::wait", "Node::open", "Task as Future"]);
    assert!(register.found["Lock::wait"].contains("# Cancel safety"));
    assert!(!register.found["Node::open"].contains("# Cancel safety"));
}
