//! Follows the quoting of a shell's text, so far as to know for each hole whether it stands in quotes, in arithmetic,
//! in a here-document, a comment, or where no value can go.
//!
//! The scanner covers the usual forms. A hole inside a form that it cannot follow is refused, never guessed: a wrong
//! guess would hand a value to the shell as a program.

mod context;
mod dollar;
mod heredoc;
mod quote;
mod word;

use super::{Dialect, Piece, RefusedHole, Scanned, Use};
use crate::action::{Template, TemplatePart};
use context::{ContextKind, ShellContext};
use heredoc::PendingHeredoc;

/// A unit of the text: a character or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Char(char),
    Hole(usize),
}

struct Scan {
    units: Vec<Unit>,
    at: usize,
    dialect: Dialect,
    frames: Vec<ShellContext>,
    pending: Vec<PendingHeredoc>,
    pieces: Vec<Piece>,
    refused: Vec<RefusedHole>,
}

pub(super) fn scan(template: &Template, dialect: Dialect) -> Result<Scanned, Vec<RefusedHole>> {
    let mut units = Vec::new();
    for (part, piece) in template.0.iter().enumerate() {
        match piece {
            TemplatePart::Text(text) => units.extend(text.chars().map(Unit::Char)),
            TemplatePart::Hole(_) => units.push(Unit::Hole(part)),
        }
    }
    let frames = vec![ShellContext::new(ContextKind::Top)];
    let mut scan = Scan { units, at: 0, dialect, frames, pending: vec![], pieces: vec![], refused: vec![] };
    let end = scan.units.len();
    scan.run(end);
    assert_eq!(scan.at, end, "the text of a command was not read to its end");
    scan.end_word();
    // The shell itself reports a `[[` or `case` without an end; a quote that stays open may have misled the scanner.
    if let Some(open) = scan.frames.get(1) {
        let from = open.from;
        scan.refuse_from(from, "the quotes and brackets around this hole could not be followed to their end");
    }
    match scan.refused.is_empty() {
        true => {
            let holes = scan.pieces.iter().filter(|piece| matches!(piece, Piece::Hole(..))).count();
            let parts = template.0.iter().filter(|part| matches!(part, TemplatePart::Hole(_))).count();
            assert!(holes >= parts, "a hole of the template would be left out of the command: {holes} of {parts}");
            Ok(Scanned { pieces: scan.pieces })
        }
        false => Err(scan.refused),
    }
}

impl Scan {
    /// Reads up to `end`.
    fn run(&mut self, end: usize) {
        while self.at < end {
            match self.units[self.at] {
                Unit::Hole(part) => self.hole(part),
                Unit::Char(found) => self.char(found),
            }
        }
    }

    fn top(&mut self) -> &mut ShellContext {
        self.frames.last_mut().expect("there is always a frame")
    }

    fn kind(&self) -> ContextKind {
        self.frames.last().map_or(ContextKind::Top, |frame| frame.kind)
    }

    /// Returns the character `ahead` units from here.
    fn peek(&self, ahead: usize) -> Option<char> {
        match self.units.get(self.at + ahead) {
            Some(Unit::Char(found)) => Some(*found),
            Some(Unit::Hole(_)) | None => None,
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, wanted)| self.peek(ahead) == Some(wanted))
    }

    /// Copies characters to the output unchanged.
    fn take(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(Unit::Char(found)) = self.units.get(self.at).copied() {
                match self.pieces.last_mut() {
                    Some(Piece::Text(text)) => text.push(found),
                    _ => self.pieces.push(Piece::Text(String::from(found))),
                }
                self.at += 1;
            }
        }
    }

    fn refuse(&mut self, part: usize, message: &str, hint: &str) {
        self.refused.push(RefusedHole { part, message: message.into(), hint: hint.into() });
    }

    /// Refuses every hole from piece `from` on.
    fn refuse_from(&mut self, from: usize, message: &str) {
        let hole = |piece: &Piece| match piece {
            Piece::Hole(part, used) if *used != Use::Nothing => Some(*part),
            _ => None,
        };
        let parts: Vec<_> = self.pieces[from.min(self.pieces.len())..].iter().filter_map(hole).collect();
        for part in parts {
            self.refuse(part, message, ASSIGN);
        }
    }

    fn push_hole(&mut self, part: usize, used: Use) {
        self.pieces.push(Piece::Hole(part, used));
        self.at += 1;
    }

    fn hole(&mut self, part: usize) {
        let before = self.at.checked_sub(1).map(|at| self.units[at]);
        if before == Some(Unit::Char('$')) {
            self.refuse(part, "a `$` stands right before a hole", "leave the `$` away: the hole is the value itself");
            self.at += 1;
            return;
        }
        if self.frames.iter().any(|frame| frame.is_murky) {
            self.refuse(part, "the quoting around this hole is too involved to be sure of", ASSIGN);
            self.at += 1;
            return;
        }
        let used = match (self.kind(), self.number()) {
            (ContextKind::Brace(brace), _) if brace.is_name() => {
                self.refuse(part, "a hole cannot stand for the name of a variable", ASSIGN);
                self.at += 1;
                return;
            }
            (_, Some(used)) => used,
            (ContextKind::Double | ContextKind::Body, _) => Use::Text,
            (ContextKind::Brace(brace), _) => brace.hole(),
            _ => Use::Words { alone: self.is_alone() },
        };
        self.note_in_test();
        if self.kind().is_commands() {
            self.top().word_mixed();
        }
        self.push_hole(part, used);
    }

    /// The hole here is a word of its own.
    fn is_alone(&self) -> bool {
        let ends = |unit: Option<&Unit>, more: char| match unit {
            None => true,
            Some(Unit::Char(found)) => matches!(found, ' ' | '\t' | '\n' | ';' | '|' | '&') || *found == more,
            Some(Unit::Hole(_)) => false,
        };
        let frame = self.frames.last().expect("there is always a frame");
        let before = self.at.checked_sub(1).and_then(|at| self.units.get(at));
        let subject = matches!(frame.kind, ContextKind::Case { seen_in: false } | ContextKind::Test);
        !frame.redirects && !subject && ends(before, '(') && ends(self.units.get(self.at + 1), ')')
    }

    /// Returns the use of a hole that the shell would read as arithmetic: in arithmetic, or in the index of an array.
    fn number(&self) -> Option<Use> {
        for frame in self.frames.iter().rev() {
            match frame.kind {
                ContextKind::Arith(_) => return Some(Use::Number { index: false }),
                ContextKind::Brace(brace) if brace.is_number().is_some() => return brace.is_number(),
                ContextKind::Double | ContextKind::Brace(_) => {}
                kind if kind.is_commands() && frame.in_index() => return Some(Use::Number { index: true }),
                _ => return None,
            }
        }
        None
    }

    fn char(&mut self, found: char) {
        match self.kind() {
            ContextKind::Double | ContextKind::Body => self.in_double(found),
            ContextKind::Brace(_) => self.in_brace(found),
            ContextKind::Arith(_) => self.in_arith(found),
            _ => self.in_commands(found),
        }
    }
}

/// The hint for every place where no hole can be.
const ASSIGN: &str = "put it into a variable first, `x=${{ … }}`, and use `$x`";
