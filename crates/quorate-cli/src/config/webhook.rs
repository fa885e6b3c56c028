//! The URLs that get requests: those of webhooks, pings and the collector.

use super::Secret;
use std::{net::IpAddr, path::PathBuf};
use url::{Host, Url};

/// A URL that is a secret, or the file that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// The URL itself.
    Url(Secret<Url>),
    /// The file with the URL.
    File(PathBuf),
}

/// A URL that shows the form of a webhook.
pub(crate) const WEBHOOK_EXAMPLE: &str = "https://alerts.example.com/hook";
/// The reason and the fix for a header that cannot be set.
pub(super) const HEADER_FIX: &str =
    "which cannot be set; use a name of letters, digits and `-`, like Authorization";

/// Parses a URL for requests. The error shows `example`. It does not contain the URL, because it may be a
/// secret.
pub(crate) fn parse_url(text: &str, example: &str) -> Result<Url, String> {
    let fix = format!("write it like {example}");
    let url = Url::parse(text.trim()).map_err(|error| format!("is not a URL ({error}); {fix}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("is not a URL of https or http; {fix}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "has a user name or password; use a header instead: header_files = { Authorization = \"FILE\" }"
                .to_owned(),
        );
    }
    Ok(url)
}

/// Returns whether a request to `url` stays on this machine or is encrypted.
pub(crate) fn is_private(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || is_loopback
}

/// Returns whether a request may have a header of this name whose value comes from a file.
pub(super) fn is_header(name: &str) -> bool {
    let is_token =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let reserved = ["host", "content-length", "content-type", "transfer-encoding", "connection"];
    is_token && !reserved.contains(&name.to_ascii_lowercase().as_str())
}
