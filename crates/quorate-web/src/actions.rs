//! The forms: sign in, sign out, the time zone, and the actions of an operator.

use crate::{
    access::Access,
    routes::{self, with_cookie, with_headers},
    site::Site,
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
use quorate::env::WallTime;
use quorate_operator::view::text;
use quorate_operator::{Action, ActionError, Given, Operator, Verb};
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
}

/// The fields of an action, at a point in time.
struct Filled<'a> {
    form: &'a Form,
    now: WallTime,
}

impl Given for Filled<'_> {
    fn raw(&self, field: &str) -> Option<&str> {
        self.form.untrimmed(field)
    }

    fn now(&self) -> WallTime {
        self.now
    }

    /// Reads a time in the zone that the form was made for.
    fn read_time(&self, text: &str) -> Result<WallTime, String> {
        let at = visit::zone(self.form.get("in-zone")).parse(text);
        at.ok_or_else(|| "is not a time; write it like 2026-11-21T03:00".to_owned())
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
    let may = if access == Access::Operate { "operate" } else { "read" };
    tracing::info!(requester = visit.requester, may, "signed in");
    let browser = site.browsers.sign_in(access, site.env());
    with_cookie(redirect(visit, "/"), visit.browser_cookie(&browser))
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
            let zone = form.get("zone").and_then(Zone::named);
            with_cookie(redirect(&visit, back(&form)), zone.and_then(|zone| visit.zone_cookie(&zone)))
        }
    }
}

pub(crate) async fn act(verb: Verb, State(site): State<Arc<Site>>, request: Request) -> Response {
    let Post { visit, form } = match accept(&site, request).await {
        Ok(post) => post,
        Err(response) => return *response,
    };
    if !visit.can(Access::Operate) {
        return refuse(StatusCode::FORBIDDEN, "you may not operate; sign in with the operate token");
    }
    let result = carry_out(verb, &site, &visit, &form).await;
    let notice = match result {
        Ok(text) => Notice { is_bad: false, text },
        Err(text) => Notice { is_bad: true, text },
    };
    site.browsers.leave_notice(&visit.browser, notice);
    redirect(&visit, back(&form))
}

/// Carries out an action. Returns what it did, or the reason why it did nothing.
async fn carry_out(verb: Verb, site: &Site, visit: &Visit, form: &Form) -> Result<String, String> {
    let (quorum, group) = (site.quorum(), site.page.watched.election.group());
    let given = Filled { form, now: quorum.wall() };
    let action = Action::read(verb, &given).map_err(|wrong| wrong.text)?;
    let target = action.target(group);
    let failed = |error: &ActionError| format!("{target}: {}", text(&error.to_string()));
    tracing::info!(requester = visit.requester, target, "asked on the page: {}", verb.name());
    action.check(quorum, group).await.map_err(|error| failed(&error))?;
    let by = Operator::named(&visit.requester, given.text("reason"));
    let done = action.carry_out(quorum, group, &by, WAIT).await;
    if let Some(lacks) = &done.unaudited {
        tracing::warn!(action = verb.name(), "{lacks}");
    }
    done.error.as_ref().map_or_else(|| Ok(done.answer.text()), |error| Err(failed(error)))
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

fn refuse(status: StatusCode, why: &str) -> Response {
    routes::text(status, "text/plain; charset=utf-8", format!("{why}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::internals::JobAction;

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
        let now = WallTime::default();
        let span = |until: &str| {
            let times = [("job", "j"), ("from", "2026-11-22T03:12"), ("until", until)];
            let form = form(&[&times[..], &[("in-zone", "Europe/Berlin")]].concat());
            Action::read(Verb::Backfill, &Filled { form: &form, now }).map_err(|wrong| wrong.text)
        };
        let (from, until) =
            (WallTime::from_micros(1_795_313_520_000_000), WallTime::from_micros(1_795_313_580_000_000));
        let backfill = JobAction::Backfill { job: "j".into(), from, until };
        assert_eq!(span("2026-11-22T03:13"), Ok(Action::Job(backfill)));
        assert!(span("soon").is_err_and(|error| error.contains("\"soon\" is not a time")));
        assert!(span("").is_err_and(|error| error.contains("until is missing")));
    }

    #[test]
    fn spaces_belong_to_a_stored_name_and_not_to_what_a_person_wrote() {
        let form = form(&[("id", "17 "), ("reason", " disk full "), ("set", " "), ("job", "")]);
        let given = Filled { form: &form, now: WallTime::default() };
        assert_eq!((form.get("reason"), form.get("set")), (Some("disk full"), None));
        let reset = Action::Reset { set: " ".to_owned(), id: "17 ".to_owned() };
        assert_eq!(Action::read(Verb::Reset, &given), Ok(reset));
        assert!(Action::read(Verb::Trigger, &given).is_err_and(|wrong| wrong.text == "job is missing"));
    }
}
