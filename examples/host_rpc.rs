//! A host that puts the import behind its own RPC: one JSON-RPC request a line
//! on stdin, one response a line on stdout.
//!
//! ```text
//! $ echo '{"jsonrpc":"2.0","id":1,"method":"openhuman.session_import_run",
//!          "params":{"workspace":"fixtures/demo","dry_run":true}}' |
//!     cargo run --example host_rpc
//! ```
//!
//! The parameters are [`Options`], all of them optional; the result is the
//! report that `session-import run --json` prints.

use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::{Value, json};
use session_import::ops::run::{self, Options, Progress};
use session_import::report::ItemReport;

/// The one method.
const METHOD: &str = "openhuman.session_import_run";

// The codes that JSON-RPC gives; those from -32000 on are the host's own.
const NO_JSON: i32 = -32700;
const NO_REQUEST: i32 = -32600;
const NO_METHOD: i32 = -32601;
const BAD_PARAMETERS: i32 = -32602;
const NOT_IMPORTED: i32 = -32000;

#[derive(Deserialize)]
struct Request {
    method: String,
    #[serde(default)]
    params: Value,
}

/// Counts what a host would show while an import goes on.
#[derive(Default)]
struct Counter {
    done: usize,
}

impl Progress for Counter {
    fn item(&mut self, _: &ItemReport) {
        self.done += 1;
    }
}

/// Answers every request until there are no more.
pub fn serve(input: impl BufRead, output: &mut impl Write) -> io::Result<()> {
    for line in input.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        writeln!(output, "{}", answer(&line))?;
        output.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Value {
    let Ok(request) = serde_json::from_str::<Value>(line) else {
        return refused(Value::Null, NO_JSON, "this is no JSON");
    };
    let id = request.get("id").cloned().unwrap_or_default();
    match serde_json::from_value(request) {
        Ok(request) => call(id, request),
        Err(error) => refused(id, NO_REQUEST, error),
    }
}

fn call(id: Value, request: Request) -> Value {
    if request.method != METHOD {
        return refused(id, NO_METHOD, format!("no method {}", request.method));
    }
    // No parameters at all are all the defaults.
    let parameters = match request.params {
        Value::Null => json!({}),
        other => other,
    };
    let options: Options = match serde_json::from_value(parameters) {
        Ok(options) => options,
        Err(error) => return refused(id, BAD_PARAMETERS, error),
    };
    let mut counter = Counter::default();
    match run::run(&options, &mut counter) {
        // An item that failed is in the report: the call itself was good.
        Ok(report) => json!({"jsonrpc": "2.0", "id": id, "result": report, "seen": counter.done}),
        Err(error) => refused(id, NOT_IMPORTED, error),
    }
}

fn refused(id: Value, code: i32, why: impl ToString) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why.to_string()}})
}

fn main() -> io::Result<()> {
    serve(io::stdin().lock(), &mut io::stdout().lock())
}
