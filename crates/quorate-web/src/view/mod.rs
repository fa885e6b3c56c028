//! The pages, as pure functions of a snapshot, the time, and the viewer.

mod context;
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
#[cfg(test)]
mod tests;
mod time_line;

pub(crate) use context::{Context, Notice, View};
pub(crate) use sign_in::sign_in;

use maud::Markup;
use quorate_operator::state::{Detail, Snapshot};

/// Returns a whole page.
pub(crate) fn page(view: &View, state: &Snapshot, detail: Option<&Detail>, context: &Context<'_>) -> String {
    let (title, main) = contents(view, state, detail, context);
    let header = layout::header(view, state, context);
    layout::document(&title, Some(&state.group), &header, &main, &layout::footer(state, context), context)
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
            job::job(name, at.as_deref(), detail.as_deref(), context)
        }
        (View::Leadership, Some(Detail::LeadershipPast(past))) => {
            leadership::leadership(state, Some(past.as_ref()), context)
        }
        (View::Leadership, _) => leadership::leadership(state, None, context),
        (View::Messages { set }, Some(Detail::Messages(list))) => {
            messages::messages(set.as_deref(), Some(list.as_ref()), context)
        }
        (View::Messages { set }, _) => messages::messages(set.as_deref(), None, context),
        (View::Job { name, .. }, _) => job::unread(name, context),
    }
}
