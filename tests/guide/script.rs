//! The commands of a page: what to run where, and the output that the page shows.

use super::{
    output,
    page::{Page, Part},
};

/// One step of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write a file that the page shows.
    File {
        machines: Vec<String>,
        name: String,
        text: String,
    },
    Run {
        line: usize,
        machine: String,
        command: String,
        output: String,
    },
    /// End all processes of a machine at once, and disconnect it.
    SwitchOff {
        machine: String,
    },
}

/// The machines and the steps of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) machines: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// The machine of a page that names none.
const ONLY: &str = "alpha";

impl Script {
    /// Reads the steps of a page. Returns an error if a block is not of a known form, so that no command is
    /// passed over.
    pub(crate) fn of(page: &Page) -> Result<Self, String> {
        let mut script = Self { machines: vec![ONLY.to_owned()], steps: Vec::new() };
        for part in &page.parts {
            match part {
                Part::Comment { line, text } => {
                    let Some(order) = text.strip_prefix("test:") else { continue };
                    let words: Vec<&str> = order.split_whitespace().collect();
                    match &words[..] {
                        ["machines", names @ ..] if !names.is_empty() && script.steps.is_empty() => {
                            script.machines = names.iter().map(|&name| name.to_owned()).collect();
                        }
                        ["switch", "off", machine] => {
                            let machine = script.known(machine).ok_or(format!("{line}: no such machine"))?;
                            script.steps.push(Step::SwitchOff { machine });
                        }
                        ["run", ..] => script.hidden(*line, order.trim()["run".len()..].trim().to_owned())?,
                        ["until", ..] => {
                            let condition = &order.trim()["until".len()..];
                            let wait =
                                format!("until {{ {condition}; }} > /dev/null 2>&1; do sleep 0.2; done");
                            script.hidden(*line, wait)?;
                        }
                        _ => return Err(format!("{line}: unknown instruction {text:?}")),
                    }
                }
                Part::Code { line, info, text } => script.code(*line, info, text)?,
            }
        }
        Ok(script)
    }

    /// Adds a command that the page does not show. It runs on the machine of the command before it.
    fn hidden(&mut self, line: usize, command: String) -> Result<(), String> {
        let last = self.steps.iter().rev().find_map(|step| match step {
            Step::Run { machine, .. } => Some(machine.clone()),
            _ => None,
        });
        let machine = match last {
            Some(machine) => machine,
            None if self.machines.len() == 1 => self.machines[0].clone(),
            None => {
                return Err(format!("{line}: no command is before this one, so its machine is not known"));
            }
        };
        self.steps.push(Step::Run { line, machine, command, output: String::new() });
        Ok(())
    }

    fn known(&self, name: &str) -> Option<String> {
        self.machines.iter().find(|machine| *machine == name).cloned()
    }

    fn code(&mut self, line: usize, info: &str, text: &str) -> Result<(), String> {
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default();
        let (mut file, mut machine) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("file", name)) => file = Some(name.to_owned()),
                Some(("machine", name)) => {
                    machine = Some(self.known(name).ok_or(format!("{line}: no such machine"))?);
                }
                _ => return Err(format!("{line}: unknown word {word:?}")),
            }
        }
        if let Some(name) = file {
            let machines = machine.map_or_else(|| self.machines.clone(), |machine| vec![machine]);
            self.steps.push(Step::File { machines, name, text: text.to_owned() });
        } else if language == "console" {
            let machine = match machine {
                Some(machine) => machine,
                None if self.machines.len() == 1 => self.machines[0].clone(),
                None => return Err(format!("{line}: add machine=NAME")),
            };
            self.commands(line, &machine, text)?;
        } else if ["sh", "bash", "shell"].contains(&language) {
            return Err(format!("{line}: write commands in a `console` block, which is run"));
        }
        Ok(())
    }

    fn commands(&mut self, line: usize, machine: &str, text: &str) -> Result<(), String> {
        let mut last: Option<(usize, String, String)> = None;
        for (number, text) in (line + 1..).zip(text.lines()) {
            match (text.strip_prefix("$ "), &mut last) {
                (Some(command), last) => {
                    let next = (number, command.to_owned(), String::new());
                    if let Some((line, command, output)) = last.replace(next) {
                        self.steps.push(Step::Run { line, machine: machine.to_owned(), command, output });
                    }
                }
                (None, Some((_, command, output))) => match text.strip_prefix("> ") {
                    Some(more) if output.is_empty() => {
                        command.push('\n');
                        command.push_str(more);
                    }
                    _ => {
                        output::check(text).map_err(|why| format!("{number}: {why}"))?;
                        output.push_str(text);
                        output.push('\n');
                    }
                },
                (None, None) => return Err(format!("{number}: a block begins with `$ COMMAND`")),
            }
        }
        let (line, command, output) = last.ok_or(format!("{line}: a block without a command"))?;
        self.steps.push(Step::Run { line, machine: machine.to_owned(), command, output });
        Ok(())
    }
}

#[test]
fn the_steps_of_a_page_are_read_in_order() {
    let text = "<!-- test: machines a b -->\n\n```toml file=q.toml\nx = 1\n```\n\n```console machine=b\n$ one &&\n> two\nout\n\
                $ three\n```\n\n<!-- test: switch off a -->\n";
    let script = Script::of(&Page::read(text)).expect("a script");
    let owned = |text: &str| text.to_owned();
    assert_eq!(script.machines, ["a", "b"]);
    assert_eq!(
        script.steps,
        [
            Step::File {
                machines: vec![owned("a"), owned("b")],
                name: owned("q.toml"),
                text: owned("x = 1\n")
            },
            Step::Run { line: 8, machine: owned("b"), command: owned("one &&\ntwo"), output: owned("out\n") },
            Step::Run { line: 11, machine: owned("b"), command: owned("three"), output: String::new() },
            Step::SwitchOff { machine: owned("a") },
        ]
    );
    for wrong in [
        "```sh\nls\n```\n",
        "```console\nls\n```\n",
        "```console\n```\n",
        "```console\n$ ls\na … b\n```\n",
        "```console machine=b\n$ ls\n```\n",
        "<!-- test: sleep -->\n",
        "<!-- test: switch off b -->\n",
    ] {
        assert!(Script::of(&Page::read(wrong)).is_err(), "{wrong}");
    }
}
