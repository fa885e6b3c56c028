use super::{
    api,
    error::json,
    guard::{guard, readers},
    openapi, operations, page,
    site::Site,
};
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
    Ok(api_router(site).merge(page::router(site)?))
}

/// Returns the paths of the server without the page.
pub(super) fn api_router(site: &Arc<Site>) -> Router {
    let has_clients = site.leases.is_some();
    let described = operations::all(site.has_jobs, has_clients, MethodRouter::new());
    let document = openapi::document(&described).to_string();
    let description = get(async move || json(StatusCode::OK, document.clone()));
    operations::all(site.has_jobs, has_clients, description)
        .into_iter()
        .fold(Router::new(), |router, operation| {
            let route = match operation.is_for_clients {
                true => operation.route,
                false => operation.route.layer(middleware::from_fn(readers)),
            };
            router.route(&operation.path, route)
        })
        .fallback(api::unknown_path)
        .method_not_allowed_fallback(api::unknown_method)
        .layer(middleware::from_fn_with_state(Arc::clone(site), guard))
        .with_state(Arc::clone(site))
}
