use super::tls::{TlsFiles, TlsNames};
use quorate::plain::plain;
use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use url::Url;

/// The longest text of a node that an error repeats, in bytes.
const SHOWN_MAX: usize = 300;

/// The default port of Redis.
const PORT: u16 = 6379;

/// The address and credentials of a node. Neither `Debug` nor `Display` shows a password.
#[derive(Clone, PartialEq, Eq)]
pub enum NodeSpec {
    /// A Redis server: `redis://`, `rediss://` (TLS) or `unix://`.
    Redis {
        /// Its URL, which may contain a user and a password.
        url: SecretUrl,
        /// The file that contains the password.
        password_file: Option<PathBuf>,
        /// The TLS files of this node alone.
        tls: TlsFiles,
    },
    /// A directory on this host that its processes share: `file:///dir`.
    File {
        /// The directory, absolute.
        dir: PathBuf,
    },
}

impl NodeSpec {
    /// Parses the URL of a node.
    ///
    /// # Errors
    /// [`NodeError`] names the error and the fix, and shows no password.
    pub fn parse(text: &str, password_file: Option<PathBuf>) -> Result<Self, NodeError> {
        let fail = |why: &str| Err(NodeError { text: plain(&redact(text), SHOWN_MAX), why: why.to_owned() });
        let parsed = Url::parse(text);
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        match (scheme, parsed) {
            ("file", Ok(url)) => match url.to_file_path() {
                Ok(_) if password_file.is_some() => fail("is a directory and takes no password_file"),
                // The directory is shown in messages and logs, where such characters would change the terminal.
                Ok(dir) if dir.to_string_lossy().contains(char::is_control) => {
                    fail("has a control character in its path; choose a directory without one")
                }
                Ok(dir) if dir != Path::new("/") => Ok(Self::File { dir: dir.components().collect() }),
                _ => fail(
                    "names no directory; write its absolute path after file://, like file:///var/lib/quorate/a",
                ),
            },
            ("redis" | "rediss", Ok(url)) => {
                if url.host_str().is_none_or(str::is_empty) {
                    return fail("names no host; write it like redis://10.0.0.1:6379");
                }
                let database = url.path().trim_start_matches('/');
                if !database.is_empty() && database.parse::<u16>().is_err() {
                    return fail(
                        "has a path that is not a database number; write it like redis://10.0.0.1/0",
                    );
                }
                Self::redis(text, &url, password_file)
            }
            ("unix", Ok(url)) => {
                if url.host_str().is_some_and(|host| !host.is_empty())
                    || url.path().trim_matches('/').is_empty()
                {
                    return fail("names no socket; write its absolute path, like unix:///run/redis.sock");
                }
                Self::redis(text, &url, password_file)
            }
            ("redis" | "rediss" | "unix" | "file", Err(error)) => fail(&format!(
                "is not a URL: {error}; write it like redis://10.0.0.1:6379 (and %-escape special characters of a password)"
            )),
            ("memory", _) => {
                fail("exists in one process alone; use file:///dir for the processes of one host")
            }
            ("", _) => fail(
                "has no scheme; write it like redis://10.0.0.1:6379, unix:///run/redis.sock or file:///dir",
            ),
            _ => fail("has an unknown scheme; use redis://, rediss://, unix:// or file://"),
        }
    }

    fn redis(text: &str, url: &Url, password_file: Option<PathBuf>) -> Result<Self, NodeError> {
        let in_query = url.query_pairs().any(|(key, _)| key == "pass");
        if password_file.is_some() && (url.password().is_some() || in_query) {
            let why = "has a password, and also a password_file; keep one of them".to_owned();
            return Err(NodeError { text: plain(&redact(text), SHOWN_MAX), why });
        }
        let names = TlsNames {
            ca_file: option(url, "ca_file"),
            cert_file: option(url, "cert_file"),
            key_file: option(url, "key_file"),
        };
        if url.scheme() != "rediss" && !names.is_empty() {
            return Err(NodeError { text: plain(&redact(text), SHOWN_MAX), why: NO_TLS.to_owned() });
        }
        let tls = names.check().map_err(|pair| NodeError::half(text, pair))?;
        Ok(Self::Redis { url: SecretUrl(text.into()), password_file, tls })
    }

    /// Returns the node with the TLS files that its table in `file` names beside the URL. Relative paths start
    /// at the directory of `file`.
    ///
    /// # Errors
    /// [`NodeError`] for TLS files of a node without TLS, a file that both the URL and the table name, and a
    /// certificate without its key.
    pub(super) fn in_file(self, names: TlsNames, file: &Path) -> Result<Self, NodeError> {
        let shown = self.to_string();
        let fail = |why: &str| Err(NodeError { text: plain(&shown, SHOWN_MAX), why: why.to_owned() });
        let (url, password_file, own) = match self {
            Self::Redis { url, password_file, tls } => (url, password_file, tls),
            Self::File { .. } if names.is_empty() => return Ok(self),
            Self::File { .. } => return fail(NO_TLS),
        };
        if !names.is_empty() && !url.is_tls() {
            return fail(NO_TLS);
        }
        let names = names.check().map_err(|pair| NodeError::half(&shown, pair))?;
        if (names.ca_file.is_some() && own.ca_file.is_some())
            || (names.client.is_some() && own.client.is_some())
        {
            return fail("has a ca_file or a cert_file in its URL, and also one beside it; keep one of them");
        }
        Ok(Self::Redis { url, password_file, tls: names.or(&own).beside(file) })
    }

    /// Returns whether the node is a Redis server at a loopback address of this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let Self::Redis { url, .. } = self else { return false };
        let Ok(url) = Url::parse(url.expose()) else { return false };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_lowercase();
        match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        }
    }

    /// Returns the name of the node in messages: scheme, host, port, and a database other than 0, without user and password.
    /// Two entries with one name are one node.
    pub fn name(&self) -> Arc<str> {
        match self {
            Self::File { dir } => format!("file://{}", dir.display()).into(),
            Self::Redis { url, .. } => url.name().into(),
        }
    }
}

impl fmt::Display for NodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl fmt::Debug for NodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis { password_file: Some(file), .. } => {
                write!(f, "{self} (password in {})", file.display())
            }
            _ => write!(f, "{self}"),
        }
    }
}

/// The reason to refuse the TLS files of a node that is not reached over TLS.
const NO_TLS: &str = "is not TLS and takes no ca_file, cert_file or key_file; write rediss://";

/// Returns the value of a URL option that names a file.
fn option(url: &Url, name: &str) -> Option<PathBuf> {
    url.query_pairs().find(|(option, _)| option == name).map(|(_, value)| value.into_owned().into())
}

/// A URL that may contain a password. It is shown without user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(Arc<str>);

impl SecretUrl {
    /// Returns the whole URL, including the password, for connecting.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.starts_with("rediss://")
    }

    fn name(&self) -> String {
        let Ok(url) = Url::parse(&self.0) else { return redact(&self.0) };
        let (scheme, path) = (url.scheme(), url.path().trim_end_matches('/'));
        if scheme == "unix" {
            return format!("unix://{path}");
        }
        let host = url.host_str().unwrap_or_default().to_lowercase();
        let database = if path == "/0" { "" } else { path };
        format!("{scheme}://{host}:{}{database}", url.port().unwrap_or(PORT))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// An invalid node, with the reason. Shows no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node `{text}` {why}")]
pub struct NodeError {
    text: String,
    why: String,
}

impl NodeError {
    fn half(text: &str, (there, missing): (&str, &str)) -> Self {
        let why = format!("has a {there} and no {missing}; give both, which may be the same file");
        Self { text: plain(&redact(text), SHOWN_MAX), why }
    }
}

/// Removes everything from `text` that may be a password: all between `://` (or the beginning) and the last
/// `@`, a port that is not a number, and the text after `pass=`. The text can be anything, so this function
/// removes too much rather than too little.
pub(crate) fn redact(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    // The text after `pass=` is removed first, because such a password may contain an @ itself.
    let pass = rest.find("pass").and_then(|at| Some(at + rest[at..].find('=')? + 1));
    let (rest, hidden) = pass.map_or((rest, ""), |at| (&rest[..at], "***"));
    let shown = match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}***@{rest}"),
        None if scheme.is_empty() => rest.to_owned(),
        None => format!("{scheme}{}", without_odd_port(rest)),
    };
    shown + hidden
}

/// Hides a port that is not a number, because it may be a password. A password is at this place if `@host` is
/// missing, or if a comma in the password split the list.
fn without_odd_port(rest: &str) -> String {
    let host_ends = match rest.find(']') {
        Some(end) if rest.starts_with('[') => end + 1,
        _ => rest.find([':', '/']).unwrap_or(rest.len()),
    };
    let (host, after) = rest.split_at(host_ends);
    let Some(after) = after.strip_prefix(':') else { return rest.to_owned() };
    let (port, database) = after.split_at(after.find('/').unwrap_or(after.len()));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    match host.is_empty() || !digits(port) {
        true => format!("{host}:***"),
        false if digits(database.trim_start_matches('/')) => rest.to_owned(),
        // The text after the port may be part of a password that contains a slash. So it is hidden.
        false => format!("{host}:{port}/***"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NodeSpec, NodeError> {
        NodeSpec::parse(text, None)
    }

    #[test]
    fn each_kind_of_node_has_a_name_without_secrets() {
        let table = [
            ("redis://10.0.0.1", "redis://10.0.0.1:6379"),
            ("redis://10.0.0.1:6379/0", "redis://10.0.0.1:6379"),
            ("redis://10.0.0.1/", "redis://10.0.0.1:6379"),
            ("redis://:hush@10.0.0.1:7000/3", "redis://10.0.0.1:7000/3"),
            ("rediss://me:hush@Redis.Example", "rediss://redis.example:6379"),
            ("redis://[::1]:7000", "redis://[::1]:7000"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            ("unix:///run/redis.sock?pass=hush", "unix:///run/redis.sock"),
            ("file:///var/lib/quorate/a/", "file:///var/lib/quorate/a"),
        ];
        for (text, name) in table {
            let spec = parse(text).unwrap();
            assert_eq!(&*spec.name(), name);
            assert!(!format!("{spec:?} {spec} {spec:#?}").contains("hush"), "{spec:?}");
        }
        let NodeSpec::Redis { url, .. } = parse("redis://:hush@a").unwrap() else { panic!("a Redis node") };
        assert_eq!(url.expose(), "redis://:hush@a", "whole, for connecting");
        assert!(!format!("{url:?} {url}").contains("hush"));
    }

    #[test]
    fn a_loopback_address_is_recognised() {
        for text in [
            "redis://127.0.0.1:7001",
            "rediss://me:hush@localhost",
            "redis://[::1]:7000/1",
            "redis://127.1.2.3",
        ] {
            assert!(parse(text).unwrap().is_loopback(), "{text}");
        }
        for text in [
            "redis://10.0.0.1",
            "redis://alpha",
            "unix:///run/redis.sock",
            "file:///a",
            "redis://localhost.example",
        ] {
            assert!(!parse(text).unwrap().is_loopback(), "{text}");
        }
    }

    #[test]
    fn an_invalid_node_is_rejected_with_the_required_format() {
        let table = [
            ("10.0.0.1:6379", "has no scheme; write it like redis://"),
            ("localhost:6379", "has no scheme; write it like redis://"),
            ("", "has no scheme"),
            ("http://10.0.0.1", "unknown scheme; use redis://"),
            ("memory://", "in one process alone; use file:///dir"),
            ("redis://", "redis://10.0.0.1:6379"),
            ("redis://:hush@", "redis://10.0.0.1:6379"),
            ("redis://a:70000", "is not a URL: invalid port number"),
            ("redis://a/jobs", "not a database number"),
            ("unix://run/redis.sock", "unix:///run/redis.sock"),
            ("unix://", "names no socket"),
            ("file://relative/dir", "file:///var/lib/quorate/a"),
            ("file:///", "names no directory"),
            ("file:///a%1bb", "has a control character in its path"),
            ("redis://:hu#sh@a:b", "is not a URL"),
        ];
        for (text, part) in table {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn one_password_is_enough() {
        let file = || Some(PathBuf::from("/run/secrets/redis"));
        assert!(NodeSpec::parse("redis://me@a", file()).is_ok(), "a user alone goes with a password file");
        for text in ["redis://me:hush@a", "redis://:hush@a", "unix:///run/a?pass=hush"] {
            let error = NodeSpec::parse(text, file()).unwrap_err().to_string();
            assert!(error.contains("keep one of them") && !error.contains("hush"), "{error}");
        }
        assert!(
            NodeSpec::parse("file:///a", file()).unwrap_err().to_string().contains("takes no password_file")
        );
    }

    #[test]
    fn tls_files_come_from_the_url_or_from_the_table_of_the_node() {
        let names = |ca: Option<&str>, cert: Option<&str>, key: Option<&str>| TlsNames {
            ca_file: ca.map(PathBuf::from),
            cert_file: cert.map(PathBuf::from),
            key_file: key.map(PathBuf::from),
        };
        let in_file = |url: &str, names: TlsNames| parse(url)?.in_file(names, Path::new("/etc/q/q.toml"));
        let client = |cert: &str, key: &str| Some((cert.into(), key.into()));

        let url = "rediss://a?ca_file=ca.pem&cert_file=/c%20d.pem&key_file=k%2Bk";
        let NodeSpec::Redis { tls, .. } = parse(url).unwrap() else { panic!("a Redis node") };
        assert_eq!(tls, TlsFiles { ca_file: Some("ca.pem".into()), client: client("/c d.pem", "k+k") });
        assert_eq!(&*parse(url).unwrap().name(), "rediss://a:6379");
        let NodeSpec::Redis { tls, .. } = in_file(url, TlsNames::default()).unwrap() else { panic!() };
        assert_eq!(
            tls,
            TlsFiles { ca_file: Some("/etc/q/ca.pem".into()), client: client("/c d.pem", "/etc/q/k+k") }
        );
        let both = in_file("rediss://a?ca_file=ca.pem", names(None, Some("c"), Some("k"))).unwrap();
        let NodeSpec::Redis { tls, .. } = both else { panic!("a Redis node") };
        assert_eq!(
            tls,
            TlsFiles { ca_file: Some("/etc/q/ca.pem".into()), client: client("/etc/q/c", "/etc/q/k") }
        );

        for (url, names, part) in [
            ("redis://a?ca_file=x", TlsNames::default(), "is not TLS"),
            ("redis://a", names(Some("x"), None, None), "write rediss://"),
            ("file:///a", names(Some("x"), None, None), "is not TLS"),
            ("rediss://a?ca_file=x", names(Some("y"), None, None), "keep one of them"),
            ("rediss://a?cert_file=x", TlsNames::default(), "a cert_file and no key_file"),
            ("rediss://a", names(None, None, Some("k")), "a key_file and no cert_file"),
        ] {
            let error = in_file(url, names).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn redaction_removes_too_much_rather_than_too_little() {
        assert_eq!(redact("redis://:a@b@host"), "redis://***@host");
        assert_eq!(redact("redis:/:a@host"), "***@host");
        assert_eq!(
            redact("string \"redis://:a@h,redis://:b@g\", expected"),
            "string \"redis://***@g\", expected"
        );
        assert_eq!(redact("redis://host"), "redis://host");
        assert_eq!(redact("redis://host:6379/1"), "redis://host:6379/1");
        assert_eq!(redact("redis://[::1]"), "redis://[::1]");
        assert_eq!(redact("redis://me:hush"), "redis://me:***");
        assert_eq!(redact("redis://:1234"), "redis://:***");
        assert_eq!(redact("unix:///a?pass=x&db=1"), "unix:///a?pass=***");
    }
}
