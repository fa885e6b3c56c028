use std::{
    io::{self, stdin},
    os::fd::AsFd,
};
use tokio::{
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
};

/// Returns a future that waits for SIGTERM, or for the end of the parent process. The parent has the other end
/// of the pipe that is this process's standard input, so the pipe closes when the parent ends.
///
/// # Errors
/// If a signal handler cannot be installed, or standard input is not a pipe.
///
/// # Cancel safety
/// Safe: the future only waits.
pub fn told_to_end() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let parent = stdin().as_fd().try_clone_to_owned().and_then(pipe::Receiver::from_owned_fd)?;
    Ok(async move {
        let gone = async {
            loop {
                match parent.readable().await.and_then(|()| parent.try_read(&mut [0; 16])) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        };
        tokio::select! { biased;
            _ = terminate.recv() => {}
            () = gone => {}
        }
    })
}
