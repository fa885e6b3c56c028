//! The parts that one process of the supervisor passes to the next: this binary, and the command's streams.

use rustix::{
    io::{FdFlags, fcntl_setfd},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};
use std::{
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Returns the path of this binary. On Linux the path refers to the running binary, even after an upgrade has
/// replaced the file on disk.
pub(super) fn this_binary() -> io::Result<OsString> {
    let running = Path::new("/proc/self/exe");
    // Only the link is examined, and not the file system of the binary, which may not answer.
    if running.symlink_metadata().is_ok() {
        Ok(running.into())
    } else {
        std::env::current_exe().map(OsString::from)
    }
}

pub(super) fn send_streams(socket: impl AsFd, streams: &[OwnedFd; 3]) -> io::Result<()> {
    let streams = streams.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives the command's three streams over the standard input. Returns `None` if the sender has ended, or has sent
/// something else because the command must not start.
pub(super) fn receive_streams() -> io::Result<Option<[OwnedFd; 3]>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let socket = io::stdin();
    let got = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())?;
    let mut streams = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            streams.extend(fds);
        }
    }
    for stream in &streams {
        // With this flag, the command gets the streams only as its standard streams, and inherits no other
        // copies.
        fcntl_setfd(stream, FdFlags::CLOEXEC)?;
    }
    if got.bytes == 0 || streams.is_empty() {
        return Ok(None);
    }
    let streams = streams.try_into();
    streams.map(Some).map_err(|_| io::Error::other("the command's streams did not arrive"))
}
