use super::{api, guard::guard, health, operate, page, site::Site};
use crate::exit::Failure;
use axum::{Router, middleware, routing::get};
use quorate_operator::Verb;
use std::sync::Arc;

/// Returns the paths of the server, behind the [`guard`], and the operator's page, which has a guard of its own.
pub(super) fn router(site: &Arc<Site>) -> Result<Router, Failure> {
    let mut router = Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/leader", get(health::leader))
        .route("/metrics", get(api::metrics))
        .route("/api/v1/openapi.json", get(api::description))
        .route("/api/v1/status", get(api::show_status))
        .route("/api/v1/nodes", get(api::list_nodes))
        .route("/api/v1/election/resign", operate::action(Verb::Resign))
        .route("/api/v1/leader/history", get(operate::leader_history))
        .route("/api/v1/audit", get(operate::audit))
        .route("/api/v1/locks", get(operate::list_locks))
        .route("/api/v1/claims/{set}", get(operate::list_claims))
        .route("/api/v1/claims/{set}/dead-letters", get(operate::dead_letters))
        .route("/api/v1/claims/{set}/messages/{id}", get(operate::show_message))
        .route("/api/v1/claims/{set}/messages/{id}/reset", operate::action(Verb::Reset));
    if site.has_jobs {
        router = router
            .route("/api/v1/jobs", get(api::list_jobs))
            .route("/api/v1/jobs/{job}", get(api::show_job))
            .route("/api/v1/jobs/{job}/history", get(api::history))
            .route("/api/v1/jobs/{job}/next", get(api::next))
            .route("/api/v1/jobs/{job}/why", get(api::why))
            .route("/api/v1/freeze", operate::action(Verb::Freeze))
            .route("/api/v1/unfreeze", operate::action(Verb::Unfreeze));
        for verb in [Verb::Trigger, Verb::Pause, Verb::Resume, Verb::Cancel, Verb::Backfill] {
            router = router.route(&format!("/api/v1/jobs/{{job}}/{}", verb.name()), operate::action(verb));
        }
    }
    let api = router
        .fallback(api::unknown_path)
        .method_not_allowed_fallback(api::unknown_method)
        .layer(middleware::from_fn_with_state(Arc::clone(site), guard))
        .with_state(Arc::clone(site));
    Ok(api.merge(page::router(site)?))
}
