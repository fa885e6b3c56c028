use super::StartError;
use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The source of the library that is preloaded into the server.
const SOURCE: &str = include_str!("clock_shim.c");

/// A wall clock for one server, which a test can step while the server runs. Linux only.
///
/// The clock is a small library in C, which is preloaded into the server. `cc` compiles the library when it
/// is first needed. The server maps a file that stores the sum of all steps. A step therefore persists over a
/// restart of the server, as a step of a machine's clock does.
#[derive(Debug)]
pub(super) struct ServerClock {
    library: PathBuf,
    file: PathBuf,
}

impl ServerClock {
    /// Creates a clock that shows the machine's time, for a server with the directory `dir`.
    pub(super) fn new(dir: &Path) -> Result<Self, StartError> {
        let library = library(dir)?;
        let file = dir.join("clock");
        fs::write(&file, 0_i64.to_ne_bytes())?;
        Ok(Self { library, file })
    }

    /// Makes the server that `command` starts use this clock.
    pub(super) fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("QUORATE_CLOCK_FILE", &self.file);
    }

    /// Returns `true` if the process has loaded the library. A statically linked program would ignore the
    /// library.
    pub(super) fn rules(&self, pid: u32) -> bool {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains(&*self.library.to_string_lossy())
    }

    /// Steps the clock by `by` at once: forward if `forward`, otherwise back.
    pub(super) fn step(&self, by: Duration, forward: bool) -> io::Result<()> {
        let by = i64::try_from(by.as_micros()).map_err(io::Error::other)?;
        let mut step = [0; 8];
        let file = fs::File::options().read(true).write(true).open(&self.file)?;
        file.read_exact_at(&mut step, 0)?;
        let step = i64::from_ne_bytes(step) + if forward { by } else { -by };
        // The file is overwritten in place, because the server has mapped it.
        file.write_all_at(&step.to_ne_bytes(), 0)
    }
}

/// Returns the compiled library. An earlier run of the tests may have compiled it.
fn library(dir: &Path) -> Result<PathBuf, StartError> {
    let mut hasher = DefaultHasher::new();
    (SOURCE, env::consts::ARCH).hash(&mut hasher);
    let name = format!("quorate-clock-{:016x}.so", hasher.finish());
    let place = build_dir().unwrap_or_else(|| dir.to_owned());
    fs::create_dir_all(&place)?;
    let library = place.join(name);
    if !library.exists() {
        // Several processes may compile the library at the same time. Each writes a file of its own, and the last
        // rename wins.
        let made = compile(dir)?;
        let beside = tempfile::Builder::new().prefix("clock-").tempfile_in(&place)?;
        fs::copy(made, beside.path())?;
        beside.persist(&library).map_err(|failed| failed.error)?;
    }
    Ok(library)
}

/// Returns a folder for the library within Cargo's build directory, if this program runs from there.
fn build_dir() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let profile = program.ancestors().find(|dir| dir.join(".fingerprint").is_dir())?;
    Some(profile.join("quorate-clock"))
}

fn compile(dir: &Path) -> Result<PathBuf, StartError> {
    let (source, library) = (dir.join("clock_shim.c"), dir.join("clock_shim.so"));
    fs::write(&source, SOURCE)?;
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let compiled = cc.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StartError::NoCompiler,
        _ => StartError::Io(error),
    })?;
    if !compiled.status.success() {
        return Err(StartError::NoClock(String::from_utf8_lossy(&compiled.stderr).into_owned()));
    }
    Ok(library)
}
