use super::{
    ConfigError, NodeSpec, Secret,
    error::{SourceText, nearest},
    file::FileText,
    tls::{TlsFiles, TlsNames},
};
use crate::files::{self, beside};
use nix::unistd::User;
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

/// The environment variables that are settings.
const SETTINGS: [&str; 5] =
    [NODES_VARIABLE, "QUORATE_CONFIG", "QUORATE_CA_FILE", "QUORATE_CERT_FILE", "QUORATE_KEY_FILE"];
/// The environment variable with the list of nodes, which may contain passwords. Commands that this program
/// runs do not inherit it, and neither do the supervisor processes that guard these commands.
pub(crate) const NODES_VARIABLE: &str = "QUORATE_NODES";
/// The environment variables that `exec`, `run` and `[[notify]]` set for commands, which may call `quorate` again.
pub(crate) const COMMAND_VARIABLES: [&str; 13] = [
    "QUORATE_RESOURCE",
    "QUORATE_FENCING_TOKEN",
    "QUORATE_JOB",
    "QUORATE_TICK",
    "QUORATE_CAUSE",
    "QUORATE_REQUEST",
    "QUORATE_ATTEMPT",
    "QUORATE_DEADLINE",
    "QUORATE_EVENT",
    "QUORATE_GROUP",
    "QUORATE_TIME",
    "QUORATE_REASON",
    "QUORATE_TEXT",
];

/// The file of the working directory, which `quorate init` writes.
const HERE: &str = "./quorate.toml";
/// The system's configuration file.
const SYSTEM: &str = "/etc/quorate/quorate.toml";

/// The flags that concern the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--nodes`, given once with commas or several times. May contain passwords.
    pub nodes: Secret<Vec<String>>,
    /// `--local`.
    pub local: bool,
    /// `--prefix`.
    pub prefix: Option<String>,
    /// `--listen`.
    pub listen: Option<String>,
    /// The flags of `serve`.
    pub serve: ServeFlags,
    /// `--ca-file`, `--cert-file` and `--key-file`.
    pub tls: TlsNames,
}

/// The flags of `serve`, which come before the table of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeFlags {
    /// `--listen`, given once or several times.
    pub listen: Vec<String>,
    /// `--token-file`.
    pub token_file: Option<PathBuf>,
    /// `--socket-group`.
    pub socket_group: Option<String>,
}

/// The parts of the process's environment on which the configuration depends. Tests create their own.
pub struct Environment<'a> {
    /// The environment variables. Variables that are not UTF-8 are left out, except those whose names begin with `QUORATE_`.
    pub env: BTreeMap<String, String>,
    /// Reads a file to its end.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Returns whether a file belongs to this user or to root. A file of the working directory that belongs to another
    /// user is not read by itself: it could name that user's commands.
    pub is_own: &'a dyn Fn(&Path) -> bool,
    /// The name of the host, for the default name of the worker.
    pub host: String,
    /// The process id, for the default name of the worker.
    pub pid: u32,
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} on {})", self.pid, self.host)
    }
}

impl Environment<'_> {
    /// Returns the person who runs the program, as USER@HOST. Without a name of the user, that is the one of the process,
    /// or its number.
    pub(super) fn person(&self) -> String {
        let named = ["USER", "LOGNAME"].into_iter().find_map(|name| self.env.get(name).cloned());
        let of_process = || {
            let uid = nix::unistd::geteuid();
            User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
        };
        format!("{}@{}", named.unwrap_or_else(of_process), self.host)
    }
}

impl Environment<'static> {
    /// Returns the environment of this process.
    pub fn process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let name = name.into_string().ok()?;
            match value.into_string() {
                Ok(value) => Some((name, value)),
                // A setting that is not UTF-8 must not count as missing. The code that uses the setting
                // reports the invalid value.
                Err(value) if name.starts_with("QUORATE_") => {
                    Some((name, value.to_string_lossy().into_owned()))
                }
                Err(_) => None,
            }
        };
        Self {
            env: std::env::vars_os().filter_map(text).collect(),
            read: &files::read_apart,
            is_own: &files::is_own,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
        }
    }
}

/// The source of the list of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodesFrom {
    /// `--nodes`.
    Flag,
    /// `--local`.
    Local,
    /// `QUORATE_NODES`.
    Variable,
    /// The configuration file.
    File(PathBuf),
}

impl fmt::Display for NodesFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--nodes"),
            Self::Local => f.write_str("--local"),
            Self::Variable => f.write_str("QUORATE_NODES"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Refuses an unknown `QUORATE_…` variable.
pub(super) fn check_variables(environment: &Environment<'_>) -> Result<(), ConfigError> {
    let known = |name: &str| SETTINGS.contains(&name) || COMMAND_VARIABLES.contains(&name);
    let strange = environment.env.keys().find(|name| name.starts_with("QUORATE_") && !known(name));
    let Some(name) = strange else { return Ok(()) };
    let fix = match nearest(name, SETTINGS.into_iter()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}: unset it", SETTINGS.join(", ")),
    };
    Err(ConfigError::bare(&format!("unknown environment variable {name}; {fix}")))
}

/// Returns the file and its text. A named file must exist. If no file is named, the first default path that
/// exists is read: in the working directory, of the user, of the system.
pub(super) fn find_file(
    flags: &Flags,
    environment: &Environment<'_>,
) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let named = match (&flags.config, environment.env.get("QUORATE_CONFIG")) {
        (Some(path), _) => Some((path.clone(), "--config")),
        (None, Some(path)) if path.is_empty() => {
            return Err(ConfigError::bare("QUORATE_CONFIG is empty; unset it, or name a file"));
        }
        (None, Some(path)) => Some((PathBuf::from(path), "QUORATE_CONFIG")),
        (None, None) => None,
    };
    if let Some((path, by)) = named {
        let unread = |error: io::Error| {
            ConfigError::new(Some(&path), None, &format!("cannot be read (named by {by}): {error}"))
        };
        let text = (environment.read)(&path).map_err(unread)?;
        return Ok(Some((path, text)));
    }
    for path in default_paths(environment) {
        match (environment.read)(&path) {
            Ok(_) if path == Path::new(HERE) && !(environment.is_own)(&path) => {
                let text = "belongs to another user, so it is not read by itself; name it with --config if you trust it";
                return Err(ConfigError::new(Some(&path), None, text));
            }
            Ok(text) => return Ok(Some((path, text))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => {
                let text =
                    format!("cannot be read: {error}; make it readable, or name another with --config");
                return Err(ConfigError::new(Some(&path), None, &text));
            }
        }
    }
    Ok(None)
}

fn default_paths(environment: &Environment<'_>) -> Vec<PathBuf> {
    let user = base(environment, "XDG_CONFIG_HOME", ".config").map(|base| base.join("quorate/quorate.toml"));
    [PathBuf::from(HERE)].into_iter().chain(user).chain([PathBuf::from(SYSTEM)]).collect()
}

/// Returns a base directory by the XDG rules: the value of the variable if it is an absolute path, else a
/// directory below the home directory.
fn base(environment: &Environment<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute =
        |name: &str| environment.env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// Returns the nodes from the flags, else the environment, else the file. There is no default.
pub(super) fn find_nodes(
    flags: &Flags,
    environment: &Environment<'_>,
    source: Option<&SourceText<'_>>,
    file_text: &FileText,
) -> Result<(Vec<NodeSpec>, NodesFrom), ConfigError> {
    if flags.local {
        if !flags.nodes.0.is_empty() {
            return Err(ConfigError::bare("--local and --nodes exclude each other; keep one of them"));
        }
        return Ok((vec![local(environment)?], NodesFrom::Local));
    }
    if !flags.nodes.0.is_empty() {
        return Ok((listed(&flags.nodes.0.join(","), &NodesFrom::Flag)?, NodesFrom::Flag));
    }
    if let Some(list) = environment.env.get(NODES_VARIABLE) {
        return Ok((listed(list, &NodesFrom::Variable)?, NodesFrom::Variable));
    }
    match (source, &file_text.nodes) {
        (Some(source), Some(nodes)) => {
            let mut specs = Vec::new();
            for node in nodes.as_ref() {
                let text = node.as_ref();
                let password_file = text.password_file.as_deref().map(|file| beside(source.file, file));
                let spec = NodeSpec::parse(&text.url, password_file)
                    .and_then(|spec| spec.in_file(text.tls.clone(), source.file))
                    .map_err(|error| source.error(Some(node.span()), &error.to_string()))?;
                specs.push(spec);
            }
            Ok((specs, NodesFrom::File(source.file.to_owned())))
        }
        _ => Err(no_nodes(environment, source)),
    }
}

/// Returns the TLS files for all nodes, from the flags, else the environment, else the file.
pub(super) fn find_tls(
    flags: &Flags,
    environment: &Environment<'_>,
    source: Option<&SourceText<'_>>,
    file_text: &FileText,
) -> Result<TlsFiles, ConfigError> {
    let half = |there: &str, missing: &str| {
        format!("{there} is given without {missing}; give both, which may be one file")
    };
    let flagged = flags.tls.clone().check().map_err(|(there, missing)| {
        let flag = |key: &str| format!("--{}", key.replace('_', "-"));
        ConfigError::bare(&half(&flag(there), &flag(missing)))
    })?;
    let variable = |key: &str| format!("QUORATE_{}", key.to_uppercase());
    let file = |key: &str| match environment.env.get(&variable(key)) {
        Some(path) if path.is_empty() => {
            Err(ConfigError::bare(&format!("{} is empty; unset it, or name a file", variable(key))))
        }
        path => Ok(path.map(PathBuf::from)),
    };
    let names =
        TlsNames { ca_file: file("ca_file")?, cert_file: file("cert_file")?, key_file: file("key_file")? };
    let set = names
        .check()
        .map_err(|(there, missing)| ConfigError::bare(&half(&variable(there), &variable(missing))))?;
    let written = match (source, &file_text.tls) {
        (Some(source), Some(names)) => {
            let wrong = |(there, missing)| {
                source.error(Some(names.span()), &format!("tls: {}", half(there, missing)))
            };
            names.as_ref().clone().check().map_err(wrong)?.beside(source.file)
        }
        _ => TlsFiles::default(),
    };
    Ok(flagged.or(&set).or(&written))
}

/// Parses a list that is separated by commas or white space.
fn listed(list: &str, from: &NodesFrom) -> Result<Vec<NodeSpec>, ConfigError> {
    let texts = list.split([',', ' ', '\t', '\n']).filter(|text| !text.is_empty());
    let specs: Vec<_> = texts
        .map(|text| NodeSpec::parse(text, None))
        .collect::<Result<_, _>>()
        .map_err(|error| ConfigError::bare(&format!("{from}: {error}")))?;
    if specs.is_empty() {
        let text = format!(
            "{from} is empty; list the nodes, separated by commas: redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"
        );
        return Err(ConfigError::bare(&text));
    }
    Ok(specs)
}

fn local(environment: &Environment<'_>) -> Result<NodeSpec, ConfigError> {
    let state = base(environment, "XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        ConfigError::bare("--local needs a state directory; set HOME or XDG_STATE_HOME to an absolute path, or use --nodes file:///dir")
    })?;
    Ok(NodeSpec::File { dir: state.join("quorate/node") })
}

fn no_nodes(environment: &Environment<'_>, source: Option<&SourceText<'_>>) -> ConfigError {
    let file = match source {
        Some(source) => format!("nodes = [\"redis://…\", …] in {}", source.file.display()),
        None => {
            let places: Vec<_> =
                default_paths(environment).iter().map(|path| path.display().to_string()).collect();
            format!(
                "nodes = [\"redis://…\", …] in the file of --config or QUORATE_CONFIG, or else in the first of {}",
                places.join(", ")
            )
        }
    };
    ConfigError::bare(&format!(
        "no nodes are named. Name the same nodes on every machine, in one of these ways:\n  \
         --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3\n  \
         QUORATE_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3\n  \
         {file}\n  \
         --local, for one machine alone: one node in the user's state directory"
    ))
}
