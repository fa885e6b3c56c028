//! The pages, as pure functions of a snapshot, the time, and the viewer.

mod forms;
mod job;
mod jobs;
mod layout;
mod leadership;
mod leases;
mod messages;
mod nodes;
mod overview;
mod parts;
mod sign_in;
mod time_line;

pub(crate) use layout::{Notice, page};
pub(crate) use sign_in::sign_in;

use crate::time::{self, Zone, element};
use maud::{Markup, html};
use quorate::env::WallTime;
use quorate_operator::state::{Detail, Snapshot};
use quorate_operator::view::{Pause, name as name_of};
use url::form_urlencoded;

/// A page, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum View {
    Overview,
    Nodes,
    Jobs(JobsQuery),
    Job { name: String, at: Option<String> },
    Leadership,
    Messages { set: Option<String> },
}

/// The filter and the page of the list of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobsQuery {
    pub(crate) show: Show,
    /// Text that the names must contain.
    pub(crate) find: String,
    /// The number of the page, from 0.
    pub(crate) page: usize,
}

/// The jobs that a list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Show {
    #[default]
    All,
    Trouble,
    Running,
    Paused,
    ByNextRun,
}

/// The viewer of a page.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: WallTime,
    pub(crate) zone: &'a Zone,
    /// The path under which the pages are mounted; empty at the root.
    pub(crate) base: &'a str,
    /// The path and query of this page, without `base`.
    pub(crate) here: &'a str,
    /// True if the viewer may change jobs and the leadership.
    pub(crate) operate: bool,
    /// True if the viewer has signed in with a token.
    pub(crate) signed_in: bool,
    /// True if there is a token with which the viewer could sign in.
    pub(crate) can_sign_in: bool,
    /// The token that each form carries.
    pub(crate) form_token: &'a str,
    pub(crate) notice: Option<&'a Notice>,
    pub(crate) sets: &'a [String],
}

impl View {
    /// Reads the path and the parameters of a page; `None` if there is no such page.
    pub(crate) fn parse(path: &str, query: &str) -> Option<Self> {
        let get = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
        };
        let text = |name| get(name).map(|value| name_of(&value)).filter(|value| !value.is_empty());
        Some(match path {
            "/" => Self::Overview,
            "/nodes" => Self::Nodes,
            "/jobs" => Self::Jobs(JobsQuery {
                show: Show::named(get("show").as_deref().unwrap_or_default()),
                find: name_of(&get("find").unwrap_or_default()),
                page: get("page").and_then(|page| page.parse::<usize>().ok()).unwrap_or(1).saturating_sub(1),
            }),
            "/job" => Self::Job { name: get("name").unwrap_or_default(), at: text("at") },
            "/leadership" => Self::Leadership,
            "/messages" => Self::Messages { set: text("set") },
            _ => return None,
        })
    }

    const fn path(&self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Nodes => "/nodes",
            Self::Jobs(_) | Self::Job { .. } => "/jobs",
            Self::Leadership => "/leadership",
            Self::Messages { .. } => "/messages",
        }
    }
}

impl Show {
    const ALL: [Self; 5] = [Self::All, Self::Trouble, Self::Running, Self::Paused, Self::ByNextRun];

    const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Trouble => "trouble",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::ByNextRun => "next",
        }
    }

    fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|show| show.name() == name).unwrap_or_default()
    }
}

impl Context<'_> {
    /// Returns the address of a path of these pages.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn job_link(&self, name: &str) -> String {
        let query: String =
            form_urlencoded::Serializer::new(String::new()).append_pair("name", name).finish();
        self.link(&format!("/job?{query}"))
    }

    /// Shows how long ago a time is, and then the time.
    fn ago(&self, at: WallTime) -> Markup {
        html! { (element(at, &time::ago(at, self.now))) " " span.soft { (self.zone.short(at, self.now)) } }
    }

    /// Shows how soon a time is, and then the time.
    fn until(&self, at: WallTime) -> Markup {
        html! { (element(at, &time::until(at, self.now))) span.soft.wide-only { " " (self.zone.short(at, self.now)) } }
    }

    /// Says who stopped the jobs, since when, until when, and why.
    fn pause(&self, paused: &Pause) -> Markup {
        html! {
            "by " (paused.by) " since " (self.at(paused.at))
            @if let Some(until) = paused.until { " until " (self.at(until)) }
            @if let Some(reason) = &paused.reason { ": “" (reason) "”" }
        }
    }

    /// Shows a time.
    fn at(&self, at: WallTime) -> Markup {
        element(at, &self.zone.short(at, self.now))
    }
}

/// Returns the title and the contents of a page.
fn contents(
    view: &View,
    state: &Snapshot,
    detail: Option<&Detail>,
    context: &Context<'_>,
) -> (String, Markup) {
    match (view, detail) {
        (View::Overview, _) => overview::overview(state, context),
        (View::Nodes, _) => nodes::nodes(state, context),
        (View::Jobs(query), _) => jobs::jobs(query, state, context),
        (View::Job { name, at }, Some(Detail::Job(detail))) => {
            job::job(name, at.as_deref(), detail.as_deref(), state, context)
        }
        (View::Leadership, Some(Detail::LeadershipPast(past))) => {
            leadership::leadership(state, Some(past.as_ref()), context)
        }
        (View::Leadership, _) => leadership::leadership(state, None, context),
        (View::Messages { set }, Some(Detail::Messages(list))) => {
            messages::messages(set.as_deref(), Some(list.as_ref()), state, context)
        }
        (View::Messages { set }, _) => messages::messages(set.as_deref(), None, state, context),
        (View::Job { name, .. }, _) => job::unread(name, context),
    }
}

/// Returns the key by which the script of the page knows a row again.
fn row_key(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

/// Returns a command that one click selects.
fn command(text: &str) -> Markup {
    html! { code.cmd { (text) } }
}

#[cfg(test)]
mod tests;
