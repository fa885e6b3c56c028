//! The files that `rediss://` nodes need, for one node or for all nodes.

use crate::files::beside;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The TLS files as named by flags, by the environment, or in one table of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct TlsNames {
    /// The certificates of the authorities to trust. They replace the machine's authorities.
    pub ca_file: Option<PathBuf>,
    /// The certificate to present to the servers.
    pub cert_file: Option<PathBuf>,
    /// The key of the certificate.
    pub key_file: Option<PathBuf>,
}

/// The TLS files, checked: a certificate is always present together with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the authorities to trust. They replace the machine's authorities.
    pub ca_file: Option<PathBuf>,
    /// The certificate to present to the servers, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl TlsNames {
    /// Returns `true` if no file is named.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that a certificate has its key. The error contains the configuration key that is given, and the
    /// key that is missing.
    pub(super) fn check(self) -> Result<TlsFiles, (&'static str, &'static str)> {
        let client = match (self.cert_file, self.key_file) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(("cert_file", "key_file")),
            (None, Some(_)) => return Err(("key_file", "cert_file")),
        };
        Ok(TlsFiles { ca_file: self.ca_file, client })
    }
}

impl TlsFiles {
    /// Returns these files as `file` means them: a relative path starts at the directory of `file`.
    pub(super) fn beside(self, file: &Path) -> Self {
        let meant = |path: PathBuf| beside(file, &path);
        Self {
            ca_file: self.ca_file.map(meant),
            client: self.client.map(|(certificate, key)| (meant(certificate), meant(key))),
        }
    }

    /// Returns these files. Files that are missing are taken from `other`. A certificate and its key come
    /// from one source.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            ca_file: self.ca_file.clone().or_else(|| other.ca_file.clone()),
            client: self.client.clone().or_else(|| other.client.clone()),
        }
    }
}
