//! Quotes, escapes and comments.

use super::{Scan, Unit, Use, context::ContextKind};

impl Scan {
    /// Scans a character between double quotes, or in a here-document.
    pub(super) fn in_double(&mut self, found: char) {
        let is_body = self.kind() == ContextKind::Body;
        match found {
            '"' if !is_body => {
                self.frames.pop();
                self.take(1);
            }
            '\\' => self.escape(match is_body {
                true => &['$', '`', '\\', '\n'],
                false => &['$', '`', '\\', '\n', '"'],
            }),
            '$' => self.dollar(true),
            '`' => self.backtick(),
            _ => self.take(1),
        }
    }

    /// Scans a backslash, which escapes these characters (or all, if none are named).
    pub(super) fn escape(&mut self, of: &[char]) {
        if let Some(Unit::Hole(part)) = self.units.get(self.at + 1).copied() {
            self.take(1);
            self.refuse(part, "a backslash stands right before a hole", "write `$${{` for the text `${{`");
            self.at += 1;
            return;
        }
        let next = self.peek(1);
        // Between backticks, the shell removes some escapes before it parses the commands.
        if matches!(next, Some('$' | '`' | '\\' | '"'))
            && let Some(outer) = self.frames.iter_mut().rev().find(|frame| frame.kind == ContextKind::Backtick)
        {
            outer.is_murky = true;
        }
        match next {
            Some(next) if of.is_empty() || of.contains(&next) => self.take(2),
            _ => self.take(1),
        }
    }

    /// Opens double quotes.
    pub(super) fn open_double(&mut self) {
        if self.kind().is_commands() {
            self.top().word_mixed();
        }
        self.open(1, ContextKind::Double);
    }

    /// Scans single quotes up to their end. After `$`, backslashes are escapes.
    pub(super) fn single(&mut self, escapes: bool) {
        if self.kind().is_commands() {
            self.top().word_mixed();
        }
        self.take(1);
        while let Some(unit) = self.units.get(self.at).copied() {
            match unit {
                Unit::Char('\'') => return self.take(1),
                Unit::Char('\\') if escapes => self.take(2),
                Unit::Char(_) => self.take(1),
                Unit::Hole(part) => {
                    let hint = "use double quotes, \"… ${{ … }} …\", or end the quotes before it: '…'${{ … }}'…'";
                    self.refuse(part, "a value cannot go inside single quotes", hint);
                    self.at += 1;
                }
            }
        }
    }

    /// Opens or closes backticks.
    pub(super) fn backtick(&mut self) {
        match self.frames.iter().rposition(|frame| frame.kind == ContextKind::Backtick) {
            Some(open) => {
                self.end_word();
                // An open `case` or `[[` inside ends with the backtick; an open quote means that the scanner was
                // misled.
                let unclosed = self.frames[open + 1..].iter().any(|frame| !frame.kind.is_commands());
                let from = self.frames[open].from;
                self.frames.truncate(open);
                if unclosed {
                    self.top().is_murky = true;
                    self.refuse_from(from, "the quotes between backticks around this hole could not be followed");
                }
                self.take(1);
            }
            None => {
                if self.kind().is_commands() {
                    self.top().word_mixed();
                }
                self.open(1, ContextKind::Backtick);
            }
        }
    }

    /// Scans a comment up to the end of its line.
    pub(super) fn comment(&mut self) {
        let ticked = self.frames.iter().any(|frame| frame.kind == ContextKind::Backtick);
        while let Some(unit) = self.units.get(self.at).copied() {
            match unit {
                Unit::Char('\n') => return,
                Unit::Char('`') if ticked => return,
                Unit::Char(_) => self.take(1),
                Unit::Hole(part) => self.push_hole(part, Use::Nothing),
            }
        }
    }

    /// Marks the context as too involved to follow.
    pub(super) fn murky(&mut self) {
        self.top().is_murky = true;
        self.take(1);
    }
}
