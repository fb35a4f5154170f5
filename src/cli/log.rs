//! The log on stderr. Each line starts with `[session-import]`, holds one
//! event, and leaves a progress bar whole.

use std::fmt;
use std::io::{self, Write};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::args::Common;
use super::names::visible;

const PREFIX: &str = "[session-import]";

/// Writes events of the library and of the program to stderr from now on.
/// What is returned draws nothing yet; the log makes way for what it draws.
pub(crate) fn start(common: &Common) -> MultiProgress {
    let bars = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
    let level = match (common.quiet, common.verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .event_format(Line)
        .with_writer(AroundBars(bars.clone()))
        .finish();
    // Fails only where there is a subscriber already, and then that one is as good.
    let _ = tracing::subscriber::set_global_default(subscriber);
    bars
}

/// Writes a line whatever the level. That nobody reads it changes nothing.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{PREFIX} {}", visible(&text));
}

struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        writeln!(writer, "{PREFIX} {level}{}", visible(&text))
    }
}

/// Takes the progress bar away for as long as a line is written.
struct AroundBars(MultiProgress);

impl MakeWriter<'_> for AroundBars {
    type Writer = BarWriter;

    fn make_writer(&self) -> BarWriter {
        BarWriter(self.0.clone())
    }
}

struct BarWriter(MultiProgress);

impl Write for BarWriter {
    /// Never fails: whoever calls would complain about it on stderr, and panic
    /// where that is closed.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.suspend(|| io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_with_the_prefix() {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Line)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("a name\nof two lines \u{1b}[31m\u{202e}");
            tracing::info!(count = 3, "fields too");
        });
        let text = String::from_utf8(memory.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("[session-import] "))
        );
        assert!(!text.contains(['\u{1b}', '\u{202e}']));
        assert!(text.contains("warning: a name"));
        assert!(text.contains("fields too count=3"));
    }
}
