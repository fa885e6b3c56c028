//! A job that runs on every worker: the *whole*, which hands out the ticks, and a *part* for each worker, which follows it.

use super::{Job, JobRules, Payload, RunContext, Work, to_handler};
use crate::scheduler::{
    policy::{Delivery, Placement, Retry},
    schedule::{AfterEnd, Schedule},
};
use std::{sync::Arc, time::Duration};

/// The character between the name of the whole and that of the worker. The name of a job cannot have it.
const AT: char = '@';

/// The largest number of bytes of the names of the workers in an entry of the history.
const NAMES_MAX: usize = 400;

/// Returns the name of the part of a worker.
pub(in crate::scheduler) fn part_name(whole: &str, worker: &str) -> Arc<str> {
    format!("{whole}{AT}{}", in_name(worker)).into()
}

/// Returns the worker as the names of its parts have it. They key records, so they have no slash.
pub(in crate::scheduler) fn in_name(worker: &str) -> String {
    worker.replace('%', "%25").replace('/', "%2F")
}

/// Returns the name of the whole from that of a part. Returns `None` if no job for every worker has a part of this name.
pub(in crate::scheduler) fn whole_of(name: &str) -> Option<&str> {
    whole_and_worker(name).map(|(whole, _)| whole)
}

/// Returns the name of the whole, and the worker as it is [in the name](in_name) of a part.
pub(in crate::scheduler) fn whole_and_worker(name: &str) -> Option<(&str, &str)> {
    name.split_once(AT)
}

impl Job {
    /// Returns the whole. Its runs end at once: the parts follow them. The payload of a run names the parts.
    pub(in crate::scheduler) fn whole(&self) -> Self {
        let hand_out = |run: RunContext| async move {
            run.set_note(&format!("handed out to {}", String::from_utf8_lossy(run.payload())));
            Ok::<(), String>(())
        };
        Self {
            work: Work::Function(to_handler(hand_out)),
            rules: JobRules {
                delivery: Delivery::AtLeastOnce,
                retries: Retry::NONE,
                timeout: None,
                concurrency: None,
                keep_output: 0,
                expect_within: None,
                pause_after_failures: None,
                ..self.rules.clone()
            },
            on_alert: None,
            payload: None,
            ..self.clone()
        }
    }

    /// Returns the part of a worker.
    pub(in crate::scheduler) fn part(&self, worker: &str) -> Self {
        Self {
            name: part_name(&self.name, worker),
            schedule: Schedule::after(&self.name, AfterEnd::Success),
            rules: JobRules {
                placement: Placement::AnyWorker,
                labels: self.rules.labels.of_worker(worker),
                jitter: Duration::ZERO,
                ..self.rules.clone()
            },
            ..self.clone()
        }
    }
}

/// Returns the payload of a run of the whole, which is handed out to these parts.
pub(in crate::scheduler) fn handed_out_to<'a>(parts: impl Iterator<Item = &'a str>) -> Option<Payload> {
    let workers: Vec<&str> = parts.filter_map(|name| Some(whole_and_worker(name)?.1)).collect();
    let mut names = workers.join(", ");
    if names.len() > NAMES_MAX {
        names = format!("{} workers", workers.len());
    }
    Payload::new(names).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::store::RunKey;

    #[test]
    fn each_worker_has_a_part_of_its_own_whose_name_keys_records() {
        let workers = ["oak", "a/b", "a%2Fb", "x@y"];
        let names = workers.map(|worker| part_name("scrub", worker));
        assert_eq!(
            names.each_ref().map(|name| &**name),
            ["scrub@oak", "scrub@a%2Fb", "scrub@a%252Fb", "scrub@x@y"]
        );
        for name in &names {
            assert_eq!(whole_of(name), Some("scrub"));
            let key = RunKey::new(name, crate::env::WallTime::from_micros(7)).key();
            assert_eq!(crate::scheduler::store::job_and_tick(&key).map(|(job, _)| job), Some(&**name));
        }
        assert_eq!(whole_of("scrub"), None);
    }

    #[test]
    fn the_whole_has_the_schedule_and_the_parts_have_the_rules_of_runs() {
        let every = Schedule::every(Duration::from_secs(60)).unwrap();
        let job = Job::named("scrub", every.clone(), "h")
            .placement(Placement::EveryWorker)
            .delivery(Delivery::AtMostOnce)
            .retries(Retry::new(3))
            .jitter(Duration::from_secs(1))
            .timeout(Duration::from_secs(5))
            .concurrency("disk", 1);
        let (whole, part) = (job.whole(), job.part("oak"));
        assert_eq!((&whole.schedule, whole.rules.placement), (&every, Placement::EveryWorker));
        assert!(
            whole.handler().is_some() && whole.rules.timeout.is_none() && whole.rules.concurrency.is_none()
        );
        assert_eq!(part.schedule.follows().map(|of| &*of.job), Some("scrub"));
        assert_eq!((part.rules.placement, part.rules.jitter), (Placement::AnyWorker, Duration::ZERO));
        assert_eq!((part.rules.delivery, part.rules.timeout), (job.rules.delivery, job.rules.timeout));
        assert!(part.rules.concurrency.is_some() && part.handler_name().is_some());
        assert_eq!(part.rules.labels.to_string(), "worker=oak");
    }
}
