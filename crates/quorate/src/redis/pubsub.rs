use crate::node::{Owner, Push, ReleasedLease, Resource};
use crate::redis::resp::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The longest owner token that is accepted, in bytes.
const OWNER_MAX: usize = 1024;

/// The subscriptions of a session. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct PubSub {
    /// The channel to which a session with any waiter is subscribed.
    waiters: Arc<str>,
    channels: Arc<Mutex<BTreeMap<String, Resource>>>,
}

impl PubSub {
    pub(crate) fn new(waiters: String) -> Self {
        Self { waiters: waiters.into(), channels: Arc::default() }
    }

    /// Adds the subscription to the channel of `resource`. Returns the channels to subscribe to, in order. A script
    /// publishes a release only if the waiters' channel has a subscriber. So the subscription to that channel begins
    /// before the first one to a resource's channel, and ends after the last one.
    pub(crate) fn begin(&self, channel: String, resource: Resource) -> Vec<String> {
        let mut channels = self.channels();
        let is_first = channels.is_empty();
        if channels.insert(channel.clone(), resource).is_some() {
            return Vec::new();
        }
        is_first.then(|| self.waiters.to_string()).into_iter().chain([channel]).collect()
    }

    /// Removes the subscription to a resource's channel. Returns the channels whose subscriptions to end, in order.
    pub(crate) fn end(&self, channel: String) -> Vec<String> {
        let mut channels = self.channels();
        if channels.remove(&channel).is_none() {
            return Vec::new();
        }
        [channel].into_iter().chain(channels.is_empty().then(|| self.waiters.to_string())).collect()
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
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
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
        let pubsub = PubSub::new("p:node:waiters".to_owned());
        let (resource, [r, q]) =
            (Resource::lock("r").unwrap(), ["p:r:freed", "p:q:freed"].map(str::to_owned));
        assert_eq!(pubsub.begin(r.clone(), resource.clone()), ["p:node:waiters", &r], "the first one");
        assert!(pubsub.begin(r.clone(), resource.clone()).is_empty(), "it is not new");
        assert_eq!(pubsub.begin(q.clone(), resource.clone()), [&*q]);
        assert_eq!(pubsub.end(q.clone()), [&*q]);
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
        assert_eq!(pubsub.end(r.clone()), [&*r, "p:node:waiters"], "the last one");
        assert!(pubsub.end(r.clone()).is_empty(), "it has ended");
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
