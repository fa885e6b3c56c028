use super::{NodeArgs, daemon::LogArgs};
use crate::config::{Flags, ServeFlags};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # leases for every program that may use the socket
  quorate serve --nodes redis://a,redis://b,redis://c --listen unix:/run/quorate/quorate.sock
  curl --unix-socket /run/quorate/quorate.sock -d '{\"lock\": \"nightly\"}' \\
    http://localhost/api/v1/leases
  # for programs without unix sockets, which send the token of a file
  quorate serve --config quorate.toml --listen 127.0.0.1:9641 --token-file token

It holds leases with fencing tokens, and claims on messages, for programs in any
language, which speak HTTP. A lease is extended while its client sends requests
about it; a client that dies or hangs loses it. GET /api/v1/openapi.json describes
the requests; examples/clients has clients for Python and Node.js.

Who may connect to a socket is a client; its file has the mode 0600, or 0660 with
--socket-group. A client sees only its own leases, by their ids. Metrics, health
checks and the operator's page are on http.listen of the file.

On SIGTERM or SIGINT it gives no further lease, asks the clients to finish, and
waits for up to 25 s until no client relies on a lease. After a restart, the
leases of before are lost.

Exit status: 0 after SIGTERM or SIGINT; 78 configuration, or a majority of the
nodes refuses this user, node list or setting; 125 quorate failed.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Where clients connect: unix:PATH, 127.0.0.1:PORT (with a token) or systemd; may be repeated [default: serve.listen of the file]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// The file with the token that clients of 127.0.0.1:PORT send [default: serve.token_file of the file]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The group of users that may connect to the sockets [default: serve.socket_group of the file, or none]
    #[arg(long, value_name = "NAME")]
    socket_group: Option<String>,
    /// The group that the operator's page shows [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl ServeArgs {
    pub(crate) fn flags(&self) -> Flags {
        let serve = ServeFlags {
            listen: self.listen.clone(),
            token_file: self.token_file.clone(),
            socket_group: self.socket_group.clone(),
        };
        Flags { serve, ..self.nodes.flags() }
    }
}
