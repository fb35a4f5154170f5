//! A host that offers the import behind its own RPC: one JSON request a line on
//! standard input, one answer a line on standard output.
//!
//! ```text
//! {"id":1,"method":"openhuman.session_import_run","params":{"workspace":"…","dry_run":true}}
//! ```
//!
//! The parameters are [`Options`] as they are: `dry_run`, `only`, `force`,
//! `verbose`, `workspace` and the others; what is left out has its default.

use std::io::{self, BufRead as _, Write as _};

use serde::Deserialize;
use serde_json::{Value, json};
use session_import::ops::run::{Options, run};

#[derive(Deserialize)]
struct Request {
    id: Value,
    method: String,
    #[serde(default)]
    params: Options,
}

/// A JSON-RPC code: the request is none.
const PARSE_ERROR: i32 = -32700;
/// A JSON-RPC code: no such method.
const METHOD_NOT_FOUND: i32 = -32601;
/// A JSON-RPC code of ours: the import could not be done.
const IMPORT_FAILED: i32 = -32000;

fn answer(line: &str) -> Value {
    let request: Request = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => return refuse(Value::Null, PARSE_ERROR, &error.to_string()),
    };
    if request.method != "openhuman.session_import_run" {
        return refuse(request.id, METHOD_NOT_FOUND, "no such method");
    }
    // `()` hears of no progress; a host with a window would pass its own.
    match run(&request.params, &mut ()) {
        Ok(summary) => json!({ "jsonrpc": "2.0", "id": request.id, "result": summary }),
        Err(error) => refuse(request.id, IMPORT_FAILED, &error.to_string()),
    }
}

fn refuse(id: Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            writeln!(out, "{}", answer(&line))?;
            out.flush()?;
        }
    }
    Ok(())
}
