use super::Specification;

/// A message that workers claim. At most one worker believes in its claim, tokens grow, and after the message is done
/// it is not claimed again, unless the nodes lost its done record ([`MessageCall::Forgotten`]).
///
/// As for a [`Lock`](super::Lock), a claim is the belief of its worker. Not judged: that a message is ever done, the
/// attempt limit, and the work of a handler that goes on after its claim has ended.
///
/// A done record that only a minority of the nodes stores is no linearizable value, and is not judged as one: a claim
/// that asks one of these nodes finds the message done, and a claim that asks the others handles it again. Such
/// *traces* are left by a completion that no majority confirmed, and by lost data.
#[derive(Clone, Debug)]
pub struct Message;

/// A call about a [`Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageCall {
    /// A worker claimed the message.
    Claimed {
        /// The token of the claim.
        token: u64,
    },
    /// The worker gave the claim up, or found that it has ended.
    Ended {
        /// The token of the claim.
        token: u64,
    },
    /// The worker completed the message, and a majority confirmed it. The claim may have ended, as long as no other
    /// worker has claimed the message since, or the nodes lost the record of that later claim.
    Completed {
        /// The token of the claim.
        token: u64,
    },
    /// The worker tried to complete the message, and does not know the result. It may have left traces.
    CompleteUnanswered {
        /// The token of the claim.
        token: u64,
    },
    /// A worker tried to claim the message, and learned that it is done.
    FoundDone,
    /// So many nodes lost their data that no majority may store the done record any more.
    Forgotten,
    /// So many nodes lost their data that no majority may know the newest claim any more.
    ClaimForgotten,
}

/// The state of a [`Message`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MessageState {
    holder: Option<u64>,
    newest: u64,
    /// True if a majority stores the done record.
    done: bool,
    /// True if a minority may store a done record.
    traces: bool,
    /// True if no majority may know the newest claim or its end.
    newest_forgotten: bool,
}

impl Specification for Message {
    type State = MessageState;
    type Call = MessageCall;

    fn initial() -> MessageState {
        MessageState::default()
    }

    fn apply(state: &MessageState, call: &MessageCall) -> Option<MessageState> {
        let MessageState { holder, newest, done, traces, newest_forgotten } = *state;
        match *call {
            MessageCall::Claimed { token } => {
                (!done && holder.is_none() && token > newest).then_some(MessageState {
                    holder: Some(token),
                    newest: token,
                    newest_forgotten: false,
                    ..*state
                })
            }
            // Completing ends the claim too, so the holder may be none already.
            MessageCall::Ended { token } => {
                let own = holder.unwrap_or(newest) == token;
                own.then_some(MessageState { holder: None, ..*state })
            }
            MessageCall::Completed { token } => {
                let is_free =
                    holder.is_none_or(|holder| holder == token) && (token >= newest || newest_forgotten);
                let state = MessageState { holder: None, newest: newest.max(token), done: true, ..*state };
                (is_free && !done).then_some(state)
            }
            MessageCall::CompleteUnanswered { .. } => Some(MessageState { traces: true, ..*state }),
            MessageCall::FoundDone => (done || traces).then_some(*state),
            MessageCall::ClaimForgotten => Some(MessageState { newest_forgotten: true, ..*state }),
            MessageCall::Forgotten => {
                let traces = done || traces;
                Some(MessageState { done: false, traces, newest_forgotten: true, ..*state })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{accepted, during, open},
        *,
    };

    fn claimed(token: u64) -> MessageCall {
        MessageCall::Claimed { token }
    }

    fn ended(token: u64) -> MessageCall {
        MessageCall::Ended { token }
    }

    fn completed(token: u64) -> MessageCall {
        MessageCall::Completed { token }
    }

    #[test]
    fn a_message_is_claimed_completed_and_found_done() {
        let done = [during(1, 2, claimed(5)), during(3, 6, completed(5)), during(4, 5, ended(5))];
        assert!(accepted::<Message>(&done));
        let then = |call| accepted::<Message>(&[done.to_vec(), vec![during(7, 8, call)]].concat());
        assert!(then(MessageCall::FoundDone));
        assert!(!then(claimed(7)));
        assert!(!then(completed(5)), "it was completed before");
    }

    #[test]
    fn an_abandoned_message_is_claimed_again() {
        let again = [during(1, 2, claimed(5)), during(3, 4, ended(5)), during(5, 6, claimed(7))];
        assert!(accepted::<Message>(&again));
        assert!(!accepted::<Message>(&[again[0].clone(), again[2].clone()]), "the first claim goes on");
        let late = [again.to_vec(), vec![during(7, 8, completed(5))]].concat();
        assert!(!accepted::<Message>(&late), "a later claim has superseded it");
        assert!(accepted::<Message>(&[
            during(1, 2, claimed(5)),
            during(3, 4, ended(5)),
            during(5, 6, completed(5))
        ]));
    }

    #[test]
    fn an_unanswered_completion_leaves_traces() {
        let tried = [
            during(1, 2, claimed(5)),
            during(3, 4, ended(5)),
            open(4, MessageCall::CompleteUnanswered { token: 5 }),
        ];
        let then = |more: &[_]| accepted::<Message>(&[tried.to_vec(), more.to_vec()].concat());
        let (found, again) = (during(7, 8, MessageCall::FoundDone), during(9, 10, claimed(7)));
        assert!(then(std::slice::from_ref(&found)) && then(std::slice::from_ref(&again)));
        assert!(then(&[found.clone(), again.clone(), during(11, 12, MessageCall::FoundDone)]));
        let early = during(2, 3, MessageCall::FoundDone);
        assert!(!then(&[early]), "it was found done before it was tried");
        assert!(!accepted::<Message>(&[tried[0].clone(), tried[1].clone(), found]), "no worker tried");
        let confirmed = [during(9, 10, claimed(7)), during(11, 12, completed(7)), during(13, 14, claimed(8))];
        assert!(then(&confirmed[..2]));
        assert!(!then(&confirmed), "the second completion was confirmed");
    }

    #[test]
    fn lost_data_excuses_a_second_claim_from_then_on() {
        let done = [during(1, 2, claimed(5)), during(3, 4, completed(5)), during(7, 8, claimed(7))];
        assert!(!accepted::<Message>(&done));
        let lost = [done.to_vec(), vec![open(5, MessageCall::Forgotten)]].concat();
        assert!(accepted::<Message>(&lost));
        let trace = during(9, 10, MessageCall::FoundDone);
        assert!(accepted::<Message>(&[lost, vec![trace]].concat()), "a minority still has it");
        assert!(!accepted::<Message>(&[done.to_vec(), vec![open(9, MessageCall::Forgotten)]].concat()));
    }

    #[test]
    fn lost_data_lets_an_earlier_claim_complete_late() {
        let later = [
            during(1, 2, claimed(5)),
            during(3, 4, ended(5)),
            during(5, 6, claimed(7)),
            during(7, 8, completed(7)),
        ];
        let then = |more: &[_]| accepted::<Message>(&[later.to_vec(), more.to_vec()].concat());
        let (lost, late) = (open(9, MessageCall::Forgotten), during(20, 21, completed(5)));
        assert!(!then(std::slice::from_ref(&late)));
        assert!(then(&[lost.clone(), late.clone()]));
        let third = [during(11, 12, claimed(9)), during(13, 14, ended(9))];
        let abandoned = [&later[..3], &[during(7, 8, ended(7))]].concat();
        let then_late =
            |lost| accepted::<Message>(&[abandoned.clone(), vec![open(9, lost), late.clone()]].concat());
        assert!(then_late(MessageCall::ClaimForgotten));
        assert!(!accepted::<Message>(&[abandoned.clone(), vec![late.clone()]].concat()));
        assert!(!then(&[open(9, MessageCall::ClaimForgotten), late.clone()]), "it is still known to be done");
        let before = during(9, 10, MessageCall::Forgotten);
        assert!(!then(&[vec![before], third.to_vec(), vec![late]].concat()), "the third claim is known");
    }
}
