//! temp
#![allow(clippy::all)]
use session_import::ops::run::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let o = Options { workspace: Some(a[1].clone().into()), dry_run: a.iter().any(|x| x=="-n"), force: a.iter().any(|x| x=="--force"), checksum: a.iter().any(|x| x=="-c"), salvage: a.iter().any(|x| x=="--salvage"), ..Default::default() };
    match run(&o, &mut ()) { Ok(r) => { let t = serde_json::to_string_pretty(&r).unwrap(); use std::io::Write; writeln!(std::io::stdout(), "{t}").unwrap(); } Err(e) => { use std::io::Write; writeln!(std::io::stderr(), "ERR {e}").unwrap(); std::process::exit(1) } }
}
