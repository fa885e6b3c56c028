use super::{
    Event as SimEvent, Referee, Trace,
    worker::{RULES_JOBS, pool_specs},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Debug, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};

/// The beginnings of log messages of the library, each with the name under which the referee counts the
/// message. The library reports these events only in its log.
const COUNTED_MESSAGES: [(&str, &str); 8] = [
    ("skipped-misfire: they were missed by more", "ticks missed: window"),
    ("skipped-misfire: they were missed, and the misfire rule", "ticks missed: skip"),
    ("skipped-misfire: they were missed, and the run of", "ticks missed: stood for"),
    ("skipped-overlap: it came due while", "tick overtaken"),
    ("lost: it was started by", "tick left: started before"),
    ("lost: a majority of the nodes has forgotten", "tick left: unknown"),
    ("interrupted within the term", "tick interrupted in its term"),
    ("the work failed; it has resigned", "work restarted"),
];

/// The log targets under which a leader reports that it founds the ledger, and the end of every tick.
const LEDGER: &str = "quorate::ledger::copies::term_ledger";
const TICK: &str = "quorate::scheduler::tick";

/// Copies the library's log messages on this thread into the trace, until the guard is dropped.
pub(super) fn capture_log(trace: &Trace, referee: &Arc<Referee>) -> DefaultGuard {
    let (trace, referee) = (trace.clone(), Arc::clone(referee));
    let others = pool_specs().iter().map(|spec| spec.name).chain(RULES_JOBS).collect();
    tracing::subscriber::set_default(LogCapture { trace, referee, spans: AtomicU64::new(1), others })
}

#[derive(Debug)]
struct LogCapture {
    trace: Trace,
    referee: Arc<Referee>,
    spans: AtomicU64,
    /// The names of the jobs of the other groups.
    others: BTreeSet<&'static str>,
}

impl Subscriber for LogCapture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = if metadata.target() == TICK { Level::DEBUG } else { Level::INFO };
        metadata.target().starts_with("quorate") && *metadata.level() <= most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        // The formatting of fields is much of the time of a run, so only needed fields are formatted.
        let target = event.metadata().target();
        let mut line = Line {
            is_judged: target == TICK || target == LEDGER,
            is_traced: self.trace.is_written(),
            ..Line::default()
        };
        event.record(&mut line);
        self.judge(target, &line);
        let Line { message, fields, .. } = line;
        if let Some((_, what)) = COUNTED_MESSAGES.iter().find(|(begin, _)| message.starts_with(begin)) {
            self.referee.count(what);
        }
        self.trace.note(format_args!("LOG {} {message}{fields}", event.metadata().level()));
    }

    // `enabled` refuses the library's spans, which are of level DEBUG. So the methods for spans do nothing.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

impl LogCapture {
    /// Returns whether the job, or the one of which it is a part, is of another group.
    fn is_of_others(&self, job: &str) -> bool {
        self.others.contains(job.split('@').next().unwrap_or(job))
    }

    /// Passes two kinds of reports to the invariants: that a leader founds the ledger, and that it will not start a tick
    /// because the tick is lost.
    fn judge(&self, target: &str, line: &Line) {
        let field = |name: &str| line.values.get(name).map(String::as_str).unwrap_or_default();
        let term = field("term").parse().unwrap_or_default();
        match target {
            LEDGER if line.message.starts_with("founded the ledger") => {
                self.referee.judge(&SimEvent::Founded { group: field("group"), term });
            }
            // Only ticks of the first group are passed on. The invariants of the other groups judge their ticks
            // by other events.
            TICK if field("outcome") == "lost" && !self.is_of_others(field("job")) => {
                let reason = line.message.strip_prefix("lost: ").unwrap_or_default();
                let (job, tick) = (field("job"), field("tick"));
                self.referee.judge(&SimEvent::TickLost { job, tick, term, reason });
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Line {
    /// True if the values of the fields are needed.
    is_judged: bool,
    /// True if the text of the fields is needed.
    is_traced: bool,
    message: String,
    fields: String,
    /// The fields of the message except its text, without quotation marks.
    values: BTreeMap<&'static str, String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // `write!` to a string never fails.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => {
                if self.is_judged {
                    self.values.entry(name).or_insert_with(|| format!("{value:?}"));
                }
                if !self.is_traced {
                    return;
                }
                write!(self.fields, " {name}={value:?}")
            }
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if self.is_judged {
            self.values.insert(field.name(), value.to_owned());
        }
        self.record_debug(field, &value);
    }
}
