use super::*;
use crate::config::{Config, Environment, Flags, error::SourceText, file::FileText};
use std::path::Path;

const NODES: &str = "nodes = [\"redis://a\"]\n";

/// Checks `otlp` as a program with the feature does, whether this one has it or not.
fn check(text: &str, has_feature: bool) -> Result<OtlpConfig, String> {
    let text = format!("{NODES}{text}");
    let source = SourceText { file: Path::new("/etc/q/q.toml"), text: &text };
    let file: FileText = source.read().map_err(|error| error.to_string())?;
    let written = file.otlp.expect("otlp is set");
    let check = OtlpCheck { source: &source, at: written.span(), written: written.as_ref() };
    check.check(has_feature).map_err(|error| error.to_string())
}

fn error_of(text: &str) -> String {
    check(text, true).expect_err(text)
}

#[test]
fn a_url_alone_is_enough_and_the_other_keys_are_beside_the_file() {
    let plain = check("otlp = \"http://collector:4318\"", true).unwrap();
    assert_eq!((plain.to_string().as_str(), plain.every), ("http://collector:4318", EVERY));
    assert!(plain.header_files.is_empty() && plain.ca_file.is_none());
    let table = "otlp = { url = \"https://c.example.com/otlp-hush\", header_files = { Authorization = \"token\" }, \
                 ca_file = \"/ca.pem\", every = \"1m\" }";
    let whole = check(table, true).unwrap();
    assert_eq!(whole.header_files["Authorization"], Path::new("/etc/q/token"));
    assert_eq!(
        (whole.every, whole.ca_file.as_deref()),
        (Duration::from_secs(60), Some(Path::new("/ca.pem")))
    );
    assert_eq!(whole.to_string(), "https://c.example.com", "the path may be a secret");
    assert!(!format!("{whole:?}").contains("hush"), "{whole:?}");
    let file = check("[otlp]\nurl_file = \"url\"", true).unwrap();
    assert_eq!(file.url, SecretSource::File("/etc/q/url".into()));
}

#[test]
fn each_bad_value_is_refused_with_its_reason_and_the_fix_and_without_secrets() {
    for (text, reason, fix) in [
        ("otlp = \"\"", "is not a URL", "write it like http://127.0.0.1:4318"),
        ("otlp = \"hush:4318\"", "not a URL of https or http", "write it like http://127.0.0.1:4318"),
        ("otlp = \"grpc://hush\"", "not a URL of https or http", "write it like http://127.0.0.1:4318"),
        ("otlp = \"http://hush:hush@c\"", "a user name or password", "header_files = {"),
        ("otlp = \"http://c/hush/v1/traces\"", "the path of one signal", "without /v1/traces"),
        ("otlp = \"http://c:4317\"", "that of gRPC", "4318"),
        ("otlp = \"http://c/?key=hush\"", "a query", "scheme, host, port and path"),
        ("otlp = { }", "no URL", "otlp = \"http://127.0.0.1:4318\""),
        ("otlp = { url = \"http://c/hush\", url_file = \"f\" }", "`url` and `url_file`", "keep one"),
        (
            "otlp = { url = \"http://c\", header_files = { Host = \"f\" } }",
            "\"Host\"",
            "use a name of letters",
        ),
        ("otlp = { url = \"http://c/hush\", header_files = { A = \"f\" } }", "without TLS", "use https"),
        ("otlp = { url = \"http://c\", every = \"10ms\" }", "otlp.every is 10ms", "1s to 3600s"),
        ("otlp = { url = \"http://c\", every = \"5\" }", "every", "write it like \"500ms\""),
        ("otlp = { url = \"http://c\", evry = \"5s\" }", "unknown key `evry`", "did you mean `every`"),
        ("otlp = 4318", "otlp: invalid type: integer", "write the URL of a collector in quotes"),
        ("otlp = [\"http://hush:hush@c\"]", "otlp: invalid type", "write the URL of a collector in quotes"),
    ] {
        let error = error_of(text);
        assert!(error.starts_with("/etc/q/q.toml:2: "), "{text}: {error}");
        assert!(error.contains(reason) && error.contains(fix), "{text}: {error}");
        assert!(!error.contains("hush"), "{text}: {error}");
    }
}

#[test]
fn a_program_without_the_feature_says_so_with_the_fix() {
    let error = check("otlp = \"http://hush:hush@c\"", false).unwrap_err();
    assert!(error.contains("/etc/q/q.toml:2: otlp is set") && error.contains("--features otlp"), "{error}");
    assert!(!error.contains("hush"), "{error}");
}

#[test]
fn a_change_of_the_collector_needs_a_restart() {
    let load = |text: &str| {
        let text = format!("{NODES}{text}");
        let read = |path: &Path| match path == Path::new("/etc/q/q.toml") {
            true => Ok(text.clone()),
            false => Err(std::io::ErrorKind::NotFound.into()),
        };
        let env = [("QUORATE_CONFIG".to_owned(), "/etc/q/q.toml".to_owned())].into();
        let environment = Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
        Config::load(&Flags::default(), &environment)
    };
    let old = load("").unwrap();
    assert_eq!(old.otlp, None);
    match load("otlp = \"http://c:4318\"") {
        Ok(new) => assert_eq!(old.needs_restart(&new), ["otlp"]),
        Err(error) => assert!(!cfg!(feature = "otlp") && error.to_string().contains("--features otlp")),
    }
}
