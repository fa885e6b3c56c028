use crate::{access::Access, browsers::Browsers, page::Page, watch::Watch};
use quorate::{
    env::Env,
    quorum::{Quorum, SettingError},
};
use tokio::sync::Semaphore;

/// The most viewers that a router updates at the same time.
const STREAMS: usize = 32;
/// The most attempts to sign in at the same time.
const SIGN_INS: usize = 4;

/// The state of a router.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) page: Page,
    pub(crate) browsers: Browsers,
    pub(crate) watch: Watch,
    /// A permit for each viewer that is updated.
    pub(crate) streams: std::sync::Arc<Semaphore>,
    /// A permit for each attempt to sign in.
    pub(crate) sign_ins: Semaphore,
}

impl Site {
    pub(crate) fn new(page: Page) -> Result<Self, SettingError> {
        // The name of the group is checked here, once.
        page.watched.election.observe()?;
        let browsers = Browsers::new(page.watched.election.quorum().env());
        let watch = Watch::start(&page, page.watched.election.quorum());
        let streams = std::sync::Arc::new(Semaphore::new(STREAMS));
        Ok(Self { page, browsers, watch, streams, sign_ins: Semaphore::new(SIGN_INS) })
    }

    pub(crate) fn env(&self) -> &Env {
        self.page.watched.election.quorum().env()
    }

    pub(crate) fn quorum(&self) -> &Quorum {
        self.page.watched.election.quorum()
    }

    /// Returns what the owner of a token may do.
    pub(crate) fn check(&self, token: &str) -> Option<Access> {
        self.page.access.check_token.as_ref().and_then(|check| check(token))
    }
}
