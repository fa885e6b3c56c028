//! Checks the dependencies against `deny.toml`: licences, duplicate versions and sources. Checks the manifests of the
//! published crates: the fields that a registry shows, the oldest Rust, and the features that `tests/run.sh` builds.
//!
//! `cargo deny check` makes the first of these checks, and also consults RustSec's database of advisories. These
//! tests need neither that program nor the network, so they run everywhere.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A permitted second version of a crate, written `NAME@VERSION`. `VERSION` may be a prefix of the version.
#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    name_and_version: String,
    reason: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Clone, Default, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    #[serde(default)]
    rust_version: Option<String>,
    #[serde(default)]
    manifest_path: PathBuf,
    /// The registries to which the package may be published. `None` stands for all of them.
    #[serde(default)]
    publish: Option<Vec<String>>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    documentation: Option<String>,
    #[serde(default)]
    readme: Option<PathBuf>,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    dependencies: Vec<Dependency>,
    #[serde(default)]
    features: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Default, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// The categories of crates.io that the published crates use. The registry refuses unknown ones.
const CATEGORIES: [&str; 5] = [
    "asynchronous",
    "command-line-utilities",
    "concurrency",
    "development-tools::testing",
    "web-programming",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

fn metadata() -> Metadata {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    serde_json::from_slice(&metadata.stdout).expect("JSON")
}

/// Returns the packages that RELEASING.md publishes.
fn published(metadata: &Metadata) -> Vec<&Package> {
    let ours = metadata.packages.iter().filter(|package| package.source.is_none());
    ours.filter(|package| package.publish.is_none()).collect()
}

#[test]
fn published_crates_have_the_fields_that_a_registry_shows() {
    let metadata = metadata();
    let published = published(&metadata);
    let names: BTreeSet<&str> = published.iter().map(|package| &*package.name).collect();
    let releasing = fs::read_to_string(root().join("RELEASING.md")).expect("RELEASING.md");
    let order = releasing.split_once("publish in this order").expect("the order").1;
    let place = |name: &str| order.find(&format!("`{name}`"));
    for package in &published {
        let name = &*package.name;
        assert!(package.description.as_ref().is_some_and(|text| text.len() > 20), "{name}: description");
        assert_eq!(package.license.as_deref(), Some("MIT OR Apache-2.0"), "{name}");
        assert_eq!(package.documentation, Some(format!("https://docs.rs/{name}")), "{name}");
        assert!((1..=5).contains(&package.keywords.len()), "{name}: {:?}", package.keywords);
        assert!(package.keywords.iter().all(|word| word.len() <= 20), "{name}: {:?}", package.keywords);
        assert!(!package.categories.is_empty(), "{name}: categories");
        for category in &package.categories {
            assert!(CATEGORIES.contains(&&**category), "{name}: {category}");
        }
        let folder = package.manifest_path.parent().expect("a folder");
        let readme = package.readme.as_ref().unwrap_or_else(|| panic!("{name}: readme"));
        for file in [&**readme, Path::new("LICENSE-MIT"), Path::new("LICENSE-APACHE")] {
            assert!(folder.join(file).is_file(), "{name}: {}", file.display());
        }
        assert!(place(name).is_some(), "RELEASING.md does not publish {name}");
        for needed in package.dependencies.iter().filter(|dependency| dependency.kind.is_none()) {
            let before = place(&needed.name) < place(name);
            assert!(!names.contains(&*needed.name) || before, "{name} is published before {}", needed.name);
        }
    }
    assert_eq!(names.len(), 6, "{names:?}");
}

/// A dependency that needs a later Rust than the published crates do would break the promise of `rust-version`
/// without a test with that Rust.
#[test]
fn no_dependency_of_a_published_crate_needs_a_later_rust() {
    let metadata = metadata();
    // 1.89 and 1.89.0 are the same.
    let number = |version: &str| {
        version
            .trim_end_matches(".0")
            .split('.')
            .map(|part| part.parse::<u32>().expect("a number"))
            .collect::<Vec<_>>()
    };
    let oldest = published(&metadata)[0].rust_version.clone().expect("rust-version");
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut next: Vec<&str> = published(&metadata).iter().map(|package| &*package.name).collect();
    while let Some(name) = next.pop() {
        if !reached.insert(name) {
            continue;
        }
        for package in metadata.packages.iter().filter(|package| package.name == name) {
            let version = package.rust_version.as_deref().unwrap_or("1.0");
            assert!(number(version) <= number(&oldest), "{name} {} needs Rust {version}", package.version);
            let used = package.dependencies.iter().filter(|one| one.kind.as_deref() != Some("dev"));
            next.extend(used.map(|dependency| &*dependency.name));
        }
    }
    assert!(reached.len() > 100, "the dependencies were followed: {}", reached.len());
}

#[test]
fn each_feature_of_the_library_is_built_alone() {
    let metadata = metadata();
    let run = fs::read_to_string(root().join("tests/run.sh")).expect("tests/run.sh");
    let line = run
        .lines()
        .map(str::trim_start)
        .find(|line| line.starts_with("for features in "))
        .expect("the loop over features");
    let built: BTreeSet<&str> = line.split_whitespace().map(|word| word.trim_matches(['"', ';'])).collect();
    assert!(built.contains(""), "no features at all: {line}");
    for package in published(&metadata) {
        for feature in package.features.keys().filter(|feature| *feature != "default") {
            let alone = package.name == "quorate" && built.contains(&**feature);
            // A crate with one feature is built without features, and with all.
            let only = package.features.len() == 1
                && run.contains(&format!("-p {} --no-default-features", package.name));
            assert!(alone || only, "tests/run.sh does not build {} with {feature} alone", package.name);
        }
    }
}

#[test]
fn dependencies_follow_deny_toml() {
    let policy: Policy = toml::from_str(&fs::read_to_string(root().join("deny.toml")).expect("deny.toml"))
        .expect("valid TOML");
    let metadata = metadata();
    assert!(metadata.packages.len() > 100, "all packages were listed: {}", metadata.packages.len());
    let objections = objections(&policy, &metadata.packages);
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

#[test]
fn a_dependency_outside_the_policy_is_found() {
    let policy = Policy {
        licenses: Licenses { allow: ["MIT".to_owned()].into() },
        bans: Bans {
            skip: vec![Skip { name_and_version: "old@0.1".to_owned(), reason: "a user of it".to_owned() }],
        },
    };
    let package = |name: &str, version: &str, license: &str| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        license: Some(license.to_owned()),
        source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
        ..Package::default()
    };
    let found = |packages: &[Package]| objections(&policy, packages).join("; ");
    let twice = [package("old", "0.1.7", "MIT"), package("old", "0.2.0", "MIT OR GPL-3.0-only")];
    assert_eq!(found(&twice), "");
    assert_eq!(found(&twice[1..]), "deny.toml skips old@0.1, which is not one of several versions");
    let three = [&twice[..], &[package("old", "0.3.0", "MIT")]].concat();
    assert!(found(&three).contains("old has several versions: 0.2.0, 0.3.0"), "{}", found(&three));
    let copyleft = [&twice[..], &[package("a", "1.0.0", "MIT AND GPL-3.0-only")]].concat();
    assert!(
        found(&copyleft).contains("a 1.0.0 has the licence MIT AND GPL-3.0-only"),
        "{}",
        found(&copyleft)
    );
    let fork =
        Package { source: Some("git+https://example.org/a".to_owned()), ..package("a", "1.0.0", "MIT") };
    let fork = [&twice[..], &[fork]].concat();
    assert!(found(&fork).contains("a 1.0.0 comes from git+https://example.org/a"), "{}", found(&fork));
}

fn objections(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut objections = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, license, source, .. } in packages {
        // Packages of this workspace have no source, and are not checked.
        let Some(source) = source else { continue };
        if !source.starts_with("registry+https://github.com/rust-lang/crates.io-index") {
            objections.push(format!("{name} {version} comes from {source}, not from crates.io"));
        }
        let license = license.as_deref().unwrap_or("none");
        if !is_permitted(license, &policy.licenses.allow) {
            objections
                .push(format!("{name} {version} has the licence {license}, which deny.toml does not allow"));
        }
        versions.entry(name).or_default().insert(version);
    }
    for Skip { name_and_version, reason } in &policy.bans.skip {
        assert!(!reason.is_empty(), "{name_and_version} is skipped without a reason");
        let (name, prefix) = name_and_version.split_once('@').expect("NAME@VERSION");
        let several = versions.get(name).is_some_and(|versions| versions.len() > 1);
        let is_skipped = |version: &str| version == prefix || version.starts_with(&format!("{prefix}."));
        match versions.get_mut(name).filter(|_| several) {
            Some(versions) if versions.iter().any(|version| is_skipped(version)) => {
                versions.retain(|version| !is_skipped(version));
            }
            _ => objections
                .push(format!("deny.toml skips {name_and_version}, which is not one of several versions")),
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let versions: Vec<_> = versions.iter().copied().collect();
        objections.push(format!("{name} has several versions: {}", versions.join(", ")));
    }
    objections
}

/// Returns whether the allowed licences satisfy an SPDX expression. `AND` binds more tightly than `OR`. A
/// licence with an exception counts as the same licence without it.
fn is_permitted(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    // Parentheses occur only around alternatives, as in `(A OR B) AND C`. Such an expression is satisfied if
    // both sides of `AND` are.
    if let Some((left, right)) = split_outside(&expression, " AND ") {
        return is_permitted(left, allowed) && is_permitted(right, allowed);
    }
    let expression = expression.trim().trim_start_matches('(').trim_end_matches(')');
    expression.split(" OR ").any(|name| {
        let name = name.trim();
        allowed.contains(name.split(" WITH ").next().unwrap_or(name))
    })
}

/// Splits at the first `operator` that is outside parentheses.
fn split_outside<'a>(expression: &'a str, operator: &str) -> Option<(&'a str, &'a str)> {
    let mut depth = 0_i32;
    for (at, c) in expression.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && expression[at..].starts_with(operator) => {
                return Some((&expression[..at], &expression[at + operator.len()..]));
            }
            _ => {}
        }
    }
    None
}
