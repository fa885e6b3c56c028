//! Reads the uses of a crate's files by each other from the sources.

use crate::WITH_ROOMS;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A use of one file by another: `from` uses `to`. Both are module paths, such as `lease::wait::queue`.
#[derive(Debug)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) file: String,
    pub(crate) line: usize,
}

/// The files of a crate, by module path. The module path of the root is empty.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) files: BTreeMap<Vec<String>, File>,
}

#[derive(Default)]
pub(crate) struct File {
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
    pub(crate) fn read(root: &Path) -> Self {
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

    pub(crate) fn parse(texts: &[(String, String)]) -> Self {
        let mut sources = Self::default();
        let root = if texts.iter().any(|(name, _)| name == "lib.rs") { "lib.rs" } else { "main.rs" };
        for (name, text) in
            texts.iter().filter(|(name, _)| !name.ends_with("tests.rs") && !name.contains("/tests/"))
        {
            let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
            let module: Vec<String> = match name == root {
                true => Vec::new(),
                false => path.split('/').map(str::to_owned).collect(),
            };
            let mut file = File { name: name.clone(), ..File::default() };
            let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            let tokens: Vec<TokenTree> = without_tests(tokens);
            file.find_children(&tokens);
            file.find_uses(&module, &tokens);
            sources.files.insert(module, file);
        }
        sources
    }

    pub(crate) fn arrows(&self) -> Vec<Arrow> {
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
                // The path may name a module or a room that only re-exports the item. The file then depends on it too.
                let named = self.unit(&found.path);
                if !named.is_empty() && named != self.unit(module) && named != self.unit(&target) {
                    let (to, file) = (named.join("::"), file.name.clone());
                    arrows.push(Arrow { from: from.clone(), to, file, line: found.line });
                }
            }
        }
        arrows
    }

    /// Returns the part of a path that the orders are about: the module at the top, or the room in it.
    fn unit<'a>(&self, path: &'a [String]) -> &'a [String] {
        let most = if path.first().is_some_and(|module| module == WITH_ROOMS) { 2 } else { 1 };
        let mut parts = (0..=most.min(path.len())).rev().map(|length| &path[..length]);
        parts.find(|part| part.is_empty() || self.files.contains_key(*part)).unwrap_or_default()
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
                    // The path in `pub(in …)` is no use.
                    let in_visibility = matches!(tokens, [TokenTree::Ident(word), ..] if *word == "in");
                    if path.len() > 1
                        && !in_visibility
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
pub(crate) fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
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

pub(crate) fn is_punct(token: &TokenTree, wanted: char) -> bool {
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
