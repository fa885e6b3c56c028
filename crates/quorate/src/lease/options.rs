//! How a lease is to be held: what all the builders of leases have in common.

use crate::{
    config::{QuorumConfig, SettingError},
    env::BootTime,
    lease::{AcquireError, Lease, heartbeat::Health, params::LeaseParams},
};
use std::time::Duration;

/// What a builder has been told.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) grace: Option<Duration>,
    pub(crate) min_validity: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) extended: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) health: Option<Health>,
}

impl Options {
    pub(crate) fn new(config: &QuorumConfig) -> Self {
        let ttl = config.default_ttl();
        Self {
            ttl,
            grace: None,
            min_validity: None,
            wait: None,
            extended: true,
            max_hold: None,
            health: None,
        }
    }

    /// Checks what was told against the setup, and against itself.
    pub(crate) fn params(&self, config: &QuorumConfig) -> Result<LeaseParams, AcquireError> {
        let params = LeaseParams::checked(config, self.ttl, self.grace, self.min_validity, self.extended)?;
        let fail = |text: String| Err(SettingError(text).into());
        if let Some(most) = self.max_hold.filter(|most| *most <= params.grace.max(params.min_validity)) {
            return fail(format!(
                "max_hold is {most:?}, no longer than step_down_grace {:?} or min_validity {:?}; the work would be \
                 told to stop as it starts: lengthen max_hold, or shorten step_down_grace",
                params.grace, params.min_validity
            ));
        }
        match &self.health {
            Some(_) if !self.extended => fail(
                "renew_while is set and auto_extend is false; nothing is extended that could be held back: leave \
                 out one of them"
                    .to_owned(),
            ),
            Some(Health::Beats(heart)) if heart.max_silence().is_zero() => {
                fail("max_silence is 0ns; give the heartbeat the time that one piece of work may take".to_owned())
            }
            _ => Ok(params),
        }
    }

    /// Until when to wait.
    pub(crate) fn deadline(&self, now: BootTime) -> Option<BootTime> {
        self.wait.map(|wait| now + wait)
    }

    /// Tells the keeper of a lease that was just won what else it was to be held by.
    pub(crate) fn bind(&self, lease: &Lease, won: BootTime) {
        if self.max_hold.is_some() || self.health.is_some() {
            lease.limit(self.max_hold.map(|most| won + most), self.health.clone());
        }
    }
}

/// The methods by which a builder with a field `options` is told how to hold its leases.
macro_rules! options {
    () => {
        /// For how long each extension holds, and so how long a crashed holder blocks the others. Default 10 s,
        /// at most `max_ttl`.
        pub fn ttl(mut self, ttl: Duration) -> Self {
            self.options.ttl = ttl;
            self
        }

        /// How long before the end of validity the work is told to stop. Default a fifth of the TTL.
        pub fn step_down_grace(mut self, grace: Duration) -> Self {
            self.options.grace = Some(grace);
            self
        }

        /// Less validity than this at the end of an attempt is a loss. Default the step-down grace.
        pub fn min_validity(mut self, least: Duration) -> Self {
            self.options.min_validity = Some(least);
            self
        }

        /// How long an acquire waits. Default for ever.
        pub fn wait(mut self, wait: Duration) -> Self {
            self.options.wait = Some(wait);
            self
        }

        /// Whether the keeper extends the lease. Default true; without, it ends after one TTL unless
        /// [`Lease::extend`] is called.
        pub fn auto_extend(mut self, extended: bool) -> Self {
            self.options.extended = extended;
            self
        }

        /// How long a lease is held at most, counted from when it was won: validity ends by then whatever is
        /// extended, and the step-down comes its grace before. Default for ever. It must be longer than the
        /// grace. The keys of a holder that dies just then stand for a third of the TTL longer, at most.
        pub fn max_hold(mut self, most: Duration) -> Self {
            self.options.max_hold = Some(most);
            self
        }

        /// Extends only while `check` says yes, so that a worker that is stuck stops renewing: it is *at risk*
        /// from the first no, told to step down, and then its lease ends. A yes in time and it goes on.
        ///
        /// `check` is asked before each extension, every third of the TTL (after a no, every twentieth), on the
        /// task that extends every lease of this quorum: it must look at something and return, not wait. One
        /// that panics has said no.
        pub fn renew_while(mut self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
            self.options.health = Some($crate::lease::Health::Check(std::sync::Arc::new(check)));
            self
        }

        /// As `renew_while`, by a heartbeat: extends only while its last beat, or the beginning of the lease,
        /// is younger than its longest silence.
        pub fn renew_while_beating(mut self, heart: &$crate::lease::Heartbeat) -> Self {
            self.options.health = Some($crate::lease::Health::Beats(heart.clone()));
            self
        }
    };
}
pub(crate) use options;
