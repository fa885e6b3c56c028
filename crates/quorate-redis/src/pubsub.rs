use crate::resp::Value;
use quorate::node::{Owner, Push, ReleasedLease, Resource};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The longest owner token that is accepted, in bytes.
const OWNER_MAX: usize = 1024;

/// The channels to which a session is subscribed, and their resources. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct PubSub(Arc<Mutex<BTreeMap<String, Resource>>>);

impl PubSub {
    /// Adds a subscription, and returns how the set has changed. Returns `None` if the subscription existed.
    pub(crate) fn begin(&self, channel: &str, resource: Resource) -> Option<SubscriptionChange> {
        let mut channels = self.channels();
        let first = channels.is_empty();
        let new = channels.insert(channel.to_owned(), resource).is_none();
        new.then(|| SubscriptionChange::of(first))
    }

    /// Removes a subscription, and returns how the set has changed. Returns `None` if the subscription did not
    /// exist.
    pub(crate) fn end(&self, channel: &str) -> Option<SubscriptionChange> {
        let mut channels = self.channels();
        channels.remove(channel).map(|_| SubscriptionChange::of(channels.is_empty()))
    }

    /// Parses a push about a release. Returns `None` for any other push, and for a channel without a
    /// subscription.
    pub(crate) fn parse_release(&self, data: &[Value<'_>]) -> Option<Push> {
        let [Value::Text(b"message"), channel, message] = data else { return None };
        let resource = self.channels().get(text(channel)?)?.clone();
        let (subscribers, owner) = text(message)?.split_once(' ')?;
        if owner.is_empty() || owner.len() > OWNER_MAX {
            return None;
        }
        let freed = ReleasedLease { resource, owner: Owner::from_node(owner) };
        Some(Push::Released { lease: freed, notified: subscribers.parse().ok()? })
    }

    fn channels(&self) -> MutexGuard<'_, BTreeMap<String, Resource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of the subscriptions of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionChange {
    /// The set was empty before, or is empty now.
    FirstOrLast,
    /// Other subscriptions exist.
    OneOfSeveral,
}

impl SubscriptionChange {
    fn of(only: bool) -> Self {
        if only { Self::FirstOrLast } else { Self::OneOfSeveral }
    }
}

/// Returns whether a push confirms the change of the subscription to `channel`: its beginning if `begun` is
/// true, otherwise its end.
pub(crate) fn confirms(data: &[Value<'_>], begun: bool, channel: &str) -> bool {
    let expected = if begun { "subscribe" } else { "unsubscribe" };
    matches!(data, [kind, of, ..] if text(kind) == Some(expected) && text(of) == Some(channel))
}

fn text<'a>(value: &Value<'a>) -> Option<&'a str> {
    match value {
        Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(text: &str) -> Value<'_> {
        Value::Text(text.as_bytes())
    }

    #[test]
    fn only_pushes_of_subscribed_channels_are_parsed() {
        let pubsub = PubSub::default();
        let resource = Resource::lock("r").unwrap();
        assert_eq!(pubsub.begin("p:r:freed", resource.clone()), Some(SubscriptionChange::FirstOrLast));
        assert_eq!(pubsub.begin("p:r:freed", resource.clone()), None, "it is not new");
        assert_eq!(pubsub.begin("p:q:freed", resource.clone()), Some(SubscriptionChange::OneOfSeveral));
        assert_eq!(pubsub.end("p:q:freed"), Some(SubscriptionChange::OneOfSeveral));
        let release = pubsub.parse_release(&[s("message"), s("p:r:freed"), s("3 w o:1")]);
        let freed = ReleasedLease { resource, owner: Owner::from_node("w o:1") };
        assert_eq!(release, Some(Push::Released { lease: freed, notified: 3 }));
        let huge = format!("1 {}", "x".repeat(OWNER_MAX + 1));
        for (kind, data) in [
            ("pmessage", vec![s("p:r:freed"), s("1 w:1")]),
            ("message", vec![s("p:s:freed"), s("1 w:1")]),
            ("message", vec![s("p:r:freed")]),
            ("message", vec![s("p:r:freed"), s("1 w:1"), s("w:2")]),
            ("message", vec![s("p:r:freed"), s("")]),
            ("message", vec![s("p:r:freed"), s("1 ")]),
            ("message", vec![s("p:r:freed"), s("w:1")]),
            ("message", vec![s("p:r:freed"), s("-1 w:1")]),
            ("message", vec![s("p:r:freed"), s("99999999999 w:1")]),
            ("message", vec![s("p:r:freed"), s(&huge)]),
            ("message", vec![s("p:r:freed"), Value::Nil]),
            ("message", vec![Value::Int(1), s("1 w:1")]),
            ("message", vec![s("p:r:freed"), Value::Text(&[0xff])]),
            ("message", vec![]),
            ("invalidate", vec![Value::Nil]),
        ] {
            let push = [vec![s(kind)], data].concat();
            assert_eq!(pubsub.parse_release(&push), None, "{push:?}");
        }
        assert_eq!(pubsub.end("p:r:freed"), Some(SubscriptionChange::FirstOrLast));
        assert_eq!(pubsub.end("p:r:freed"), None, "it has ended");
        assert_eq!(pubsub.parse_release(&[s("message"), s("p:r:freed"), s("3 w:1")]), None, "unsubscribed");
    }

    #[test]
    fn a_confirmation_names_the_requested_channel() {
        let (begun, ended) =
            ([s("subscribe"), s("c"), Value::Int(1)], [s("unsubscribe"), s("c"), Value::Int(0)]);
        assert!(confirms(&begun, true, "c"));
        assert!(confirms(&ended, false, "c"));
        assert!(!confirms(&ended, true, "c"));
        assert!(!confirms(&begun, true, "d"));
        assert!(!confirms(&begun[..1], true, "c"));
    }
}
