use crate::redis::{
    address::{Address, Login, Secret},
    connect::connect,
    files::Files,
    keys::Keys,
    tls::{ClientFiles, Tls, TlsFiles},
    wire::{self, Reader, Writer},
};
use crate::{config::SettingError, env::Env, node::Cause};
use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

/// The maximum number of bytes of a password file.
const PASSWORD_FILE_MAX: u64 = 64 * 1024;

/// A Redis server as a node.
///
/// ```
/// use quorate::node::Node;
/// use quorate::redis::RedisNode;
///
/// let node = RedisNode::parse("redis://app:secret@Cache-1.example/2")?;
/// assert_eq!(node.name(), "redis://cache-1.example:6379/2");
/// # Ok::<(), quorate::SettingError>(())
/// ```
///
/// Every [`open`](crate::node::Node::open) makes one connection and one handshake, without retries. No name, error or
/// [`Debug`] text contains a password.
#[derive(Clone)]
pub struct RedisNode {
    address: Address,
    keys: Keys,
    env: Env,
    tls: Tls,
    tls_files: TlsFiles,
    password_file: Option<PathBuf>,
    files: Files,
}

impl RedisNode {
    /// Returns the server at `url`:
    ///
    /// * `redis://[[USER]:PASSWORD@]HOST[:6379][/DATABASE]`
    /// * `rediss://…[?ca_file=FILE][&cert_file=FILE&key_file=FILE]`, the same over TLS. The options are those
    ///   of [`ca_file`](Self::ca_file) and [`client_certificate`](Self::client_certificate). In them, `+ & % #`
    ///   are written `%2B %26 %25 %23`
    /// * `unix:///PATH[?db=DATABASE][&user=USER][&pass=PASSWORD]`
    ///
    /// In a user or password, `@ / ? # %` and `:` are written `%40 %2F %3F %23 %25 %3A`.
    ///
    /// # Errors
    /// [`SettingError`] with the reason and the fix. The error contains no password.
    pub fn parse(url: &str) -> Result<Self, SettingError> {
        let address = Address::parse(url)?;
        Ok(Self {
            tls_files: address.tls().clone(),
            address,
            keys: Keys::new("quorate:"),
            env: Env::system(),
            tls: Tls::default(),
            password_file: None,
            files: Files::default(),
        })
    }

    /// Sets the prefix of every key. The prefix is `quorate:` by default, and may be empty. All workers that
    /// share a resource must use the same prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.keys = Keys::new(prefix);
        self
    }

    /// Reads the password from `file` at every connection. A newline at the end of the file is ignored. The
    /// file takes precedence over a password in the URL.
    #[must_use]
    pub fn password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.password_file = Some(file.into());
        self
    }

    /// Trusts the certificate authorities in this PEM file, instead of those that the machine trusts. The file
    /// takes precedence over the URL's option. The file is read at every connection. The machine's certificates
    /// are read only once.
    #[must_use]
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls_files.ca = Some(file.into());
        self
    }

    /// Presents the certificate of this PEM file to the server over TLS. After that certificate, the file
    /// contains the certificates of any intermediate authorities, up to an authority that the server trusts
    /// (`tls-ca-cert-file`). `key_file` contains the key, in PEM and not encrypted. The certificate and the
    /// key may be in one file. These files take precedence over the URL's options. They are read at every
    /// connection, so that a renewed certificate needs no restart. Replace the files by renaming, the key
    /// first. A connection that is made between the two renames fails, and is tried again.
    #[must_use]
    pub fn client_certificate(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        self.tls_files.client = Some(ClientFiles { certificate: cert_file.into(), key: key_file.into() });
        self
    }

    /// Runs the sessions' tasks in `env`.
    #[doc(hidden)]
    #[must_use]
    pub fn with_env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Returns the address with all defaults and without secrets, which is the name of the node.
    pub(crate) fn canonical_url(&self) -> &str {
        self.address.name()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Opens a connection. Returns its two halves, and the credentials for the login.
    pub(crate) async fn dial(&self) -> Result<((Reader, Writer), Login), Cause> {
        let login = self.login().await?;
        let tls = match self.address.is_tls() {
            true => {
                let (tls, names) = (self.tls.clone(), self.tls_files.clone());
                Some(self.files.read(&self.env, "a TLS file", move || tls.config(&names)).await?)
            }
            false => None,
        };
        let stream = connect(&self.env, &self.address, tls).await?;
        Ok((wire::split(stream), login))
    }

    async fn login(&self) -> Result<Login, Cause> {
        let mut login = self.address.login().clone();
        if let Some(file) = self.password_file.clone() {
            let what = format!("the password_file {}", file.display());
            login.password = Some(self.files.read(&self.env, &what, move || read_password(&file)).await?);
        }
        Ok(login)
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", &self.canonical_url())
            .field("prefix", &self.keys.prefix())
            .field("password_file", &self.password_file)
            .field("ca_file", &self.tls_files.ca)
            .field("client_certificate", &self.tls_files.client)
            .finish_non_exhaustive()
    }
}

fn read_password(file: &Path) -> Result<Secret, Cause> {
    let bad = |why: &str| {
        let fix = "give a file that holds the password alone, in one line, and that the user of this process may read";
        Cause::Misconfigured(format!("the password_file {} {why}; {fix}", file.display()).into())
    };
    let mut text = String::new();
    let read =
        fs::File::open(file).and_then(|open| open.take(PASSWORD_FILE_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| bad(&format!("cannot be read: {error}")))?;
    if text.len() as u64 > PASSWORD_FILE_MAX {
        return Err(bad("is longer than 64 KiB"));
    }
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(bad("is empty"));
    }
    if password.contains(['\0', '\n', '\r']) {
        return Err(bad("holds more than one line, or a NUL"));
    }
    // Such a password exists, but a file with one is nearly always a mistake, which the server answers with WRONGPASS.
    if password.starts_with('\u{feff}') || password.trim() != password {
        return Err(bad(
            "begins with a byte order mark, or begins or ends with a blank, which would be sent as a part of the password \
             (write a password with such blanks into the node's URL, as %20)",
        ));
    }
    Ok(Secret::new(password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_password_file_is_refused_with_the_reason() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("password");
        let long = "x".repeat(100_000);
        for (content, why) in [
            ("", "is empty"),
            ("\n", "is empty"),
            ("a\nb", "more than one line"),
            (&long, "64 KiB"),
            ("\u{feff}secret\n", "byte order mark"),
            ("secret \n", "ends with a blank"),
            ("\tsecret", "ends with a blank"),
        ] {
            fs::write(&file, content).unwrap();
            let cause = read_password(&file).err().unwrap().to_string();
            assert!(
                cause.contains(why) && cause.contains("give a file that holds the password alone"),
                "{cause}"
            );
        }
        // `/dev/zero` never ends, so the read must stop at the limit.
        assert!(read_password(Path::new("/dev/zero")).err().unwrap().to_string().contains("64 KiB"));
        fs::write(&file, "secret\r\n").unwrap();
        assert!(read_password(&file).is_ok());
    }
}
