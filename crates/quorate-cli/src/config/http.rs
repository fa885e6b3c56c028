//! The settings of the HTTP server.

use super::{ConfigError, Flags, Validation, beside};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    path::PathBuf,
};

/// The settings of the HTTP server, for metrics, health checks and the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The file with the token for reading. Without it, every client that can connect may read.
    pub read_token_file: Option<PathBuf>,
    /// The file with the token for operations, such as a trigger. Without it, there are no operations.
    pub operate_token_file: Option<PathBuf>,
}

impl Validation<'_> {
    /// Returns the settings of the HTTP server. There is a server only if an address is given.
    pub(super) fn http(&self, flags: &Flags) -> Result<Option<HttpConfig>, ConfigError> {
        let text = &self.file_text.http;
        let (listen, key, span) = match (&flags.listen, &text.listen) {
            (Some(listen), _) => (listen.as_str(), "--listen", None),
            (None, Some(listen)) => (listen.as_ref().as_str(), "http.listen", Some(listen.span())),
            (None, None) => return Ok(None),
        };
        let fail = |text: String| self.error_at(span.clone(), &text);
        let Some(address) = parse(listen) else {
            return Err(fail(format!(
                "{key} {listen:?} is not an IP address with a port; write it like 127.0.0.1:9640 or [::1]:9640"
            )));
        };
        let path = |file: &Option<toml::Spanned<PathBuf>>| match (file, &self.source) {
            (Some(file), Some(source)) => Some(beside(source.file, file.as_ref())),
            _ => None,
        };
        let (read_token_file, operate_token_file) =
            (path(&text.read_token_file), path(&text.operate_token_file));
        if !address.ip().is_loopback() && read_token_file.is_none() {
            return Err(fail(format!(
                "{key} {address} can be reached from other machines, and no token protects what it shows; set \
                 http.read_token_file to a file with a token of at least 16 characters, or listen on 127.0.0.1:{}",
                address.port()
            )));
        }
        Ok(Some(HttpConfig { listen: address, read_token_file, operate_token_file }))
    }

    fn error_at(&self, span: Option<Range<usize>>, text: &str) -> ConfigError {
        match (&self.source, span) {
            (Some(source), Some(span)) => source.error(Some(span), text),
            _ => ConfigError::bare(text),
        }
    }
}

/// Reads an IP address with a port. `localhost` is 127.0.0.1: a name server is not asked.
fn parse(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?));
    }
    text.parse().ok()
}
