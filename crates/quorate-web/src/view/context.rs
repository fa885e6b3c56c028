//! The page that is shown, and its viewer.

use crate::time::{self, Zone, element};
use maud::{Markup, html};
use quorate::env::WallTime;
use quorate_operator::view::{Pause, name as name_of};
use url::form_urlencoded;

/// The result of an action, shown once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) is_bad: bool,
    pub(crate) text: String,
}

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

    pub(super) const fn path(&self) -> &'static str {
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
    pub(super) const ALL: [Self; 5] =
        [Self::All, Self::Trouble, Self::Running, Self::Paused, Self::ByNextRun];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Trouble => "trouble",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::ByNextRun => "next",
        }
    }

    pub(super) fn named(name: &str) -> Self {
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
    pub(super) fn ago(&self, at: WallTime) -> Markup {
        html! { (element(at, &time::ago(at, self.now))) " " span.soft { (self.zone.short(at, self.now)) } }
    }

    /// Shows how soon a time is, and then the time.
    pub(super) fn until(&self, at: WallTime) -> Markup {
        html! { (element(at, &time::until(at, self.now))) span.soft.wide-only { " " (self.zone.short(at, self.now)) } }
    }

    /// Says who stopped the jobs, since when, until when, and why.
    pub(super) fn pause(&self, paused: &Pause) -> Markup {
        html! {
            "by " (paused.by) " since " (self.at(paused.at))
            @if let Some(until) = paused.until { " until " (self.at(until)) }
            @if let Some(reason) = &paused.reason { ": “" (reason) "”" }
        }
    }

    /// Shows a time.
    pub(super) fn at(&self, at: WallTime) -> Markup {
        element(at, &self.zone.short(at, self.now))
    }
}

/// Returns the key by which the script of the page knows a row again.
pub(super) fn row_key(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

/// Returns a command that one click selects.
pub(super) fn command(text: &str) -> Markup {
    html! { code.cmd { (text) } }
}
