use std::process::{Command, Stdio};

/// Returns a command that runs the program in its arguments in new namespaces: for the network, the mounts, the
/// processes, the host name and inter-process communication. The program has all rights in them. It is process 1 of its
/// namespace, so that all processes in the namespace end with it, and it ends with `unshare`.
pub fn isolated() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

/// Returns an error with the reason if this machine does not permit a [`Network`](super::Network), or lacks a program
/// that it needs.
///
/// # Errors
/// If a namespace, a bridge or a packet filter cannot be created.
pub fn can_isolate() -> Result<(), String> {
    let script = "ip link add name switch type bridge && nft add table bridge quorate && \
                  nft add chain bridge quorate links '{ type filter hook forward priority 0; }' && \
                  mount -t tmpfs none /run && nsenter --version";
    let output = isolated().args(["sh", "-c", script]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("unshare(1) of util-linux cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "a network of namespaces with packet filters cannot be made here: {}; it needs Linux, root or user namespaces, and \
         the programs ip, nft and nsenter (`bash tests/run.sh` installs them)",
        errors.trim()
    ))
}
