//! The settings of `quorate serve`, which holds leases for other programs.

use super::{ConfigError, Flags, http::address, validation::Validation};
use crate::files::beside;
use quorate::plain::plain;
use std::{
    fmt,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
};

/// The longest path of a socket, in bytes: that of the system.
const PATH_MAX: usize = 107;
/// The number of leases that one client may hold, if the file gives none.
const LEASES: usize = 1_000;
/// The largest number of leases that one client may be allowed to hold.
const LEASES_MAX: i64 = 100_000;

/// The settings of `quorate serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// Where clients connect.
    pub listen: Vec<ClientAddress>,
    /// The file with the token that clients of an IP address send.
    pub token_file: Option<PathBuf>,
    /// The group of users that may connect to the sockets; only this process's user, if `None`.
    pub socket_group: Option<String>,
    /// The number of locks and messages that one client may hold.
    pub leases_per_client: usize,
}

/// An address on which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// A unix socket, whose permission decides who is a client.
    Unix(PathBuf),
    /// An address of this machine, whose clients send a token.
    Tcp(SocketAddr),
    /// The unix sockets that systemd has opened for this process.
    Systemd,
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
            Self::Systemd => f.write_str("systemd"),
        }
    }
}

/// A value with its key, and its position in the file.
type Found<'a> = (&'a str, &'static str, Option<Range<usize>>);

impl Validation<'_> {
    /// Returns the settings of `quorate serve`. Clients are served only if an address is given.
    pub(super) fn serve(&self, flags: &Flags) -> Result<Option<ServeConfig>, ConfigError> {
        let text = &self.file_text.serve;
        let found: Vec<Found<'_>> = if flags.serve.listen.is_empty() {
            let listed = text.listen.iter().flatten();
            listed.map(|one| (one.as_ref().as_str(), "serve.listen", Some(one.span()))).collect()
        } else {
            flags.serve.listen.iter().map(|one| (one.as_str(), "--listen", None)).collect()
        };
        if found.is_empty() {
            return Ok(None);
        }
        let of_file = |file: &Path| match &self.source {
            Some(source) => beside(source.file, file),
            None => file.to_owned(),
        };
        let in_file = text.token_file.as_ref().map(|file| of_file(file.as_ref()));
        let token_file = flags.serve.token_file.clone().or(in_file);
        let listen = found
            .into_iter()
            .map(|found| self.client_address(found, token_file.is_some()))
            .collect::<Result<_, _>>()?;
        let socket_group = flags
            .serve
            .socket_group
            .clone()
            .or_else(|| text.socket_group.as_ref().map(|name| name.as_ref().clone()));
        Ok(Some(ServeConfig {
            listen,
            token_file,
            socket_group,
            leases_per_client: self.leases_per_client()?,
        }))
    }

    fn client_address(
        &self,
        (text, key, span): Found<'_>,
        has_token: bool,
    ) -> Result<ClientAddress, ConfigError> {
        let shown = plain(text, 200);
        let fail = |text: String| Err(self.error_at(span.clone(), &text));
        if text == "systemd" {
            return Ok(ClientAddress::Systemd);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                _ if !path.starts_with('/') => fail(format!(
                    "{key} {shown:?} is not the path of a socket from the root; write it like unix:/run/quorate/quorate.sock"
                )),
                _ if path.len() > PATH_MAX || path.contains('\0') => fail(format!(
                    "{key} {shown:?} is longer than the {PATH_MAX} bytes that the system allows for a socket; choose a \
                     shorter path"
                )),
                _ => Ok(ClientAddress::Unix(path.into())),
            };
        }
        let Some(address) = address(text) else {
            return fail(format!(
                "{key} {shown:?} is no address for clients; write it like unix:/run/quorate/quorate.sock, 127.0.0.1:9641 \
                 or systemd"
            ));
        };
        if !address.ip().is_loopback() {
            return fail(format!(
                "{key} {address} can be reached from other machines, and clients speak plain HTTP; run one beside each \
                 client, on unix:/run/quorate/quorate.sock or 127.0.0.1:{}",
                address.port()
            ));
        }
        if !has_token {
            return fail(format!(
                "{key} {address} can be reached by every user of this machine; give --token-file or serve.token_file, a \
                 file with a token of at least 16 characters, or listen on unix:/run/quorate/quorate.sock"
            ));
        }
        Ok(ClientAddress::Tcp(address))
    }

    fn leases_per_client(&self) -> Result<usize, ConfigError> {
        let Some(given) = &self.file_text.serve.leases_per_client else { return Ok(LEASES) };
        match usize::try_from(*given.as_ref()) {
            Ok(count) if (1..=LEASES_MAX).contains(given.as_ref()) => Ok(count),
            _ => {
                let text = format!(
                    "serve.leases_per_client is {}; give a number from 1 to {LEASES_MAX}",
                    given.as_ref()
                );
                Err(self.error_at(Some(given.span()), &text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment, ServeFlags};
    use std::io;

    fn load(serve: &str, flags: ServeFlags) -> Result<Option<ServeConfig>, String> {
        let text = format!("nodes = [\"redis://a\"]\n{serve}");
        let read = |path: &Path| match path.to_str() {
            Some("/etc/q/q.toml") => Ok(text.clone()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let is_own = |_: &Path| true;
        let environment = Environment {
            env: Default::default(),
            read: &read,
            is_own: &is_own,
            host: "h".to_owned(),
            pid: 7,
        };
        let flags = Flags { config: Some("/etc/q/q.toml".into()), serve: flags, ..Flags::default() };
        Config::load(&flags, &environment).map(|config| config.serve).map_err(|error| error.to_string())
    }

    fn listen(addresses: &[&str]) -> ServeFlags {
        ServeFlags {
            listen: addresses.iter().map(|&text| text.to_owned()).collect(),
            ..ServeFlags::default()
        }
    }

    #[test]
    fn flags_come_before_the_file() {
        assert_eq!(load("", ServeFlags::default()).unwrap(), None);
        assert_eq!(load("[serve]\nleases_per_client = 5", ServeFlags::default()).unwrap(), None);
        let file = "[serve]\nlisten = [\"unix:/run/q.sock\", \"localhost:1\", \"systemd\"]\ntoken_file = \"t\"\n\
                    socket_group = \"app\"\nleases_per_client = 5";
        let of_file = load(file, ServeFlags::default()).unwrap().unwrap();
        let shown: Vec<String> = of_file.listen.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["unix:/run/q.sock", "127.0.0.1:1", "systemd"]);
        assert_eq!(of_file.token_file.as_deref(), Some(Path::new("/etc/q/t")), "beside the file");
        assert_eq!((of_file.socket_group.as_deref(), of_file.leases_per_client), (Some("app"), 5));
        let flags = ServeFlags {
            token_file: Some("/u".into()),
            socket_group: Some("web".to_owned()),
            ..listen(&["[::1]:2"])
        };
        let of_flags = load(file, flags).unwrap().unwrap();
        assert_eq!(of_flags.listen, [ClientAddress::Tcp("[::1]:2".parse().unwrap())]);
        assert_eq!(of_flags.token_file.as_deref(), Some(Path::new("/u")));
        assert_eq!(of_flags.socket_group.as_deref(), Some("web"));
        assert_eq!(load("", listen(&["unix:/q"])).unwrap().unwrap().leases_per_client, LEASES);
    }

    #[test]
    fn an_unusable_address_is_refused_with_the_fix() {
        let long = format!("unix:/{}", "x".repeat(PATH_MAX));
        for (given, reason, fix) in [
            ("unix:run/q.sock", "not the path of a socket", "unix:/run/quorate/quorate.sock"),
            (&*long, "longer than the 107 bytes", "a shorter path"),
            ("here", "is no address", "127.0.0.1:9641"),
            ("0.0.0.0:1", "from other machines", "127.0.0.1:1"),
            ("127.0.0.1:1", "by every user of this machine", "--token-file"),
        ] {
            let error = load("", listen(&[given])).unwrap_err();
            assert!(error.contains("--listen ") && error.contains(reason) && error.contains(fix), "{error}");
            let file = format!("[serve]\nlisten = [\n{given:?}]");
            let error = load(&file, ServeFlags::default()).unwrap_err();
            assert!(error.starts_with("/etc/q/q.toml:4: serve.listen ") && error.contains(fix), "{error}");
        }
        for count in [0, -1, LEASES_MAX + 1] {
            let error =
                load(&format!("[serve]\nlisten = [\"systemd\"]\nleases_per_client = {count}"), listen(&[]));
            assert!(error.as_ref().is_err_and(|error| error.contains("from 1 to 100000")), "{error:?}");
        }
    }
}
