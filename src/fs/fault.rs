//! Fault points: each file operation on the store asks here first.
//!
//! With the feature `fault-injection` the n-th operation of the process fails,
//! so that a test can break every step once; without it all of this compiles
//! to nothing. Only the tests turn the feature on.
//!
//! - `SESSION_IMPORT_FAULT=n:KIND`: operation `n` (from 1) fails; `KIND` is
//!   ENOSPC, EIO or EACCES, or `short` (half of the bytes are written, then
//!   ENOSPC), or `kill` (the process ends right there, as by SIGKILL).
//! - `SESSION_IMPORT_FAULT_COUNT=FILE`: the number of operations so far is kept
//!   in this file.

use std::fs::File;
use std::io::{self, Write as _};

/// Asks whether the operation may go on.
///
/// # Errors
/// The injected one.
#[inline]
pub fn point(op: &'static str) -> io::Result<()> {
    #[cfg(feature = "fault-injection")]
    if let Some(fault) = injected::next(op) {
        return Err(fault.error());
    }
    let _ = op;
    Ok(())
}

/// Writes all of `bytes`, unless a fault is injected.
///
/// # Errors
/// The operating system's, or the injected one.
#[inline]
pub fn write_all(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    #[cfg(feature = "fault-injection")]
    if let Some(fault) = injected::next("write") {
        if fault.is_short() {
            let (half, _) = bytes.split_at(bytes.len() / 2);
            file.write_all(half)?;
        }
        return Err(fault.error());
    }
    file.write_all(bytes)
}

#[cfg(feature = "fault-injection")]
mod injected {
    use std::io;
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::io::Errno;
    use rustix::process::{Signal, getpid, kill_process};

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Fault {
        NoSpace,
        Hardware,
        Access,
        Short,
        Kill,
    }

    impl Fault {
        pub(super) fn error(self) -> io::Error {
            match self {
                Self::NoSpace | Self::Short => Errno::NOSPC.into(),
                // Should the signal not end it, the operation fails at least.
                Self::Hardware | Self::Kill => Errno::IO.into(),
                Self::Access => Errno::ACCESS.into(),
            }
        }

        pub(super) fn is_short(self) -> bool {
            self == Self::Short
        }
    }

    struct Plan {
        fault: Option<(u64, Fault)>,
        count: Option<PathBuf>,
    }

    static PLAN: OnceLock<Plan> = OnceLock::new();
    static DONE: AtomicU64 = AtomicU64::new(0);

    fn read_plan() -> Plan {
        let fault = std::env::var("SESSION_IMPORT_FAULT").ok().and_then(|text| {
            let (number, kind) = text.split_once(':')?;
            let kind = match kind {
                "ENOSPC" => Fault::NoSpace,
                "EIO" => Fault::Hardware,
                "EACCES" => Fault::Access,
                "short" => Fault::Short,
                "kill" => Fault::Kill,
                _ => return None,
            };
            Some((number.parse().ok()?, kind))
        });
        let count = std::env::var_os("SESSION_IMPORT_FAULT_COUNT").map(PathBuf::from);
        Plan { fault, count }
    }

    /// Counts one operation and says whether it is the one to fail.
    pub(super) fn next(_op: &'static str) -> Option<Fault> {
        let plan = PLAN.get_or_init(read_plan);
        let number = DONE.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(file) = &plan.count {
            // A test that cannot write its own count sees that by itself.
            let _ = std::fs::write(file, number.to_string());
        }
        let fault = plan.fault.filter(|(at, _)| *at == number);
        if fault.is_some_and(|(_, fault)| fault == Fault::Kill) {
            let _ = kill_process(getpid(), Signal::KILL);
        }
        fault.map(|(_, fault)| fault)
    }
}
