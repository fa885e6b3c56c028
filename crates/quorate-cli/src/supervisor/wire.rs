//! What a warden and its parent say to each other: one JSON object a line, over a socket.

use super::{Deadline, Exit, Survivor};
use quorate::env::BootTime;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// From the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// The deadline from now on, in nanoseconds of the boot clock.
    Deadline { step_down: u64, kill: u64 },
    /// SIGTERM now, SIGKILL at the deadline.
    StepDown,
    /// Pass this signal to the command's group.
    Signal(i32),
    /// We were continued: so shall the command be.
    Continue,
}

/// From the warden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The command runs and leads this process group.
    Started { group: i32 },
    /// The deadline to kill, in nanoseconds of the boot clock, that holds by the orders read so far. Answers each
    /// [`Order::Deadline`], or several that came together.
    Accepted { kill: u64 },
    /// This signal did not reach these processes.
    NotPermitted { signal: i32, processes: Vec<Survivor> },
    /// There is no such program.
    NotFound(String),
    /// It is no program.
    NotExecutable(String),
    /// Something else kept the command from being started.
    Failed(String),
    /// The command was stopped by this job-control signal.
    Stopped(i32),
    /// It is over. Nothing comes after this.
    Ended(Exit),
}

impl From<Deadline> for Order {
    fn from(deadline: Deadline) -> Self {
        Self::Deadline { step_down: deadline.step_down.as_nanos(), kill: deadline.kill.as_nanos() }
    }
}

pub(super) fn deadline(step_down: u64, kill: u64) -> Deadline {
    Deadline { step_down: BootTime::from_nanos(step_down), kill: BootTime::from_nanos(kill) }
}

/// `message` as a line.
pub(super) fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // These types hold nothing that JSON cannot: a message that could not be made would be one not sent.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Takes the first whole line out of `inbox`: a message, or an error for what is none.
pub(super) fn take<T: DeserializeOwned>(inbox: &mut Vec<u8>) -> Option<Result<T, serde_json::Error>> {
    let end = inbox.iter().position(|&byte| byte == b'\n')?;
    let message = serde_json::from_slice(&inbox[..end]);
    inbox.drain(..=end);
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_and_in_order_however_they_are_cut() {
        let orders = [
            Order::Deadline { step_down: u64::MAX, kill: 1 },
            Order::StepDown,
            Order::Signal(15),
            Order::Continue,
        ];
        let bytes: Vec<u8> = orders.iter().flat_map(line).collect();
        let (mut inbox, mut got) = (Vec::new(), Vec::new());
        for byte in bytes {
            inbox.push(byte);
            got.extend(take::<Order>(&mut inbox).map(Result::unwrap));
        }
        assert_eq!(got, orders);
        assert!(inbox.is_empty());
        assert!(take::<Order>(&mut b"nonsense\n".to_vec()).unwrap().is_err());
    }
}
