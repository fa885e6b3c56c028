//! The operator's page: the router of `quorate-web` for this daemon, its guard, and the facts that it shows.

use super::{guard, leases::views, site::Site};
use crate::{claims, config::Config, connect, doctor, exit::Failure, leases::Leases};
use axum::{Router, middleware};
use quorate::{internals::Marker, quorum::Quorum};
use quorate_operator::view::ClientLease;
use quorate_web::{Examination, Messages, NodeFacts, NodeSource, Page, SourceFuture};
use std::{fmt, sync::Arc};

/// Returns the paths of the page, behind a guard of their own.
pub(super) fn router(site: &Arc<Site>) -> Result<Router, Failure> {
    let leases = site.leases.clone();
    let facts = Facts { quorum: site.quorum.clone(), config: site.config.clone(), leases };
    let mut page = Page::new(&site.election).ttl(site.config.lease.ttl).source(facts);
    if !site.has_jobs {
        page = page.without_jobs();
    }
    if site.tokens.protects_reads() {
        page = page.closed();
    }
    if site.tokens.protects_reads() || site.tokens.can_operate() {
        let tokens = Arc::clone(site);
        page = page.check_token(move |token| tokens.tokens.access_of_token(token).on_page());
    }
    let router = quorate_web::router(page)
        .map_err(|error| Failure::new(crate::exit::CONFIG, format!("group: {error}")))?;
    Ok(router.layer(middleware::from_fn_with_state(Arc::clone(site), guard::page_guard)))
}

/// Reads the nodes as `quorate nodes list`, `quorate doctor` and `quorate claims` do.
struct Facts {
    quorum: Quorum,
    config: Config,
    /// The leases of clients, if the daemon holds any.
    leases: Option<Arc<Leases>>,
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("nodes", &self.config.nodes.len()).finish_non_exhaustive()
    }
}

impl NodeSource for Facts {
    fn examine(&self) -> SourceFuture<'_, Examination> {
        Box::pin(self.examination())
    }

    fn messages<'a>(&'a self, set: &'a str, limit: usize) -> SourceFuture<'a, Result<Messages, String>> {
        Box::pin(async move {
            let found = claims::read(&self.quorum, &self.config, set, limit).await;
            let (list, complete, missing) = found.map_err(|failure| failure.to_string())?;
            Ok(Messages { list, complete, missing })
        })
    }

    fn client_leases(&self) -> Option<Vec<ClientLease>> {
        self.leases.as_deref().map(views)
    }
}

impl Facts {
    async fn examination(&self) -> Examination {
        let env = self.quorum.env();
        let sights = async {
            let set = connect::node_set(&self.config, &self.config.nodes, true).ok()?;
            Some(set.look(env, connect::PATIENCE).await)
        };
        let nodes = self.quorum.nodes();
        let (sights, examined) = futures_util::join!(sights, doctor::examination(env, &self.config, &nodes));
        let sights = sights.unwrap_or_default();
        let Ok((findings, memory)) = examined else { return Examination::default() };
        let facts = |at: usize| {
            let sight = sights.get(at).and_then(|sight| sight.as_ref().ok());
            let marker = sight.and_then(|sight| Marker::parse(sight.hello.marker.as_deref()?).ok());
            NodeFacts {
                remembers_since: marker.map(|marker| marker.since),
                uptime: sight.map(|sight| sight.hello.uptime),
                clock_ahead_ms: sight.map(|sight| sight.ahead_micros as f64 / 1e3),
                memory: memory.get(at).copied().flatten(),
            }
        };
        let nodes = (0..self.config.nodes.len()).map(facts).collect();
        Examination { nodes, findings }
    }
}
