//! Starts, freezes and thaws the writer processes.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::writer::Orders;

/// This program again, with orders; ended when this value is dropped.
pub(crate) struct Writer {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    pub(crate) fn start(orders: &Orders) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(orders.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a writer has no pipes".into());
        };
        Ok(Self {
            process,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    /// Waits for the writer's next line, which begins with `word`, and answers the rest of it.
    pub(crate) fn says(&mut self, word: &str) -> Result<String, Box<dyn Error>> {
        let Some(line) = self.output.next().transpose()? else {
            return Err(format!("a writer ended without a word on its {word}").into());
        };
        match line.split_once(' ') {
            Some((first, rest)) if first == word => Ok(rest.to_owned()),
            _ => Err(format!("a writer said `{line}` in place of its {word}").into()),
        }
    }

    /// Lets the writer come out of its slow write path.
    pub(crate) fn go_on(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(writeln!(self.input, "go on")?)
    }

    /// Freezes the process, the thread that renews its lease included, and waits until it stands
    /// still.
    pub(crate) fn freeze(&self) -> Result<(), Box<dyn Error>> {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP)?;
        match waitpid(Some(pid), WaitOptions::UNTRACED)? {
            Some((_, status)) if status.stopped() => Ok(()),
            _ => Err("a writer ended in place of standing still".into()),
        }
    }

    pub(crate) fn thaw(&self) -> Result<(), Box<dyn Error>> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::CONT)?)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to stop.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
