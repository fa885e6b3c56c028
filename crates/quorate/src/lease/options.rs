use crate::{
    config::{QuorumConfig, SettingError},
    env::BootTime,
    lease::{AcquireError, Heartbeat, Lease, heartbeat::Health, params::LeaseParams},
};
use std::{fmt, sync::Arc, time::Duration};

/// The settings of a lease, for a lock, a reader's lock, slots, an election or claims.
///
/// Each of these builders has the same methods as this type. The method `options` of each builder applies a
/// whole set of options, so that several builders can share one set. A setting that is not given keeps its
/// default, or the value from an earlier call.
///
/// ```
/// use quorate::{Claims, Election, LeaseOptions, Quorum, node::MemoryNode};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let quorum = Quorum::builder().node(MemoryNode::new("a")).trust_new_nodes(true).build()?;
/// let options = LeaseOptions::new().ttl(Duration::from_secs(5)).max_hold(Duration::from_secs(60));
/// let lease = quorum.lock("invoice-42").options(options.clone()).acquire().await?;
/// assert_eq!(lease.ttl(), Duration::from_secs(5));
/// let election = Election::new(&quorum, "billing").options(options.clone());
/// let claims = Claims::new(&quorum, "orders").options(options);
/// # drop((lease, election, claims));
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "options change nothing until they are given to a lock, an election or claims"]
pub struct LeaseOptions {
    ttl: Option<Duration>,
    grace: Option<Duration>,
    min_validity: Option<Duration>,
    auto_extend: Option<bool>,
    max_hold: Option<Duration>,
    health: Option<Health>,
}

impl LeaseOptions {
    /// Returns options in which nothing is set.
    pub const fn new() -> Self {
        Self { ttl: None, grace: None, min_validity: None, auto_extend: None, max_hold: None, health: None }
    }

    /// Sets the TTL: the time for which the nodes keep the lease after each extension. A holder that crashes
    /// blocks other clients for up to this time. Default 10 s, at most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how long before the end of validity the work is asked to stop. The default is a fifth of the TTL.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets the validity that must be left when an attempt to acquire ends. If less is left, the attempt counts
    /// as lost. The default is the step-down grace.
    pub fn min_validity(mut self, least: Duration) -> Self {
        self.min_validity = Some(least);
        self
    }

    /// Sets whether the lease is extended automatically. Default true. Without automatic extension the lease
    /// ends after one TTL unless [`Lease::extend`] is called.
    pub fn auto_extend(mut self, extended: bool) -> Self {
        self.auto_extend = Some(extended);
        self
    }

    /// Sets how long a lease is held at most, counted from its acquisition. Validity ends by then, and the
    /// step-down comes one step-down grace earlier. `max_hold` must be longer than the grace and than
    /// `min_validity`. By default there is no limit.
    ///
    /// If the holder crashes shortly before `max_hold` is over, its keys stay on the nodes after that. They
    /// expire up to about a third of the TTL later.
    pub fn max_hold(mut self, most: Duration) -> Self {
        self.max_hold = Some(most);
        self
    }

    /// Extends the lease only while `check` returns true, so that a worker that is stuck stops renewing. From
    /// the first false on, the lease is *at risk*. If `check` does not return true again in time, the work is
    /// asked to step down, and then the lease ends.
    ///
    /// `check` is called before each extension, which is due every third of the TTL. After it has returned
    /// false, it is called every twentieth of the TTL. The task that extends all leases of this quorum runs
    /// `check`, so `check` must return at once, without waiting. A panic in `check` counts as false.
    pub fn renew_while(mut self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.health = Some(Health::Check(Arc::new(check)));
        self
    }

    /// Extends the lease only while the last beat of `heartbeat`, or the beginning of the lease, is more recent than
    /// the heartbeat's longest silence. Replaces [`renew_while`](LeaseOptions::renew_while).
    #[doc(hidden)]
    pub fn renew_while_beating(mut self, heartbeat: &Heartbeat) -> Self {
        self.health = Some(Health::Beats(heartbeat.clone()));
        self
    }

    /// Returns these options. An option that `later` sets too gets the value from `later`.
    pub(crate) fn with(self, later: Self) -> Self {
        Self {
            ttl: later.ttl.or(self.ttl),
            grace: later.grace.or(self.grace),
            min_validity: later.min_validity.or(self.min_validity),
            auto_extend: later.auto_extend.or(self.auto_extend),
            max_hold: later.max_hold.or(self.max_hold),
            health: later.health.or(self.health),
        }
    }

    pub(crate) fn effective_ttl(&self, config: &QuorumConfig) -> Duration {
        self.ttl.unwrap_or_else(|| config.default_ttl())
    }

    pub(crate) fn effective_grace(&self, config: &QuorumConfig) -> Duration {
        self.grace.unwrap_or_else(|| QuorumConfig::default_grace(self.effective_ttl(config)))
    }

    /// Returns the health check on which renewal depends.
    pub(crate) fn health(&self) -> Option<&Health> {
        self.health.as_ref()
    }

    /// Checks the options against the quorum's settings and against each other, and returns the parameters of
    /// a lease. The lease's fencing counter is kept for `fence_retention`.
    pub(crate) fn params(&self, config: &QuorumConfig) -> Result<LeaseParams, AcquireError> {
        let extended = self.auto_extend.unwrap_or(true);
        let ttl = self.effective_ttl(config);
        let params = LeaseParams::checked(config, ttl, self.grace, self.min_validity, extended)?;
        let LeaseParams { grace, min_validity, .. } = params;
        if let Some(most) = self.max_hold.filter(|most| *most <= grace.max(min_validity)) {
            let reason = format!("no longer than step_down_grace {grace:?} or min_validity {min_validity:?}");
            let fix =
                "the work would be asked to stop as it starts: lengthen max_hold, or shorten step_down_grace";
            return Err(SettingError::new("max_hold", format!("{most:?}"), reason, fix).into());
        }
        match &self.health {
            Some(_) if !extended => {
                let reason = "and auto_extend is false, so no extension could be held back";
                Err(SettingError::new("renew_while", "set", reason, "leave out one of them").into())
            }
            Some(Health::Beats(heart)) if heart.max_silence().is_zero() => {
                let fix = "give the heartbeat the time that one piece of work may take";
                Err(SettingError::new("max_silence", "0ns", "shorter than any silence", fix).into())
            }
            _ => Ok(params),
        }
    }

    /// Sends the renewer the limits of a lease that was acquired at `acquired`: its `max_hold` and its health
    /// check.
    pub(crate) fn bind(&self, lease: &Lease, acquired: BootTime) {
        if self.max_hold.is_some() || self.health.is_some() {
            lease.limit(self.max_hold.map(|most| acquired + most), self.health.clone());
        }
    }
}

impl fmt::Debug for LeaseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("LeaseOptions");
        let times = [
            ("ttl", self.ttl),
            ("step_down_grace", self.grace),
            ("min_validity", self.min_validity),
            ("max_hold", self.max_hold),
        ];
        for (name, time) in times {
            if let Some(time) = time {
                shown.field(name, &time);
            }
        }
        if let Some(extended) = self.auto_extend {
            shown.field("auto_extend", &extended);
        }
        if self.health.is_some() {
            shown.field("renew_while", &format_args!("…"));
        }
        shown.finish()
    }
}

/// A macro that gives a builder the methods of [`LeaseOptions`]. Without an argument, the methods change the
/// builder's field `options`. With `through FIELD`, they call the methods of the same name on that field.
macro_rules! lease_options {
    () => {
        /// Sets every option that is set in `options`. The other options stay as they are.
        pub fn options(mut self, options: $crate::lease::LeaseOptions) -> Self {
            self.options = std::mem::take(&mut self.options).with(options);
            self
        }

        $crate::lease::lease_options!(each);
    };
    (through $inner:tt) => {
        /// Sets every option that is set in `options`. The other options stay as they are.
        pub fn options(mut self, options: $crate::lease::LeaseOptions) -> Self {
            self.$inner = self.$inner.options(options);
            self
        }

        $crate::lease::lease_options!(each);
    };
    (each) => {
        /// Sets the TTL: see [`LeaseOptions::ttl`](crate::lease::LeaseOptions::ttl).
        pub fn ttl(self, ttl: std::time::Duration) -> Self {
            self.options($crate::lease::LeaseOptions::new().ttl(ttl))
        }

        /// Sets the grace period of the step-down: see
        /// [`LeaseOptions::step_down_grace`](crate::lease::LeaseOptions::step_down_grace).
        pub fn step_down_grace(self, grace: std::time::Duration) -> Self {
            self.options($crate::lease::LeaseOptions::new().step_down_grace(grace))
        }

        /// Sets the shortest validity of a new lease: see
        /// [`LeaseOptions::min_validity`](crate::lease::LeaseOptions::min_validity).
        pub fn min_validity(self, least: std::time::Duration) -> Self {
            self.options($crate::lease::LeaseOptions::new().min_validity(least))
        }

        /// Sets whether the lease is extended automatically: see
        /// [`LeaseOptions::auto_extend`](crate::lease::LeaseOptions::auto_extend).
        pub fn auto_extend(self, extended: bool) -> Self {
            self.options($crate::lease::LeaseOptions::new().auto_extend(extended))
        }

        /// Sets the longest time for which a lease is held: see
        /// [`LeaseOptions::max_hold`](crate::lease::LeaseOptions::max_hold).
        pub fn max_hold(self, most: std::time::Duration) -> Self {
            self.options($crate::lease::LeaseOptions::new().max_hold(most))
        }

        /// Sets a condition for extensions: see
        /// [`LeaseOptions::renew_while`](crate::lease::LeaseOptions::renew_while).
        pub fn renew_while(self, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
            self.options($crate::lease::LeaseOptions::new().renew_while(check))
        }

        /// Extends the lease only while a heartbeat beats: see
        /// [`LeaseOptions::renew_while_beating`](crate::lease::LeaseOptions::renew_while_beating).
        #[doc(hidden)]
        pub fn renew_while_beating(self, heart: &$crate::lease::Heartbeat) -> Self {
            self.options($crate::lease::LeaseOptions::new().renew_while_beating(heart))
        }
    };
}
pub(crate) use lease_options;
