//! Lists the public items of a crate, with their signatures as text.

use crate::source::{ModPath, Source, is_hidden, is_pub};
use quote::ToTokens;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use syn::{Attribute, Fields, ImplItem, Item, ItemMacro, TraitItem};

/// The place at which an item is defined: its module, and its index in that module.
type Definition = (ModPath, usize);

/// The public items of the crate, with the source in which they are defined.
pub(crate) struct Api {
    source: Source,
    /// The shortest public path of each item.
    paths: BTreeMap<Definition, String>,
    /// For each item that the root re-exports, the documentation of the `pub use` statement.
    use_docs: BTreeMap<Definition, String>,
}

impl Api {
    pub(crate) fn read(src: &Path) -> Self {
        let source = Source::read(src);
        let mut api = Self { source, paths: BTreeMap::new(), use_docs: BTreeMap::new() };
        api.collect();
        api
    }

    fn collect(&mut self) {
        for (path, module) in &self.source.modules {
            if !module.is_public {
                continue;
            }
            let shown = |name: &str| {
                std::iter::once("quorate")
                    .chain(path.iter().map(String::as_str))
                    .chain([name])
                    .collect::<Vec<_>>()
                    .join("::")
            };
            for (at, item) in module.items.iter().enumerate() {
                if let Item::Use(import) = item {
                    if !is_pub(&import.vis) || is_hidden(&import.attrs) {
                        continue;
                    }
                    for import_of in self.source.imports(path, import) {
                        for definition in self.define(&import_of.target, 0) {
                            note(&mut self.paths, definition.clone(), shown(&import_of.name));
                            if path.is_empty() {
                                self.use_docs.entry(definition).or_default().push_str(&docs(&import.attrs));
                            }
                        }
                    }
                } else if let Some(name) = public_name(item) {
                    note(&mut self.paths, (path.clone(), at), shown(&name));
                }
            }
        }
    }

    /// Returns the definitions to which a path refers, and follows `use` statements. There may be two: an item
    /// and a macro of the same name.
    fn define(&self, target: &ModPath, depth: usize) -> Vec<Definition> {
        let Some((name, module_path)) = target.split_last().filter(|_| depth < 16) else { return Vec::new() };
        let Some(module) = self.source.modules.get(module_path) else { return Vec::new() };
        let mut found = Vec::new();
        for (at, item) in module.items.iter().enumerate() {
            match item {
                Item::Use(import) => {
                    for one in self.source.imports(&module_path.to_vec(), import) {
                        if one.name == *name {
                            found.extend(self.define(&one.target, depth + 1));
                        }
                    }
                }
                item if public_name(item).as_deref() == Some(name) => found.push((module_path.to_vec(), at)),
                _ => {}
            }
        }
        found
    }

    fn item(&self, (module, at): &Definition) -> &Item {
        &self.source.modules[module].items[*at]
    }

    /// Returns the public paths, one for each item.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.paths.values().map(String::as_str).collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns the names of types and traits that the documentation hides, but that other crates can still use.
    pub(crate) fn hidden_types(&self) -> BTreeSet<String> {
        let shown: BTreeSet<&str> = self.names().filter_map(|name| name.rsplit("::").next()).collect();
        let items = self.source.modules.values().flat_map(|module| &module.items);
        let types = items.filter_map(|item| match item {
            Item::Struct(item) if is_pub(&item.vis) => Some(item.ident.to_string()),
            Item::Enum(item) if is_pub(&item.vis) => Some(item.ident.to_string()),
            Item::Trait(item) if is_pub(&item.vis) => Some(item.ident.to_string()),
            Item::Type(item) if is_pub(&item.vis) => Some(item.ident.to_string()),
            _ => None,
        });
        types.filter(|name| !shown.contains(name.as_str())).collect()
    }

    pub(crate) fn root_items_without_example(&self) -> Vec<&str> {
        let at_root = self.paths.iter().filter(|(_, path)| path.matches("::").count() == 1);
        let without = at_root.filter(|(definition, _)| {
            let own = attrs_of(self.item(definition)).map(docs).unwrap_or_default();
            let all = own + self.use_docs.get(*definition).map_or("", String::as_str);
            !all.contains("```\n") || all.contains("```ignore") || all.contains("```text")
        });
        without.map(|(_, path)| path.as_str()).collect()
    }

    /// Returns the listing: one line for each public item, field, variant and method, sorted.
    pub(crate) fn listing(&self) -> String {
        let mut lines = BTreeSet::new();
        for (definition, path) in &self.paths {
            describe(self.item(definition), path, &mut lines);
        }
        let macros = self.method_macros();
        let by_name: BTreeMap<&str, Vec<&String>> =
            self.paths.values().fold(BTreeMap::new(), |mut map, path| {
                map.entry(path.rsplit("::").next().unwrap_or_default()).or_insert_with(Vec::new).push(path);
                map
            });
        for module in self.source.modules.values() {
            for item in &module.items {
                let Item::Impl(block) = item else { continue };
                let syn::Type::Path(of) = &*block.self_ty else { continue };
                let Some(last) = of.path.segments.last() else { continue };
                // Types are found by their names only. Two types with the same name in different modules would
                // get the methods of both, but there are no such types.
                for path in by_name.get(last.ident.to_string().as_str()).into_iter().flatten() {
                    let generics = text(&block.generics);
                    if let Some((of_trait, _)) = &block.trait_ {
                        lines.insert(format!("{path}: impl{generics} {}", text(of_trait)));
                    } else {
                        block.items.iter().for_each(|item| method(item, path, &macros, &mut lines));
                    }
                }
            }
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// Returns the methods that the macros of this crate define, by the name of the macro.
    fn method_macros(&self) -> BTreeMap<String, Vec<ImplItem>> {
        let items = self.source.modules.values().flat_map(|module| &module.items);
        let rules = items.filter_map(|item| match item {
            Item::Macro(rules @ ItemMacro { ident: Some(name), .. }) => Some((name.to_string(), arms(rules))),
            _ => None,
        });
        rules.filter(|(_, methods)| !methods.is_empty()).collect()
    }
}

/// Parses the bodies of a `macro_rules!` as items of an `impl` block. Bodies that cannot be parsed in this way
/// are skipped.
fn arms(rules: &ItemMacro) -> Vec<ImplItem> {
    let mut methods = Vec::new();
    for token in rules.mac.tokens.clone() {
        let proc_macro2::TokenTree::Group(group) = token else { continue };
        let body = group.stream().to_string().replace('$', "");
        let Ok(block) = syn::parse_str::<syn::ItemImpl>(&format!("impl X {{ {body} }}")) else { continue };
        methods.extend(block.items);
    }
    methods
}

fn note(paths: &mut BTreeMap<Definition, String>, definition: Definition, path: String) {
    let length = |path: &str| (path.matches("::").count(), path.to_owned());
    match paths.get_mut(&definition) {
        Some(known) if length(known) <= length(&path) => {}
        Some(known) => *known = path,
        None => {
            paths.insert(definition, path);
        }
    }
}

fn attrs_of(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        _ => return None,
    })
}

/// Returns the name of an item if the item is `pub` and its documentation is not hidden.
fn public_name(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Fn(item) => (&item.vis, &item.sig.ident),
        Item::Const(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (is_pub(visibility) && !attrs_of(item).is_some_and(is_hidden)).then(|| name.to_string())
}

fn describe(item: &Item, path: &str, lines: &mut BTreeSet<String>) {
    let kind = |what: &str, rest: String| format!("{path}: {what}{rest}");
    let mut fields = |of: &Fields, owner: &str, all: bool| {
        for (at, field) in
            of.iter().enumerate().filter(|(_, field)| (all || is_pub(&field.vis)) && !is_hidden(&field.attrs))
        {
            let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            lines.insert(format!("{owner}::{name}: {}", text(&field.ty)));
        }
    };
    match item {
        Item::Struct(item) => {
            fields(&item.fields, path, false);
            lines.insert(kind("struct", text(&item.generics) + &marks(&item.attrs)));
        }
        Item::Enum(item) => {
            for variant in &item.variants {
                fields(&variant.fields, &format!("{path}::{}", variant.ident), true);
            }
            for variant in &item.variants {
                lines.insert(format!("{path}::{}: variant", variant.ident));
            }
            lines.insert(kind("enum", text(&item.generics) + &marks(&item.attrs)));
        }
        Item::Trait(item) => {
            for one in &item.items {
                match one {
                    TraitItem::Fn(method) if is_hidden(&method.attrs) => false,
                    TraitItem::Type(of) if is_hidden(&of.attrs) => false,
                    TraitItem::Fn(method) => lines.insert(format!("{path}: {}", text(&method.sig))),
                    TraitItem::Type(of) => lines.insert(format!("{path}: type {}", of.ident)),
                    TraitItem::Const(of) => lines.insert(format!("{path}: const {}", of.ident)),
                    _ => true,
                };
            }
            lines.insert(kind("trait", text(&item.generics) + ": " + &text(&item.supertraits)));
        }
        Item::Fn(item) => {
            lines.insert(kind("", text(&item.sig)));
        }
        Item::Const(item) => {
            lines.insert(kind("const ", text(&item.ty)));
        }
        Item::Type(item) => {
            lines.insert(kind("type ", text(&item.ty)));
        }
        _ => {}
    }
}

fn method(
    item: &ImplItem,
    path: &str,
    macros: &BTreeMap<String, Vec<ImplItem>>,
    lines: &mut BTreeSet<String>,
) {
    match item {
        ImplItem::Fn(method) if is_pub(&method.vis) && !is_hidden(&method.attrs) => {
            lines.insert(format!("{path}: {}{}", condition(&method.attrs), text(&method.sig)));
        }
        ImplItem::Const(of) if is_pub(&of.vis) && !is_hidden(&of.attrs) => {
            lines.insert(format!("{path}: const {}: {}", of.ident, text(&of.ty)));
        }
        ImplItem::Macro(call) => {
            let name = call.mac.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
            for inner in macros.get(&name).into_iter().flatten() {
                if !matches!(inner, ImplItem::Macro(_)) {
                    method(inner, path, macros, lines);
                }
            }
        }
        _ => {}
    }
}

/// Returns those attributes that are part of the public interface.
fn marks(attrs: &[Attribute]) -> String {
    let non_exhaustive = attrs.iter().any(|attr| attr.path().is_ident("non_exhaustive"));
    condition(attrs) + if non_exhaustive { " (non-exhaustive)" } else { "" }
}

fn condition(attrs: &[Attribute]) -> String {
    let cfg = attrs.iter().find(|attr| attr.path().is_ident("cfg"));
    cfg.map_or_else(String::new, |cfg| text(&cfg.meta) + " ")
}

fn docs(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter_map(|attr| match &attr.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                Some(text.value().trim().to_owned() + "\n")
            }
            _ => None,
        },
        _ => None,
    });
    lines.collect()
}

/// Returns the tokens as text, with spaces as in formatted Rust code.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string().replace('\n', " ");
    for (spaced, tight) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        ("( ", "("),
        (" )", ")"),
        (" (", "("),
        ("& ", "&"),
        (" :", ":"),
        ("- >", "->"),
        (" ->", " ->"),
        ("->", " -> "),
        ("  ", " "),
        ("  ", " "),
        ("[ ", "["),
        (" ]", "]"),
        ("' ", "'"),
        ("# ", "#"),
    ] {
        text = text.replace(spaced, tight);
    }
    text.trim().to_owned()
}
