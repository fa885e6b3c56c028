use crate::{
    config::{HttpConfig, ServeConfig},
    exit::{CONFIG, Failure},
    files,
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};
use subtle::ConstantTimeEq;

/// The shortest token that is accepted, in bytes.
const TOKEN_MIN: usize = 16;
/// The longest token that is accepted, in bytes.
const TOKEN_MAX: usize = 256;

/// The rights of a client, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Ask for the status of a health check.
    Health,
    /// Hold leases, and see only these.
    Client,
    /// Read everything.
    Read,
    /// Change jobs and the leadership.
    Operate,
}

impl Access {
    /// Returns the rights on the page.
    pub(super) const fn on_page(self) -> Option<quorate_web::Access> {
        match self {
            Self::Health | Self::Client => None,
            Self::Read => Some(quorate_web::Access::Read),
            Self::Operate => Some(quorate_web::Access::Operate),
        }
    }
}

/// The tokens of a server.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    read: Option<Token>,
    operate: Option<Token>,
    client: Option<Token>,
}

/// Reads a file to its end.
type Reader = dyn Fn(&Path) -> io::Result<String>;

/// A token, filled up with zeros, so that each comparison takes the same time.
struct Token([u8; TOKEN_MAX]);

impl Tokens {
    /// Reads the files of the tokens.
    ///
    /// # Errors
    /// A [`Failure`] that names the field, the file, the reason and the fix.
    pub(super) fn read(http: Option<&HttpConfig>, serve: Option<&ServeConfig>) -> Result<Self, Failure> {
        Self::read_with(http, serve, &files::read_apart)
    }

    fn read_with(
        http: Option<&HttpConfig>,
        serve: Option<&ServeConfig>,
        reader: &Reader,
    ) -> Result<Self, Failure> {
        let read =
            |field, file: Option<&PathBuf>| file.map(|file| Token::read(field, file, reader)).transpose();
        let tokens = Self {
            read: read("http.read_token_file", http.and_then(|http| http.read_token_file.as_ref()))?,
            operate: read("http.operate_token_file", http.and_then(|http| http.operate_token_file.as_ref()))?,
            client: read("serve.token_file", serve.and_then(|serve| serve.token_file.as_ref()))?,
        };
        if let (Some(read), Some(operate)) = (&tokens.read, &tokens.operate)
            && operate.is(read)
        {
            let text = "http.operate_token_file has the same token as http.read_token_file, so that every reader \
                        could operate; write another token into one of them";
            return Err(Failure::new(CONFIG, text));
        }
        let is_client = |other: &Option<Token>| match (other, &tokens.client) {
            (Some(other), Some(client)) => other.is(client),
            _ => false,
        };
        if is_client(&tokens.read) || is_client(&tokens.operate) {
            let text = "serve.token_file has the same token as http.read_token_file or http.operate_token_file, so that every \
                        client could see the leases of others; write another token into it";
            return Err(Failure::new(CONFIG, text));
        }
        Ok(tokens)
    }

    /// Returns whether there are operations.
    pub(super) fn can_operate(&self) -> bool {
        self.operate.is_some()
    }

    /// Returns whether reading needs a token.
    pub(super) fn protects_reads(&self) -> bool {
        self.read.is_some()
    }

    /// Returns what the owner of this token may do. Unlike [`Tokens::access`], a token that is not valid has no rights,
    /// even if everybody may read.
    pub(super) fn access_of_token(&self, given: &str) -> Access {
        let given = Token::new(given.as_bytes());
        let is = |token: &Option<Token>| match (token, &given) {
            (Some(token), Some(given)) => token.is(given),
            _ => false,
        };
        // All comparisons are always made, so that their duration does not depend on the token.
        match (is(&self.client), is(&self.read), is(&self.operate)) {
            (.., true) => Access::Operate,
            (_, true, _) => Access::Read,
            (true, ..) => Access::Client,
            _ => Access::Health,
        }
    }

    /// Returns what a client with this token may do. The operate token also allows to read. Without a read token, everybody may
    /// read, except where clients of leases connect.
    pub(super) fn access(&self, given: Option<&str>, is_client: bool) -> Access {
        match given.map_or(Access::Health, |given| self.access_of_token(given)) {
            Access::Health if self.read.is_none() && !is_client => Access::Read,
            access => access,
        }
    }
}

impl Token {
    fn read(field: &str, file: &Path, reader: &Reader) -> Result<Self, Failure> {
        let shown = file.display();
        let text = reader(file).map_err(|error| {
            let text = format!("{field} {shown} cannot be read: {error}; make it readable for this user");
            Failure::new(CONFIG, text)
        })?;
        let text = text.trim_end_matches(['\r', '\n']);
        let wrong = |reason: &str| {
            let text = format!(
                "{field} {shown} {reason}; write one line with {TOKEN_MIN} to {TOKEN_MAX} visible ASCII characters, such as \
                 the output of `openssl rand -hex 32`"
            );
            Failure::new(CONFIG, text)
        };
        if text.is_empty() {
            return Err(wrong("is empty"));
        }
        if text.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(wrong("holds a space, a line end or a character that is not ASCII"));
        }
        match Self::new(text.as_bytes()) {
            Some(token) if text.len() >= TOKEN_MIN => Ok(token),
            _ => Err(wrong(&format!("has a token of {} characters", text.len()))),
        }
    }

    /// Returns `None` for a text that cannot be a token.
    fn new(text: &[u8]) -> Option<Self> {
        let mut token = [0; TOKEN_MAX];
        token.get_mut(..text.len())?.copy_from_slice(text);
        (!text.is_empty() && !text.contains(&0)).then_some(Self(token))
    }

    fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const READ: &str = "reading-reading-reading";
    const OPERATE: &str = "operate-operate-operate";

    fn config(dir: &tempfile::TempDir, read: Option<&str>, operate: Option<&str>) -> HttpConfig {
        let file = |name: &str, text: Option<&str>| {
            let path = dir.path().join(name);
            text.map(|text| fs::write(&path, text).map(|()| path).unwrap())
        };
        HttpConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            read_token_file: file("read", read),
            operate_token_file: file("operate", operate),
        }
    }

    fn read(config: &HttpConfig) -> Result<Tokens, Failure> {
        Tokens::read_with(Some(config), None, &files::read)
    }

    #[test]
    fn each_token_allows_what_it_is_for() {
        let dir = tempfile::tempdir().unwrap();
        let both = read(&config(&dir, Some(READ), Some(&format!("{OPERATE}\n")))).unwrap();
        let longer = format!("{READ}x");
        for (given, expected) in [
            (None, Access::Health),
            (Some(""), Access::Health),
            (Some(&READ[1..]), Access::Health),
            (Some(longer.as_str()), Access::Health),
            (Some("reading-reading-reading\0"), Access::Health),
            (Some(READ), Access::Read),
            (Some(OPERATE), Access::Operate),
        ] {
            assert_eq!(both.access(given, false), expected, "{given:?}");
        }
        assert!(both.can_operate() && both.protects_reads());
        assert_eq!(
            (both.access_of_token(READ), both.access_of_token(OPERATE), both.access_of_token("")),
            (Access::Read, Access::Operate, Access::Health)
        );
        let open = read(&config(&dir, None, None)).unwrap();
        assert_eq!((open.access(None, false), open.access(Some(""), false)), (Access::Read, Access::Read));
        assert_eq!(open.access(Some(OPERATE), false), Access::Read, "there are no operations");
        assert_eq!(open.access_of_token(OPERATE), Access::Health, "no token is valid");
        let operated = read(&config(&dir, None, Some(OPERATE))).unwrap();
        assert_eq!(
            (operated.access(None, false), operated.access(Some(OPERATE), false)),
            (Access::Read, Access::Operate)
        );
        assert!(!format!("{both:?}").contains("reading"));
    }

    #[test]
    fn clients_of_leases_see_nothing_without_a_token_for_reading() {
        let dir = tempfile::tempdir().unwrap();
        let http = config(&dir, None, Some(OPERATE));
        let of_clients = |text: &str| {
            let file = dir.path().join("clients");
            fs::write(&file, text).unwrap();
            let serve = ServeConfig {
                listen: Vec::new(),
                token_file: Some(file),
                socket_group: None,
                leases_per_client: 1,
            };
            Tokens::read_with(Some(&http), Some(&serve), &files::read)
        };
        let tokens = of_clients("clients-clients-clients").unwrap();
        for (given, expected) in [
            (None, Access::Health),
            (Some("wrong"), Access::Health),
            (Some("clients-clients-clients"), Access::Client),
            (Some(OPERATE), Access::Operate),
        ] {
            assert_eq!(tokens.access(given, true), expected, "{given:?}");
        }
        let same = of_clients(OPERATE).unwrap_err().to_string();
        assert!(same.contains("the same token") && !same.contains(OPERATE), "{same}");
    }

    #[test]
    fn an_unusable_file_is_refused_with_the_fix_and_without_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(257);
        for (text, reason) in [
            ("", "is empty"),
            ("\n", "is empty"),
            ("secret secret secret", "holds a space"),
            ("secret-secret-sécret", "not ASCII"),
            ("secret", "has a token of 6 characters"),
            (&long, "has a token of 257 characters"),
        ] {
            let failure = read(&config(&dir, Some(text), None)).unwrap_err();
            let shown = failure.to_string();
            assert!(shown.contains("http.read_token_file") && shown.contains(reason), "{shown}");
            assert!(shown.contains("openssl rand") && !shown.contains("secret"), "{shown}");
            assert_eq!(failure.code, CONFIG);
        }
        let same = read(&config(&dir, Some(READ), Some(READ))).unwrap_err().to_string();
        assert!(same.contains("the same token") && !same.contains(READ), "{same}");
        let mut missing = config(&dir, Some(READ), None);
        missing.operate_token_file = Some(dir.path().join("none"));
        let missing = read(&missing).unwrap_err().to_string();
        assert!(missing.contains("operate_token_file") && missing.contains("cannot be read"), "{missing}");
    }
}
