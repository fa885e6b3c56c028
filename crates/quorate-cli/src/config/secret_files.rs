//! The files of a configuration that contain secrets, and who can read them.

use super::{Config, NodeSpec, NotifyTarget, SecretSource};
use quorate::plain::plain;
use std::{collections::BTreeSet, fs, io, os::unix::fs::PermissionsExt, path::Path};

/// The longest path in a warning, in bytes.
const SHOWN_MAX: usize = 1_024;

/// The permission bit of a file that every user may read.
const OTHERS_READ: u32 = 0o004;

impl Config {
    /// Returns a warning for each file with a secret that every user of the machine can read. A file that cannot be
    /// examined gives none: the error of its reader says why.
    pub(crate) fn secret_file_warnings(&self) -> Vec<String> {
        self.secret_files()
            .into_iter()
            .filter(|(_, file)| mode(file).is_ok_and(|mode| mode & OTHERS_READ != 0))
            .map(|(key, file)| {
                let file = plain(&file.display().to_string(), SHOWN_MAX);
                format!("{key} {file} can be read by every user of this machine; run chmod o-r {file}")
            })
            .collect()
    }

    /// Returns each file that contains a secret, once, with its key.
    fn secret_files(&self) -> BTreeSet<(&'static str, &Path)> {
        let mut files = BTreeSet::new();
        files.extend(self.tls.client.iter().map(|(_, key)| ("key_file", key.as_path())));
        for node in &self.nodes {
            let NodeSpec::Redis { password_file, tls, .. } = node else { continue };
            files.extend(password_file.iter().map(|file| ("password_file", file.as_path())));
            files.extend(tls.client.iter().map(|(_, key)| ("key_file", key.as_path())));
        }
        if let Some(http) = &self.http {
            files.extend(http.read_token_file.iter().map(|file| ("read_token_file", file.as_path())));
            files.extend(http.operate_token_file.iter().map(|file| ("operate_token_file", file.as_path())));
        }
        let clients = self.serve.iter().filter_map(|serve| serve.token_file.as_deref());
        files.extend(clients.map(|file| ("token_file", file)));
        for notify in &self.notify {
            let NotifyTarget::Webhook { url, header_files, .. } = &notify.to else { continue };
            files.extend(of_url("webhook_file", url));
            files.extend(header_files.values().map(|file| ("header_files", file.as_path())));
        }
        if let Some(otlp) = &self.otlp {
            files.extend(of_url("url_file", &otlp.url));
            files.extend(otlp.header_files.values().map(|file| ("header_files", file.as_path())));
        }
        let pings = self.jobs.iter().filter_map(|job| job.ping.as_ref());
        files.extend(pings.filter_map(|ping| of_url("ping_file", &ping.url)));
        files
    }
}

fn of_url<'a>(key: &'static str, url: &'a SecretSource) -> Option<(&'static str, &'a Path)> {
    match url {
        SecretSource::File(file) => Some((key, file)),
        SecretSource::Url(_) => None,
    }
}

fn mode(file: &Path) -> io::Result<u32> {
    fs::metadata(file).map(|metadata| metadata.permissions().mode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags};
    use std::collections::BTreeMap;

    #[test]
    fn each_secret_that_every_user_can_read_gives_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let file = dir.path().join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let file = write(
            "quorate.toml",
            "nodes = [{ url = \"redis://127.0.0.1:1\", password_file = \"password\" },\n\
             { url = \"redis://127.0.0.1:2\", password_file = \"password\" },\n\
             { url = \"redis://127.0.0.1:3\", password_file = \"private\" }]\n\
             group = \"g\"\n\
             http = { listen = \"127.0.0.1:4\", read_token_file = \"read\", operate_token_file = \"missing\" }\n\
             otlp = { url_file = \"otlp\" }\n\
             [[notify]]\non = [\"failed\"]\nwebhook_file = \"hook\"\nheader_files = { Authorization = \"header\" }\n\
             [[job]]\nname = \"j\"\nevery = \"1h\"\ncommand = [\"true\"]\nping_file = \"ping\"\n",
            0o644,
        );
        for name in ["password", "read", "otlp", "hook", "header", "ping"] {
            write(name, "secret", 0o644);
        }
        write("private", "secret", 0o640);
        let flags = Flags { config: Some(file), ..Flags::default() };
        let environment = Environment {
            env: BTreeMap::new(),
            read: &crate::files::read,
            is_own: &|_| true,
            host: "oak".to_owned(),
            pid: 7,
        };
        let config = Config::load(&flags, &environment).unwrap();
        let warnings = config.secret_file_warnings();
        let keys: Vec<&str> = warnings.iter().filter_map(|text| text.split_whitespace().next()).collect();
        let named =
            ["header_files", "password_file", "ping_file", "read_token_file", "url_file", "webhook_file"];
        assert_eq!(keys, named, "{warnings:#?}");
        assert!(
            warnings[1].contains("password can be read by every user") && warnings[1].contains("chmod o-r")
        );
    }
}
