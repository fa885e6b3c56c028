//! Tests of the settings by which operators are notified: `[[notify]]`, `expect_within`, `ping`, and `[output]`.

use crate::config::{Config, Environment, Flags, NotifyEvent, NotifyTarget, PingEvent, SecretSource};
use std::{collections::BTreeSet, path::Path, time::Duration};

const HEAD: &str = "nodes = [\"redis://a\"]\n[[job]]\nname = \"n\"\nevery = \"1m\"\ncommand = [\"true\"]\n";

fn load(text: &str) -> Result<Config, String> {
    let read = |path: &Path| match path == Path::new("/etc/q/q.toml") {
        true => Ok(text.to_owned()),
        false => Err(std::io::ErrorKind::NotFound.into()),
    };
    let env = [("QUORATE_CONFIG".to_owned(), "/etc/q/q.toml".to_owned())].into();
    let environment = Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
    Config::load(&Flags::default(), &environment).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let error = load(text).expect_err(text);
    assert!(error.starts_with("/etc/q/q.toml:"), "the line: {error}");
    assert!(!error.contains("hush"), "a secret shows: {error}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn every_key_is_read_and_no_secret_is_shown() {
    let text = format!(
        "{HEAD}expect_within = \"2m\"\nping = \"https://hc.example/hush\"\nping_on = [\"start\", \"success\"]\n\
         [[notify]]\non = [\"failed\", \"no-leader\"]\njobs = [\"n\"]\nwebhook = \"https://x.example/hush?a=hush\"\n\
         header_files = {{ Authorization = \"token\" }}\nca_file = \"ca.pem\"\ntimeout = \"3s\"\nno_leader_after = \"5s\"\n\
         [[notify]]\non = [\"overdue\"]\ncommand = [\"./page.sh\", \"hush\"]\n\
         [[notify]]\non = [\"recovered\"]\nwebhook_file = \"url\"\n\
         [output]\ndir = \"runs\"\nkeep = 3\nmax_size = \"2KiB\"\nmax_age = \"1day\"\n"
    );
    let config = load(&text).unwrap();
    assert!(!format!("{config:#?}").contains("hush"), "{config:#?}");
    let job = &config.jobs[0];
    assert_eq!(job.rules.expect_within, Some(Duration::from_secs(120)));
    assert_eq!(job.ping.as_ref().unwrap().on, BTreeSet::from([PingEvent::Start, PingEvent::Success]));
    let [first, second, third] = &config.notify[..] else { panic!("{:?}", config.notify) };
    assert_eq!(first.on, BTreeSet::from([NotifyEvent::Failed, NotifyEvent::NoLeader]));
    assert_eq!((first.timeout, first.no_leader_after), (Duration::from_secs(3), Duration::from_secs(5)));
    assert_eq!(first.jobs, Some(BTreeSet::from(["n".into()])));
    let NotifyTarget::Webhook { header_files, ca_file, .. } = &first.to else { panic!("{first:?}") };
    assert_eq!(header_files["Authorization"], Path::new("/etc/q/token"));
    assert_eq!(ca_file.as_deref(), Some(Path::new("/etc/q/ca.pem")));
    assert_eq!(first.to.to_string(), "https://x.example");
    assert_eq!((second.to.to_string().as_str(), second.jobs.is_none()), ("command ./page.sh", true));
    assert_eq!((second.timeout, second.no_leader_after), (Duration::from_secs(10), Duration::from_secs(60)));
    let NotifyTarget::Webhook { url: SecretSource::File(file), .. } = &third.to else { panic!("{third:?}") };
    assert_eq!(file, Path::new("/etc/q/url"));
    let output = config.output.as_ref().unwrap();
    assert_eq!((output.keep, output.max_size, output.max_age), (3, 2048, Some(Duration::from_secs(86_400))));
    assert_eq!(output.dir, Path::new("/etc/q/runs"));
    let plain = load(HEAD).unwrap();
    assert!(
        plain.notify.is_empty() && plain.output.is_none() && plain.jobs[0].ping.is_none(),
        "off by default"
    );
    assert_eq!(plain.needs_restart(&config), ["output", "notify"]);
    assert_eq!(load(&format!("{HEAD}[output]\ndir = \"d\"\n")).unwrap().output.unwrap().keep, 20);
}

#[test]
fn an_error_names_line_field_value_reason_and_fix() {
    let notify = |lines: &str| format!("{HEAD}[[notify]]\n{lines}\n");
    let on = "on = [\"failed\"]\n";
    for (lines, parts) in [
        ("webhook = \"https://x/\"", &["q.toml:6", "notify 1 has no events", "add on = ["][..]),
        ("on = []", &["empty `on`", "known are failed, recovered, overdue, paused, no-leader"]),
        ("on = [\"failure\"]", &["\"failure\" in `on`", "unknown", "no-leader"]),
        ("on = [\"failed\"]", &["has no receiver", "command = [", "webhook_file"]),
        (
            &format!("{on}webhook = \"https://x/\"\ncommand = [\"a\"]"),
            &["`command` and `webhook`", "another [[notify]]"],
        ),
        (&format!("{on}command = []"), &["empty command", "page.sh"]),
        (&format!("{on}command = [\"a\"]\nca_file = \"x\""), &["only a webhook uses"]),
        (&format!("{on}webhook = \"hush\""), &["has a webhook that is not a URL", "write it like https://"]),
        (&format!("{on}webhook = \"ftp://hush\""), &["is not a URL of https or http"]),
        (&format!("{on}webhook = \"https://me:hush@x/\""), &["user name or password", "header_files"]),
        (
            &format!("{on}webhook = \"http://x.example/\"\nheader_files = {{ A = \"f\" }}"),
            &["without TLS", "use https"],
        ),
        (
            &format!("{on}webhook = \"https://x/\"\nheader_files = {{ \"A b\" = \"f\" }}"),
            &["\"A b\"", "like Authorization"],
        ),
        (&format!("{on}webhook = \"https://x/\"\nheader_files = {{ Host = \"f\" }}"), &["cannot be set"]),
        (
            &format!("{on}command = [\"a\"]\njobs = [\"m\"]"),
            &["q.toml:9", "\"m\", which does not exist", "name a job of this file"],
        ),
        (&format!("{on}command = [\"a\"]\njobs = []"), &["empty list of jobs", "remove `jobs` for all"]),
        (&format!("{on}command = [\"a\"]\ntimeout = \"0s\""), &["timeout of 0ns", "at most 120s"]),
        (&format!("{on}command = [\"a\"]\ntimeout = \"3m\""), &["timeout of 180s"]),
        (
            "on = [\"no-leader\"]\ncommand = [\"a\"]\nno_leader_after = \"10ms\"",
            &["no_leader_after = 10ms", "at least 1s"],
        ),
        (
            &format!("{on}command = [\"a\"]\nno_leader_after = \"5m\""),
            &[
                "q.toml:9",
                "notify 1 has no_leader_after = 300s",
                "no \"no-leader\" in `on`",
                "no effect",
                "add the event, or remove the key",
            ],
        ),
    ] {
        refused(&notify(lines), parts);
    }
    for (lines, parts) in [
        (
            "expect_within = \"59s\"",
            &["q.toml:6", "\"n\"", "expect_within = 59s", "its period 60s", "lengthen"][..],
        ),
        ("ping = \"hush\"", &["has a ping that is not a URL"]),
        ("ping = \"https://x/\"\nping_file = \"f\"", &["`ping` and `ping_file`", "keep one"]),
        ("ping_on = [\"start\"]", &["`ping_on` and no URL", "remove `ping_on`"]),
        (
            "ping = \"https://x/\"\nping_on = [\"end\"]",
            &["\"end\" in `ping_on`", "known are start, success, fail"],
        ),
    ] {
        refused(&format!("{HEAD}{lines}\n"), parts);
    }
    for (lines, parts) in [
        ("keep = 3", &["output has no `dir`", "remove the table"][..]),
        ("dir = \"\"", &["output.dir is empty"]),
        ("dir = \"d\"\nkeep = 0", &["output.keep is 0", "1 to 10000"]),
        ("dir = \"d\"\nmax_size = \"1\"", &["output.max_size \"1\"", "10MiB"]),
        ("dir = \"d\"\nmax_size = \"big\"", &["output.max_size \"big\""]),
        ("dir = \"d\"\nmax_age = \"0s\"", &["output.max_age is 0s", "30days"]),
    ] {
        refused(&format!("{HEAD}[output]\n{lines}\n"), parts);
    }
}
