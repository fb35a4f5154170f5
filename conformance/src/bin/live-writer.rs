//! Plays the live application beside an import; see `--help` and
//! `conformance::live`.

use std::{error::Error, path::PathBuf, time::Duration};

use clap::Parser;
use conformance::live::{Mode, Pause, Writer};

/// Plays the live application beside an import, with the real tinyagents crate.
///
/// Holds several sessions: after each turn the transcript is written, then
/// mirrored into the workspace's store. At the end it prints a JSON line with
/// the number of messages of each session.
#[derive(Parser)]
struct Arguments {
    /// The workspace; it is created
    workspace: PathBuf,
    /// How transcripts are kept
    mode: Mode,
    /// How long to work
    seconds: f64,
    /// A folder outside the workspace: while a file `pause` is in it the writer
    /// waits between two rounds, a file `paused` says what it has written, and
    /// a file `stop` ends it
    #[arg(long, value_name = "DIR")]
    control: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let time = Duration::try_from_secs_f64(arguments.seconds)?;
    let pause = arguments.control.map(Pause::new);
    let writer = Writer::new(&arguments.workspace, arguments.mode)?;
    let written = writer.work(time, pause.as_ref())?;
    println!("{}", serde_json::to_string(&written)?);
    Ok(())
}
