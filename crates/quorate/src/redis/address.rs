use crate::redis::{
    command::{Command, cmd},
    fault,
    tls::{ClientFiles, TlsFiles},
};
use crate::{config::SettingError, node::Cause};
use redis::{ConnectionAddr, IntoConnectionInfo};
use std::{borrow::Cow, fmt, path::PathBuf, sync::Arc};

/// The options that a `rediss://` URL may have.
const TLS_OPTIONS: [&str; 3] = ["ca_file", "cert_file", "key_file"];

/// The address of a server, and how to log in to it.
#[derive(Clone)]
pub(crate) struct Address {
    name: Arc<str>,
    endpoint: Endpoint,
    login: Login,
    tls: TlsFiles,
}

/// The network address of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

/// The user, the password and the database.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u64,
}

impl Login {
    /// Returns the password, to keep it out of texts.
    pub(crate) fn secret(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::reveal)
    }

    /// Returns the command that authenticates the client, if there is a password.
    pub(crate) fn auth(&self) -> Option<Command> {
        let password = self.password.as_ref()?;
        let mut auth = cmd("AUTH");
        auth.args(&self.user).arg(password.reveal());
        Some(auth)
    }

    /// Returns the command that selects the database, unless it is the one of every new connection.
    pub(crate) fn select(&self) -> Option<Command> {
        (self.database != 0).then(|| {
            let mut select = cmd("SELECT");
            select.number(self.database);
            select
        })
    }

    /// Returns `cause` without the password.
    pub(crate) fn redact(&self, cause: Cause) -> Cause {
        match self.secret() {
            Some(secret) => fault::redact(cause, secret),
            None => cause,
        }
    }

    /// Returns `text`, a fact about the server, without the password.
    pub(crate) fn clean<'a>(&self, text: &'a str) -> &'a str {
        self.secret().map_or(text, |secret| fault::fact_without(text, secret))
    }
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, SettingError> {
        let wrong = |why: &str| wrong_url(text, why);
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| wrong("has no scheme; write redis:// in front of it, or rediss:// for TLS"))?;
        // The `redis` crate parses the rest of the URL. The crate is built without TLS support, so it gets a
        // scheme without TLS.
        let (plain, tls) = match &*scheme.to_ascii_lowercase() {
            "redis" | "valkey" => ("redis", false),
            "rediss" | "valkeys" => ("redis", true),
            "unix" | "redis+unix" | "valkey+unix" => ("unix", false),
            _ => {
                return Err(wrong(
                    "has a scheme that is not redis://, rediss:// or unix://; use one of these",
                ));
            }
        };
        let mut url = redis::parse_redis_url(&format!("{plain}://{rest}")).ok_or_else(|| {
            wrong(
                "cannot be read; write redis://USER:PASSWORD@HOST:PORT/DATABASE, and in user and password \
                   %40 for @, %2F for /, %3A for :",
            )
        })?;
        if url.fragment().is_some() {
            return Err(wrong(
                "has a part after #, which has no meaning here (certificates are always checked); \
                              remove it, or write %23 for # in a password",
            ));
        }
        let known: &[&str] = match plain {
            "unix" => &["db", "user", "pass"],
            _ if tls => &TLS_OPTIONS,
            _ => &[],
        };
        // The errors below do not repeat an unknown option, because the option may be a part of a password
        // that was not escaped.
        if !tls && url.query_pairs().any(|(option, _)| TLS_OPTIONS.contains(&&*option)) {
            return Err(wrong(
                "has an option of TLS (ca_file, cert_file, key_file), and is not TLS; write rediss://",
            ));
        }
        if url.query_pairs().any(|(option, _)| !known.contains(&&*option)) {
            return Err(wrong(
                "has an option after ? that has no meaning here (a unix:// URL knows db, user and pass, a rediss:// URL \
                 ca_file, cert_file and key_file); remove it, or write %3F for ? in a password",
            ));
        }
        let files = tls_files(url.query_pairs()).map_err(wrong)?;
        if tls {
            url.set_query(None);
        }
        let database = url.path().trim_matches('/');
        if plain == "redis" && !database.is_empty() && database.parse::<i64>().is_err() {
            return Err(wrong(
                "names a database that is not a number; write redis://HOST:PORT/0, and %2F for / \
                              in a password",
            ));
        }
        let info = url.into_connection_info().map_err(|_| {
            wrong(
                "cannot be connected to; write redis://HOST:PORT/DATABASE with a host that is not 0.0.0.0, \
                   or unix:///PATH?db=DATABASE",
            )
        })?;
        let (endpoint, login) = endpoint_and_login(&info, tls).map_err(wrong)?;
        let name = name(&endpoint, login.database).into();
        Ok(Self { name, endpoint, login, tls: files })
    }

    /// Returns the canonical address. The canonical address has no secrets and names all defaults, so that
    /// two spellings of one address have the same name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tcp { tls: true, .. })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the files that the URL's options name.
    pub(crate) fn tls(&self) -> &TlsFiles {
        &self.tls
    }

    pub(crate) fn login(&self) -> &Login {
        &self.login
    }
}

/// Returns the server and the login of a URL that the `redis` crate has parsed, or what is wrong with it.
fn endpoint_and_login(info: &redis::ConnectionInfo, tls: bool) -> Result<(Endpoint, Login), &'static str> {
    let settings = info.redis_settings();
    let login = Login {
        user: settings.username().map(str::to_owned),
        password: settings.password().filter(|password| !password.is_empty()).map(Secret::new),
        database: u64::try_from(settings.db()).map_err(|_| "names a database below 0; write 0 or more")?,
    };
    let endpoint = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Endpoint::Tcp { host: host.to_ascii_lowercase(), port: *port, tls }
        }
        ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
        _ => return Err("names a kind of address that is not known here"),
    };
    Ok((endpoint, login))
}

/// Parses the options of a `rediss://` URL.
fn tls_files<'a>(
    options: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + Clone,
) -> Result<TlsFiles, &'static str> {
    let mut files: [Option<PathBuf>; 3] = [None, None, None];
    for (slot, name) in files.iter_mut().zip(TLS_OPTIONS) {
        for (_, value) in options.clone().filter(|(option, _)| option == name) {
            if value.is_empty() {
                return Err(
                    "has an option ca_file, cert_file or key_file without a file; write ?ca_file=FILE",
                );
            }
            if slot.replace(value.into_owned().into()).is_some() {
                return Err("has an option twice; keep one of them");
            }
        }
    }
    let [ca, certificate, key] = files;
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(ClientFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err("has a cert_file and no key_file; give both, which may be one file"),
        (None, Some(_)) => return Err("has a key_file and no cert_file; give both, which may be one file"),
    };
    Ok(TlsFiles { ca, client })
}

fn name(endpoint: &Endpoint, database: u64) -> String {
    match endpoint {
        Endpoint::Tcp { host, port, tls } => {
            let scheme = if *tls { "rediss" } else { "redis" };
            if host.contains(':') {
                format!("{scheme}://[{host}]:{port}/{database}")
            } else {
                format!("{scheme}://{host}:{port}/{database}")
            }
        }
        Endpoint::Unix(path) => format!("unix://{}?db={database}", path.display()),
    }
}

/// A secret text. No `Debug` or `Display` shows it.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the secret text, for sending it to the server.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Returns the error for a node's URL that cannot be used. It contains no password. `why` has the reason and the fix.
fn wrong_url(text: &str, why: &str) -> SettingError {
    let (reason, fix) =
        why.split_once("; ").unwrap_or((why, "write a URL of redis://, rediss:// or unix://"));
    SettingError::new("the node's URL", format!("{:?}", redact(text)), format!("which {reason}"), fix)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Returns the parts of an unusable URL that an error may show: the scheme, and a text that looks like a
/// host. These parts do not contain a password.
///
/// If the user forgot to escape a password, or forgot the `@`, the password is in the place of another part.
/// Therefore nothing before the last `@` is shown except the scheme. Of the rest, only the beginning that
/// consists of characters of a host name is shown, and after an `@` also the port.
fn redact(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest))
            if scheme.len() <= 16 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+') =>
        {
            (format!("{scheme}://"), rest)
        }
        Some((_, rest)) => ("…://".to_owned(), rest),
        None => (String::new(), text),
    };
    let (hidden, rest) = match rest.rsplit_once('@') {
        // The options begin before the last `@`, so this `@` may be part of a password in an option.
        Some((before, _)) if before.contains(['?', '#']) => return format!("{scheme}…"),
        Some((_, rest)) => ("…@", rest),
        None => ("", rest),
    };
    let host_ends = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/')));
    let (host, after) = rest.split_at(host_ends.unwrap_or(rest.len()));
    // After an `@`, a number up to 65535 is shown as the port. A password is rarely such a number.
    let port = after.strip_prefix(':').and_then(|after| {
        let digits = after.split('/').next().unwrap_or_default();
        (!hidden.is_empty() && digits.parse::<u16>().is_ok()).then_some(digits)
    });
    let host: String = host.chars().take(80).collect();
    match port {
        Some(port) => format!("{scheme}{hidden}{host}:{port}"),
        None if after.is_empty() => format!("{scheme}{hidden}{host}"),
        None => format!("{scheme}{hidden}{host}…"),
    }
}
