//! The messages between the supervisor process and its parent: one JSON object per line, over a socket.

use super::{Deadline, Exit, Survivor};
use quorate::env::BootTime;
use rustix::process::Pid;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A message from the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// The new deadline, in nanoseconds of the boot clock.
    Deadline { step_down: u64, kill: u64 },
    /// An order to send SIGTERM now, and SIGKILL at the deadline.
    StepDown,
    /// An order to forward this signal to the command's group.
    Signal(i32),
    /// A notice that the parent was stopped and continues, so that the command must continue too.
    Continue,
}

/// A message from the supervisor process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The process that becomes the command leads this process group. It waits for the command's streams.
    Ready { group: GroupId },
    /// The command runs.
    Started,
    /// An acknowledgement of one [`Order::Deadline`], or of several that arrived together. The value is the
    /// time of SIGKILL after all orders so far, in nanoseconds of the boot clock.
    Accepted { kill: u64 },
    /// The signal could not be delivered to these processes.
    NotPermitted { signal: i32, processes: Vec<Survivor> },
    /// The working directory cannot be entered, and the command was not started.
    NotEntered(String),
    /// The program does not exist.
    NotFound(String),
    /// The program cannot be executed.
    NotExecutable(String),
    /// The command was not started, for another reason.
    Failed(String),
    /// The command was stopped by this job-control signal.
    Stopped(i32),
    /// The command has ended. This is the last message.
    Ended(Exit),
}

/// The id of the command's process group.
///
/// A signal to the group 0 or 1 would go to this program's own group, or to every process. So such an id is
/// refused when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub(super) struct GroupId(Pid);

impl GroupId {
    pub(super) fn pid(self) -> Pid {
        self.0
    }
}

impl From<Pid> for GroupId {
    fn from(leader: Pid) -> Self {
        Self(leader)
    }
}

impl From<GroupId> for i32 {
    fn from(group: GroupId) -> Self {
        group.0.as_raw_pid()
    }
}

impl TryFrom<i32> for GroupId {
    type Error = String;

    fn try_from(group: i32) -> Result<Self, String> {
        let leader = Some(group).filter(|&group| group > 1).and_then(Pid::from_raw);
        leader.map(Self).ok_or_else(|| format!("{group} is not the id of a command's process group"))
    }
}

impl From<Deadline> for Order {
    fn from(deadline: Deadline) -> Self {
        Self::Deadline { step_down: deadline.step_down.as_nanos(), kill: deadline.kill.as_nanos() }
    }
}

pub(super) fn deadline(step_down: u64, kill: u64) -> Deadline {
    Deadline { step_down: BootTime::from_nanos(step_down), kill: BootTime::from_nanos(kill) }
}

pub(super) fn line<T: Serialize>(message: &T) -> Vec<u8> {
    // JSON can represent every value of these types. If the conversion failed nevertheless, the receiver would
    // get an empty line, which is an invalid message.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Removes the first complete line from `inbox`. Returns its message, or an error if it is not a valid message.
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
    fn messages_arrive_whole_and_in_order_however_they_are_split() {
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

    #[test]
    fn a_group_that_is_not_the_command_s_is_refused() {
        let ready = |group: &str| {
            take::<Report>(&mut format!("{{\"Ready\":{{\"group\":{group}}}}}\n").into_bytes()).unwrap()
        };
        for group in ["0", "1", "-1", "-7", "-2147483648"] {
            let why = ready(group).unwrap_err().to_string();
            assert!(why.contains("is not the id of a command's process group"), "{why}");
        }
        let group = GroupId::from(Pid::from_raw(7).unwrap());
        assert_eq!(ready("7").unwrap(), Report::Ready { group });
        let mut sent = line(&Report::Ready { group });
        assert_eq!(take::<Report>(&mut sent).unwrap().unwrap(), Report::Ready { group });
    }
}
