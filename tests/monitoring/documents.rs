//! Checks that the alert rules, the dashboard and the guide agree with each other and with the list of metrics.

use quorate_testkit::cannot_run;
use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

/// The alerts that the rules must have.
const ALERTS: [&str; 12] = [
    "NoQuorum",
    "QuorumOneNodeFromLoss",
    "NoLeader",
    "TwoLeaders",
    "LeaderFlaps",
    "ClockOff",
    "JobFailed",
    "JobOverdue",
    "JobPausedLong",
    "JobWithoutWorker",
    "HistoryLossy",
    "CopyIncomplete",
];
const RULES: &str = "config/prometheus/quorate-alerts.yml";
const CASES: &str = "config/prometheus/quorate-alerts.test.yml";
const GUIDE: &str = "docs/guide/src/reference/operate.md";
const METRICS: &str = "docs/guide/src/reference/metrics.md";

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

pub(crate) fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the values of the lines `KEY: VALUE` in a YAML file.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key)?.strip_prefix(": "))
        .collect()
}

/// Returns the names of metrics in a text, without the endings of a histogram's series.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("quorate_"));
    let base = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    };
    words.map(base).collect()
}

/// Returns the link to each section of the guide, as a page shows it.
fn anchors(guide: &str) -> BTreeSet<String> {
    guide
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect()
}

#[test]
fn each_alert_has_a_case_that_fires_and_names_a_section_of_the_guide() {
    let (rules, cases, guide) = (read(RULES), read(CASES), read(GUIDE));
    assert_eq!(values(&rules, "alert"), ALERTS);
    let links = values(&rules, "runbook_url");
    assert_eq!(links.len(), ALERTS.len());
    let sections = anchors(&guide);
    for (alert, link) in ALERTS.iter().zip(links) {
        let anchor = link.strip_prefix(GUIDE).and_then(|rest| rest.strip_prefix('#'));
        let anchor = anchor.unwrap_or_else(|| panic!("{alert}: {link}"));
        assert_eq!(anchor, alert.to_lowercase(), "the section has the name of the alert");
        assert!(sections.contains(anchor), "{alert}: the guide has no section {anchor}: {sections:?}");
        let section = guide.split("\n## ").find(|section| section.starts_with(alert)).unwrap_or_default();
        for part in ["**Means**", "**Look at**", "**Do**"] {
            assert!(section.contains(part), "{alert}: the section has no {part}");
        }
        // A case that fires, and one that does not.
        let of_alert: Vec<&str> = cases
            .split("- eval_time:")
            .filter(|case| case.contains(&format!("alertname: {alert}\n")))
            .collect();
        assert!(of_alert.iter().any(|case| case.contains("exp_labels")), "{alert}: no case fires");
        assert!(
            of_alert.iter().any(|case| case.contains("exp_alerts: []")),
            "{alert}: no case without the alert"
        );
    }
}

#[test]
fn rules_dashboard_and_guide_use_only_metrics_that_exist() {
    let listed: BTreeSet<String> =
        read(METRICS).lines().filter(|line| line.starts_with("| `quorate_")).flat_map(metrics).collect();
    assert!(listed.len() > 20, "{listed:?}");
    for file in [RULES, CASES, GUIDE, "config/grafana/quorate.json"] {
        let used = metrics(&read(file));
        assert!(!used.is_empty(), "{file}");
        let unknown: Vec<_> = used.difference(&listed).collect();
        assert!(unknown.is_empty(), "{file} uses metrics that {METRICS} does not list: {unknown:?}");
    }
    let shown = metrics(&read("config/grafana/quorate.json"));
    let hidden: Vec<_> = listed.difference(&shown).collect();
    assert!(hidden.is_empty(), "the dashboard does not show {hidden:?}");
}

#[test]
fn promtool_accepts_the_rules_and_every_case_holds() {
    for args in [
        ["check", "rules", RULES],
        ["test", "rules", CASES],
        ["check", "config", "config/prometheus/prometheus.yml"],
    ] {
        let output = Command::new("promtool").args(&args[..2]).arg(path(args[2])).output();
        let Ok(output) = output else {
            return cannot_run(
                "monitoring::documents::promtool_accepts_the_rules_and_every_case_holds",
                "promtool is missing; install prometheus",
            );
        };
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
    }
}
