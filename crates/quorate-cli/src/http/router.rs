use super::{api, guard::guard, operations, page, site::Site};
use crate::exit::Failure;
use axum::{Router, middleware};
use std::sync::Arc;

/// Returns the paths of the server, behind the [`guard`], and the operator's page, which has a guard of its own.
pub(super) fn router(site: &Arc<Site>) -> Result<Router, Failure> {
    let operations = operations::all(site.has_jobs).into_iter();
    let api = operations
        .fold(Router::new(), |router, operation| router.route(&operation.path, operation.route))
        .fallback(api::unknown_path)
        .method_not_allowed_fallback(api::unknown_method)
        .layer(middleware::from_fn_with_state(Arc::clone(site), guard))
        .with_state(Arc::clone(site));
    Ok(api.merge(page::router(site)?))
}
