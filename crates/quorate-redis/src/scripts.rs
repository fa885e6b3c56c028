use std::sync::OnceLock;

/// The Lua scripts. Each serves one kind of request, except for the last three. The head of each script's
/// file lists its KEYS and ARGV.
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
    ResetAttempts,
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
    /// Refuses requests that do not apply to their resource.
    Invalid,
    /// Serves the requests of the scripts in [`Script::BATCHED`], mixed in any order.
    Batch,
    /// Serves the requests of the scripts in [`Script::BATCHED_CLAIMS`], mixed in any order.
    BatchClaims,
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
    /// All scripts, in the order of their declaration, so that `script as usize` is an index into this list.
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
        Self::ResetAttempts,
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
        Self::Invalid,
        Self::Batch,
        Self::BatchClaims,
    ];

    /// The scripts whose requests are sent together in one call, whatever their order. In practice these
    /// requests on locks alternate. Without a common call, locks that are acquired and released in turn would
    /// need a call for each request.
    pub(crate) const BATCHED: [Self; 4] = [Self::Acquire, Self::Release, Self::Extend, Self::Raise];

    /// The scripts for claims whose requests are sent together in one call, for the same reason as
    /// [`Script::BATCHED`].
    pub(crate) const BATCHED_CLAIMS: [Self; 6] = [
        Self::ClaimAcquire,
        Self::ClaimRelease,
        Self::ClaimExtend,
        Self::ClaimRaise,
        Self::Count,
        Self::Complete,
    ];

    /// Returns the batch script that serves this script's requests together with others, if there is one.
    /// Also returns the letter by which the batch script's arguments name this script.
    pub(crate) fn batch(self) -> Option<(Self, char)> {
        let letter = |scripts: &[Self]| {
            scripts.iter().zip('a'..).find(|(script, _)| **script == self).map(|(_, letter)| letter)
        };
        let locks = letter(&Self::BATCHED).map(|letter| (Self::Batch, letter));
        locks.or_else(|| letter(&Self::BATCHED_CLAIMS).map(|letter| (Self::BatchClaims, letter)))
    }

    /// Returns whether arguments that all items of a call have in common are sent only once. That saves bytes
    /// for claims, which are sent by the thousand.
    pub(crate) fn has_common_args(self) -> bool {
        matches!(self, Self::ClaimAcquire | Self::ClaimExtend | Self::Complete | Self::Count)
    }

    /// Returns the text that is loaded into the server.
    pub(crate) fn source(self) -> &'static str {
        static SOURCES: OnceLock<Vec<String>> = OnceLock::new();
        let sources = SOURCES
            .get_or_init(|| Self::ALL.iter().map(|script| without_unused_functions(script.text())).collect());
        &sources[self as usize]
    }

    /// Returns the script's text with all the functions that it may need.
    fn text(self) -> &'static str {
        match self {
            Self::Acquire => source!("readers_and_queue", "acquire"),
            Self::Raise => source!("raise"),
            Self::Extend => source!("readers_and_queue", "extend"),
            Self::Release => source!("release"),
            Self::Share => source!("readers_and_queue", "share"),
            Self::ExtendShare => source!("readers_and_queue", "extend_share"),
            Self::ReleaseShare => source!("readers_and_queue", "release_share"),
            Self::Downgrade => source!("readers_and_queue", "downgrade"),
            Self::Queue => source!("readers_and_queue", "queue"),
            Self::LeaveQueue => source!("readers_and_queue", "leave_queue"),
            Self::Inspect => source!("inspect"),
            Self::Complete => source!("claims", "complete"),
            Self::Count => source!("claims", "count"),
            Self::ResetAttempts => source!("claims", "reset_attempts"),
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
            Self::Invalid => source!("invalid"),
            Self::Batch => lock_batch(),
            Self::BatchClaims => claim_batch(),
        }
    }

    /// Returns the number of keys of an item.
    pub(crate) fn keys_per_item(self) -> usize {
        match self {
            Self::Acquire | Self::Extend | Self::Share | Self::ExtendShare | Self::Downgrade => 3,
            Self::Raise | Self::ReleaseShare | Self::Inspect => 2,
            _ => 1,
        }
    }
}

/// Removes the functions that a script does not use, because the server creates all functions of a script
/// again at every call. `text` consists of paragraphs, separated by empty lines. A paragraph whose first line
/// of code begins with `local function` is a function.
fn without_unused_functions(text: &str) -> String {
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

fn lock_batch() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| batch(include_str!("scripts/readers_and_queue.lua"), &Script::BATCHED))
}

fn claim_batch() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| batch(include_str!("scripts/claims.lua"), &Script::BATCHED_CLAIMS))
}

/// Combines several scripts, and the text `before` that some of them need, into one script. In it, each of
/// them registers its function with `define` instead of calling `serve`.
fn batch(before: &str, scripts: &[Script]) -> String {
    const PRELUDE: &str = include_str!("scripts/prelude.lua");
    let mut source = [PRELUDE, before, include_str!("scripts/batch.lua")].concat();
    for script in scripts {
        let own = script.text().strip_prefix(PRELUDE).unwrap_or_default();
        let own = own.strip_prefix(before).unwrap_or(own);
        source.push_str(&own.replace("return serve(", "define("));
    }
    source + "return serve_batch()\n"
}

/// The names under which a server has loaded the scripts.
#[derive(Clone, Debug)]
pub(crate) struct Loaded([String; Script::ALL.len()]);

impl Loaded {
    /// Creates the value from the replies to `SCRIPT LOAD` of each of [`Script::ALL`]; `None` if their number
    /// is wrong.
    pub(crate) fn new(names: Vec<String>) -> Option<Self> {
        names.try_into().ok().map(Self)
    }

    /// Returns the name of a script for EVALSHA.
    pub(crate) fn name(&self, script: Script) -> &str {
        &self.0[script as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_only_the_functions_that_it_uses() {
        let release = Script::Release.source();
        assert!(release.contains("local function call(") && release.contains("local function serve("));
        for unused in ["check_term", "low_water", "counter"] {
            assert!(!release.contains(unused), "{unused}");
        }
        let acquire = Script::Acquire.source();
        for used in
            ["counter", "is_number", "less", "may_take", "held", "left_of", "check_deadline_and_marker"]
        {
            assert!(acquire.contains(&format!("local function {used}(")), "{used}");
        }
        assert!(Script::Seal.source().contains("local function low_water("));
        let text = "local a = 1\n\n-- One.\nlocal function one()\nend\n\nlocal function two()\n  one()\nend\n\nreturn a";
        assert_eq!(without_unused_functions(text), "local a = 1\n\nreturn a");
        assert_eq!(
            without_unused_functions(&text.replace("return a", "return two()")),
            text.replace("return a", "return two()")
        );
    }
}
