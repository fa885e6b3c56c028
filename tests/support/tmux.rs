use super::{PATIENCE, Program, until};
use std::{path::PathBuf, process::Command};

/// A terminal of a given size, in which a program runs. It is a window of a tmux server of its own. Dropping this
/// value ends the server and the program.
#[derive(Debug)]
pub struct Tmux {
    socket: PathBuf,
    pid_file: PathBuf,
}

impl Tmux {
    /// Returns whether tmux is installed.
    pub fn is_installed() -> bool {
        Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success())
    }

    /// Starts the program under test in a terminal of `width` columns and `height` lines. When it has ended, the
    /// screen shows its exit status and the settings of the terminal. `name` is the name of files in the
    /// program's directory.
    ///
    /// # Panics
    /// If tmux cannot be started.
    pub fn start(program: &Program, name: &str, size: (u16, u16), args: &[&str]) -> Self {
        let command = program.command(args);
        let path = command.get_program().to_string_lossy();
        Self::start_program(program, name, size, &[&[&*path], args].concat())
    }

    /// Starts a program in the terminal, as [`Tmux::start`] does. The first word is its path.
    ///
    /// # Panics
    /// If tmux cannot be started.
    pub fn start_program(program: &Program, name: &str, size: (u16, u16), words: &[&str]) -> Self {
        let command = program.command(words);
        let words: Vec<String> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        // The process keeps its id when it becomes the program. `cat` keeps the window open.
        let script = format!(
            "sh -c 'echo $$ > {name}.pid; exec \"$@\"' sh {}\necho \"ended $?\"\nstty -a\ncat\n",
            words.join(" ")
        );
        let script = program.write(&format!("{name}.sh"), &script);
        let tmux = Self {
            socket: program.file(&format!("{name}.tmux")),
            pid_file: program.file(&format!("{name}.pid")),
        };
        let mut server = Command::new("tmux");
        server.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        server.envs(std::env::vars_os().filter(|(name, _)| name == "PATH")).current_dir(program.dir());
        // TMUX of the surrounding terminal is not inherited, and no configuration of the user is read.
        server.args(["-u", "-f", "/dev/null", "-S"]).arg(&tmux.socket);
        server.args(["new-session", "-d", "-x", &size.0.to_string(), "-y", &size.1.to_string()]);
        server.args(["sh", &script]);
        let output = server.output().expect("tmux starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        tmux
    }

    /// Types keys, as tmux names them: `q`, `Enter`, `C-c`.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a text.
    pub fn type_in(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Returns the lines of the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Returns whether a part of the screen has a colour.
    pub fn has_colours(&self) -> bool {
        let screen = self.tmux(&["capture-pane", "-p", "-e"]);
        ["\u{1b}[31m", "\u{1b}[33m", "\u{1b}[38;5;"].iter().any(|colour| screen.contains(colour))
    }

    /// Returns whether a program uses the alternate screen.
    pub fn is_alternate(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// Waits until the screen contains each of `parts`, and returns it.
    ///
    /// # Panics
    /// If that does not happen in time. The message contains the screen.
    #[track_caller]
    pub fn until_it_shows(&self, parts: &[&str]) -> String {
        self.until(&format!("{parts:?}"), |screen| parts.iter().all(|part| screen.contains(part)))
    }

    /// Waits until the screen satisfies `is_met`, and returns it.
    ///
    /// # Panics
    /// If that does not happen in time. The message contains the screen.
    #[track_caller]
    pub fn until(&self, what: &str, is_met: impl Fn(&str) -> bool) -> String {
        let mut looks_left = PATIENCE.as_millis() / 50;
        until(&format!("screen with {what}"), PATIENCE * 2, || {
            let screen = self.screen();
            if is_met(&screen) {
                return Some(screen);
            }
            std::thread::sleep(std::time::Duration::from_millis(40));
            looks_left = looks_left.saturating_sub(1);
            assert!(looks_left > 0, "no {what} on the screen:\n{screen}");
            None
        })
    }

    /// Returns the process id of the program.
    ///
    /// # Panics
    /// If the program has not started.
    pub fn pid(&self) -> u32 {
        let pid = std::fs::read_to_string(&self.pid_file).expect("the program has started");
        pid.trim().parse().expect("a process id")
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(args).output().expect("tmux");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}
