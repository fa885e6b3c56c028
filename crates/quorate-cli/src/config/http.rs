//! The settings of the HTTP server.

use super::{ConfigError, Flags, validation::Validation};
use crate::files::beside;
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
        let Some(address) = address(listen) else {
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

    pub(super) fn error_at(&self, span: Option<Range<usize>>, text: &str) -> ConfigError {
        match (&self.source, span) {
            (Some(source), Some(span)) => source.error(Some(span), text),
            _ => ConfigError::bare(text),
        }
    }
}

/// Reads an IP address with a port. `localhost` is 127.0.0.1: a name server is not asked.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?));
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment};
    use std::path::Path;

    fn load(http: &str, listen: Option<&str>) -> Result<Config, String> {
        let text = format!("nodes = [\"redis://a\"]\n{http}");
        let read = |path: &Path| match path == Path::new("/etc/q/q.toml") {
            true => Ok(text.clone()),
            false => Err(std::io::ErrorKind::NotFound.into()),
        };
        let env = [("QUORATE_CONFIG".to_owned(), "/etc/q/q.toml".to_owned())].into();
        let flags = Flags { listen: listen.map(str::to_owned), ..Flags::default() };
        let environment = Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
        Config::load(&flags, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_flag_has_priority_over_the_file_and_without_an_address_there_is_no_server() {
        let address = |http, listen| load(http, listen).unwrap().http.map(|http| http.listen.to_string());
        assert_eq!(address("", None), None);
        assert_eq!(address("http = { }", None), None);
        assert_eq!(address("http = { read_token_file = \"t\" }", None), None);
        let file = "[http]\nlisten = \"127.0.0.1:1\"";
        assert_eq!(address(file, None).as_deref(), Some("127.0.0.1:1"));
        assert_eq!(address(file, Some("[::1]:2")).as_deref(), Some("[::1]:2"));
        assert_eq!(address("", Some("localhost:3")).as_deref(), Some("127.0.0.1:3"));
        let file = "http = { listen = \"0.0.0.0:1\", read_token_file = \"t\", operate_token_file = \"/o\" }";
        let http = load(file, None).unwrap().http.unwrap();
        assert_eq!(http.read_token_file.as_deref(), Some(Path::new("/etc/q/t")), "beside the file");
        assert_eq!(http.operate_token_file.as_deref(), Some(Path::new("/o")));
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token_for_reading() {
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.7:1", "[::ffff:127.0.0.1]:1"] {
            for token in ["", "operate_token_file = \"o\""] {
                let error = load(&format!("[http]\nlisten = \"{address}\"\n{token}"), None).unwrap_err();
                assert!(error.starts_with("/etc/q/q.toml:3: http.listen "), "{error}");
                assert!(error.contains("no token protects") && error.contains("127.0.0.1:1"), "{error}");
            }
            let error = load("", Some(address)).unwrap_err();
            assert!(error.starts_with("--listen "), "{error}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_with_the_form() {
        for text in [
            "",
            "9640",
            ":9640",
            "127.0.0.1",
            "example.com:80",
            "127.0.0.1:70000",
            "localhost:x",
            "http://127.0.0.1:1",
        ] {
            let error = load("", Some(text)).unwrap_err();
            assert!(error.contains("write it like 127.0.0.1:9640"), "{text}: {error}");
        }
    }

    #[test]
    fn a_change_of_the_server_needs_a_restart() {
        let (old, new) = (load("", None).unwrap(), load("", Some("127.0.0.1:1")).unwrap());
        assert_eq!(old.needs_restart(&new), ["http"]);
        assert!(old.needs_restart(&old).is_empty());
    }
}
