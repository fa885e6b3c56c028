use std::{fmt, time::Duration};

/// The exit status and the output of a process.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The time from its start until its end was observed.
    pub took: Duration,
}

impl Ended {
    /// Checks the exit status.
    ///
    /// # Panics
    /// With the output of the process, if it is another.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Checks that standard output contains each of `parts`.
    ///
    /// # Panics
    /// With the output of the process, if one is missing.
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
    /// With the output of the process, if one is missing.
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
