use super::{Event, Invariant};
use crate::sim::Excuse;
use std::time::Duration;

/// Requires that a store which compares fencing tokens loses no update: each write that it accepts was computed
/// from the version that the store has. A second store does not compare tokens and loses some updates. These
/// are not violations, because a lease cannot protect against a pause between the check of the lease and the
/// write.
#[derive(Debug)]
pub(super) struct Fence;

impl Invariant for Fence {
    fn name(&self) -> &'static str {
        "fence"
    }

    fn see(&mut self, _now: Duration, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Wrote(write)
                if write.accepted
                    && write.base != write.stands
                    && !Excuse::FenceUnchecked.excuses(!write.checked) =>
            {
                Err(format!(
                    "{} lost an update: version {} was made from {} under {}",
                    write.register,
                    write.stands + 1,
                    write.base,
                    write.token
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Write;

    #[test]
    fn a_lost_update_is_found_where_tokens_are_compared() {
        let see = |checked, accepted, base| {
            let (worker, register, sent) = ("a".into(), "r".into(), Duration::ZERO);
            let write =
                Write { worker, checked, register, token: 7, access: 1, base, stands: 3, accepted, sent };
            Fence.see(Duration::ZERO, &Event::Wrote(&write))
        };
        assert!(see(true, true, 3).is_ok());
        assert!(see(true, false, 2).is_ok(), "refused");
        assert!(see(false, true, 2).is_ok(), "the other store promises nothing");
        assert!(see(true, true, 2).is_err());
    }
}
