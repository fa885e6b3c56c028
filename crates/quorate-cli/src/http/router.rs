use super::{api, guard::guard, health, site::Site};
use axum::{
    Router, middleware,
    routing::{get, post},
};
use std::sync::Arc;

/// Returns the paths of the server, behind the [`guard`].
pub(super) fn router(site: &Arc<Site>) -> Router {
    let mut router = Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/leader", get(health::leader))
        .route("/metrics", get(api::metrics))
        .route("/api/v1/openapi.json", get(api::description))
        .route("/api/v1/status", get(api::show_status))
        .route("/api/v1/nodes", get(api::list_nodes))
        .route("/api/v1/election/resign", post(api::resign));
    if site.has_jobs {
        router = router
            .route("/api/v1/jobs", get(api::list_jobs))
            .route("/api/v1/jobs/{job}", get(api::show_job))
            .route("/api/v1/jobs/{job}/history", get(api::history))
            .route("/api/v1/jobs/{job}/next", get(api::next))
            .route("/api/v1/jobs/{job}/trigger", post(api::trigger))
            .route("/api/v1/jobs/{job}/pause", post(api::pause))
            .route("/api/v1/jobs/{job}/resume", post(api::resume))
            .route("/api/v1/jobs/{job}/cancel", post(api::cancel))
            .route("/api/v1/jobs/{job}/backfill", post(api::backfill));
    }
    router
        .fallback(api::unknown_path)
        .method_not_allowed_fallback(api::unknown_method)
        .layer(middleware::from_fn_with_state(Arc::clone(site), guard))
        .with_state(Arc::clone(site))
}
