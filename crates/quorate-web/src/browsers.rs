//! The browsers that have signed in, and the tokens of their forms.
//!
//! A browser has a cookie with a random id. The server stores only a hash of it. The id is a new one after each
//! change of rights, so that an id from before is worth nothing.

use crate::{access::Access, view::Notice};
use quorate::env::{BootTime, Env};
use sha2::{Digest, Sha256};
use std::{
    fmt::{self, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use subtle::ConstantTimeEq;

/// The longest time of a session.
const SESSION: Duration = Duration::from_secs(12 * 3_600);
/// The most sessions. The oldest ends when there are more.
const SESSIONS_MAX: usize = 256;
/// The most notices that wait to be shown.
const NOTICES_MAX: usize = 64;
/// The length of a random id, in bytes.
const ID: usize = 32;

type Hash = [u8; 32];

/// The random id of a browser, in hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BrowserId(String);

/// The sessions of a router.
pub(crate) struct Browsers {
    key: Hash,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: Vec<Session>,
    notices: Vec<(Hash, Notice)>,
}

struct Session {
    browser: Hash,
    access: Access,
    until: BootTime,
}

impl BrowserId {
    pub(crate) fn random(env: &Env) -> Self {
        Self(hex(&random(env)))
    }

    /// Reads the id of a cookie.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 2 * ID && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn hash(&self, key: &Hash, purpose: &[u8]) -> Hash {
        Sha256::new()
            .chain_update(key)
            .chain_update(purpose)
            .chain_update(self.0.as_bytes())
            .finalize()
            .into()
    }
}

impl Browsers {
    pub(crate) fn new(env: &Env) -> Self {
        Self { key: random(env), state: Mutex::default() }
    }

    /// Returns the token that each form of this browser carries.
    pub(crate) fn form_token(&self, browser: &BrowserId) -> String {
        hex(&browser.hash(&self.key, b"form"))
    }

    /// Returns whether a form comes from a page that was made for this browser.
    pub(crate) fn is_form_token(&self, browser: &BrowserId, given: &str) -> bool {
        self.form_token(browser).as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// Starts a session, and returns the new id of the browser.
    pub(crate) fn sign_in(&self, access: Access, env: &Env) -> BrowserId {
        let (browser, now) = (BrowserId::random(env), env.now());
        let session = Session { browser: browser.hash(&self.key, b"session"), access, until: now + SESSION };
        let mut state = self.state();
        state.sessions.retain(|session| session.until > now);
        if state.sessions.len() >= SESSIONS_MAX {
            state.sessions.remove(0);
        }
        state.sessions.push(session);
        browser
    }

    pub(crate) fn sign_out(&self, browser: &BrowserId) {
        let hash = browser.hash(&self.key, b"session");
        self.state().sessions.retain(|session| !bool::from(session.browser.ct_eq(&hash)));
    }

    /// Returns the rights of the browser's session.
    pub(crate) fn access(&self, browser: &BrowserId, now: BootTime) -> Option<Access> {
        let hash = browser.hash(&self.key, b"session");
        let state = self.state();
        // Every session is compared, so that the time does not tell which one matched.
        let matching = state.sessions.iter().filter(|session| bool::from(session.browser.ct_eq(&hash)));
        matching.filter(|session| session.until > now).map(|session| session.access).max()
    }

    /// Keeps a notice for the next page of this browser.
    pub(crate) fn leave_notice(&self, browser: &BrowserId, notice: Notice) {
        let hash = browser.hash(&self.key, b"notice");
        let mut state = self.state();
        state.notices.retain(|(other, _)| *other != hash);
        if state.notices.len() >= NOTICES_MAX {
            state.notices.remove(0);
        }
        state.notices.push((hash, notice));
    }

    pub(crate) fn take_notice(&self, browser: &BrowserId) -> Option<Notice> {
        let hash = browser.hash(&self.key, b"notice");
        let mut state = self.state();
        let at = state.notices.iter().position(|(other, _)| *other == hash)?;
        Some(state.notices.remove(at).1)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BrowserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for Browsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Browsers").field("sessions", &self.state().sessions.len()).finish_non_exhaustive()
    }
}

/// Returns random bytes of the operating system.
fn random(env: &Env) -> Hash {
    let mut bytes = [0; ID];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&env.random().to_le_bytes());
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // `write!` to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_its_time_or_with_a_sign_out() {
        let (browsers, now) = (Browsers::new(&Env::system()), Env::system().now());
        let stranger = BrowserId::random(&Env::system());
        assert_eq!(browsers.access(&stranger, now), None);
        let browser = browsers.sign_in(Access::Operate, &Env::system());
        assert_eq!(browsers.access(&browser, now), Some(Access::Operate));
        assert_eq!(browsers.access(&stranger, now), None);
        assert_eq!(browsers.access(&browser, now + SESSION + Duration::from_secs(60)), None);
        browsers.sign_out(&browser);
        assert_eq!(browsers.access(&browser, now), None);
    }

    #[test]
    fn old_sessions_make_room() {
        let browsers = Browsers::new(&Env::system());
        let first = browsers.sign_in(Access::Read, &Env::system());
        for _ in 0..SESSIONS_MAX {
            browsers.sign_in(Access::Read, &Env::system());
        }
        assert_eq!(browsers.access(&first, Env::system().now()), None);
    }

    #[test]
    fn a_form_of_one_browser_is_refused_from_another() {
        let browsers = Browsers::new(&Env::system());
        let (one, other) = (BrowserId::random(&Env::system()), BrowserId::random(&Env::system()));
        let token = browsers.form_token(&one);
        assert!(browsers.is_form_token(&one, &token));
        assert!(!browsers.is_form_token(&other, &token) && !browsers.is_form_token(&one, ""));
        assert!(!Browsers::new(&Env::system()).is_form_token(&one, &token), "another router");
        assert!(!format!("{one:?} {browsers:?}").contains(one.as_str()));
    }

    #[test]
    fn a_notice_is_shown_once_and_to_its_browser_only() {
        let browsers = Browsers::new(&Env::system());
        let (one, other) = (BrowserId::random(&Env::system()), BrowserId::random(&Env::system()));
        let notice = Notice { is_bad: false, text: "paused".to_owned() };
        browsers.leave_notice(&one, notice.clone());
        assert_eq!(browsers.take_notice(&other), None);
        assert_eq!(browsers.take_notice(&one), Some(notice));
        assert_eq!(browsers.take_notice(&one), None);
    }

    #[test]
    fn only_ids_are_ids() {
        assert!(BrowserId::parse(BrowserId::random(&Env::system()).as_str()).is_some());
        for text in ["", "abc", &"x".repeat(64), &"a".repeat(63), &"ü".repeat(32)] {
            assert!(BrowserId::parse(text).is_none(), "{text}");
        }
    }
}
