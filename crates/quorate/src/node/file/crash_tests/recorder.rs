//! A disk that records each change, fails or kills its process at a chosen change, and can leave out what makes
//! the changes durable.

use super::{
    super::disk::{Disk, FileId, SystemDisk},
    model::Op,
    workload::CrashWorld,
};
use crate::node::{BatchReply, Cause};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tokio::sync::oneshot;

/// A call that changed the disk, or an answer to a request.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A change, with the boot clock and the wall clock in seconds.
    Op(Op, (u64, u64)),
    Answered,
}

/// The end of a process, or a failure, at one change of the disk. Changes are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process that makes this change is killed before it, or in the middle of a write.
    Kill(usize),
    /// This call fails, once. The process lives on.
    Error(usize),
    /// This process ends itself with SIGKILL before the change.
    Signal(usize),
}

/// A part of the store that a test leaves out, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveOut {
    Nothing,
    /// New files are renamed without a sync of their content.
    FileSync,
    /// Directories are not synced.
    DirSync,
    /// Files are overwritten in place, and then synced.
    Replacing,
    /// All directories of a batch are synced at its end, not step by step.
    Steps,
    /// The lock file does not say that a session left changes unsynced.
    LeftoverNote,
    /// The names of the directories above the node's are not synced.
    OwnName,
}

type Answer = Result<BatchReply, Cause>;

/// The record that the processes of one run share.
#[derive(Debug)]
pub(super) struct Recording {
    home: PathBuf,
    world: Arc<CrashWorld>,
    fault: Option<Fault>,
    leave_out: LeaveOut,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    changes: usize,
    waiting: Option<oneshot::Receiver<Answer>>,
    answer: Option<Answer>,
    /// The directories whose sync waits for the end of the batch ([`LeaveOut::Steps`]).
    held: Vec<PathBuf>,
}

impl Recording {
    pub(super) fn new(
        home: &Path,
        world: &Arc<CrashWorld>,
        fault: Option<Fault>,
        leave_out: LeaveOut,
    ) -> Arc<Self> {
        let (home, world) = (home.to_owned(), Arc::clone(world));
        Arc::new(Self { home, world, fault, leave_out, state: Mutex::default() })
    }

    /// Returns the disk of one process.
    pub(super) fn process(self: &Arc<Self>) -> Arc<ProcessDisk> {
        Arc::new(ProcessDisk { recording: Arc::clone(self), killed: Mutex::new(false) })
    }

    /// Notes the answer when it arrives, which is before the next change or at [`answer`](Self::answer).
    pub(super) fn expect(&self, answer: oneshot::Receiver<Answer>) {
        let mut state = self.state.lock().unwrap();
        (state.waiting, state.answer) = (Some(answer), None);
    }

    /// Returns the answer, unless the process was killed before it gave one.
    pub(super) fn answer(&self, killed: bool) -> Option<Answer> {
        let mut state = self.state.lock().unwrap();
        if !killed {
            state.look_for_answer();
        }
        state.waiting = None;
        state.answer.take()
    }

    /// Notes that an open session was reported.
    pub(super) fn answered(&self) {
        self.state.lock().unwrap().events.push(Event::Answered);
    }

    /// Returns the number of changes that were tried.
    pub(super) fn changes(&self) -> usize {
        self.state.lock().unwrap().changes
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.state.lock().unwrap().events.clone()
    }
}

impl State {
    fn look_for_answer(&mut self) {
        if let Some(Ok(answer)) = self.waiting.as_mut().map(oneshot::Receiver::try_recv) {
            (self.waiting, self.answer) = (None, Some(answer));
            self.events.push(Event::Answered);
        }
    }
}

/// The disk of one process.
#[derive(Debug)]
pub(super) struct ProcessDisk {
    recording: Arc<Recording>,
    killed: Mutex<bool>,
}

impl ProcessDisk {
    pub(super) fn is_killed(&self) -> bool {
        *self.killed.lock().unwrap()
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.recording.home).map(Path::to_owned).unwrap_or_default()
    }

    /// Carries out one change unless it is the one at which the process ends or fails. Records it if it has
    /// succeeded.
    fn change(&self, op: Op, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.recording.state.lock().unwrap();
        if self.is_killed() {
            return Err(io::Error::other("the process was killed"));
        }
        state.look_for_answer();
        state.changes += 1;
        match self.recording.fault {
            Some(Fault::Kill(at)) if at == state.changes => {
                *self.killed.lock().unwrap() = true;
                if let Op::Write(path, bytes) = &op {
                    let half = bytes[..bytes.len() / 2].to_vec();
                    std::fs::write(self.recording.home.join(path), &half)?;
                    state.events.push(Event::Op(Op::Write(path.clone(), half), self.recording.world.at()));
                }
                return Err(io::Error::other("the process is killed"));
            }
            Some(Fault::Error(at)) if at == state.changes => return Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Signal(at)) if at == state.changes => {
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
                loop {
                    std::thread::park();
                }
            }
            _ => {}
        }
        make()?;
        state.record(op, self.recording.leave_out, self.recording.world.at());
        Ok(())
    }
}

impl State {
    /// Records a change as if a part of the store were left out.
    fn record(&mut self, op: Op, leave_out: LeaveOut, at: (u64, u64)) {
        let is_above_node = |dir: &Path| dir.components().count() < 2;
        match (leave_out, op) {
            (LeaveOut::FileSync, Op::SyncFile(_) | Op::SyncAll) | (LeaveOut::DirSync, Op::SyncDir(_)) => {}
            (LeaveOut::OwnName, Op::SyncDir(dir)) if is_above_node(&dir) => {}
            (LeaveOut::Steps, Op::SyncDir(dir)) => self.held.push(dir),
            (LeaveOut::Steps, op @ Op::SetLen(_, 0)) => {
                let held = std::mem::take(&mut self.held);
                self.events.extend(held.into_iter().map(|dir| Event::Op(Op::SyncDir(dir), at)));
                self.events.push(Event::Op(op, at));
            }
            (_, op) => self.events.push(Event::Op(op, at)),
        }
    }
}

impl Disk for ProcessDisk {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.exists() {
            return SystemDisk.make_dir(dir);
        }
        self.change(Op::MakeDir(self.relative(dir)), || SystemDisk.make_dir(dir))
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let mut created = None;
        self.change(Op::Create(self.relative(path)), || {
            created = Some(SystemDisk.create(path)?);
            Ok(())
        })?;
        created.ok_or_else(|| io::Error::other("not created"))
    }

    fn write(&self, path: &Path, file: &File, content: &[u8]) -> io::Result<()> {
        self.change(Op::Write(self.relative(path), content.to_owned()), || {
            SystemDisk.write(path, file, content)
        })
    }

    fn set_len(&self, path: &Path, file: &File, len: u64) -> io::Result<()> {
        if self.recording.leave_out == LeaveOut::LeftoverNote {
            return Ok(());
        }
        self.change(Op::SetLen(self.relative(path), len), || SystemDisk.set_len(path, file, len))
    }

    // The home is in memory, where a sync does nothing. So the real syncs are left out.
    fn sync_file(&self, path: &Path, _file: &File) -> io::Result<()> {
        self.change(Op::SyncFile(self.relative(path)), || Ok(()))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if !dir.starts_with(&self.recording.home) {
            return Ok(());
        }
        self.change(Op::SyncDir(self.relative(dir)), || super::super::disk::open_dir(dir).map(drop))
    }

    fn sync_file_system(&self, _root: &Path) -> io::Result<()> {
        self.change(Op::SyncAll, || Ok(()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.recording.leave_out == LeaveOut::Replacing && to.exists() {
            let content = std::fs::read(from)?;
            let target = File::options().write(true).truncate(true).open(to)?;
            self.write(to, &target, &content)?;
            self.sync_file(to, &target)?;
            return self.remove_file(from);
        }
        self.change(Op::Rename(self.relative(from), self.relative(to)), || SystemDisk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(Op::RemoveFile(self.relative(path)), || SystemDisk.remove_file(path))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(Op::RemoveDir(self.relative(dir)), || SystemDisk.remove_dir(dir))
    }

    // The directories that a test writes after a crash stand for one directory.
    fn identify(&self, _file: &File) -> io::Result<FileId> {
        Ok(FileId { inode: 1, created: 1 })
    }
}
