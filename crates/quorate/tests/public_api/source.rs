//! Parses the modules of a crate, and their `use` statements.

use std::{collections::BTreeMap, fs, path::Path};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// A path of names from the root of the crate. The path of the root is empty.
pub(crate) type ModPath = Vec<String>;

/// A module.
pub(crate) struct Module {
    pub(crate) items: Vec<Item>,
    /// True if other crates can use a path to the module, and the documentation shows the module.
    pub(crate) is_public: bool,
}

/// All modules of the crate, by path.
pub(crate) struct Source {
    pub(crate) modules: BTreeMap<ModPath, Module>,
}

/// A name that a `use` statement defines.
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) target: ModPath,
}

impl Source {
    /// Parses the crate whose sources are in `src`.
    pub(crate) fn read(src: &Path) -> Self {
        let mut source = Self { modules: BTreeMap::new() };
        let text = fs::read_to_string(src.join("lib.rs")).expect("lib.rs");
        let items = syn::parse_file(&text).expect("lib.rs parses").items;
        source.add(Vec::new(), items, true, src);
        source
    }

    fn add(&mut self, path: ModPath, items: Vec<Item>, is_public: bool, dir: &Path) {
        let mut items = items;
        for item in &mut items {
            let Item::Mod(module) = item else { continue };
            if is_test_only(&module.attrs) {
                continue;
            }
            let name = module.ident.to_string();
            let mut inner = path.clone();
            inner.push(name.clone());
            let public = is_public && is_pub(&module.vis) && !is_hidden(&module.attrs);
            let folder = dir.join(&name);
            let items = match &mut module.content {
                Some((_, items)) => std::mem::take(items),
                None => {
                    let beside = dir.join(format!("{name}.rs"));
                    let file = if beside.exists() { beside } else { folder.join("mod.rs") };
                    let text =
                        fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display())).items
                }
            };
            self.add(inner, items, public, &folder);
        }
        self.modules.insert(path, Module { items, is_public });
    }

    /// Returns the names that a `use` statement defines in the module at `path`.
    pub(crate) fn imports(&self, path: &ModPath, item: &ItemUse) -> Vec<Import> {
        let mut found = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut found);
        let mut imports = Vec::new();
        for (name, target) in found {
            let Some(target) = self.absolute(path, &target) else { continue };
            if name != "*" {
                imports.push(Import { name, target });
            }
        }
        imports
    }

    /// Converts a path from the source of the module `module` to a path from the root of the crate. Returns
    /// `None` if the path belongs to another crate.
    fn absolute(&self, module: &ModPath, path: &[String]) -> Option<ModPath> {
        let mut base = match path.first().map(String::as_str)? {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len() - 1].to_vec(),
            first => {
                let mut child = module.clone();
                child.push(first.to_owned());
                if !self.modules.contains_key(&child) {
                    return None;
                }
                module.clone()
            }
        };
        let from = usize::from(matches!(path[0].as_str(), "crate" | "self" | "super"));
        base.extend(path[from..].iter().cloned());
        Some(base)
    }
}

fn flatten(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    let mut with = |name: &syn::Ident, shown: &syn::Ident| {
        let mut path = prefix.clone();
        path.push(name.to_string());
        found.push((shown.to_string(), path));
    };
    match tree {
        UseTree::Name(name) => with(&name.ident, &name.ident),
        UseTree::Rename(rename) => with(&rename.ident, &rename.rename),
        UseTree::Glob(_) => found.push(("*".into(), prefix.clone())),
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, found)),
    }
}

pub(crate) fn is_pub(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns whether `#[doc(hidden)]` is among the attributes.
pub(crate) fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("doc")
            && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string().contains("hidden"))
    })
}

fn is_test_only(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}
