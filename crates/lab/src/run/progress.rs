//! Shows the progress: one changing line on a terminal, else a line from time to time.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub struct Progress {
    bar: Option<ProgressBar>,
    begun: Instant,
    limit: Duration,
    said: Option<Instant>,
    widest: Option<f64>,
}

/// Interval of lines without a terminal.
const EVERY: Duration = Duration::from_secs(30);

impl Progress {
    /// The bar shows the time limit; a run may end before.
    pub fn new(limit: Duration) -> Progress {
        let style =
            ProgressStyle::with_template("{bar:24} {elapsed}/{len}s {wide_msg}").expect("the template is valid");
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(limit.as_secs()).with_style(style));
        Progress { bar, begun: Instant::now(), limit, said: None, widest: None }
    }

    pub fn trial(&mut self, round: u32, variant: &str, cell: &str) {
        let widest = self.widest.map(|part| format!(", widest interval ±{:.1} %", part * 100.0)).unwrap_or_default();
        let line = format!("round {}{widest}: {variant}{}{cell}", round + 1, if cell.is_empty() { "" } else { ", " });
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.begun.elapsed().as_secs().min(self.limit.as_secs()));
                bar.set_message(line);
            }
            None if self.said.is_none_or(|said| said.elapsed() > EVERY) => {
                eprintln!(
                    "lab: {:.0} s of at most {:.0}, {line}",
                    self.begun.elapsed().as_secs_f64(),
                    self.limit.as_secs_f64()
                );
                self.said = Some(Instant::now());
            }
            None => {}
        }
    }

    /// Sets the widest interval, which shows how far the run is from its end.
    pub fn widest(&mut self, part: Option<f64>) {
        self.widest = part;
    }

    /// Prints a line that stays.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("lab: {text}")),
            None => eprintln!("lab: {text}"),
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
