//! Checks each request before it is handled: its host, its origin, its token, and its time.

use super::{
    error::HttpError,
    places::{Origin, Peer},
    site::Site,
    tokens::{Access, Tokens},
};
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use quorate::plain::plain;
use std::{net::IpAddr, sync::Arc, time::Duration};

/// The longest time to answer a request. It is longer than the longest wait for the leader's answer.
pub(super) const ANSWER: Duration = Duration::from_secs(35);
/// The longest part of a request that an error repeats, in bytes.
const SHOWN_MAX: usize = 200;
/// The paths that answer every client.
const HEALTH: [&str; 3] = ["/livez", "/readyz", "/leader"];

/// Checks a request, and lets the rest of the server handle it.
pub(super) async fn guard(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let response = match check(&site, &request) {
        Err(error) => error.into_response(),
        Ok(access) => {
            if let Some(peer) = request.extensions().get::<Peer>()
                && access_of_token(request.headers(), &site.tokens) > Access::Health
            {
                peer.place.has_token();
            }
            request.extensions_mut().insert(access);
            let deadline = site.env().now() + ANSWER;
            site.env().before(deadline, next.run(request)).await.unwrap_or_else(|| late().into_response())
        }
    };
    with_headers(response)
}

fn late() -> HttpError {
    let text = format!("no answer within {ANSWER:?}: the nodes are slow or away; try again later");
    HttpError::new(StatusCode::GATEWAY_TIMEOUT, text)
}

/// Checks a request for the operator's page, which knows its viewers by a cookie or by this token, and which sets the
/// headers of its answers. The deadline is that of the first byte: a page may be updated for longer.
pub(super) async fn page_guard(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    if let Err(error) = check_headers(request.headers(), &site.tokens) {
        return with_headers(error.into_response());
    }
    let access = access_of_token(request.headers(), &site.tokens).on_page();
    let peer = request.extensions().get::<Peer>().cloned();
    let name = match &peer {
        Some(peer) => peer.from.operator(),
        None => "http".to_owned(),
    };
    request.extensions_mut().insert(quorate_web::Viewer { access, name: name.into() });
    let deadline = site.env().now() + ANSWER;
    let Some(response) = site.env().before(deadline, next.run(request)).await else {
        return with_headers(late().into_response());
    };
    // A viewer who has signed in sends a cookie instead of the token. The page knows both.
    let signed_in = response.extensions().get::<quorate_web::Access>();
    if let Some(peer) = peer.filter(|_| signed_in.is_some()) {
        peer.place.has_token();
    }
    response
}

/// Returns what the client may do, or the reason why the request is refused.
fn check(site: &Site, request: &Request) -> Result<Access, HttpError> {
    let (headers, tokens) = (request.headers(), &site.tokens);
    check_headers(headers, tokens)?;
    let peer = request.extensions().get::<Peer>();
    let access = tokens.access(bearer(headers), peer.is_some_and(|peer| peer.is_client));
    let is_socket = peer.is_some_and(|peer| peer.is_client && matches!(peer.from, Origin::Unix { .. }));
    match access {
        // The permission of the socket has let this client in.
        Access::Health if is_socket => Ok(Access::Client),
        Access::Health if !HEALTH.contains(&request.uri().path()) => {
            let is_client = peer.is_some_and(|peer| peer.is_client);
            Err(unauthorized(if is_client { "serve.token_file" } else { "http.read_token_file" }))
        }
        access => Ok(access),
    }
}

/// A client that may operate. As an argument of a handler, it refuses every other client.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) from: Origin,
}

/// A client that may hold leases. As an argument of a handler, it refuses every other client. It has the name of the client
/// for the limits and for operators.
#[derive(Debug)]
pub(super) struct Client(pub(super) Arc<str>);

impl FromRequestParts<Arc<Site>> for Client {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Site>) -> Result<Self, HttpError> {
        let (access, peer) = (parts.extensions.get::<Access>(), parts.extensions.get::<Peer>());
        let Some(peer) = peer else { return Err(unauthorized("serve.token_file")) };
        let is_socket = peer.is_client && matches!(peer.from, Origin::Unix { .. });
        match access {
            Some(Access::Client | Access::Operate) => Ok(Self(peer.from.to_string().into())),
            Some(Access::Read) if is_socket => Ok(Self(peer.from.to_string().into())),
            _ => Err(unauthorized("serve.token_file")),
        }
    }
}

/// Lets a request through if its client may read everything, so also what other clients hold.
pub(super) async fn readers(request: Request, next: Next) -> Response {
    match request.extensions().get::<Access>() {
        Some(Access::Read | Access::Operate) => next.run(request).await,
        _ => {
            let text = "clients see only their own leases; send the token of http.read_token_file or http.operate_token_file";
            HttpError::new(StatusCode::FORBIDDEN, text).into_response()
        }
    }
}

impl FromRequestParts<Arc<Site>> for Operator {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, HttpError> {
        let refused = |text: &str| Err(HttpError::new(StatusCode::FORBIDDEN, text));
        match (parts.extensions.get::<Access>(), parts.extensions.get::<Peer>()) {
            (Some(Access::Operate), Some(peer)) => Ok(Self { from: peer.from }),
            _ if !site.tokens.can_operate() => {
                refused("operations are off; set http.operate_token_file in the daemon's configuration")
            }
            (Some(Access::Read), _) if site.tokens.protects_reads() => {
                refused("this token is for reading; send the token of http.operate_token_file")
            }
            _ => Err(unauthorized("http.operate_token_file")),
        }
    }
}

fn unauthorized(field: &str) -> HttpError {
    let text =
        format!("no valid token; send the header `Authorization: Bearer TOKEN` with the token of {field}");
    HttpError::new(StatusCode::UNAUTHORIZED, text)
}

/// Refuses a host name in `Host` if there is no read token. Otherwise a web page could let a name of its own
/// origin point to this server's address, and read the server's answers (DNS rebinding).
fn check_host(headers: &HeaderMap, tokens: &Tokens) -> Result<(), HttpError> {
    let Some(host) = headers.get(header::HOST).filter(|_| !tokens.protects_reads()) else { return Ok(()) };
    if host.to_str().is_ok_and(is_address) {
        return Ok(());
    }
    let text = format!(
        "the host {:?} is not an IP address or localhost; use the address of the server, or protect it with \
         http.read_token_file",
        shown(host)
    );
    Err(HttpError::new(StatusCode::FORBIDDEN, text))
}

/// Returns whether a `Host` is an IP address or `localhost`, with or without a port.
fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Refuses a request from a page of another origin. A browser names the origin of each form, and of each request of a
/// script to another origin. A link from another page has no `Origin`, and is followed.
fn check_origin(headers: &HeaderMap) -> Result<(), HttpError> {
    let Some(origin) = headers.get(header::ORIGIN).filter(|_| !quorate_web::is_same_origin(headers)) else {
        return Ok(());
    };
    let text = format!(
        "the page of {:?} may not use this server; open the server's own address, or send no Origin",
        shown(origin)
    );
    Err(HttpError::new(StatusCode::FORBIDDEN, text))
}

/// Makes the checks that the API and the page have in common.
fn check_headers(headers: &HeaderMap, tokens: &Tokens) -> Result<(), HttpError> {
    check_single(headers)?;
    check_host(headers, tokens)?;
    check_origin(headers)
}

/// Refuses a request that gives a header twice on which access depends. A proxy in front may have checked the other one.
fn check_single(headers: &HeaderMap) -> Result<(), HttpError> {
    for name in [header::HOST, header::ORIGIN, header::AUTHORIZATION] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            let text = format!("the header {name} is given twice; send it once");
            return Err(HttpError::bad_request(text));
        }
    }
    Ok(())
}

/// Returns what the token of the request allows, even if everybody may read.
fn access_of_token(headers: &HeaderMap, tokens: &Tokens) -> Access {
    bearer(headers).map_or(Access::Health, |token| tokens.access_of_token(token))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn shown(value: &HeaderValue) -> String {
    plain(&String::from_utf8_lossy(value.as_bytes()), SHOWN_MAX)
}

/// Adds the headers of every response. An answer is never stored, and never shown as a page with contents.
fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts_without_a_token() {
        for host in
            ["127.0.0.1", "127.0.0.1:9640", "[::1]", "[::1]:9640", "localhost", "LOCALHOST:1", "10.1.2.3:80"]
        {
            assert!(is_address(host), "{host}");
        }
        for host in
            ["", ":80", "example.com", "127.0.0.1.example.com", "localhost.example.com:80", "a:b", "[x]:1"]
        {
            assert!(!is_address(host), "{host}");
        }
    }

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_header_on_which_access_depends_is_given_once() {
        for name in [header::HOST, header::ORIGIN, header::AUTHORIZATION] {
            let mut headers = headers(&[(name.clone(), "127.0.0.1")]);
            assert!(check_single(&headers).is_ok());
            headers.append(&name, HeaderValue::from_static("127.0.0.1"));
            assert_eq!(check_single(&headers).unwrap_err().into_response().status(), StatusCode::BAD_REQUEST);
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let refused =
            |host, origin| check_origin(&headers(&[(header::HOST, host), (header::ORIGIN, origin)])).is_err();
        assert!(!refused("127.0.0.1:9640", "http://127.0.0.1:9640"));
        assert!(!refused("quorate.example.com", "https://quorate.example.com"));
        for origin in
            ["null", "", "http://127.0.0.1", "http://127.0.0.1:9641", "https://example.com", "127.0.0.1:9640"]
        {
            assert!(refused("127.0.0.1:9640", origin), "{origin}");
        }
        assert!(check_origin(&headers(&[(header::ORIGIN, "http://")])).is_err(), "no host");
        assert!(check_origin(&headers(&[(header::HOST, "a")])).is_ok(), "no origin");
    }

    #[test]
    fn behind_a_proxy_the_browser_says_whether_the_origin_is_the_same() {
        let site = header::HeaderName::from_static("sec-fetch-site");
        let is_refused = |origin: &'static str, value: &'static str| {
            let pairs = [(header::HOST, "10.0.0.7:9640"), (header::ORIGIN, origin), (site.clone(), value)];
            check_origin(&headers(&pairs)).is_err()
        };
        assert!(!is_refused("https://ops.example.com", "same-origin"));
        for value in ["cross-site", "same-site", "", "Same-Origin"] {
            assert!(is_refused("https://ops.example.com", value), "{value}");
            assert!(is_refused("http://10.0.0.7:9640", value), "{value}");
        }
        let link = [(header::HOST, "10.0.0.7:9640"), (site.clone(), "cross-site")];
        assert!(check_origin(&headers(&link)).is_ok(), "a link to the page");
    }

    #[test]
    fn the_token_is_the_word_after_bearer() {
        let token = |text| bearer(&headers(&[(header::AUTHORIZATION, text)])).map(str::to_owned);
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        for text in ["abc", "Basic abc", "Bearer", ""] {
            assert_eq!(token(text), None, "{text}");
        }
    }
}
