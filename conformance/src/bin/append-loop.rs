//! The benchmark's other side: what an import costs that appends message by
//! message through `tinyagents` 1.5.0, which reads the whole stream again
//! before each append.

use std::{
    error::Error,
    fs::File,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    time::Instant,
};

use clap::Parser;
use conformance::{Opened as _, V1_5};
use serde::Deserialize;
use serde_json::json;

/// Appends each message of a transcript to a store, one by one, through
/// tinyagents 1.5.0.
///
/// Prints a JSON line with the number of messages and the time that it took,
/// in seconds.
#[derive(Parser)]
struct Arguments {
    /// A transcript in JSON lines; what is not a message is passed over
    #[arg(value_name = "SRC_JSONL")]
    source: PathBuf,
    /// The store; it should be new, an existing stream is appended to
    #[arg(value_name = "STORE_DIR")]
    store: PathBuf,
}

#[derive(Deserialize)]
struct Line {
    role: String,
    content: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let stem = arguments
        .source
        .file_stem()
        .and_then(|stem| stem.to_str())
        .ok_or("the transcript's name is not UTF-8")?;
    let stream = format!("session.{stem}.messages");
    let store = V1_5::open(&arguments.store)?;
    let start = Instant::now();
    let mut messages = 0_u64;
    for line in BufReader::new(File::open(&arguments.source)?).lines() {
        let Ok(Line { role, content }) = serde_json::from_str(&line?) else {
            continue;
        };
        store.append(&stream, json!({ "role": role, "content": content }))?;
        messages += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{}", json!({ "messages": messages, "seconds": seconds }));
    Ok(())
}
