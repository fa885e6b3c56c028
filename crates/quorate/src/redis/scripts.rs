/// The families of Lua scripts. A server loads one script for each family, which serves the family's requests in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// The releases of locks.
    Release,
    /// The other requests on locks without readers and queues.
    Locks,
    /// The other requests on locks: readers, queues, reservations and the state.
    Waiting,
    Claims,
    Ledgers,
    /// The requests on copies of led ledgers.
    Copies,
    /// The requests on the node itself, and requests that do not apply to the kind of their resource.
    Node,
}

/// Joins the files of a family: its functions, and the loop over the items of a call.
macro_rules! source {
    ($($functions:literal),*; $call:literal) => {
        concat!(
            include_str!("scripts/head.lua"),
            include_str!("scripts/refusal.lua"),
            include_str!("scripts/prelude.lua"),
            $(include_str!(concat!("scripts/", $functions, ".lua")),)*
            include_str!("scripts/define.lua"),
            include_str!(concat!("scripts/", $call, ".lua")),
            include_str!("scripts/call_end.lua"),
        )
    };
}

impl Script {
    /// All families, in the order of their numbers.
    pub(crate) const ALL: [Self; 7] =
        [Self::Release, Self::Locks, Self::Waiting, Self::Claims, Self::Ledgers, Self::Copies, Self::Node];

    /// Returns the text that is loaded into the server.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Release => {
                concat!(
                    include_str!("scripts/refusal.lua"),
                    include_str!("scripts/release.lua"),
                    include_str!("scripts/call_end.lua"),
                )
            }
            Self::Locks => source!("readers_and_queue", "locks"; "call_locks"),
            Self::Waiting => source!("readers_and_queue", "waiting"; "call"),
            Self::Claims => source!("claims"; "call_claims"),
            Self::Ledgers => source!("ledger_pages", "ledgers"; "call"),
            Self::Copies => source!("ledger_pages", "copies"; "call"),
            Self::Node => source!("node"; "call"),
        }
    }
}

/// The names under which a server has loaded the scripts.
#[derive(Clone, Debug)]
pub(crate) struct Loaded([String; Script::ALL.len()]);

impl Loaded {
    /// Creates the list from the replies of `SCRIPT LOAD` for each of [`Script::ALL`].
    pub(crate) fn new(names: Vec<String>) -> Option<Self> {
        names.try_into().ok().map(Self)
    }

    pub(crate) fn name(&self, script: Script) -> &str {
        &self.0[script as usize]
    }
}
