use quorate::node::{Freed, Owner, Push, Resource};
use redis::{PushKind, Value};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The longest owner token that is believed to be one, in bytes.
const OWNER_MAX: usize = 1024;

/// The channels that a session listens to, and what it means when something is said there. Clones are the
/// same.
#[derive(Clone, Debug, Default)]
pub(crate) struct PubSub(Arc<Mutex<BTreeMap<String, Resource>>>);

impl PubSub {
    /// Whether this is new.
    pub(crate) fn begin(&self, channel: &str, resource: Resource) -> bool {
        self.channels().insert(channel.to_owned(), resource).is_none()
    }

    /// Whether this was listened to.
    pub(crate) fn end(&self, channel: &str) -> bool {
        self.channels().remove(channel).is_some()
    }

    /// What a push tells, if it is one that was asked for. Anything else that a server says unasked is noise.
    pub(crate) fn released(&self, kind: &PushKind, data: &[Value]) -> Option<Push> {
        let (PushKind::Message, [channel, said]) = (kind, data) else { return None };
        let resource = self.channels().get(word(channel)?)?.clone();
        let (told, owner) = word(said)?.split_once(' ')?;
        if owner.is_empty() || owner.len() > OWNER_MAX {
            return None;
        }
        let freed = Freed { resource, owner: Owner::from_node(owner) };
        Some(Push::Released { freed, told: told.parse().ok()? })
    }

    fn channels(&self) -> MutexGuard<'_, BTreeMap<String, Resource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a push is the server's word that a subscription to `channel` has begun or, if not `begun`, ended.
pub(crate) fn confirms(kind: &PushKind, data: &[Value], begun: bool, channel: &str) -> bool {
    let expected = if begun { PushKind::Subscribe } else { PushKind::Unsubscribe };
    *kind == expected && data.first().and_then(word) == Some(channel)
}

fn word(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn only_what_was_asked_for_is_heard() {
        let pubsub = PubSub::default();
        let resource = Resource::lock("r").unwrap();
        assert!(pubsub.begin("p:r:freed", resource.clone()) && !pubsub.begin("p:r:freed", resource.clone()));
        let heard = pubsub.released(&PushKind::Message, &[s("p:r:freed"), s("3 w o:1")]);
        let freed = Freed { resource, owner: Owner::from_node("w o:1") };
        assert_eq!(heard, Some(Push::Released { freed, told: 3 }));
        let huge = format!("1 {}", "x".repeat(OWNER_MAX + 1));
        for (kind, data) in [
            (PushKind::PMessage, vec![s("p:r:freed"), s("1 w:1")]),
            (PushKind::Other("message".into()), vec![s("p:r:freed"), s("1 w:1")]),
            (PushKind::Message, vec![s("p:s:freed"), s("1 w:1")]),
            (PushKind::Message, vec![s("p:r:freed")]),
            (PushKind::Message, vec![s("p:r:freed"), s("1 w:1"), s("w:2")]),
            (PushKind::Message, vec![s("p:r:freed"), s("")]),
            (PushKind::Message, vec![s("p:r:freed"), s("1 ")]),
            (PushKind::Message, vec![s("p:r:freed"), s("w:1")]),
            (PushKind::Message, vec![s("p:r:freed"), s("-1 w:1")]),
            (PushKind::Message, vec![s("p:r:freed"), s("99999999999 w:1")]),
            (PushKind::Message, vec![s("p:r:freed"), s(&huge)]),
            (PushKind::Message, vec![s("p:r:freed"), Value::Nil]),
            (PushKind::Message, vec![Value::Int(1), s("1 w:1")]),
            (PushKind::Message, vec![s("p:r:freed"), Value::BulkString(vec![0xff])]),
            (PushKind::Message, vec![]),
            (PushKind::Invalidate, vec![Value::Nil]),
        ] {
            assert_eq!(pubsub.released(&kind, &data), None, "{kind:?} {data:?}");
        }
        assert!(pubsub.end("p:r:freed") && !pubsub.end("p:r:freed"));
        assert_eq!(pubsub.released(&PushKind::Message, &[s("p:r:freed"), s("3 w:1")]), None, "no longer");
    }

    #[test]
    fn a_confirmation_is_one_of_the_channel_that_was_asked_for() {
        let data = [s("c"), Value::Int(1)];
        assert!(confirms(&PushKind::Subscribe, &data, true, "c"));
        assert!(confirms(&PushKind::Unsubscribe, &data, false, "c"));
        assert!(!confirms(&PushKind::Unsubscribe, &data, true, "c"));
        assert!(!confirms(&PushKind::Subscribe, &data, true, "d"));
        assert!(!confirms(&PushKind::Subscribe, &[], true, "c"));
    }
}
