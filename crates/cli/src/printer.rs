//! Owns the streams: stdout is data, stderr is talk. Nothing else in the command writes to either.
//!
//! What comes from steps, files and keys never commands a terminal: whatever is said to people has its control characters
//! shown, and only colours of our own become escape sequences, as the last thing before it is written. Data is exact.

mod visible;

pub(crate) use visible::name;

use crate::{
    args::{Color, Common},
    codes,
    exit::Exit,
    fault::Fault,
};
use indicatif::MultiProgress;
use serde_json::Value;
use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

/// Says things to people, and gives data to programs.
#[derive(Clone)]
pub(crate) struct Printer {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// Whether stderr may have colours.
    colour: bool,
    /// Whether colours were asked for.
    is_forced: bool,
    /// Whether stderr is a terminal on which lines may be drawn again.
    pub(crate) live: bool,
    /// Whether stdout is a terminal.
    is_stdout_terminal: bool,
    /// Bars, if some are drawn: talk has to go above them, whoever talks.
    bars: Arc<RwLock<Option<MultiProgress>>>,
    /// Why data was not written, if it was not.
    unwritten: Arc<OnceLock<io::Error>>,
}

/// How a word is to look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Red,
    Green,
    Yellow,
    Cyan,
    Bold,
    Dim,
}

impl Printer {
    /// The same without data: for what is done on the way to what was asked for.
    pub(crate) fn without_data(&self) -> Self {
        Printer { json: false, ..self.clone() }
    }

    pub(crate) fn new(common: &Common) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let colour = match common.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !no_colour && !dumb,
        };
        let live = terminal && !dumb && !common.json && !common.quiet;
        Printer {
            json: common.json,
            quiet: common.quiet,
            colour,
            is_forced: common.color == Color::Always,
            live,
            is_stdout_terminal: std::io::stdout().is_terminal(),
            bars: Arc::default(),
            unwritten: Arc::default(),
        }
    }

    /// For text on stdout: in colours only if that is a terminal, or colours were asked for.
    pub(crate) fn for_stdout(&self, is_stdout: bool) -> Self {
        let colour = is_stdout && self.colour && (self.is_forced || self.is_stdout_terminal);
        Printer { colour, ..self.clone() }
    }

    /// From now on talk goes above these bars, also that of clones; or, if there are none any more, where it always goes.
    pub(crate) fn draws(&self, bars: Option<MultiProgress>) {
        *self.bars.write().unwrap_or_else(PoisonError::into_inner) = bars;
    }

    /// A line for people. Kept back if only data is wanted.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        if !self.quiet && !self.json {
            self.line(line.as_ref());
        }
    }

    /// A line for people that is an error. Kept back only if it is said as data.
    pub(crate) fn tell(&self, line: impl AsRef<str>) {
        if !self.json {
            self.line(line.as_ref());
        }
    }

    /// A line that must be seen.
    pub(crate) fn warn(&self, line: impl AsRef<str>) {
        self.line(line.as_ref());
    }

    fn line(&self, line: &str) {
        self.put(&visible::visible(line));
    }

    fn put(&self, line: &str) {
        match &*self.bars.read().unwrap_or_else(PoisonError::into_inner) {
            // Nobody reads stderr any more: nothing can be done about it.
            Some(bars) => drop(bars.println(line)),
            None => drop(writeln!(std::io::stderr().lock(), "{line}")),
        }
    }

    /// What to do next: the last line.
    pub(crate) fn next(&self, line: impl AsRef<str>) {
        self.say(format!("{} {}", self.ink(Ink::Dim, "next:"), line.as_ref()));
    }

    /// Text on stdout that is for people.
    pub(crate) fn text(&self, text: impl AsRef<str>) {
        self.write(&visible::visible(text.as_ref()));
    }

    /// What somebody wrote, on stdout: as it is, unless people look at it there.
    pub(crate) fn exact(&self, text: impl AsRef<str>) {
        match self.is_stdout_terminal {
            true => self.text(text),
            false => self.write(text.as_ref()),
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        match write!(out, "{text}{end}").and_then(|()| out.flush()) {
            // A reader that has gone, as `head` does, wants no more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => drop(self.unwritten.set(error)),
            Ok(()) => {}
        }
    }

    /// Whether all data got where it was to go.
    ///
    /// # Errors
    /// What kept it from getting there.
    pub(crate) fn wrote_all(&self) -> Result<(), Fault> {
        match self.unwritten.get() {
            Some(error) => Err(Fault::new(Exit::No, codes::WRITE, format!("cannot write to standard output: {error}"))),
            None => Ok(()),
        }
    }

    /// Data on stdout, in one line.
    pub(crate) fn data(&self, value: &Value) {
        self.write(&value.to_string());
    }

    /// Data on stdout, to be read by people too.
    pub(crate) fn pretty(&self, value: &Value) {
        self.write(&serde_json::to_string_pretty(value).expect("a JSON value can be written"));
    }

    /// An event as data, on stderr.
    pub(crate) fn event(&self, value: &Value) {
        self.put(&value.to_string());
    }

    /// A word in a colour, if there may be any.
    pub(crate) fn ink(&self, ink: Ink, word: &str) -> String {
        if !self.colour {
            return word.to_owned();
        }
        visible::inked(ink, word)
    }
}
