//! Sends a page to its viewer again whenever it has changed, as server-sent events.

use crate::{
    access::Access,
    routes::{detail, key, view_of, with_headers},
    site::Site,
    time::Zone,
    view::{self, View},
    visit::Visit,
    watch::OpenView,
};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use quorate::env::BootTime;
use quorate_operator::{
    state::{Leadership, Round, Snapshot},
    view::LeaderView,
};
use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, watch};
use url::form_urlencoded;

/// The longest time of a stream. The browser opens another one then.
const STREAM: Duration = Duration::from_secs(45);
/// The time after which a page is sent again although only times in it have changed.
const REFRESH: Duration = Duration::from_secs(2);
/// The time after which a sign of life is sent, if there is nothing else.
const BEAT: Duration = Duration::from_secs(1);
/// The time after which a browser opens a stream that has ended again, in milliseconds.
const RETRY_MS: u32 = 300;

/// The stream of one viewer.
struct Stream {
    site: Arc<Site>,
    visit: Visit,
    view: View,
    here: String,
    form_token: String,
    /// The nodes are read while it exists.
    _open: OpenView,
    rounds: watch::Receiver<Option<Arc<Round>>>,
    ends: BootTime,
    /// The fingerprint of the page that was sent last, and the time.
    sent: Option<(u64, BootTime)>,
    has_begun: bool,
    _permit: OwnedSemaphorePermit,
}

/// Sends the page that the parameter `here` names.
pub(crate) async fn events(State(site): State<Arc<Site>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let visit = Visit::of(&site, &parts);
    if !visit.can(Access::Read) {
        return with_headers(StatusCode::FORBIDDEN.into_response());
    }
    let query = parts.uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let here = pairs.find(|(name, _)| name == "here").and_then(|(_, here)| here.parse().ok());
    let Some((view, here)) = here.and_then(|here| view_of(&here)) else {
        return with_headers(StatusCode::NOT_FOUND.into_response());
    };
    let Ok(permit) = Arc::clone(&site.streams).try_acquire_owned() else {
        return with_headers(StatusCode::SERVICE_UNAVAILABLE.into_response());
    };
    let looking = site.watch.look(key(&view));
    let stream = Stream {
        form_token: site.browsers.form_token(&visit.browser),
        rounds: looking.rounds(),
        ends: site.env().now() + STREAM,
        sent: None,
        has_begun: false,
        _permit: permit,
        site,
        visit,
        view,
        here,
        _open: looking,
    };
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy must pass each event on at once.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    with_headers(response)
}

impl Stream {
    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(format!("retry: {RETRY_MS}\n\n"));
        }
        let env = self.site.env().clone();
        let now = env.now();
        let has_left = self.visit.signed_in && self.site.browsers.access(&self.visit.browser, now).is_none();
        if now >= self.ends || has_left {
            return None;
        }
        match env.before((now + BEAT).min(self.ends), self.rounds.changed()).await {
            None => return Some(":\n\n".to_owned()),
            Some(Err(_)) => return None,
            Some(Ok(())) => {}
        }
        let round = self.rounds.borrow_and_update().clone()?;
        Some(self.event(&round))
    }

    /// Returns the whole page if it has changed, otherwise only what always changes.
    fn event(&mut self, round: &Round) -> String {
        let now = self.site.env().now();
        let fingerprint = self.fingerprint(round);
        let is_due = self.sent.is_none_or(|(sent, at)| sent != fingerprint || at.until(now) >= REFRESH);
        if !is_due {
            return event("tick", &tick(&round.state, &self.visit.zone));
        }
        self.sent = Some((fingerprint, now));
        let (wall, token) = (self.site.env().wall(), &self.form_token);
        let context = self.visit.context(&self.site, wall, &self.here, token, None);
        event("page", &view::page(&self.view, &round.state, detail(round, &self.view), &context))
    }

    /// Returns a hash of the page without the values that change in each round.
    fn fingerprint(&self, round: &Round) -> u64 {
        let mut still = round.state.clone();
        let token = &self.form_token;
        let always = quorate::env::WallTime::from_micros(0);
        still.at = always;
        if let Leadership::Leader { leader, .. } = &mut still.leadership {
            leader.remaining = None;
        }
        for node in &mut still.nodes {
            node.trips.clear();
            (node.node.round_trip, node.node.round_trip_p99) = (None, None);
        }
        let context = self.visit.context(&self.site, always, &self.here, token, None);
        let page = view::page(&self.view, &still, detail(round, &self.view), &context);
        let mut hasher = DefaultHasher::new();
        page.hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the time of the state, and the part of the lease that is left, in percent.
fn tick(state: &Snapshot, zone: &Zone) -> String {
    let left = match (&state.leadership, state.ttl) {
        (Leadership::Leader { leader: LeaderView { remaining: Some(left), .. }, .. }, Some(ttl))
            if !ttl.is_zero() =>
        {
            format!("{:.1}", (left.as_secs_f64() / ttl.as_secs_f64() * 100.0).clamp(0.0, 100.0))
        }
        _ => String::new(),
    };
    format!("{} {left}", zone.short(state.at, state.at))
}

fn event(name: &str, data: &str) -> String {
    let mut text = format!("event: {name}\n");
    for line in data.split(['\n', '\r']) {
        text += "data: ";
        text += line;
        text.push('\n');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_operator::testing;

    #[test]
    fn each_line_of_an_event_is_data() {
        assert_eq!(
            event("page", "a\nevent: b\r\n"),
            "event: page\ndata: a\ndata: event: b\ndata: \ndata: \n\n"
        );
    }

    #[test]
    fn a_tick_has_the_time_and_the_rest_of_the_lease() {
        let mut state = testing::state(3);
        assert_eq!(tick(&state, &Zone::utc()), "02:12:40 79.0");
        state.ttl = None;
        assert_eq!(tick(&state, &Zone::utc()), "02:12:40 ");
    }
}
