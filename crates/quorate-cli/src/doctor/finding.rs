use crate::{show, table::Cell, terminal::Tone};
use quorate_operator::state::{Finding, Severity};

/// The longest line that is shown, in bytes.
const LINE_MAX: usize = 8 * 1024;

pub(super) fn finding(
    severity: Severity,
    node: Option<&str>,
    problem: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    Finding { severity, node: node.map(str::to_owned), problem: problem.into(), fix: fix.into() }
}

/// Returns the rows of a table that show a finding: the problem and the fix.
pub(super) fn rows(finding: &Finding) -> [[Cell; 2]; 2] {
    let node = finding.node.as_deref().map_or(String::new(), |node| format!("{node}: "));
    let (problem, fix) = (show::line(&finding.problem, LINE_MAX), show::line(&finding.fix, LINE_MAX));
    let tone = match finding.severity {
        Severity::Note => Tone::Plain,
        Severity::Warning => Tone::Caution,
        Severity::Critical => Tone::Trouble,
    };
    [
        [Cell::new(finding.severity.to_string(), tone), format!("{node}{problem}").into()],
        ["".into(), format!("fix: {fix}").into()],
    ]
}
