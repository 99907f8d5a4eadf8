//! What packages and shells want of the command: completions and manual pages, made from its arguments.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::{Answer, Exit, Failure};
use crate::output::Output;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lockattr completions bash > /usr/share/bash-completion/completions/lockattr
  lockattr completions zsh > /usr/share/zsh/site-functions/_lockattr
  lockattr completions fish > ~/.config/fish/completions/lockattr.fish")]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

/// Print the manual page, or write those of all subcommands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lockattr man | man -l -
  lockattr man /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Where to write lockattr.1 and a page for each subcommand
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockattr", &mut script);
    Output::text(&script)?;
    Ok(Exit::OK)
}

pub(crate) fn man(args: &ManArgs) -> Answer {
    let command = Cli::command().disable_help_subcommand(true);
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        Output::text(&page)?;
        return Ok(Exit::OK);
    };
    let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
    written.map_err(|error| {
        let dir = dir.display();
        Failure::new(Exit::INTERNAL, format!("no pages in `{dir}`: {error}"))
    })?;
    Ok(Exit::OK)
}
