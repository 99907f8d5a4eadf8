//! The terminal, while something on it changes: the alternate screen, which gives back what was there.

use std::io::{self, Write};

use crate::output::Output;

/// Without a cursor, and without a second line for what is wider than the terminal.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// To the top, and away with what is below.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The alternate screen; left when this is dropped, also by a panic.
pub(crate) struct Screen {
    output: Output,
}

impl Screen {
    pub(crate) fn enter(output: Output) -> io::Result<Self> {
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(Self { output })
    }

    /// Draws these lines in the place of those before, without a flicker: nothing is cleared before it
    /// is written over. What does not fit is left out.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let height = size().map_or(usize::MAX, |(_, height)| height);
        let mut text = HOME.to_owned();
        for (at, line) in lines.iter().take(height).enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&self.output.painted(line));
            text.push_str(CLEAR_LINE);
        }
        text.push_str(CLEAR_BELOW);
        Output::text(text.as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        // There is nobody to tell where the terminal is gone.
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
    }
}

/// Columns and lines of the terminal, if there is one.
pub(crate) fn size() -> Option<(usize, usize)> {
    let (terminal_size::Width(width), terminal_size::Height(height)) =
        terminal_size::terminal_size()?;
    Some((width.into(), height.into()))
}
