//! Reads stores with the real `tinyagents` crate; see `--help`.

fn main() -> std::process::ExitCode {
    conformance::command::main()
}
