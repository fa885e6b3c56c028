use quorate::node::{Refusal, Reply, Request};
use std::{
    fmt,
    mem::{Discriminant, discriminant},
};

/// The requests that servers have run, counted by the kind of the request and the kind of its reply.
#[derive(Debug, Default)]
pub(super) struct Exchanges(Vec<(Kinds, String, u64)>);

/// The kinds of a request and of its reply, and the reason of a refusal.
type Kinds = (Discriminant<Request>, Discriminant<Reply>, Option<Discriminant<Refusal>>);

impl Exchanges {
    pub(super) fn count(&mut self, request: &Request, reply: &Reply) {
        let refusal = match reply {
            Reply::Refused(why) | Reply::MayHold(why) => Some(discriminant(why)),
            _ => None,
        };
        let kinds = (discriminant(request), discriminant(reply), refusal);
        match self.0.iter_mut().find(|(known, ..)| *known == kinds) {
            Some((.., count)) => *count += 1,
            None => self.0.push((kinds, outcome(request, reply), 1)),
        }
    }

    /// Returns the names of the kinds, each with its count, in the order of their first exchange.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(_, name, count)| (name.as_str(), *count))
    }
}

/// Returns the kind of a request and the kind of its reply, as one text. For a refusal, the text ends with
/// the reason.
fn outcome(request: &Request, reply: &Reply) -> String {
    let mut text = Name::of(request);
    text.push(' ');
    text += &Name::of(reply);
    if let Reply::Refused(why) | Reply::MayHold(why) = reply {
        text.push(' ');
        text += &Name::of(why);
    }
    text
}

/// The name of an enum's variant: the beginning of its debug text, up to the first delimiter.
struct Name(String);

impl Name {
    fn of(variant: &dyn fmt::Debug) -> String {
        let mut name = Self(String::new());
        // `Name` returns an error to stop the formatting at the first delimiter. An error therefore means
        // that the name is complete.
        let _ = fmt::write(&mut name, format_args!("{variant:?}"));
        name.0
    }
}

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let name = text.split([' ', '(', '{']).next().unwrap_or_default();
        self.0 += &name.to_lowercase();
        if name.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Returns `true` if the request may have changed a lease that the server stores.
pub(super) fn may_change_lease(request: &Request, reply: &Reply) -> bool {
    let is_refused = matches!(reply, Reply::Refused(_) | Reply::Held { .. });
    let is_on_a_ledger = matches!(
        request,
        Request::Write { .. }
            | Request::Prune { .. }
            | Request::Keep { .. }
            | Request::Read { .. }
            | Request::SealCopy { .. }
            | Request::Lead { .. }
            | Request::Work { .. }
            | Request::Mark { .. }
            | Request::Stamp { .. }
    );
    !is_refused
        && !is_on_a_ledger
        && !matches!(request, Request::Inspect { .. } | Request::ResetAttempts { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::node::{Owner, Resource};

    #[test]
    fn exchanges_are_counted_by_request_reply_and_refusal() {
        let (resource, owner) = (Resource::lock("x").unwrap(), Owner::from_node("a"));
        let release = Request::Release { resource, owner };
        let mut exchanges = Exchanges::default();
        let replies = [Reply::Released(true), Reply::Released(false), Reply::Refused(Refusal::Stale)];
        replies.iter().for_each(|reply| exchanges.count(&release, reply));
        let mut counts: Vec<_> = exchanges.counts().collect();
        counts.sort_unstable();
        assert_eq!(counts, [("release refused stale", 1), ("release released", 2)]);
    }

    #[test]
    fn only_a_request_on_a_lease_that_is_not_refused_may_change_it() {
        let (resource, owner) = (Resource::lock("x").unwrap(), Owner::from_node("a"));
        let inspect = Request::Inspect { resource: resource.clone() };
        let release = Request::Release { resource, owner: owner.clone() };
        assert!(may_change_lease(&release, &Reply::Released(true)));
        assert!(!may_change_lease(&release, &Reply::Refused(Refusal::Stale)));
        assert!(!may_change_lease(&release, &Reply::Held { owner, remaining: None }));
        assert!(!may_change_lease(&inspect, &Reply::Released(true)));
    }
}
