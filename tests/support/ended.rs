use std::{fmt, time::Duration};

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; `None` where a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// From its start to the moment in which its end was seen.
    pub took: Duration,
}

impl Ended {
    /// Checks the exit status.
    ///
    /// # Panics
    /// With all that the process said, where it is another.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Checks that standard output holds each of `parts`.
    ///
    /// # Panics
    /// With all that the process said, where one is missing.
    #[track_caller]
    pub fn tells(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stdout.contains(part), "does not tell {part:?}: {self}");
        }
        self
    }

    /// Checks that standard error holds each of `parts`.
    ///
    /// # Panics
    /// With all that the process said, where one is missing.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "does not say {part:?}: {self}");
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
