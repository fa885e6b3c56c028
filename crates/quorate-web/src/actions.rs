//! The forms: sign in, sign out, the time zone, and the actions of an operator.

use crate::{
    access::Access,
    routes::with_headers,
    site::Site,
    snapshot::{name, text},
    time::Zone,
    view::{Notice, View},
    visit::{self, Visit},
};
use axum::{
    body::{self, Body},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use quorate::{
    Claims, FencingToken,
    election::ResignError,
    env::WallTime,
    ledger::{Operation, OperationLog},
    scheduler::{Accepted, Jobs, JobsError},
};
use std::{sync::Arc, time::Duration};
use url::form_urlencoded;

/// The largest form, in bytes.
const FORM_MAX: usize = 16 * 1_024;
/// The longest wait for the leader's answer.
const WAIT: Duration = Duration::from_secs(10);
/// The delay of the answer to a wrong token.
const WRONG_TOKEN: Duration = Duration::from_millis(500);

/// The fields of a form.
struct Form(Vec<(String, String)>);

impl Form {
    /// Returns a field that a person wrote, without the spaces around it.
    fn get(&self, name: &str) -> Option<&str> {
        self.untrimmed(name).map(str::trim).filter(|value| !value.is_empty())
    }

    fn untrimmed(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns a name that the nodes store. Spaces are part of it: `17` and `17 ` are two messages.
    fn stored(&self, name: &str) -> Result<&str, String> {
        let found = self.untrimmed(name).filter(|value| !value.is_empty());
        found.ok_or_else(|| format!("{name} is missing"))
    }

    /// Reads a time in the zone that the form was made for.
    fn time(&self, field: &str) -> Result<Option<WallTime>, String> {
        let Some(given) = self.get(field) else { return Ok(None) };
        let zone = visit::zone(self.get("in-zone"));
        match zone.parse(given) {
            Some(at) => Ok(Some(at)),
            None => Err(format!("{field} {:?} is not a time; write it like 2026-11-21T03:00", name(given))),
        }
    }

    fn required_time(&self, field: &str) -> Result<WallTime, String> {
        self.time(field)?.ok_or_else(|| format!("{field} is missing; write it like 2026-11-21T03:00"))
    }

    fn required(&self, field: &str) -> Result<&str, String> {
        self.get(field).ok_or_else(|| format!("{field} is missing"))
    }
}

/// A form that was accepted.
struct Post {
    visit: Visit,
    form: Form,
}

pub(crate) async fn sign_in(State(site): State<Arc<Site>>, request: Request) -> Response {
    let post = match accept(&site, request).await {
        Ok(post) => post,
        Err(response) => return *response,
    };
    let visit = &post.visit;
    // The permit limits how fast tokens can be tried. The semaphore is never closed.
    let _permit = site.sign_ins.acquire().await.ok();
    let Some(access) = post.form.get("token").and_then(|token| site.check(token)) else {
        site.env().sleep(WRONG_TOKEN).await;
        tracing::warn!(requester = visit.requester, "a sign-in with a wrong token was refused");
        let text = "This token is not valid here.".to_owned();
        site.browsers.leave_notice(&visit.browser, Notice { is_bad: true, text });
        return redirect(visit, "/sign-in");
    };
    tracing::info!(requester = visit.requester, ?access, "signed in");
    let browser = site.browsers.sign_in(access, site.env());
    let mut response = redirect(visit, "/");
    add_cookie(&mut response, visit.browser_cookie(&browser));
    response
}

pub(crate) async fn sign_out(State(site): State<Arc<Site>>, request: Request) -> Response {
    match accept(&site, request).await {
        Err(response) => *response,
        Ok(Post { visit, .. }) => {
            site.browsers.sign_out(&visit.browser);
            redirect(&visit, "/")
        }
    }
}

pub(crate) async fn zone(State(site): State<Arc<Site>>, request: Request) -> Response {
    match accept(&site, request).await {
        Err(response) => *response,
        Ok(Post { visit, form }) => {
            let mut response = redirect(&visit, back(&form));
            let zone = form.get("zone").and_then(Zone::named);
            add_cookie(&mut response, zone.and_then(|zone| visit.zone_cookie(&zone)));
            response
        }
    }
}

/// An action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Trigger,
    Pause,
    Resume,
    Freeze,
    Unfreeze,
    Backfill,
    Cancel,
    Resign,
    Reset,
}

pub(crate) async fn act(action: Action, State(site): State<Arc<Site>>, request: Request) -> Response {
    let Post { visit, form } = match accept(&site, request).await {
        Ok(post) => post,
        Err(response) => return *response,
    };
    if !visit.can(Access::Operate) {
        return refuse(StatusCode::FORBIDDEN, "you may not operate; sign in with the operate token");
    }
    let result = carry_out(action, &site, &visit, &form).await;
    let notice = match result {
        Ok(text) => Notice { is_bad: false, text },
        Err(text) => Notice { is_bad: true, text },
    };
    site.browsers.leave_notice(&visit.browser, notice);
    redirect(&visit, back(&form))
}

/// Carries out an action. Returns what it did, or the reason why it did nothing.
async fn carry_out(action: Action, site: &Site, visit: &Visit, form: &Form) -> Result<String, String> {
    match action {
        Action::Resign => resign(site, visit, form).await,
        Action::Reset => reset(site, visit, form).await,
        _ => {
            let group = site.page.election.group();
            let jobs = Jobs::new(site.quorum(), group).map_err(|error| error.to_string())?;
            let jobs = jobs.requester(&visit.requester).wait(WAIT);
            let (target, answer) = match action {
                Action::Freeze => {
                    let (reason, until) = (form.required("reason")?, form.required_time("until")?);
                    (&**group, jobs.freeze(reason, until).await)
                }
                Action::Unfreeze => (&**group, jobs.unfreeze().await),
                _ => {
                    let job = form.stored("job")?;
                    (job, ask(action, &jobs, job, form).await?)
                }
            };
            match answer {
                Ok(accepted) => {
                    Ok(format!("{}: {} (request {})", name(target), text(&accepted.text), accepted.id))
                }
                Err(error) => Err(format!("{}: {}", name(target), text(&error.to_string()))),
            }
        }
    }
}

async fn ask(
    action: Action,
    jobs: &Jobs,
    job: &str,
    form: &Form,
) -> Result<Result<Accepted, JobsError>, String> {
    if let Err(error) = jobs.check_exists(job).await {
        return Ok(Err(error));
    }
    Ok(match action {
        Action::Pause => jobs.pause_until(job, form.get("reason"), form.time("until")?).await,
        Action::Resume => jobs.resume(job).await,
        Action::Cancel => jobs.cancel(job, None).await,
        Action::Backfill => {
            let (from, until) = (form.required_time("from")?, form.required_time("until")?);
            if from >= until {
                return Err(
                    "until is not later than from; the span includes from and excludes until".to_owned()
                );
            }
            jobs.backfill(job, from, until).await
        }
        _ => jobs.trigger(job).await,
    })
}

async fn resign(site: &Site, visit: &Visit, form: &Form) -> Result<String, String> {
    let term = match form.get("term") {
        Some(term) => {
            Some(FencingToken::new(term.parse().map_err(|_| "the term is not a number".to_owned())?))
        }
        None => None,
    };
    tracing::info!(requester = visit.requester, "asked on the page to make the leader resign");
    let mut observer = site.page.election.observe().map_err(|error| error.to_string())?;
    let result = observer.ask_to_resign(term, WAIT).await;
    let done = match &result {
        Ok((leader, _)) => Some(Ok(format!("{} resigned", name(&leader.worker)))),
        Err(error @ ResignError::LeadsOn { .. }) => Some(Err(text(&error.to_string()))),
        Err(_) => None,
    };
    if let Some(done) = done {
        let group = site.page.election.group();
        note(site, visit, "resign", &format!("election/{group}"), Some(group), &done).await;
    }
    match result {
        Ok((leader, Some(next))) => {
            Ok(format!("{} has resigned; {} leads now.", name(&leader.worker), name(&next.worker)))
        }
        Ok((leader, None)) => {
            Ok(format!("{} has resigned; there is no new leader yet.", name(&leader.worker)))
        }
        Err(error) => Err(text(&error.to_string())),
    }
}

async fn reset(site: &Site, visit: &Visit, form: &Form) -> Result<String, String> {
    let (set, id) = (form.stored("set")?, form.stored("id")?);
    let shown = name(&format!("{set}/{id}"));
    tracing::info!(requester = visit.requester, message = shown, "asked on the page to reset a message");
    let result = Claims::new(site.quorum(), set).reset(id).await;
    let done = match &result {
        Ok(()) => Ok("counts as new".to_owned()),
        Err(error) => Err(text(&error.to_string())),
    };
    note(site, visit, "claims-reset", &format!("claim/{set}/{id}"), None, &done).await;
    match result {
        Ok(()) => Ok(format!("{shown} was reset; a worker may claim it again, from attempt 1.")),
        Err(error) => Err(format!("{shown} was not reset: {}", text(&error.to_string()))),
    }
}

/// Adds an entry to the list of operations. If too few nodes store it, only the log says so: the operation itself is
/// done.
async fn note(
    site: &Site,
    visit: &Visit,
    action: &str,
    target: &str,
    group: Option<&Arc<str>>,
    result: &Result<String, String>,
) {
    let operation = Operation {
        at: site.quorum().wall(),
        by: visit.requester.as_str().into(),
        action: action.into(),
        target: target.into(),
        group: group.map(Arc::clone),
        reason: None,
        done: result.is_ok(),
        result: result.as_ref().unwrap_or_else(|error| error).as_str().into(),
    };
    if let Err(error) = OperationLog::new(site.quorum()).add(&operation).await {
        tracing::warn!(action, "the audit list lacks this operation: {error}");
    }
}

/// Reads a form. It must come from a page that this router made for this browser.
async fn accept(site: &Site, request: Request) -> Result<Post, Box<Response>> {
    let (parts, body) = request.into_parts();
    let refused = |status, text: &str| Err(Box::new(refuse(status, text)));
    if !visit::is_same_origin(&parts.headers) {
        return refused(StatusCode::FORBIDDEN, "the page of another origin may not send this form");
    }
    let Some(form) = read(&parts.headers, body).await else {
        return refused(
            StatusCode::BAD_REQUEST,
            "this is not a form of these pages, or it is longer than 16 KiB",
        );
    };
    let visit = Visit::of(site, &parts);
    let token = form.get("form").unwrap_or_default();
    if visit.is_new || !site.browsers.is_form_token(&visit.browser, token) {
        let text =
            "the form is out of date, or your browser keeps no cookies; load the page again and repeat it";
        return refused(StatusCode::FORBIDDEN, text);
    }
    Ok(Post { visit, form })
}

async fn read(headers: &HeaderMap, body: Body) -> Option<Form> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return None;
    }
    let body = body::to_bytes(body, FORM_MAX).await.ok()?;
    let pairs = form_urlencoded::parse(&body).map(|(name, value)| (name.into_owned(), value.into_owned()));
    Some(Form(pairs.collect()))
}

/// Returns the page from which the form came.
fn back(form: &Form) -> &str {
    let back = form.get("back").unwrap_or("/");
    let (path, query) = back.split_once('?').unwrap_or((back, ""));
    let is_page = View::parse(path, query).is_some() && !back.contains(['\\', '\r', '\n', '#']);
    if is_page { back } else { "/" }
}

fn redirect(visit: &Visit, path: &str) -> Response {
    let mut response = with_headers(Response::new(Body::empty()));
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(&format!("{}{path}", visit.base));
    response.headers_mut().insert(header::LOCATION, to.unwrap_or(HeaderValue::from_static("/")));
    response
}

fn refuse(status: StatusCode, text: &str) -> Response {
    let mut response = with_headers(Response::new(Body::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn add_cookie(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&str, &str)]) -> Form {
        Form(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_form_leads_back_to_a_page_of_this_router_only() {
        for page in ["/", "/job?name=a%2Fb", "/jobs?show=paused"] {
            assert_eq!(back(&form(&[("back", page)])), page);
        }
        for other in ["//evil.example", "https://evil.example", "/\\evil", "/unknown", "", "/jobs\r\nx: y"] {
            assert_eq!(back(&form(&[("back", other)])), "/", "{other}");
        }
    }

    #[test]
    fn times_are_read_in_the_zone_of_the_form() {
        let times = form(&[("from", "2026-11-22T03:12"), ("until", "soon"), ("in-zone", "Europe/Berlin")]);
        assert_eq!(times.time("from"), Ok(Some(WallTime::from_micros(1_795_313_520_000_000))));
        assert!(times.time("until").is_err_and(|error| error.contains("\"soon\" is not a time")));
        assert_eq!(times.time("reason"), Ok(None));
        assert!(times.required_time("reason").is_err_and(|error| error.contains("is missing")));
    }

    #[test]
    fn spaces_belong_to_a_stored_name_and_not_to_what_a_person_wrote() {
        let form = form(&[("id", "17 "), ("reason", " disk full "), ("job", ""), ("set", " ")]);
        assert_eq!((form.stored("id"), form.required("reason")), (Ok("17 "), Ok("disk full")));
        assert_eq!(form.stored("set"), Ok(" "));
        assert!(form.stored("job").is_err_and(|error| error == "job is missing"));
        assert!(form.required("set").is_err());
    }
}
