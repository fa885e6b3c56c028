use super::{ConfigError, Flags, NodesFrom, error::SourceText, file::FileText};
use quorate::{node::Resource, scheduler::Scheduler};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// The default prefix of keys.
pub const PREFIX: &str = "quorate:";

/// Checks the settings that depend on more than one key of the file.
pub(super) struct Validation<'a> {
    pub(super) source: Option<SourceText<'a>>,
    pub(super) file_text: &'a FileText,
}

impl Validation<'_> {
    /// Adds the line of a setting to an error of the library. The text of the error begins with the setting's
    /// name.
    pub(super) fn setting(&self, text: &str, nodes_from: &NodesFrom) -> ConfigError {
        let key = text.split_whitespace().next().unwrap_or_default();
        if key == "nodes" && !matches!(nodes_from, NodesFrom::File(_)) {
            return ConfigError::bare(&format!("{nodes_from}: {text}"));
        }
        match &self.source {
            Some(source) => source.error(self.file_text.span_of(key), text),
            None => ConfigError::bare(text),
        }
    }

    pub(super) fn prefix(&self, flags: &Flags) -> Result<Arc<str>, ConfigError> {
        let wrong = |prefix: &str| prefix.contains(['{', '}']) || prefix.chars().any(char::is_control);
        const WHY: &str = "holds a brace or a control character; use letters, digits, `-`, `:` or `/`";
        if let Some(prefix) = &flags.prefix {
            return match wrong(prefix) {
                true => Err(ConfigError::bare(&format!("--prefix {prefix:?} {WHY}"))),
                false => Ok(prefix.as_str().into()),
            };
        }
        match (&self.file_text.prefix, &self.source) {
            (Some(prefix), Some(source)) if wrong(prefix.as_ref()) => {
                Err(source.error(Some(prefix.span()), &format!("prefix {:?} {WHY}", prefix.as_ref())))
            }
            (Some(prefix), _) => Ok(prefix.as_ref().as_str().into()),
            (None, _) => Ok(PREFIX.into()),
        }
    }

    pub(super) fn group(&self) -> Result<Option<Arc<str>>, ConfigError> {
        let (Some(group), Some(source)) = (&self.file_text.group, &self.source) else { return Ok(None) };
        Resource::election(group.as_ref())
            .map_err(|error| source.error(Some(group.span()), &error.to_string()))?;
        Ok(Some(group.as_ref().as_str().into()))
    }

    /// Returns the commands that jobs on the nodes may run.
    pub(super) fn commands(&self) -> Result<BTreeMap<Arc<str>, Vec<String>>, ConfigError> {
        let Some(source) = &self.source else { return Ok(BTreeMap::new()) };
        let mut commands = BTreeMap::new();
        for (name, written) in &self.file_text.commands {
            let (shown, words): (String, _) = (name.as_ref().chars().take(80).collect(), written.as_ref());
            let fail = |at: Range<usize>, why: &str| {
                Err(source.error(Some(at), &format!("the command {shown:?} in `commands` {why}")))
            };
            if name.as_ref().is_empty()
                || name.as_ref().len() > 128
                || name.as_ref().chars().any(char::is_control)
            {
                return fail(
                    name.span(),
                    "has a name that cannot be used; give it 1 to 128 bytes without control characters",
                );
            }
            if words.first().is_none_or(|program| program.trim().is_empty()) {
                return fail(
                    written.span(),
                    "is empty; give program and arguments, like [\"./report.sh\", \"--all\"]",
                );
            }
            if words.iter().any(|word| word.contains('\0')) {
                return fail(written.span(), "has a NUL in it; remove it");
            }
            commands.insert(name.as_ref().as_str().into(), words.clone());
        }
        Ok(commands)
    }

    pub(super) fn max_running(&self) -> Result<Option<usize>, ConfigError> {
        let (Some(written), Some(source)) = (&self.file_text.max_running, &self.source) else {
            return Ok(None);
        };
        match usize::try_from(*written.as_ref()) {
            Ok(most @ 1..) => Ok(Some(most)),
            _ => {
                let text = format!(
                    "max_running is {}; give it 1 or more, or remove the key for no limit",
                    written.as_ref()
                );
                Err(source.error(Some(written.span()), &text))
            }
        }
    }

    /// Returns the labels of this worker. The scheduler checks them in the same way.
    pub(super) fn labels(&self) -> Result<Vec<String>, ConfigError> {
        let (Some(written), Some(source)) = (&self.file_text.labels, &self.source) else {
            return Ok(Vec::new());
        };
        match Scheduler::check_labels(written.as_ref()) {
            Ok(()) => Ok(written.as_ref().clone()),
            Err(error) => Err(source.error(Some(written.span()), &format!("labels: {error}"))),
        }
    }
}
