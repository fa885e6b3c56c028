use std::{fmt, time::Duration};

/// A process that has ended: its exit status and its output.
#[derive(Debug)]
pub struct Ended {
    /// The exit status of the process. `None` if a signal ended it.
    pub code: Option<i32>,
    /// The standard output of the process.
    pub stdout: String,
    /// The standard error of the process.
    pub stderr: String,
    /// The time from the start of the process until its end was observed.
    pub took: Duration,
}

impl Ended {
    /// Checks the exit status.
    ///
    /// # Panics
    /// If the exit status differs. The message contains the output of the process.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Checks that standard output contains each of `parts`.
    ///
    /// # Panics
    /// If one of `parts` is missing. The message contains the output of the process.
    #[track_caller]
    pub fn tells(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stdout.contains(part), "standard output without {part:?}: {self}");
        }
        self
    }

    /// Checks that standard error contains each of `parts`.
    ///
    /// # Panics
    /// If one of `parts` is missing. The message contains the output of the process.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "standard error without {part:?}: {self}");
        }
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr, took } = self;
        write!(f, "exit {code:?} after {took:.1?}\n--- stdout:\n{stdout}\n--- stderr:\n{stderr}")
    }
}
