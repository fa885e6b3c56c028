use super::{Line, MaybeMillis, MaybeRfc3339, text};
use quorate::{
    claim::{ClaimState, DeadLettered, Done},
    env::WallTime,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// The state of one message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Message")]
pub struct MessageView {
    /// The id. It is made plain where it is shown, since an operator may reset the message by it.
    #[serde(with = "Line")]
    pub id: Arc<str>,
    /// `free`, `claimed`, `done` or `dead-lettered`.
    #[schemars(with = "String")]
    pub state: MessageState,
    /// The worker that holds the message.
    pub holder: Option<String>,
    /// The time for which the claim lasts if it is not extended.
    #[serde(rename = "remaining_ms", with = "MaybeMillis")]
    pub remaining: Option<Duration>,
    /// The number of attempts that have begun, if they are counted.
    pub attempts: Option<u32>,
    /// The time at which the message was completed or given up.
    #[serde(with = "MaybeRfc3339")]
    pub at: Option<WallTime>,
    /// The result of a message that is done, or the note of a dead letter.
    pub result: Option<String>,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageState {
    /// No worker holds it.
    Free,
    /// A worker handles it.
    Claimed,
    /// It was handled.
    Done,
    /// It was given up.
    DeadLettered,
    /// A state that this version does not know.
    Unknown,
}

impl MessageState {
    /// Returns the word for the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Claimed => "claimed",
            Self::Done => "done",
            Self::DeadLettered => "dead-lettered",
            Self::Unknown => "unknown",
        }
    }
}

impl MessageView {
    /// Returns the view of a message.
    pub fn new(id: &str, state: &ClaimState) -> Self {
        let free = Self {
            id: id.into(),
            state: MessageState::Free,
            holder: None,
            remaining: None,
            attempts: None,
            at: None,
            result: None,
        };
        match state {
            ClaimState::Free { attempts, .. } => Self { attempts: Some(*attempts), ..free },
            ClaimState::Claimed { by, remaining, attempts, .. } => Self {
                state: MessageState::Claimed,
                holder: by.as_ref().map(|by| text(by.worker())),
                remaining: *remaining,
                attempts: Some(*attempts),
                ..free
            },
            ClaimState::Done(Done { result, at, .. }) => {
                Self { state: MessageState::Done, at: Some(*at), result: Some(text(result)), ..free }
            }
            ClaimState::DeadLettered(DeadLettered { attempts, at, note }) => Self {
                state: MessageState::DeadLettered,
                attempts: Some(*attempts),
                at: *at,
                result: Some(text(note)),
                ..free
            },
            // `ClaimState` is non-exhaustive: the library may add states later.
            _ => Self { state: MessageState::Unknown, ..free },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_fields_of_its_state_and_is_made_plain() {
        let json =
            |state: &ClaimState| serde_json::to_value(MessageView::new("a\u{1b}[2J", state)).expect("JSON");
        let claimed = ClaimState::Claimed {
            by: None,
            remaining: Some(Duration::from_millis(1_500)),
            attempts: 2,
            payload: None,
        };
        let claimed = json(&claimed);
        assert_eq!((&claimed["id"], &claimed["state"]), (&"a [2J".into(), &"claimed".into()));
        assert_eq!((&claimed["remaining_ms"], &claimed["attempts"]), (&1_500.into(), &2.into()));
        assert!(claimed["holder"].is_null() && claimed["at"].is_null());
        assert_eq!(json(&ClaimState::Free { attempts: 0, payload: None })["state"], "free");
        let words =
            [MessageState::Free, MessageState::Done, MessageState::DeadLettered, MessageState::Unknown];
        for state in words {
            assert_eq!(serde_json::to_value(state).expect("JSON"), state.as_str(), "one word for it");
        }
    }
}
