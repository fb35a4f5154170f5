//! Progress on stderr: a bar on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget};
use indicatif::{ProgressFinish, ProgressStyle};
use session_import::model::plural::plural;
use session_import::ops::run::Progress;
use session_import::report::ItemReport;

use super::args::{Common, When};
use super::log;

const BAR: &str = "{wide_bar} {binary_bytes} of {binary_total_bytes}, {msg}";

/// Without a terminal, how often a line says how far the command is.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Shows how far a command is, and logs what it has done.
pub(crate) struct Meter {
    display: Display,
    sessions: u64,
    sessions_done: u64,
    bytes: u64,
    bytes_done: u64,
}

enum Display {
    None,
    Bar(MultiProgress, Option<ProgressBar>),
    Lines(Instant),
}

impl Meter {
    /// As the command line and the terminal want it. `bars` is what the log
    /// writes around.
    pub(crate) fn new(common: &Common, is_terminal: bool, bars: MultiProgress) -> Self {
        let display = match (common.progress, is_terminal) {
            (When::Never, _) => Display::None,
            (When::Always, false) => Display::Lines(Instant::now()),
            (When::Auto, false) => Display::None,
            (When::Auto, true) if common.quiet => Display::None,
            (_, true) => {
                bars.set_draw_target(ProgressDrawTarget::stderr());
                Display::Bar(bars, None)
            }
        };
        Self {
            display,
            sessions: 0,
            sessions_done: 0,
            bytes: 0,
            bytes_done: 0,
        }
    }

    fn show(&mut self) {
        match &mut self.display {
            Display::None | Display::Bar(_, None) => {}
            Display::Bar(_, Some(bar)) => {
                bar.set_position(self.bytes_done);
                bar.set_message(sessions_of(self.sessions_done, self.sessions));
            }
            Display::Lines(last) => {
                if last.elapsed() >= BETWEEN_LINES {
                    *last = Instant::now();
                    self.line();
                }
            }
        }
    }

    fn line(&self) {
        log::line(format_args!(
            "{}, {} of {}",
            sessions_of(self.sessions_done, self.sessions),
            BinaryBytes(self.bytes_done),
            BinaryBytes(self.bytes),
        ));
    }
}

fn sessions_of(done: u64, all: u64) -> String {
    let sessions = plural(all, "session");
    format!("{} of {} {sessions}", HumanCount(done), HumanCount(all))
}

impl Progress for Meter {
    fn started(&mut self, sessions: u64, bytes: u64) {
        self.sessions = sessions;
        self.bytes = bytes;
        if let Display::Bar(bars, shown) = &mut self.display {
            let style =
                ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(bytes)
                .with_style(style)
                .with_message(sessions_of(0, sessions))
                .with_finish(ProgressFinish::AndClear);
            *shown = Some(bars.add(bar));
        }
        self.show();
    }

    fn read(&mut self, bytes: u64) {
        self.bytes_done += bytes;
        self.show();
    }

    fn verified(&mut self, session_key: &str) {
        self.sessions_done += 1;
        tracing::info!("verified {session_key}");
        self.show();
    }

    fn item(&mut self, item: &ItemReport) {
        self.sessions_done += 1;
        let ItemReport {
            source,
            reason,
            messages,
            ..
        } = item;
        tracing::info!(
            "{} {source}: {reason}, messages: {messages}",
            item.action.as_str()
        );
        self.show();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        match &mut self.display {
            Display::Lines(_) => self.line(),
            Display::Bar(_, Some(bar)) => bar.finish_and_clear(),
            Display::None | Display::Bar(_, None) => {}
        }
    }
}
