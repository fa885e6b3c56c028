//! The pages, the style sheet and the script.

use crate::{
    access::Access,
    site::Site,
    view::{self, Notice, View},
    visit::Visit,
};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use quorate_operator::state::{Detail, JobsView, Key, Round, SeenNode, Snapshot};
use quorate_operator::view::NodeView;
use std::sync::Arc;

/// The policy of each page: nothing but this server's own files, and no code or style within a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src data: 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/page.js");
/// The headers of every answer.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(crate) async fn style() -> Response {
    text(StatusCode::OK, "text/css; charset=utf-8", STYLE)
}

pub(crate) async fn script() -> Response {
    text(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT)
}

/// Shows one of the pages.
pub(crate) async fn show(State(site): State<Arc<Site>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let visit = Visit::of(&site, &parts);
    if !visit.can(Access::Read) {
        return sign_in_page(&site, &visit, None, StatusCode::UNAUTHORIZED);
    }
    let Some((view, here)) = view_of(&parts.uri) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let looking = site.watch.look(key(&view));
    let round = looking.round().await;
    let notice = site.browsers.take_notice(&visit.browser);
    let token = site.browsers.form_token(&visit.browser);
    let now = site.env().wall();
    let context = visit.context(&site, now, &here, &token, notice.as_ref());
    let body = match &round {
        Some(round) => view::page(&view, &round.state, detail(round, &view), &context),
        None => view::page(&view, &nothing(&site), None, &context),
    };
    with_browser(html(StatusCode::OK, body), &visit)
}

/// Shows the form to sign in.
pub(crate) async fn sign_in(State(site): State<Arc<Site>>, request: Request) -> Response {
    let visit = Visit::of(&site, &request.into_parts().0);
    let notice = site.browsers.take_notice(&visit.browser);
    sign_in_page(&site, &visit, notice.as_ref(), StatusCode::OK)
}

fn sign_in_page(site: &Site, visit: &Visit, notice: Option<&Notice>, status: StatusCode) -> Response {
    let token = site.browsers.form_token(&visit.browser);
    let context = visit.context(site, site.env().wall(), "/", &token, notice);
    with_browser(html(status, view::sign_in(&context)), visit)
}

/// Returns the page that a path and a query name, and both as text.
pub(crate) fn view_of(uri: &Uri) -> Option<(View, String)> {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let path = if path.is_empty() { "/" } else { path };
    let here = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    Some((View::parse(path, query)?, here))
}

/// Returns the part of the state that only this page shows.
pub(crate) fn key(view: &View) -> Option<Key> {
    match view {
        View::Overview | View::Jobs(_) => None,
        View::Nodes => Some(Key::Examination),
        View::Job { name, at } => Some(Key::Job { name: name.clone(), at: at.clone() }),
        View::Leadership => Some(Key::Audit),
        View::Messages { set } => set.clone().map(Key::Messages),
    }
}

pub(crate) fn detail<'a>(round: &'a Round, view: &View) -> Option<&'a Detail> {
    round.details.get(&key(view)?)
}

/// Returns the state of a group whose nodes have not answered yet.
fn nothing(site: &Site) -> Snapshot {
    let (quorum, now) = (site.quorum(), site.env().wall());
    let (nodes, boot) = (quorum.nodes(), quorum.env().now());
    let seen =
        |node| SeenNode { node: NodeView::new(node, boot), votes_at: None, since: now, trips: Vec::new() };
    Snapshot {
        shards: Arc::default(),
        at: now,
        group: quorate_operator::view::name(site.page.watched.election.group()).into(),
        worker: Arc::clone(&quorum.config().worker),
        nodes: nodes.iter().map(seen).collect(),
        leadership: quorate_operator::state::Leadership::Unknown,
        unread_leader: None,
        ttl: site.page.watched.ttl,
        jobs: site.page.watched.jobs.then(Arc::<JobsView>::default),
        examination: None,
        leases: None,
    }
}

fn html(status: StatusCode, body: String) -> Response {
    text(status, "text/html; charset=utf-8", body)
}

pub(crate) fn text(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    with_headers(response)
}

/// Adds the headers of every answer of this router.
pub(crate) fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Adds the rights of the viewer to the response, if they come from a session or from a [`Viewer`](crate::Viewer).
pub(crate) async fn with_access(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let access = Visit::own_access(&site, &parts);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if let Some(access) = access {
        response.extensions_mut().insert(access);
    }
    response
}

/// Gives a new browser its cookie.
fn with_browser(response: Response, visit: &Visit) -> Response {
    with_cookie(response, visit.is_new.then(|| visit.browser_cookie(&visit.browser)).flatten())
}

/// Adds a cookie, if there is one.
pub(crate) fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
