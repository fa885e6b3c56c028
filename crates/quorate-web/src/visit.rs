//! One request: its viewer, its address, and its cookies.

use crate::{
    access::{Access, Viewer},
    browsers::BrowserId,
    site::Site,
    time::{DEFAULT_ZONE, Zone},
    view::{Context, Notice},
};
use axum::{
    extract::OriginalUri,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use quorate::env::WallTime;
use std::sync::Arc;

/// The cookie with the random id of the browser.
const BROWSER: &str = "quorate-page";
/// The cookie with the viewer's time zone. The script of the page may set it.
const ZONE: &str = "quorate-zone";
/// The time for which a browser keeps the zone, in seconds.
const ZONE_AGE: u32 = 365 * 24 * 3_600;
/// The longest name of a requester, in bytes.
const NAME_MAX: usize = 128;

/// The facts about a request that a page needs.
#[derive(Debug)]
pub(crate) struct Visit {
    /// The path under which the router is mounted.
    pub(crate) base: String,
    pub(crate) browser: BrowserId,
    /// True if the browser has no cookie with this id yet.
    pub(crate) is_new: bool,
    pub(crate) access: Option<Access>,
    /// True if the access comes from a session.
    pub(crate) signed_in: bool,
    pub(crate) zone: Zone,
    /// The name under which requests are recorded.
    pub(crate) requester: String,
    /// True if the browser uses TLS, as a proxy in front says.
    is_tls: bool,
}

impl Visit {
    pub(crate) fn of(site: &Site, parts: &Parts) -> Self {
        let known = cookie(&parts.headers, BROWSER).and_then(BrowserId::parse);
        let is_new = known.is_none();
        let browser = known.unwrap_or_else(|| BrowserId::random(site.env()));
        let viewer = parts.extensions.get::<Viewer>();
        let session = site.browsers.access(&browser, site.env().now());
        let open = site.page.access.open.then_some(Access::Read);
        let own = viewer.and_then(|viewer| viewer.access);
        let requester = viewer.map_or_else(|| Arc::from("page"), |viewer| Arc::clone(&viewer.name));
        Self {
            base: base(parts),
            browser,
            is_new,
            access: session.max(own).max(open),
            signed_in: session.is_some(),
            zone: cookie(&parts.headers, ZONE).and_then(Zone::named).unwrap_or_else(Zone::utc),
            requester: quorate::plain::plain(&requester, NAME_MAX),
            is_tls: parts.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https"),
        }
    }

    /// Returns the rights of a session and of a [`Viewer`], without those that everybody has.
    pub(crate) fn own_access(site: &Site, parts: &Parts) -> Option<Access> {
        let browser = cookie(&parts.headers, BROWSER).and_then(BrowserId::parse);
        let session = browser.and_then(|browser| site.browsers.access(&browser, site.env().now()));
        session.max(parts.extensions.get::<Viewer>().and_then(|viewer| viewer.access))
    }

    pub(crate) fn can(&self, access: Access) -> bool {
        self.access >= Some(access)
    }

    /// Returns what a page needs to know of this viewer.
    pub(crate) fn context<'a>(
        &'a self,
        site: &'a Site,
        now: WallTime,
        here: &'a str,
        form_token: &'a str,
        notice: Option<&'a Notice>,
    ) -> Context<'a> {
        Context {
            now,
            zone: &self.zone,
            base: &self.base,
            here,
            operate: self.can(Access::Operate),
            signed_in: self.signed_in,
            can_sign_in: site.page.access.check_token.is_some(),
            form_token,
            notice,
            sets: &site.page.sets,
        }
    }

    /// Returns the cookie that gives the browser this id.
    pub(crate) fn browser_cookie(&self, browser: &BrowserId) -> Option<HeaderValue> {
        self.cookie(BROWSER, browser.as_str(), "; HttpOnly")
    }

    pub(crate) fn zone_cookie(&self, zone: &Zone) -> Option<HeaderValue> {
        self.cookie(ZONE, zone.name(), &format!("; Max-Age={ZONE_AGE}"))
    }

    fn cookie(&self, name: &str, value: &str, more: &str) -> Option<HeaderValue> {
        let path = if self.base.is_empty() { "/" } else { &self.base };
        let secure = if self.is_tls { "; Secure" } else { "" };
        HeaderValue::from_str(&format!("{name}={value}; Path={path}; SameSite=Strict{more}{secure}")).ok()
    }
}

/// Returns the path under which the router is mounted, without a slash at its end.
fn base(parts: &Parts) -> String {
    let inner = parts.uri.path();
    let whole = parts.extensions.get::<OriginalUri>().map_or(inner, |original| original.0.path());
    whole.strip_suffix(inner).unwrap_or(whole).trim_end_matches('/').to_owned()
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Returns whether a request may come from a page of this server, by its headers `Sec-Fetch-Site`, `Origin` and `Host`. The
/// router refuses every form of another origin itself.
///
/// A browser sends `Sec-Fetch-Site` over TLS and to this machine, and no page can change it. So a form is accepted also
/// behind a proxy that does not pass the browser's `Host`. Without that header, `Origin` must name the `Host`. A program
/// that sends neither has no viewer whose rights it could misuse.
///
/// ```
/// use axum::http::{HeaderMap, HeaderValue};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("host", HeaderValue::from_static("10.0.0.7:9640"));
/// headers.insert("origin", HeaderValue::from_static("https://ops.example.com"));
/// assert!(!quorate_web::is_same_origin(&headers));
/// headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
/// assert!(quorate_web::is_same_origin(&headers));
/// ```
#[must_use]
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let origin = origin.to_str().unwrap_or_default();
    let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && name == Some(host)
}

/// Returns the zone of this name, or the default one.
pub(crate) fn zone(name: Option<&str>) -> Zone {
    name.and_then(Zone::named).or_else(|| Zone::named(DEFAULT_ZONE)).unwrap_or_else(Zone::utc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_form_of_another_origin_is_refused() {
        let same = |pairs: &[(&'static str, &'static str)]| is_same_origin(&headers(pairs));
        assert!(same(&[]));
        assert!(same(&[("host", "a:1"), ("origin", "http://a:1")]));
        assert!(same(&[("host", "inner"), ("origin", "https://outer"), ("sec-fetch-site", "same-origin")]));
        for (origin, site) in
            [("http://b", "cross-site"), ("http://a:1", "cross-site"), ("null", "same-site"), ("null", "")]
        {
            assert!(
                !same(&[("host", "a:1"), ("origin", origin), ("sec-fetch-site", site)]),
                "{origin} {site}"
            );
        }
        for origin in ["null", "", "http://b", "http://a", "a:1"] {
            assert!(!same(&[("host", "a:1"), ("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = headers(&[("cookie", "a=1; quorate-zone=Europe/Berlin; b=2")]);
        assert_eq!(cookie(&headers, ZONE), Some("Europe/Berlin"));
        assert_eq!(cookie(&headers, "zone"), None);
    }
}
