use super::{api, error::json, guard::guard, openapi, operations, page, site::Site};
use crate::exit::Failure;
use axum::{
    Router,
    http::StatusCode,
    middleware,
    routing::{MethodRouter, get},
};
use std::sync::Arc;

/// Returns the paths of the server, behind the [`guard`], and the operator's page, which has a guard of its own.
pub(super) fn router(site: &Arc<Site>) -> Result<Router, Failure> {
    let described = operations::all(site.has_jobs, MethodRouter::new());
    let document = openapi::document(&described).to_string();
    let description = get(async move || json(StatusCode::OK, document.clone()));
    let api = operations::all(site.has_jobs, description)
        .into_iter()
        .fold(Router::new(), |router, operation| router.route(&operation.path, operation.route))
        .fallback(api::unknown_path)
        .method_not_allowed_fallback(api::unknown_method)
        .layer(middleware::from_fn_with_state(Arc::clone(site), guard))
        .with_state(Arc::clone(site));
    Ok(api.merge(page::router(site)?))
}
