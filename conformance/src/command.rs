//! The program `check-store`.

use std::{io, path::Path, path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{Counts, VERSIONS, check_store, copy_store};

/// Reads TinyAgents stores with the real `tinyagents` crate.
///
/// Every stream, every key and every descriptor of each store is read with
/// each version of the crate that this program holds. The exit code is 1 if
/// one of them fails; each failure names the file and the reason.
#[derive(Parser)]
struct Arguments {
    /// Append a record to each message stream as well, as the live application
    /// would; in a copy, the store itself stays as it is
    #[arg(long)]
    append: bool,
    /// The stores: folders with `journal/` and `kv/` in them
    #[arg(required = true, value_name = "STORE_DIR")]
    stores: Vec<PathBuf>,
}

/// Parses the arguments, checks, prints, and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut totals = vec![Counts::default(); VERSIONS.len()];
    let mut good = true;
    for store in &arguments.stores {
        match check(store, arguments.append, &mut totals) {
            Ok(clean) => good &= clean,
            Err(e) => {
                eprintln!("FAILED {}: {e}", store.display());
                good = false;
            }
        }
    }
    if arguments.stores.len() > 1 {
        for (version, counts) in VERSIONS.iter().zip(&totals) {
            println!("total: tinyagents {}: {counts}", version.name);
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Checks one store and prints what was found; whether that was nothing.
fn check(store: &Path, append: bool, totals: &mut [Counts]) -> io::Result<bool> {
    let copy = tempfile::tempdir()?;
    let root = if append { copy.path() } else { store };
    if append {
        copy_store(store, root)?;
    }
    let mut clean = true;
    for (outcome, total) in check_store(root, append)?.iter().zip(totals) {
        println!(
            "{}: tinyagents {}: {}",
            store.display(),
            outcome.version,
            outcome.counts
        );
        *total += outcome.counts;
        for failure in &outcome.failures {
            // The copy is gone when this is read: name the original.
            let path = failure.path.strip_prefix(root).unwrap_or(&failure.path);
            eprintln!(
                "FAILED {}: tinyagents {}: {}",
                store.join(path).display(),
                outcome.version,
                failure.reason
            );
            clean = false;
        }
    }
    Ok(clean)
}
