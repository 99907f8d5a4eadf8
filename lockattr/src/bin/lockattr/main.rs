//! The command `lockattr`: what the library does, for a shell.
//!
//! Each subcommand is a file: its arguments, its help and what it does. It answers with an
//! [`Exit`](exit::Exit) or a [`Failure`](exit::Failure), which is told on stderr here and nowhere else.

mod bench;
mod cli;
mod doctor;
mod exit;
mod gather;
mod generate;
mod interrupts;
mod list;
mod log;
mod output;
mod release;
mod rows;
#[cfg(unix)]
mod run;
mod screen;
mod show;
mod table;
mod watch;
mod words;

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Command, Global};
use exit::{Answer, Exit, Failure};
use output::Output;

fn main() -> ExitCode {
    #[cfg(unix)]
    if let Some(code) = run::guard::if_asked_for(env::args_os()) {
        return code;
    }
    let asked = Output::asked_for(env::args_os());
    let matches = Cli::command().color(asked.color.into()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(told) if !told.use_stderr() => {
            // Help, which nobody may be left to read.
            let _ = told.print();
            return Exit::OK.into();
        }
        Err(told) => {
            let failure = Failure::new(Exit::USAGE, told.to_string().trim_end());
            if asked.json {
                asked.tell(&failure);
            } else {
                let _ = told.print();
            }
            return failure.exit.into();
        }
    };
    let output = Output::new(&cli.global);
    log::install(&cli, output);
    match answer(cli, output) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output.tell(&failure);
            failure.exit.into()
        }
    }
}

fn answer(cli: Cli, output: Output) -> Answer {
    let global = cli.global;
    match cli.command {
        Command::Run(args) => block_on(run(&args, &global)),
        Command::List(args) => block_on(list::list(args, &global, output)),
        Command::Show(args) => block_on(show::show(args, &global, output)),
        Command::Watch(args) => block_on(watch::watch(args, &global, output)),
        Command::Release(args) => block_on(release::release(args, &global, output)),
        Command::Doctor(args) => block_on(doctor::doctor(args, global, output)),
        Command::Bench(args) => block_on(bench::bench(&args, &global, output)),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    }
}

#[cfg(unix)]
async fn run(args: &cli::RunArgs, global: &Global) -> Answer {
    run::run(args, global).await
}

#[cfg(not(unix))]
async fn run(_: &cli::RunArgs, _: &Global) -> Answer {
    Err(Failure::new(
        Exit::INTERNAL,
        "`lockattr run` needs process groups and signals, and works on Unix alone: take the lock in the \
         program itself, with the library",
    ))
}

/// One thread: the library renews on threads of its own.
fn block_on(answer: impl Future<Output = Answer>) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(answer)
}
