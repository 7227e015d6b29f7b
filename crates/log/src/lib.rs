//! How the programs log, on standard error: lines for people, or JSON for collectors of logs. Programs log by the macros of
//! `tracing`.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, Layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer as _, registry};

/// The value of `--log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line for people
    #[default]
    Text,
    /// One JSON object a line: timestamp, level, message, and the fields of the event
    Json,
}

/// As in the option, to pass it on.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Format::Text => "text",
            Format::Json => "json",
        })
    }
}

/// How lines for people begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// With time and level.
    Dated,
    /// With the program's name.
    Named(&'static str),
}

/// Logs from now on: `default`, such as `info,other_crate=off`, and over it what RUST_LOG says. What `default` silences stays silent
/// unless RUST_LOG names it: a level alone is about the program. Call it once, before there are threads.
///
/// # Panics
///
/// If `default` cannot be read, or the process logs already.
pub fn init(format: Format, line: Line, default: &str) {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| format!("{default},{text}").parse().ok());
    let filter: Targets = wanted.unwrap_or_else(|| default.parse().expect("the default filter is valid"));
    // A collector that has gone must not end the program: errors of writing are not written either.
    let lines = Layer::default().with_writer(io::stderr).with_ansi(false).with_target(false).log_internal_errors(false);
    match (format, line) {
        (Format::Json, _) => {
            let json = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
            registry().with(json.with_filter(filter)).init();
        }
        (Format::Text, Line::Dated) => registry().with(lines.with_filter(filter)).init(),
        (Format::Text, Line::Named(program)) => {
            registry().with(lines.event_format(Named(program)).with_filter(filter)).init();
        }
    }
}

/// `sidestepd: the message field=value`
struct Named(&'static str);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Named {
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(to, "{}: ", self.0)?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
