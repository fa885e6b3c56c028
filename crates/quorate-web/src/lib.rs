//! The operator's page of Quorate, as an axum router that a service mounts.
//!
//! It shows the nodes of a quorum and whether they vote, the leader of a group and its lease, the jobs of the group
//! with their runs, and the messages of sets of claims. A viewer with the right to operate can trigger, pause, resume,
//! back-fill and cancel jobs, freeze all jobs, make the leader resign, and reset dead letters. The pages work without scripts, and
//! update by themselves with them. They load nothing from another host.
//!
//! ```
//! use quorate::{Election, Quorum, node::MemoryNode};
//! use quorate_web::{Access, Page};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let quorum = Quorum::builder().node(MemoryNode::new("a")).trust_new_nodes(true).build()?;
//! let election = Election::new(&quorum, "billing");
//! let page = Page::new(&election)
//!     .ttl(Duration::from_secs(10))
//!     // Compare real tokens in constant time, such as with the crate `subtle`.
//!     .check_token(|token| (token == "a-token-from-a-secret-store").then_some(Access::Operate));
//! let app: axum::Router = axum::Router::new().nest("/quorate", quorate_web::router(page)?);
//! // axum::serve(listener, app).await?;
//! # drop(app);
//! # quorum.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Access
//!
//! Every client of the router may read, unless [`Page::closed`] is set. Operating needs a [`Viewer`] that the
//! service inserts into the request, or a sign-in with a token that [`Page::check_token`] accepts. A sign-in sets a
//! cookie with a random id, `HttpOnly` and `SameSite=Strict`; the token itself is not stored. Every form carries a
//! token that belongs to the cookie, and forms of another origin are refused.
//!
//! The router does not check the header `Host`. A service that listens on loopback without a login should refuse a `Host`
//! that is not its own, as `quorate run` does. Otherwise a web page can reach it under a name of the page's own.
//!
//! # What is not guaranteed
//!
//! A page may be out of date when it is read: it says of which time it is, and with scripts, since when it has not
//! been updated. Sessions end with the process. Over plain HTTP, every machine on the way can read tokens and cookies:
//! use TLS in front of the service. An action may have an effect although its answer was lost; the notice says so.

// A function fits on a screen. The tables of tests do not.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod access;
mod actions;
mod browsers;
mod live;
mod page;
#[cfg(test)]
mod router_tests;
mod routes;
mod site;
mod time;
mod view;
mod visit;
mod watch;

pub use access::{Access, Viewer};
pub use page::Page;
#[doc(no_inline)]
pub use quorate_operator::state::{
    Examination, Finding, Messages, NodeFacts, NodeSource, Severity, SourceFuture,
};
#[doc(no_inline)]
pub use quorate_operator::view::{MessageState, MessageView};
pub use visit::is_same_origin;

use actions::act;
use axum::{
    Router,
    extract::{Request, State},
    middleware,
    routing::{MethodRouter, get, post},
};
use quorate::quorum::SettingError;
use quorate_operator::Verb;
use site::Site;
use std::sync::Arc;

/// Returns the router of the pages. Mount it at any path with [`Router::nest`] or [`Router::merge`].
///
/// The nodes are read by one task, for all viewers, and only while a viewer looks. The task ends when the router and
/// all its copies are dropped.
///
/// The response to a viewer who may see more than everybody has the viewer's [`Access`] as an extension.
///
/// # Errors
/// [`SettingError`] if the name of the group cannot be used.
///
/// # Panics
/// Outside of a tokio runtime.
pub fn router(page: Page) -> Result<Router, SettingError> {
    let site = Arc::new(Site::new(page)?);
    let mut router = Router::new()
        .route("/", get(routes::show))
        .route("/nodes", get(routes::show))
        .route("/leadership", get(routes::show))
        .route("/messages", get(routes::show))
        .route("/events", get(live::events))
        .route("/sign-in", get(routes::sign_in).post(actions::sign_in))
        .route("/sign-out", post(actions::sign_out))
        .route("/do/zone", post(actions::zone))
        .route("/style.css", get(routes::style))
        .route("/page.js", get(routes::script));
    if site.page.watched.jobs {
        router = router.route("/jobs", get(routes::show)).route("/job", get(routes::show));
    }
    for verb in Verb::ALL.into_iter().filter(|verb| site.page.watched.jobs || !verb.is_of_jobs()) {
        let action: MethodRouter<Arc<Site>> =
            post(move |state: State<Arc<Site>>, request: Request| act(verb, state, request));
        router = router.route(&format!("/do/{}", verb.name()), action);
    }
    let with_access = middleware::from_fn_with_state(Arc::clone(&site), routes::with_access);
    Ok(router.layer(with_access).with_state(site))
}
