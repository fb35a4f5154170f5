//! The commands that the README shows print what it shows.
//!
//! `UPDATE_DOCS=1 cargo test --test readme` writes what they print into it.

mod support;

use std::fs;
use std::path::Path;

use support::{Outcome, Workspace};

const OPEN: &str = "```console\n";
const CLOSE: &str = "```\n";

#[test]
fn shown_commands_print_what_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    // The commands name the workspace as from the project's folder.
    let place = Workspace::copy_of(root.join("fixtures/demo"));
    let demo = place.home().join("fixtures/demo");
    fs::create_dir_all(demo.parent().unwrap()).unwrap();
    fs::rename(place.root(), demo).unwrap();

    let mut parts = readme.split(OPEN);
    let mut printed = parts.next().unwrap().to_owned();
    for part in parts {
        let (block, rest) = part.split_once(CLOSE).unwrap();
        let command = block.lines().next().unwrap();
        let arguments = command.strip_prefix("$ session-import ").unwrap();
        let outcome = Outcome::of(place.command().args(arguments.split(' ')));
        printed += &format!("{OPEN}{command}\n{}{CLOSE}{rest}", outcome.stdout);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root.join("README.md"), &printed).unwrap();
    } else {
        let update = "`UPDATE_DOCS=1 cargo test --test readme` writes it anew";
        assert_eq!(readme, printed, "README.md shows something else; {update}");
    }
}
