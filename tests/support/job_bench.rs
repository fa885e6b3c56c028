use super::{Ended, Nodes, Program, Running};
use serde_json::Value;

/// Three nodes, a configuration file with jobs of the group `g`, and the program.
#[derive(Debug)]
pub struct JobBench {
    /// The program.
    pub program: Program,
    /// The nodes.
    pub nodes: Nodes,
    /// The path of the configuration file.
    pub config: String,
}

impl JobBench {
    /// Starts the nodes. `executable` is the path of the program, and `jobs` is the part of the file that has the jobs.
    pub fn new(executable: &'static str, jobs: &str) -> Self {
        let program = Program::new(executable);
        let nodes = Nodes::admitted(3, &program, &[]);
        Self::on(program, nodes, jobs)
    }

    /// Uses these nodes, which are trusted. `jobs` is the part of the file that has the jobs.
    pub fn on(program: Program, nodes: Nodes, jobs: &str) -> Self {
        let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        // A node of a busy machine answers late.
        let head = format!(
            "nodes = [{}]\ngroup = \"g\"\nlease = {{ ttl = \"2s\" }}\nnode_timeout = \"500ms\"\n",
            list.join(", ")
        );
        let config = program.write("quorate.toml", &format!("{head}{jobs}"));
        Self { program, nodes, config }
    }

    /// Starts a daemon that runs the jobs.
    pub fn daemon(&self) -> Running {
        self.program.start(["run", "--config", &self.config])
    }

    /// Runs a command of `quorate jobs`.
    #[track_caller]
    pub fn jobs(&self, args: &[&str]) -> Ended {
        self.program.run([&["jobs"], args, &["--config", &self.config]].concat())
    }

    /// Runs a command of `quorate jobs` and returns its output as JSON, whatever its exit status is.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let ended = self.jobs(&[args, &["--json"]].concat());
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }
}
