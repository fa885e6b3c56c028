/// A change of the scripts, by which a server violates its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScriptFault {
    /// The scripts run requests even after they have expired (`not_after`).
    Timeless,
    /// The scripts release a lock for any caller, not only for its owner.
    Ruthless,
    /// The scripts do not increment the fencing counter when they grant a lock.
    Uncounting,
}

impl ScriptFault {
    /// All faults.
    pub const ALL: [Self; 3] = [Self::Timeless, Self::Ruthless, Self::Uncounting];

    /// Returns the replacements of texts. Each text occurs in at least one script.
    const fn edits(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Timeless => &[
                ("if sets and now > tonumber(ARGV[1]) then", "if false then"),
                (" and now <= tonumber(args[1])", ""),
            ],
            Self::Ruthless => &[
                (
                    "if holder == owner then\n      if run('DEL', lock) == 1 then",
                    "do\n      if run('DEL', lock) == 1 then",
                ),
                ("    elseif holder or run('GET', lock) == false then\n      reply = 'absent'\n", ""),
                ("if call('GET', KEYS[k]) ~= ARGV[a] then\n    return 'absent'\n  end\n  free(", "free("),
            ],
            Self::Uncounting => &[
                ("run('INCRBY', fence, 1)", "tonumber(count)"),
                (
                    "decimal(tonumber(last) + 1)\n  -- The counter",
                    "decimal(tonumber(last))\n  -- The counter",
                ),
            ],
        }
    }

    /// Returns the text of a script with the fault.
    pub(super) fn change(self, source: &str) -> String {
        self.edits().iter().fold(source.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that each replacement still finds its text. Otherwise the fault would be a correct server.
    #[test]
    fn every_replaced_text_is_in_a_script() {
        for fault in ScriptFault::ALL {
            for (from, _) in fault.edits() {
                let found = quorate_redis::probe::sources().any(|source| source.contains(from));
                assert!(
                    found,
                    "{fault:?}: no script contains {from:?}; adapt the fault to the changed script"
                );
            }
        }
    }
}
