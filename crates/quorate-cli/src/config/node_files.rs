//! The checks of the nodes that need more than the text of the configuration: the files that the nodes need, and whether
//! another machine would reach the same nodes.

use super::{Config, ConfigError, NodeSpec};
use std::{
    io,
    path::{Path, PathBuf},
};

impl Config {
    /// Checks that every file which a node needs can be read: passwords, and the files for TLS.
    ///
    /// # Errors
    /// [`ConfigError`] names each such file, its key, the node, the reason and the fix.
    pub(crate) fn check_node_files(
        &self,
        read: &dyn Fn(&Path) -> io::Result<String>,
    ) -> Result<(), ConfigError> {
        let mut problems: Vec<String> = Vec::new();
        for node in &self.nodes {
            for (key, path) in self.files_of(node) {
                match read(&path) {
                    // The library judges the content.
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                    Err(error) => problems.push(format!(
                        "{key} {} of {node} cannot be read: {error}; create it, make it readable, or correct {key}",
                        path.display()
                    )),
                }
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigError::new(self.file.as_deref(), None, &problems.join("\n"))),
        }
    }

    /// Returns the files that `node` needs, each with its key.
    fn files_of(&self, node: &NodeSpec) -> Vec<(&'static str, PathBuf)> {
        let NodeSpec::Redis { url, password_file, tls } = node else { return Vec::new() };
        let mut files: Vec<_> = password_file.iter().map(|file| ("password_file", file.clone())).collect();
        if url.is_tls() {
            let tls = tls.or(&self.tls);
            files.extend(tls.ca_file.map(|file| ("ca_file", file)));
            if let Some((certificate, key)) = tls.client {
                files.extend([("cert_file", certificate), ("key_file", key)]);
            }
        }
        files
    }

    /// Returns what an operator should know before the program runs: that every node is a loopback address, which names
    /// another server on each machine, and which files with secrets every user can read.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let is_local = self.nodes.iter().all(NodeSpec::is_loopback);
        let local = is_local.then(|| {
            "every node is a loopback address, which is another server on each machine: on several machines, each one elects \
             its own leader and runs each job; name the nodes by host names that all machines reach"
                .to_owned()
        });
        local.into_iter().chain(self.secret_file_warnings()).collect()
    }
}
