//! Owns the streams: stdout is for data, stderr for messages. No other code of the command writes to either.
//!
//! Text from steps, files and keys never controls a terminal: messages to people have its control characters shown, and
//! only our own colours become escape sequences, as the last step before writing. Data is exact.

mod same_store;
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

/// Prints messages for people, and data for programs.
#[derive(Clone)]
pub(crate) struct Printer {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// Messages on stderr may have colours.
    colour: bool,
    /// Colours were asked for.
    is_forced: bool,
    /// Stderr is a terminal on which lines may be redrawn.
    pub(crate) live: bool,
    /// Stdout is a terminal.
    is_stdout_terminal: bool,
    /// Progress bars, if some are drawn: messages of every clone have to go above them.
    bars: Arc<RwLock<Option<MultiProgress>>>,
    /// The options that named the store on this command line: commands that are proposed get them too.
    same_store: Arc<str>,
    /// The first error of writing data, if there was one.
    unwritten: Arc<OnceLock<io::Error>>,
}

/// The colour or weight of a word.
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
    /// Returns a printer that prints no JSON: for steps on the way to what was asked for.
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
            same_store: Arc::from(""),
            unwritten: Arc::default(),
        }
    }

    /// Makes proposed commands, also those of clones, name the store by the options that this command line has.
    pub(crate) fn names_store(self, common: &Common, is_said: impl Fn(&str) -> bool) -> Self {
        Printer { same_store: same_store::options(common, is_said).into(), ..self }
    }

    /// Returns a message with the options that named the store in the commands that it proposes.
    pub(crate) fn on_same_store(&self, message: &str) -> String {
        same_store::add(&self.same_store, message)
    }

    /// Returns a printer for text on stdout: with colours only if stdout is a terminal, or colours were asked for.
    pub(crate) fn for_stdout(&self, is_stdout: bool) -> Self {
        let colour = is_stdout && self.colour && (self.is_forced || self.is_stdout_terminal);
        Printer { colour, ..self.clone() }
    }

    /// Makes messages, also those of clones, go above these bars from now on; `None` ends that.
    pub(crate) fn draws(&self, bars: Option<MultiProgress>) {
        *self.bars.write().unwrap_or_else(PoisonError::into_inner) = bars;
    }

    /// Prints a line for people, unless quiet or only data is wanted.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        if !self.quiet && !self.json {
            self.line(line.as_ref());
        }
    }

    /// Prints an error for people, unless it is reported as data.
    pub(crate) fn tell(&self, line: impl AsRef<str>) {
        if !self.json {
            self.line(line.as_ref());
        }
    }

    /// Prints a line that must be seen.
    pub(crate) fn warn(&self, line: impl AsRef<str>) {
        self.line(line.as_ref());
    }

    fn line(&self, line: &str) {
        self.put(&visible::visible(line));
    }

    fn put(&self, line: &str) {
        match &*self.bars.read().unwrap_or_else(PoisonError::into_inner) {
            // If stderr is closed, there is nowhere to report it.
            Some(bars) => drop(bars.println(line)),
            None => drop(writeln!(std::io::stderr().lock(), "{line}")),
        }
    }

    /// Prints what to do next, as the last line.
    pub(crate) fn next(&self, line: impl AsRef<str>) {
        self.say(format!("{} {}", self.ink(Ink::Dim, "next:"), self.on_same_store(line.as_ref())));
    }

    /// Prints text for people on stdout.
    pub(crate) fn text(&self, text: impl AsRef<str>) {
        self.write(&visible::visible(text.as_ref()));
    }

    /// Prints text from steps or files on stdout: exactly, unless stdout is a terminal.
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
            // A reader that closed the pipe, as `head` does, wants no more.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => drop(self.unwritten.set(error)),
            Ok(()) => {}
        }
    }

    /// Checks that all data was written.
    ///
    /// # Errors
    /// The error that kept data from being written.
    pub(crate) fn wrote_all(&self) -> Result<(), Fault> {
        match self.unwritten.get() {
            Some(error) => Err(Fault::new(Exit::No, codes::WRITE, format!("cannot write to standard output: {error}"))),
            None => Ok(()),
        }
    }

    /// Prints data on stdout, in one line.
    pub(crate) fn data(&self, value: &impl serde::Serialize) {
        self.write(&serde_json::to_string(value).expect("data for display can be written as JSON"));
    }

    /// Prints data on stdout, indented for people too.
    pub(crate) fn pretty(&self, value: &Value) {
        self.write(&serde_json::to_string_pretty(value).expect("a JSON value can be written"));
    }

    /// Prints an event as JSON on stderr.
    pub(crate) fn event(&self, value: &Value) {
        self.put(&value.to_string());
    }

    /// Colours a word, if colours are allowed.
    pub(crate) fn ink(&self, ink: Ink, word: &str) -> String {
        if !self.colour {
            return word.to_owned();
        }
        visible::inked(ink, word)
    }
}
