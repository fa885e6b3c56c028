//! Decides when the supervisor process signals its command. The decisions are a pure function of the orders and
//! the time.

use super::{Deadline, EndedBy, Exit, Status};
use quorate::env::BootTime;
use std::time::Duration;

/// The time between SIGTERM and SIGKILL for processes that a command leaves behind in its group.
const AFTER_ITS_END: Duration = Duration::from_secs(2);
/// The longest wait for the end of a killed group.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// The next action of the supervisor process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Do nothing before this time.
    Wait(BootTime),
    /// Send SIGTERM to the group.
    Term,
    /// Send SIGKILL to the group, and check at this time whether it has ended.
    Kill(BootTime),
    /// All processes have ended.
    Done(Exit),
    /// A process has survived SIGKILL, so the supervisor process ends its wait. The caller adds the names of
    /// the survivors to the exit.
    GiveUp(Exit),
}

/// HUP, INT, QUIT and TERM: the signals that ask a command to end.
pub(super) const ASK_TO_END: [i32; 4] = [1, 2, 3, 15];

/// The state of the supervision of one command.
#[derive(Debug)]
pub(super) struct Guard {
    deadline: Deadline,
    /// The first reason why the command must end. If the command has ended by itself, a reason is set only if
    /// the time of SIGKILL passes before its whole group has ended.
    ended_by: Option<EndedBy>,
    /// True once the group has been sent SIGTERM or SIGKILL.
    term_sent: bool,
    /// True once a forwarded signal has asked the command to end. Then no process that the command has started
    /// may outlive the command.
    end_requested: bool,
    /// The time of the first SIGKILL to the group.
    killed: Option<BootTime>,
    exited: Option<(Status, BootTime)>,
    /// True if processes that the command leaves behind run on.
    leave_background: bool,
}

impl Guard {
    pub(super) fn new(deadline: Deadline) -> Self {
        Self {
            deadline,
            ended_by: None,
            term_sent: false,
            end_requested: false,
            killed: None,
            exited: None,
            leave_background: false,
        }
    }

    /// Sets whether processes that the command leaves behind run on.
    pub(super) fn leave_background(self, yes: bool) -> Self {
        Self { leave_background: yes, ..self }
    }

    /// Sets a new deadline. After SIGTERM, only the time of SIGKILL changes.
    pub(super) fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Requires the command to end.
    pub(super) fn end(&mut self, why: EndedBy) {
        if self.exited.is_none() {
            self.ended_by.get_or_insert(why);
        }
    }

    /// Records that a signal was forwarded to the command.
    pub(super) fn forwarded(&mut self, signal: i32) {
        self.end_requested |= ASK_TO_END.contains(&signal);
    }

    /// Records that the command itself has ended. Other processes of its group may still run.
    pub(super) fn exited(&mut self, status: Status, now: BootTime) {
        self.exited.get_or_insert((status, now));
        if let Status::Signal(signal) = status {
            // The signal may have come from the terminal or from another process. It counts as if it had been
            // forwarded to the command.
            self.forwarded(signal);
        }
    }

    pub(super) fn has_exited(&self) -> bool {
        self.exited.is_some()
    }

    /// Returns whether the supervisor process has a reason to end the command, such as the end of the lease.
    pub(super) fn lost(&self) -> bool {
        self.ended_by.is_some()
    }

    /// Returns whether processes that have left the command's group must also end.
    pub(super) fn ends_escaped(&self) -> bool {
        self.lost() || (self.end_requested && self.has_exited())
    }

    /// Returns whether processes that the command leaves in the background run on.
    pub(super) fn leaves_background(&self) -> bool {
        self.leave_background
    }

    /// Returns whether the group has been sent SIGTERM or SIGKILL.
    pub(super) fn term_sent(&self) -> bool {
        self.term_sent
    }

    pub(super) fn kill_by(&self) -> BootTime {
        self.deadline.kill
    }

    /// Returns the action at `now`. `gone` is true if all processes that have to end had ended shortly before
    /// `now`.
    pub(super) fn step(&mut self, now: BootTime, gone: bool) -> Step {
        if now >= self.deadline.kill {
            // The reason is also set if the command has ended by itself, because it may have ended only after
            // the deadline.
            self.ended_by.get_or_insert(EndedBy::Deadline);
        }
        if let Some((status, _)) = self.exited
            && (gone || self.leave_background && !self.ends_escaped())
        {
            return Step::Done(self.exit(status));
        }
        if now >= self.deadline.step_down {
            self.end(EndedBy::Deadline);
        }
        if now >= self.kill_at() {
            self.term_sent = true;
            let since = *self.killed.get_or_insert(now);
            if now >= since + AFTER_KILL {
                let status = self.exited.map_or(Status::Unknown, |(status, _)| status);
                return Step::GiveUp(self.exit(status));
            }
            return Step::Kill(since + AFTER_KILL);
        }
        if !self.term_sent && (self.lost() || self.has_exited()) {
            self.term_sent = true;
            return Step::Term;
        }
        Step::Wait(if self.term_sent { self.kill_at() } else { self.deadline.step_down.min(self.kill_at()) })
    }

    fn kill_at(&self) -> BootTime {
        match (self.killed, self.exited) {
            // Once a kill has begun, it is completed, even if a later deadline arrives.
            (Some(since), _) => since,
            (None, Some((_, at))) => self.deadline.kill.min(at + AFTER_ITS_END),
            (None, None) => self.deadline.kill,
        }
    }

    fn exit(&self, status: Status) -> Exit {
        Exit {
            status,
            ended_by: self.ended_by,
            killed: self.killed.is_some(),
            survivors: Vec::new(),
            background: 0,
            escaped: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> BootTime {
        BootTime::from_nanos(secs * 1_000_000_000)
    }

    fn until(step_down: u64, kill: u64) -> Deadline {
        Deadline { step_down: at(step_down), kill: at(kill) }
    }

    fn done(step: Step) -> Exit {
        let Step::Done(exit) = step else { panic!("{step:?}") };
        exit
    }

    #[test]
    fn a_command_that_ends_by_itself_is_not_ended_by_the_guard() {
        let mut guard = Guard::new(until(10, 20));
        assert_eq!(guard.step(at(0), false), Step::Wait(at(10)));
        guard.exited(Status::Code(3), at(5));
        assert_eq!(guard.step(at(5), false), Step::Term, "for processes that it left behind");
        let exit = done(guard.step(at(5), true));
        assert_eq!(
            exit,
            Exit {
                status: Status::Code(3),
                ended_by: None,
                killed: false,
                survivors: Vec::new(),
                background: 0,
                escaped: 0
            }
        );
    }

    #[test]
    fn processes_left_behind_are_killed_soon_and_never_after_the_deadline() {
        let mut guard = Guard::new(until(100, 200));
        guard.exited(Status::Code(0), at(5));
        assert_eq!(guard.step(at(5), false), Step::Term);
        assert_eq!(guard.step(at(5), false), Step::Wait(at(7)));
        assert!(matches!(guard.step(at(7), false), Step::Kill(_)));
        assert_eq!(done(guard.step(at(7), true)).ended_by, None);

        let mut guard = Guard::new(until(5, 6));
        guard.exited(Status::Code(0), at(5));
        assert_eq!(guard.step(at(5), false), Step::Term);
        assert_eq!(guard.step(at(5), false), Step::Wait(at(6)));
    }

    #[test]
    fn processes_left_behind_run_on_only_if_the_command_ended_by_itself_in_time() {
        let guard = || Guard::new(until(10, 20)).leave_background(true);
        let mut left = guard();
        assert_eq!(left.step(at(1), false), Step::Wait(at(10)), "the command runs");
        left.exited(Status::Code(1), at(5));
        assert_eq!(done(left.step(at(5), false)).status, Status::Code(1));

        let mut asked = guard();
        asked.forwarded(15);
        asked.exited(Status::Code(0), at(5));
        assert_eq!(asked.step(at(5), false), Step::Term);
        let mut ended = guard();
        ended.end(EndedBy::StepDown);
        ended.exited(Status::Code(0), at(5));
        assert_eq!(ended.step(at(5), false), Step::Term);
        let mut late = guard();
        late.exited(Status::Code(0), at(21));
        assert!(matches!(late.step(at(21), false), Step::Kill(_)));
    }

    #[test]
    fn a_deadline_that_is_not_moved_is_kept() {
        let mut guard = Guard::new(until(10, 20));
        assert_eq!(guard.step(at(10), false), Step::Term);
        assert_eq!(guard.step(at(10), false), Step::Wait(at(20)), "SIGTERM is sent once");
        assert_eq!(guard.step(at(20), false), Step::Kill(at(25)));
        assert_eq!(guard.step(at(21), false), Step::Kill(at(25)), "until it is gone");
        guard.exited(Status::Signal(9), at(21));
        let exit = done(guard.step(at(21), true));
        assert_eq!((exit.ended_by, exit.killed), (Some(EndedBy::Deadline), true));
    }

    #[test]
    fn a_late_look_kills_at_once() {
        let mut guard = Guard::new(until(10, 20));
        assert_eq!(guard.step(at(1000), false), Step::Kill(at(1005)));
    }

    #[test]
    fn deadlines_move_both_ways_until_sigterm() {
        let mut guard = Guard::new(until(10, 20));
        guard.set_deadline(until(30, 40));
        assert_eq!(guard.step(at(15), false), Step::Wait(at(30)));
        guard.set_deadline(until(16, 17));
        assert_eq!(guard.step(at(16), false), Step::Term);
        // The worker has resigned. Its lease is still extended while the work ends, so the time of SIGKILL
        // moves.
        guard.set_deadline(until(60, 70));
        assert_eq!(guard.step(at(17), false), Step::Wait(at(70)));
        assert!(matches!(guard.step(at(70), false), Step::Kill(_)));
        guard.set_deadline(until(600, 700));
        assert!(matches!(guard.step(at(71), false), Step::Kill(_)), "a kill that has begun is completed");
    }

    #[test]
    fn after_a_step_down_the_command_has_until_the_deadline() {
        for why in [EndedBy::StepDown, EndedBy::ParentGone] {
            let mut guard = Guard::new(until(10, 20));
            guard.end(why);
            guard.end(EndedBy::Deadline);
            assert_eq!(guard.step(at(1), false), Step::Term);
            assert_eq!(guard.step(at(1), false), Step::Wait(at(20)));
            guard.exited(Status::Signal(15), at(2));
            let exit = done(guard.step(at(2), true));
            assert_eq!((exit.ended_by, exit.killed, exit.code()), (Some(why), false, 143));
        }
    }

    #[test]
    fn the_wait_for_a_process_that_survives_sigkill_ends() {
        let mut guard = Guard::new(until(10, 20));
        assert!(matches!(guard.step(at(20), false), Step::Kill(_)));
        assert!(matches!(guard.step(at(25), false), Step::GiveUp(Exit { status: Status::Unknown, .. })));
    }

    #[test]
    fn an_end_observed_after_the_deadline_was_not_in_time() {
        let mut guard = Guard::new(until(10, 20));
        guard.exited(Status::Code(0), at(19));
        assert_eq!(done(guard.step(at(19), true)).ended_by, None);

        // The supervisor process was stopped for a while, and acts only after both deadlines.
        let mut guard = Guard::new(until(10, 20));
        guard.exited(Status::Code(0), at(1000));
        assert_eq!(done(guard.step(at(1000), true)).ended_by, Some(EndedBy::Deadline));

        // The command itself ended in time. But the supervisor process observed the end of its other processes
        // only after the deadline.
        let mut guard = Guard::new(until(10, 20));
        guard.exited(Status::Code(0), at(9));
        assert_eq!(guard.step(at(9), false), Step::Term);
        assert_eq!(done(guard.step(at(1000), true)).ended_by, Some(EndedBy::Deadline));

        // A later deadline had arrived before this step, so the later deadline applies.
        let mut guard = Guard::new(until(10, 20));
        guard.set_deadline(until(2000, 3000));
        guard.exited(Status::Code(0), at(1000));
        assert_eq!(done(guard.step(at(1000), true)).ended_by, None);
    }

    #[test]
    fn escaped_processes_end_with_a_lost_lease_or_a_command_that_was_asked_to_end() {
        let ended = |signal: Option<i32>, status| {
            let mut guard = Guard::new(until(10, 20));
            signal.into_iter().for_each(|signal| guard.forwarded(signal));
            assert!(!guard.ends_escaped(), "the command has not ended yet");
            guard.exited(status, at(1));
            guard.ends_escaped()
        };
        assert!(!ended(None, Status::Code(0)));
        assert!(!ended(None, Status::Signal(9)), "it crashed");
        assert!(!ended(Some(10), Status::Code(0)), "SIGUSR1 asks for something else");
        for signal in [1, 2, 3, 15] {
            assert!(ended(Some(signal), Status::Code(0)));
            assert!(ended(None, Status::Signal(signal)));
        }
        let mut guard = Guard::new(until(10, 20));
        guard.end(EndedBy::StepDown);
        assert!(guard.ends_escaped());
    }

    #[test]
    fn a_command_that_has_ended_gets_no_later_reason() {
        let mut guard = Guard::new(until(10, 20));
        guard.exited(Status::Code(0), at(9));
        guard.end(EndedBy::StepDown);
        assert_eq!(guard.step(at(11), false), Step::Kill(at(16)));
        assert_eq!(done(guard.step(at(11), true)).ended_by, None);
    }
}
