use std::sync::OnceLock;

/// The Lua scripts. The beginning of each file lists its KEYS and ARGV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Share,
    ExtendShare,
    ReleaseShare,
    Downgrade,
    Queue,
    LeaveQueue,
    Inspect,
    ResetAttempts,
    Seal,
    Write,
    Prune,
    Read,
    Keep,
    Reserve,
    Mark,
    Stamp,
    ClaimInspect,
    /// Refuses requests that do not apply to the kind of their resource.
    Invalid,
    /// Serves requests of the kinds [`Script::BATCHED`], in any order, in one call.
    Batch,
    /// Serves requests of the kinds [`Script::BATCHED_CLAIMS`], in any order, in one call.
    BatchClaims,
    Acquire,
    Release,
    Extend,
    Raise,
    ClaimAcquire,
    ClaimRelease,
    ClaimExtend,
    ClaimRaise,
    Count,
    Complete,
}

/// The text that precedes every script.
const HEAD: &str = include_str!("scripts/head.lua");

/// The functions that scripts have in common.
const PRELUDE: &str = include_str!("scripts/prelude.lua");

const READERS_AND_QUEUE: &str = include_str!("scripts/readers_and_queue.lua");

const CLAIMS: &str = include_str!("scripts/claims.lua");

/// The line in the file of a batch script that is replaced by the scripts for its requests.
const SCRIPTS_HERE: &str = "-- SCRIPTS\n";

impl Script {
    /// The scripts that a server loads, in the order of their numbers.
    pub(crate) const LOADED: [Self; 20] = [
        Self::Share,
        Self::ExtendShare,
        Self::ReleaseShare,
        Self::Downgrade,
        Self::Queue,
        Self::LeaveQueue,
        Self::Inspect,
        Self::ResetAttempts,
        Self::Seal,
        Self::Write,
        Self::Prune,
        Self::Read,
        Self::Keep,
        Self::Reserve,
        Self::Mark,
        Self::Stamp,
        Self::ClaimInspect,
        Self::Invalid,
        Self::Batch,
        Self::BatchClaims,
    ];

    /// The kinds of requests on locks that one call may mix, in the order of their letters. In practice such
    /// requests alternate, for example when locks are acquired and released in turn. If one call could not
    /// mix them, each of them would need a call of its own.
    pub(crate) const BATCHED: [Self; 4] = [Self::Acquire, Self::Release, Self::Extend, Self::Raise];

    /// The kinds of requests on claims that one call may mix, for the same reason as [`Script::BATCHED`].
    pub(crate) const BATCHED_CLAIMS: [Self; 6] = [
        Self::ClaimAcquire,
        Self::ClaimRelease,
        Self::ClaimExtend,
        Self::ClaimRaise,
        Self::Count,
        Self::Complete,
    ];

    /// Returns the batch script that serves requests of this kind, if there is one, and the letter of this
    /// kind in that script. A script of such a kind is not loaded by itself, because it is part of the batch
    /// script.
    pub(crate) fn batch(self) -> Option<(Self, char)> {
        let letter = |scripts: &[Self]| {
            scripts.iter().zip('a'..).find(|(script, _)| **script == self).map(|(_, letter)| letter)
        };
        let locks = letter(&Self::BATCHED).map(|letter| (Self::Batch, letter));
        locks.or_else(|| letter(&Self::BATCHED_CLAIMS).map(|letter| (Self::BatchClaims, letter)))
    }

    /// Returns the length of the lists of arguments that items of a batch share.
    pub(crate) fn shared_args(self) -> usize {
        if self == Self::Batch { 3 } else { 4 }
    }

    /// Returns the text that is loaded into the server.
    pub(crate) fn source(self) -> &'static str {
        static SOURCES: OnceLock<Vec<String>> = OnceLock::new();
        let sources = SOURCES.get_or_init(|| {
            Self::LOADED.iter().map(|script| without_unused_functions(&script.text())).collect()
        });
        sources.get(self as usize).map(String::as_str).unwrap_or_default()
    }

    /// Returns the script's text, together with all functions that it may need.
    fn text(self) -> String {
        match self {
            Self::Batch => batch(self.file(), READERS_AND_QUEUE, &Self::BATCHED),
            Self::BatchClaims => batch(self.file(), CLAIMS, &Self::BATCHED_CLAIMS),
            _ => [HEAD, PRELUDE, self.functions(), self.file()].concat(),
        }
    }

    /// Returns the functions that this script may need in addition to the common ones.
    fn functions(self) -> &'static str {
        match self {
            Self::Share
            | Self::ExtendShare
            | Self::ReleaseShare
            | Self::Downgrade
            | Self::Queue
            | Self::LeaveQueue => READERS_AND_QUEUE,
            Self::ResetAttempts | Self::ClaimInspect => CLAIMS,
            _ => "",
        }
    }

    /// Returns the contents of the script's own file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Share => include_str!("scripts/share.lua"),
            Self::ExtendShare => include_str!("scripts/extend_share.lua"),
            Self::ReleaseShare => include_str!("scripts/release_share.lua"),
            Self::Downgrade => include_str!("scripts/downgrade.lua"),
            Self::Queue => include_str!("scripts/queue.lua"),
            Self::LeaveQueue => include_str!("scripts/leave_queue.lua"),
            Self::Inspect => include_str!("scripts/inspect.lua"),
            Self::ResetAttempts => include_str!("scripts/reset_attempts.lua"),
            Self::Seal => include_str!("scripts/seal.lua"),
            Self::Write => include_str!("scripts/write.lua"),
            Self::Prune => include_str!("scripts/prune.lua"),
            Self::Read => include_str!("scripts/read.lua"),
            Self::Keep => include_str!("scripts/keep.lua"),
            Self::Reserve => include_str!("scripts/reserve.lua"),
            Self::Mark => include_str!("scripts/mark.lua"),
            Self::Stamp => include_str!("scripts/stamp.lua"),
            Self::ClaimInspect => include_str!("scripts/claim_inspect.lua"),
            Self::Invalid => include_str!("scripts/invalid.lua"),
            Self::Batch => include_str!("scripts/lock_batch.lua"),
            Self::BatchClaims => include_str!("scripts/claim_batch.lua"),
            Self::Acquire => include_str!("scripts/acquire.lua"),
            Self::Release => include_str!("scripts/release.lua"),
            Self::Extend => include_str!("scripts/extend.lua"),
            Self::Raise => include_str!("scripts/raise.lua"),
            Self::ClaimAcquire => include_str!("scripts/claim_acquire.lua"),
            Self::ClaimRelease => include_str!("scripts/claim_release.lua"),
            Self::ClaimExtend => include_str!("scripts/claim_extend.lua"),
            Self::ClaimRaise => include_str!("scripts/claim_raise.lua"),
            Self::Count => include_str!("scripts/count.lua"),
            Self::Complete => include_str!("scripts/complete.lua"),
        }
    }

    /// Returns the number of keys of one item. A batch also has the keys of its items' queues.
    pub(crate) fn keys_per_item(self) -> usize {
        match self {
            Self::Share | Self::ExtendShare | Self::Downgrade => 3,
            Self::Acquire | Self::Extend | Self::Raise | Self::ReleaseShare | Self::Inspect => 2,
            _ => 1,
        }
    }
}

/// Removes the functions that a script does not use, because the server creates all functions of a script at
/// every call. `text` consists of paragraphs separated by empty lines. A paragraph whose first line of code
/// begins with `local function` defines a function.
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

/// Inserts the scripts for a batch's requests, and the `functions` that they need, into the text of the batch
/// script. Each inserted script registers its function with `define`, and does not call `serve`.
fn batch(text: &str, functions: &str, scripts: &[Script]) -> String {
    let mut definitions = [PRELUDE, functions, include_str!("scripts/batch.lua")].concat();
    for script in scripts {
        definitions.push_str(&script.file().replace("return serve(", "define("));
    }
    [HEAD, &text.replace(SCRIPTS_HERE, &definitions), include_str!("scripts/batch_tail.lua")].concat()
}

/// The names under which a server has loaded the scripts.
#[derive(Clone, Debug)]
pub(crate) struct Loaded([String; Script::LOADED.len()]);

impl Loaded {
    /// Creates the list from the replies of `SCRIPT LOAD` for each of [`Script::LOADED`].
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
        let reserve = Script::Reserve.source();
        assert!(reserve.contains("local function call(") && reserve.contains("local function serve("));
        for unused in ["check_term", "ledger_head", "counter"] {
            assert!(!reserve.contains(unused), "{unused}");
        }
        let locks = Script::Batch.source();
        for used in
            ["counter", "is_number", "less", "may_take", "held", "left_of", "check_deadline_and_marker"]
        {
            assert!(locks.contains(&format!("local function {used}(")), "{used}");
        }
        for script in Script::LOADED {
            assert_eq!(Script::LOADED[script as usize], script, "the order of the numbers");
            assert!(!script.source().contains(SCRIPTS_HERE), "{script:?}");
        }
        assert!(Script::Seal.source().contains("local function ledger_head("));
        let text = "local a = 1\n\n-- One.\nlocal function one()\nend\n\nlocal function two()\n  one()\nend\n\nreturn a";
        assert_eq!(without_unused_functions(text), "local a = 1\n\nreturn a");
        assert_eq!(
            without_unused_functions(&text.replace("return a", "return two()")),
            text.replace("return a", "return two()")
        );
    }
}
