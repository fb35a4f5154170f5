//! `--generate`: the manual page and the completions.

use std::io::{self, Write};

use clap::CommandFactory as _;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::args::{Arguments, Generate};
use super::exit;

/// Writes what was asked for.
pub(crate) fn write(what: Generate, out: &mut dyn Write) -> io::Result<()> {
    let mut command = Arguments::command();
    let Some(shell) = what.shell() else {
        return manual(command, out);
    };
    // The generator panics where it cannot write; memory always can be written.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "session-import", &mut script);
    out.write_all(&script)
}

/// One page for all: the sections that clap knows, each command's arguments,
/// and the exit codes.
fn manual(mut command: clap::Command, out: &mut dyn Write) -> io::Result<()> {
    command.build();
    let page = Man::new(command.clone().after_long_help(None::<&str>));
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    for subcommand in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        heading(&subcommand.get_name().to_uppercase(), out)?;
        arguments(subcommand, out)?;
    }
    exit_codes(out)?;
    page.render_version_section(out)
}

fn exit_codes(out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (codes, meaning) in exit::TABLE {
        roff.control("TP", []);
        roff.text([bold(*codes)]);
        roff.text([roman(*meaning)]);
    }
    roff.to_writer(out)
}

fn heading(title: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    roff.to_writer(out)
}

/// A command's own arguments; the common ones stand under OPTIONS.
fn arguments(command: &clap::Command, out: &mut dyn Write) -> io::Result<()> {
    let own = command.clone().mut_args(|arg| {
        let common = arg.is_global_set() || arg.get_id() == "help";
        arg.hide(common)
    });
    // Its own heading would be one more OPTIONS.
    let mut section = Vec::new();
    Man::new(own).render_options_section(&mut section)?;
    let text = String::from_utf8_lossy(&section);
    let body = text
        .split_once(".SH OPTIONS\n")
        .map_or(&*text, |(_, body)| body);
    out.write_all(body.as_bytes())
}
