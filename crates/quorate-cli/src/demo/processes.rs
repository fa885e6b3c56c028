use super::{journal::WorkerId, nodes::Nodes, worker};
use crate::{
    config::NODES_VARIABLE,
    exit::{FAILURE, Failure},
};
use quorate::env::{BootTime, Env};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

/// The longest time in which workers must end after SIGTERM.
const TO_END: Duration = Duration::from_secs(4);
/// The time between two looks at a process that is ending.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The worker processes. Dropping this value kills those that still run.
#[derive(Debug)]
pub(crate) struct Processes {
    env: Env,
    dir: PathBuf,
    runs: BTreeMap<Arc<str>, u32>,
    running: BTreeMap<WorkerId, Member>,
}

#[derive(Debug)]
struct Member {
    /// The worker process. The pipe of its standard input closes when this process ends, which ends the
    /// worker.
    child: Child,
    /// Set once the worker has been sent a signal that ends it.
    ending: bool,
}

impl Processes {
    pub(crate) fn new(env: &Env, dir: &Path) -> Self {
        Self { env: env.clone(), dir: dir.to_owned(), runs: BTreeMap::new(), running: BTreeMap::new() }
    }

    /// Returns the directory of the journals and messages.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the worker with this name, for the first time or again. Returns its id and its process id.
    pub(crate) fn start_worker(
        &mut self,
        worker: &Arc<str>,
        nodes: &Nodes,
    ) -> Result<(WorkerId, u32), Failure> {
        let run = self.runs.entry(Arc::clone(worker)).or_default();
        *run += 1;
        let who = WorkerId { worker: Arc::clone(worker), run: *run };
        let fail = |error: std::io::Error| Failure::new(FAILURE, format!("{worker} does not start: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(fail)?);
        command
            .arg0("quorate")
            .args(worker::to_args(&who, &self.dir, nodes))
            // The demo has its own nodes, and does not need the user's passwords.
            .env_remove(NODES_VARIABLE)
            // A Ctrl-C must reach only the demo, which then ends the workers itself.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let child = command.spawn().map_err(fail)?;
        let pid = child.id();
        self.running.insert(who.clone(), Member { child, ending: false });
        Ok((who, pid))
    }

    /// Sends the worker a signal that will end it. Returns the time just before the signal was sent.
    pub(crate) fn signal(&mut self, who: &WorkerId, signal: Signal) -> Result<BootTime, Failure> {
        let fail = |why: &str| Failure::new(FAILURE, format!("{} cannot be signalled: {why}", who.worker));
        let member = self.running.get_mut(who).ok_or_else(|| fail("it does not run"))?;
        member.ending = true;
        let at = self.env.now();
        kill_process(Pid::from_child(&member.child), signal).map_err(|error| fail(&error.to_string()))?;
        Ok(at)
    }

    /// Removes workers that have ended. A worker that ended without a signal of the demo is a failure.
    pub(crate) fn reap_ended(&mut self) -> Result<(), Failure> {
        let mut failed = None;
        self.running.retain(|who, member| match member.child.try_wait() {
            Ok(Some(status)) => {
                if !member.ending {
                    failed = Some(Failure::new(FAILURE, format!("{} ended by itself: {status}", who.worker)));
                }
                false
            }
            _ => true,
        });
        failed.map_or(Ok(()), Err)
    }

    /// Sends SIGTERM to all workers, and waits for their end. Kills those that do not end in time. Returns
    /// whether all ended by themselves. A second call does nothing.
    pub(crate) async fn end(&mut self) -> bool {
        for member in self.running.values_mut() {
            member.ending = true;
            // The worker has not been reaped, so its process id cannot belong to another process.
            let _ = kill_process(Pid::from_child(&member.child), Signal::TERM);
        }
        let deadline = self.env.now() + TO_END;
        while self.env.now() < deadline {
            let _ = self.reap_ended();
            if self.running.is_empty() {
                return true;
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        self.kill();
        false
    }

    fn kill(&mut self) {
        for member in self.running.values_mut() {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
        self.running.clear();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}
