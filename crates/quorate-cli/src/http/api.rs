//! The API: the JSON of the commands, from the daemon's own quorum.

use super::{
    error::{HttpError, json},
    params::Params,
    site::Site,
};
use crate::{
    exit::Failure,
    jobs::{self, Query, Upcoming},
    nodes, status as status_page,
};
use axum::{
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use std::sync::Arc;

pub(super) type Answer = Result<Response, HttpError>;
/// The name of a job in the path.
type JobName = Result<Path<String>, PathRejection>;

/// The largest number of history entries in an answer, and of ticks.
const ENTRIES_MAX: u32 = 10_000;
/// The largest number of resources in a request. Each resource costs a request to the nodes.
const RESOURCES_MAX: usize = 16;

/// The measurements, in the text format of Prometheus.
pub(super) async fn metrics(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    Params::of_query(query.as_deref(), &[], None)?;
    let mut response = site.exporter.render().await.into_response();
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    Ok(response)
}

pub(super) async fn show_status(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    let names = Params::of_query(query.as_deref(), &["resource"], Some("resource"))?.all("resource");
    if names.len() > RESOURCES_MAX {
        let text = format!("{} resources; ask for at most {RESOURCES_MAX} at once", names.len());
        return Err(HttpError::bad_request(text));
    }
    let asks = !names.is_empty();
    asking(&site, async || status_page::json(&site.quorum, &site.config, &names).await, asks).await
}

pub(super) async fn list_nodes(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    Params::of_query(query.as_deref(), &[], None)?;
    asking(&site, async || nodes::json(&site.quorum, &site.config).await, true).await
}

pub(super) async fn list_jobs(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    Params::of_query(query.as_deref(), &[], None)?;
    query_jobs(&site, &Query::List).await
}

pub(super) async fn show_job(
    State(site): State<Arc<Site>>,
    name: JobName,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::of_query(query.as_deref(), &[], None)?;
    query_jobs(&site, &Query::Show(&job(name)?)).await
}

pub(super) async fn history(
    State(site): State<Arc<Site>>,
    name: JobName,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::of_query(query.as_deref(), &["limit"], None)?;
    let limit = params.number("limit", 20, 1..=ENTRIES_MAX)?;
    query_jobs(&site, &Query::History(&job(name)?, limit)).await
}

pub(super) async fn next(State(site): State<Arc<Site>>, name: JobName, RawQuery(query): RawQuery) -> Answer {
    let params = Params::of_query(query.as_deref(), &["count", "from"], None)?;
    let (count, from) = (params.number("count", 5, 1..=ENTRIES_MAX)?, params.time("from")?);
    query_jobs(&site, &Query::Next(Upcoming { job: &job(name)?, count, from })).await
}

pub(super) async fn why(State(site): State<Arc<Site>>, name: JobName, RawQuery(query): RawQuery) -> Answer {
    let params = Params::of_query(query.as_deref(), &["at"], None)?;
    query_jobs(&site, &Query::Why(&job(name)?, params.time("at")?)).await
}

/// Answers a path that does not exist.
pub(super) async fn unknown_path(State(site): State<Arc<Site>>, uri: axum::http::Uri) -> HttpError {
    let path = quorate::plain::plain(uri.path(), 200);
    let why = match path.starts_with("/api/v1/jobs") && !site.has_jobs {
        true => "this process runs no jobs; ask a `quorate run` of the group",
        false => "GET /api/v1/openapi.json lists all paths",
    };
    HttpError::new(StatusCode::NOT_FOUND, format!("there is no path {path:?}; {why}"))
}

/// Answers a method that a path does not have. The header `Allow` lists the methods that the path has.
pub(super) async fn unknown_method(method: axum::http::Method, uri: axum::http::Uri) -> HttpError {
    let (method, path) = (quorate::plain::plain(method.as_str(), 40), quorate::plain::plain(uri.path(), 200));
    let text = format!("{path:?} has no method {method}; the header Allow lists its methods");
    HttpError::new(StatusCode::METHOD_NOT_ALLOWED, text)
}

fn job(name: JobName) -> Result<String, HttpError> {
    name.map(|Path(name)| name).map_err(|_| {
        HttpError::bad_request("the name of the job in the path is not UTF-8; encode its bytes like %C3%BC")
    })
}

async fn query_jobs(site: &Site, query: &Query<'_>) -> Answer {
    let jobs = site.jobs()?;
    asking(site, async || jobs::json(&jobs, query).await, true).await
}

/// Runs `ask`, and returns its document. If `asks_nodes` is true, waits for a permit first, so that only a few
/// requests query the nodes at the same time.
pub(super) async fn asking(
    site: &Site,
    ask: impl AsyncFnOnce() -> Result<String, Failure>,
    asks_nodes: bool,
) -> Answer {
    let _permit = if asks_nodes { permit(site).await } else { None };
    Ok(json(StatusCode::OK, ask().await?))
}

/// Waits for the permit to query the nodes. The guard limits the time of the whole request, and so also this
/// wait.
pub(super) async fn permit(site: &Site) -> Option<tokio::sync::SemaphorePermit<'_>> {
    // The semaphore is never closed.
    site.asking.acquire().await.ok()
}
