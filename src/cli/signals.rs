//! Stopping in good order on SIGINT, SIGTERM and SIGHUP.
//!
//! The first signal asks the command to stop: the item in hand is finished or
//! dropped whole, and the report is still printed. Ctrl-C once more ends the
//! process at once; the store is whole at every moment, so that is safe too.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use session_import::model::interrupt::Interrupt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal that stops a command in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The terminal went away.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// What service managers send.
    Terminate,
}

impl Signal {
    /// Its number, the same on every Unix.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    fn from_raw(raw: i32) -> Option<Self> {
        match raw {
            SIGHUP => Some(Self::Hangup),
            SIGINT => Some(Self::Interrupt),
            SIGTERM => Some(Self::Terminate),
            _ => None,
        }
    }
}

/// Remembers which signal came first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caught(Arc<AtomicI32>);

impl Caught {
    /// The first signal, if there was one.
    pub(crate) fn signal(&self) -> Option<Signal> {
        Signal::from_raw(self.0.load(Ordering::SeqCst))
    }

    /// Whether this one is the first.
    fn remember(&self, raw: i32) -> bool {
        self.0
            .compare_exchange(0, raw, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

/// Starts to listen; `interrupt` is set at the first signal.
pub(crate) fn listen(interrupt: Interrupt) -> Caught {
    let caught = Caught::default();
    let ignored = ignored_from_the_start();
    let wanted = [SIGHUP, SIGINT, SIGTERM]
        .into_iter()
        .filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = match Signals::new(wanted) {
        Ok(signals) => signals,
        Err(error) => {
            tracing::warn!("signals end the command at once: {error}");
            return caught;
        }
    };
    let first = caught.clone();
    std::thread::spawn(move || {
        for raw in signals.forever() {
            if first.remember(raw) {
                tracing::warn!("stopping after the session in hand; Ctrl-C again stops at once");
                interrupt.stop();
            } else if raw == SIGINT {
                signal_hook::low_level::exit(128 + raw);
            }
        }
    });
    caught
}

/// The signals that whoever started us wants ignored, as a mask: `nohup` does
/// so with SIGHUP, a script's `&` with SIGINT. Listening would undo that.
/// Linux only; elsewhere none is known.
fn ignored_from_the_start() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| ignored_in(&status))
        .unwrap_or(0)
}

fn ignored_in(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_remembered() {
        let caught = Caught::default();
        assert_eq!(caught.signal(), None);
        assert!(caught.remember(SIGTERM));
        assert!(!caught.remember(SIGINT));
        assert_eq!(caught.signal(), Some(Signal::Terminate));
    }

    #[test]
    fn the_mask_of_ignored_signals() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored_in(status), Some(0x1001));
        assert_eq!(ignored_in("nothing of it"), None);
    }
}
