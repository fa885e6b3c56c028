//! Access to files that may not answer, such as a FIFO without a writer, or a file on a file system that hangs.
//!
//! # What is not guaranteed
//!
//! A thread that hangs in a file system cannot be stopped. It ends when the file system answers. Each function
//! of this module has at most one such thread.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// The longest wait for a file.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// The largest configuration file, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// Returns `path` as `file` means it: a relative path starts at the directory of `file`.
pub(crate) fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().map_or_else(|| path.to_owned(), |directory| directory.join(path))
}

/// Reads a text file to its end. If a pipe or a terminal has no data for [`DEADLINE`], that is an error.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    read_within(path, DEADLINE)
}

fn read_within(path: &Path, deadline: Duration) -> io::Result<String> {
    // With `NONBLOCK`, opening a FIFO does not wait for a writer. The flag has no effect on regular files.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let (mut text, mut bytes) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        wait_for(&file, deadline)?;
        match file.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&bytes[..n]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if text.len() > BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("it is longer than {} MiB; name a configuration file", BYTES_MAX >> 20),
            ));
        }
    }
    String::from_utf8(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Waits until a read of `file` would return data or the end of the file.
fn wait_for(file: &File, deadline: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(deadline).map_err(io::Error::other)?;
    loop {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(no_answer(deadline)),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn no_answer(within: Duration) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!(
            "no answer within {within:?}; it may be a pipe without a writer, or on a file system that hangs"
        ),
    )
}

/// Returns whether a file belongs to the user of this process, or to root.
pub(crate) fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    std::fs::metadata(path).is_ok_and(|file| file.uid() == user || file.uid() == 0)
}

/// Reads a file like [`read`], on a separate thread. Meant for callers that must not wait for a file system
/// that hangs.
pub(crate) fn read_apart(path: &Path) -> io::Result<String> {
    /// True while an earlier read has not ended. Further reads are refused then, because each blocked read
    /// would take a thread.
    static BUSY: AtomicBool = AtomicBool::new(false);
    if BUSY.swap(true, Ordering::AcqRel) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "an earlier read of a file has not ended"));
    }
    let (done, answer) = mpsc::channel();
    let path = path.to_owned();
    let access = move || {
        let text = read(&path);
        BUSY.store(false, Ordering::Release);
        // The send fails if the caller has stopped waiting.
        let _ = done.send(text);
    };
    if let Err(error) = thread::Builder::new().name("quorate-file".to_owned()).spawn(access) {
        BUSY.store(false, Ordering::Release);
        return Err(error);
    }
    // This wait is a little longer than the deadline of the read itself. So if the read times out, the caller
    // gets the error of the read, which has more details.
    answer.recv_timeout(DEADLINE + DEADLINE / 10).unwrap_or_else(|_| Err(no_answer(DEADLINE)))
}

/// A thread that accesses files one after the other, for a loop that must not wait.
#[derive(Debug)]
pub(crate) struct FileThread {
    accesses: mpsc::Sender<Access>,
}

type Access = Box<dyn FnOnce() + Send>;

impl FileThread {
    /// Starts the thread. It ends once this handle is dropped and the last access has ended.
    pub(crate) fn start() -> io::Result<Self> {
        let (accesses, inbox) = mpsc::channel::<Access>();
        let serve = move || inbox.iter().for_each(|access| access());
        thread::Builder::new().name("quorate-files".to_owned()).spawn(serve)?;
        Ok(Self { accesses })
    }

    /// Queues an access after the accesses that are pending. The returned receiver gets the result.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        access: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, result) = oneshot::channel();
        let access = move || {
            // The send fails if the caller has dropped the receiver.
            let _ = done.send(access());
        };
        // If the thread has ended, the access is dropped together with the sender of its result, and the
        // receiver gets an error.
        let _ = self.accesses.send(Box::new(access));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    fn fifo(dir: &tempfile::TempDir) -> std::path::PathBuf {
        let path = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    }

    #[test]
    fn a_fifo_is_read_to_its_end_and_one_without_a_writer_times_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(&dir);
        let error = read_within(&path, SHORT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("no answer within 50ms"), "{error}");
        let writer = thread::spawn({
            let path = path.clone();
            move || {
                let mut file = OpenOptions::new().write(true).open(path).unwrap();
                for part in ["one ", "two"] {
                    file.write_all(part.as_bytes()).unwrap();
                    thread::sleep(SHORT);
                }
            }
        });
        assert_eq!(read_within(&path, LONG).unwrap(), "one two");
        writer.join().unwrap();
    }

    #[test]
    fn a_file_is_read_unchanged_and_errors_are_those_of_the_system() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "ü").unwrap();
        assert_eq!(read(&path).unwrap(), "ü");
        assert_eq!(read_apart(&path).unwrap(), "ü");
        fs::write(&path, "").unwrap();
        assert_eq!(read(&path).unwrap(), "");
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&dir.path().join("b")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let endless = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("longer than 16 MiB"), "{endless}");
    }

    #[test]
    fn an_access_that_hangs_delays_only_later_accesses() {
        let files = FileThread::start().unwrap();
        let (go_on, hung) = mpsc::channel::<()>();
        let mut first = files.begin(move || hung.recv().is_ok());
        let second = files.begin(|| 2);
        assert!(first.try_recv().is_err());
        go_on.send(()).unwrap();
        assert!(first.blocking_recv().unwrap());
        assert_eq!(second.blocking_recv().unwrap(), 2);
    }
}
