use std::sync::OnceLock;

/// The scripts, each of which serves one kind of request, but for the last three. See the head of each file for its KEYS and ARGV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Raise,
    Extend,
    Release,
    Share,
    ExtendShare,
    ReleaseShare,
    Downgrade,
    Queue,
    LeaveQueue,
    Inspect,
    Complete,
    Count,
    Forgive,
    Seal,
    Write,
    Prune,
    Read,
    Keep,
    Reserve,
    Mark,
    ClaimAcquire,
    ClaimRaise,
    ClaimExtend,
    ClaimRelease,
    ClaimInspect,
    /// Refuses what is unfit.
    Unfit,
    /// Serves those of [`Script::MIXED`], as they come.
    Mixed,
    /// Serves those of [`Script::MIXED_CLAIMS`], as they come.
    MixedClaims,
}

macro_rules! source {
    ($file:literal) => {
        concat!(include_str!("scripts/prelude.lua"), include_str!(concat!("scripts/", $file, ".lua")))
    };
    ($before:literal, $file:literal) => {
        concat!(
            include_str!("scripts/prelude.lua"),
            include_str!(concat!("scripts/", $before, ".lua")),
            include_str!(concat!("scripts/", $file, ".lua"))
        )
    };
}

impl Script {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 29] = [
        Self::Acquire,
        Self::Raise,
        Self::Extend,
        Self::Release,
        Self::Share,
        Self::ExtendShare,
        Self::ReleaseShare,
        Self::Downgrade,
        Self::Queue,
        Self::LeaveQueue,
        Self::Inspect,
        Self::Complete,
        Self::Count,
        Self::Forgive,
        Self::Seal,
        Self::Write,
        Self::Prune,
        Self::Read,
        Self::Keep,
        Self::Reserve,
        Self::Mark,
        Self::ClaimAcquire,
        Self::ClaimRaise,
        Self::ClaimExtend,
        Self::ClaimRelease,
        Self::ClaimInspect,
        Self::Unfit,
        Self::Mixed,
        Self::MixedClaims,
    ];

    /// What comes by turns: a run of these is one call, whatever their order. Otherwise locks that are acquired and
    /// released all the time would be a call each.
    pub(crate) const MIXED: [Self; 4] = [Self::Acquire, Self::Release, Self::Extend, Self::Raise];

    /// The same of claims.
    pub(crate) const MIXED_CLAIMS: [Self; 6] = [
        Self::ClaimAcquire,
        Self::ClaimRelease,
        Self::ClaimExtend,
        Self::ClaimRaise,
        Self::Count,
        Self::Complete,
    ];

    /// The script that serves this one together with others, if one does, and what it calls the items of this one.
    pub(crate) fn mix(self) -> Option<(Self, char)> {
        let letter = |mix: &[Self]| {
            mix.iter().zip('a'..).find(|(script, _)| **script == self).map(|(_, letter)| letter)
        };
        let locks = letter(&Self::MIXED).map(|letter| (Self::Mixed, letter));
        locks.or_else(|| letter(&Self::MIXED_CLAIMS).map(|letter| (Self::MixedClaims, letter)))
    }

    /// Whether it is told once what all items of a call have in common: the claims', which come by the thousand.
    pub(crate) fn is_told_what_is_common(self) -> bool {
        matches!(self, Self::ClaimAcquire | Self::ClaimExtend | Self::Complete | Self::Count)
    }

    /// The whole text that the server runs.
    pub(crate) fn source(self) -> &'static str {
        static SOURCES: OnceLock<Vec<String>> = OnceLock::new();
        let sources = SOURCES.get_or_init(|| Self::ALL.iter().map(|script| lean(script.text())).collect());
        &sources[self as usize]
    }

    /// All that it may need, and itself.
    fn text(self) -> &'static str {
        match self {
            Self::Acquire => source!("shared", "acquire"),
            Self::Raise => source!("raise"),
            Self::Extend => source!("shared", "extend"),
            Self::Release => source!("release"),
            Self::Share => source!("shared", "share"),
            Self::ExtendShare => source!("shared", "extend_share"),
            Self::ReleaseShare => source!("shared", "release_share"),
            Self::Downgrade => source!("shared", "downgrade"),
            Self::Queue => source!("shared", "queue"),
            Self::LeaveQueue => source!("shared", "leave_queue"),
            Self::Inspect => source!("inspect"),
            Self::Complete => source!("claims", "complete"),
            Self::Count => source!("claims", "count"),
            Self::Forgive => source!("claims", "forgive"),
            Self::Seal => source!("seal"),
            Self::Write => source!("write"),
            Self::Prune => source!("prune"),
            Self::Read => source!("read"),
            Self::Keep => source!("keep"),
            Self::Reserve => source!("reserve"),
            Self::Mark => source!("mark"),
            Self::ClaimAcquire => source!("claims", "claim_acquire"),
            Self::ClaimRaise => source!("claims", "claim_raise"),
            Self::ClaimExtend => source!("claims", "claim_extend"),
            Self::ClaimRelease => source!("claims", "claim_release"),
            Self::ClaimInspect => source!("claims", "claim_inspect"),
            Self::Unfit => source!("unfit"),
            Self::Mixed => mixed_locks(),
            Self::MixedClaims => mixed_claims(),
        }
    }

    /// How many keys an item has.
    pub(crate) fn keys_per_item(self) -> usize {
        match self {
            Self::Acquire | Self::Extend | Self::Share | Self::ExtendShare | Self::Downgrade => 3,
            Self::Raise | Self::ReleaseShare | Self::Inspect => 2,
            _ => 1,
        }
    }
}

/// `text` without the functions that it does not use: a script makes all of its functions anew at every call. A paragraph
/// that begins with `local function` at the left, but for its comment, is one.
fn lean(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for paragraph in text.split("\n\n").collect::<Vec<_>>().into_iter().rev() {
        let code =
            paragraph.lines().find(|line| !line.starts_with("--") && !line.is_empty()).unwrap_or_default();
        let name = code.strip_prefix("local function ").and_then(|rest| rest.split('(').next());
        if name.is_none_or(|name| kept.iter().any(|later| has_word(later, name))) {
            kept.push(paragraph);
        }
    }
    kept.reverse();
    kept.join("\n\n")
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|other| other == word)
}

fn mixed_locks() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| mixed(include_str!("scripts/shared.lua"), &Script::MIXED))
}

fn mixed_claims() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| mixed(include_str!("scripts/claims.lua"), &Script::MIXED_CLAIMS))
}

/// One script of several, which need `before`. Each gives its item to `kind` in place of `serve`.
fn mixed(before: &str, scripts: &[Script]) -> String {
    const PRELUDE: &str = include_str!("scripts/prelude.lua");
    let mut source = [PRELUDE, before, include_str!("scripts/mixed.lua")].concat();
    for script in scripts {
        let own = script.text().strip_prefix(PRELUDE).unwrap_or_default();
        let own = own.strip_prefix(before).unwrap_or(own);
        source.push_str(&own.replace("return serve(", "kind("));
    }
    source + "return mix()\n"
}

/// The names under which a server has loaded the scripts.
#[derive(Clone, Debug)]
pub(crate) struct Loaded([String; Script::ALL.len()]);

impl Loaded {
    /// From what `SCRIPT LOAD` said to each of [`Script::ALL`].
    pub(crate) fn new(names: Vec<String>) -> Option<Self> {
        names.try_into().ok().map(Self)
    }

    /// What EVALSHA calls it.
    pub(crate) fn name(&self, script: Script) -> &str {
        &self.0[script as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_functions_that_it_uses_and_no_others() {
        let release = Script::Release.source();
        assert!(release.contains("local function call(") && release.contains("local function serve("));
        for idle in ["sealed", "low_water", "counter"] {
            assert!(!release.contains(idle), "{idle}");
        }
        let acquire = Script::Acquire.source();
        for used in ["counter", "is_number", "less", "may_take", "held", "left_of", "gate"] {
            assert!(acquire.contains(&format!("local function {used}(")), "{used}");
        }
        assert!(Script::Seal.source().contains("local function low_water("));
        let text = "local a = 1\n\n-- One.\nlocal function one()\nend\n\nlocal function two()\n  one()\nend\n\nreturn a";
        assert_eq!(lean(text), "local a = 1\n\nreturn a");
        assert_eq!(lean(&text.replace("return a", "return two()")), text.replace("return a", "return two()"));
    }
}
