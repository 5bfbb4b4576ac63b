//! Scans everything that begins with `$`: variables, their expansions, arithmetic, command substitution.

use super::{
    Dialect, Scan,
    context::{Arith, Brace, ContextKind, ExpansionPhase, ShellContext},
};

impl Scan {
    /// Scans a `$`. Between double quotes, `$'` and `$"` are nothing special.
    pub(super) fn dollar(&mut self, is_quoted: bool) {
        if self.kind().is_commands() {
            self.top().word_mixed();
        }
        match (self.peek(1), self.peek(2)) {
            (Some('('), Some('(')) => self.open_arith(3, Arith { is_double: true, is_value: true, depth: 0 }),
            (Some('('), _) => self.open(2, ContextKind::Paren),
            (Some('['), _) => self.open_arith(2, Arith { is_double: false, is_value: true, depth: 0 }),
            (Some('{'), next) => {
                self.open(2, ContextKind::Brace(Brace { is_quoted, phase: ExpansionPhase::Name }));
                // Command substitution in braces (`${ …; }`) is too new to follow.
                self.top().is_murky = matches!(next, Some(' ' | '\t' | '\n' | '|'));
            }
            (Some('\''), _) if !is_quoted => {
                // Older POSIX shells do not know `$'…'`, and end the quotes elsewhere.
                self.top().is_murky |= self.dialect == Dialect::Posix;
                self.take(1);
                self.single(true);
            }
            (Some('"'), _) if !is_quoted => {
                self.take(1);
                self.open_double();
            }
            // `$$`, `$#` and so on: the second character begins nothing else.
            (Some('$' | '#' | '?' | '!' | '@' | '*' | '-'), _) => self.take(2),
            _ => self.take(1),
        }
    }

    pub(super) fn open(&mut self, count: usize, kind: ContextKind) {
        let mut frame = ShellContext::new(kind);
        frame.from = self.pieces.len();
        self.frames.push(frame);
        self.take(count);
    }

    pub(super) fn open_arith(&mut self, count: usize, arith: Arith) {
        self.open(count, ContextKind::Arith(arith));
    }

    /// Scans a character between `${` and `}`.
    pub(super) fn in_brace(&mut self, found: char) {
        let ContextKind::Brace(brace) = self.kind() else { unreachable!("only there") };
        match brace.phase {
            ExpansionPhase::Name => self.in_name(brace, found),
            ExpansionPhase::AfterName => self.after_name(brace, found),
            ExpansionPhase::Index if found == ']' => {
                self.phase(brace, ExpansionPhase::AfterName);
                self.take(1);
            }
            _ if found == '}' => {
                self.frames.pop();
                self.take(1);
            }
            _ => self.in_expansion(brace, found),
        }
    }

    fn phase(&mut self, brace: Brace, phase: ExpansionPhase) {
        self.top().kind = ContextKind::Brace(Brace { phase, ..brace });
    }

    /// Scans the variable's name and its prefix.
    fn in_name(&mut self, brace: Brace, found: char) {
        let is_name = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let goes_on = |c: Option<char>| is_name(c) || matches!(c, Some('@' | '*' | '#' | '?' | '$' | '!' | '-'));
        if matches!(found, '#' | '!') && goes_on(self.peek(1)) && self.peek(2).is_some() {
            // A prefix: `#` for the length, `!` for indirection.
            self.take(1);
        }
        match is_name(self.peek(0)) {
            true => {
                while is_name(self.peek(0)) {
                    self.take(1);
                }
            }
            false if goes_on(self.peek(0)) => self.take(1),
            false => self.top().is_murky = true,
        }
        match self.peek(0) {
            Some('[') => {
                self.phase(brace, ExpansionPhase::Index);
                self.take(1);
            }
            _ => self.phase(brace, ExpansionPhase::AfterName),
        }
    }

    /// Scans the operator after the variable's name.
    fn after_name(&mut self, brace: Brace, found: char) {
        let (phase, count) = match (found, self.peek(1)) {
            ('}', _) => {
                self.frames.pop();
                return self.take(1);
            }
            (':', Some('-' | '=' | '?' | '+')) => (ExpansionPhase::Default, 2),
            (':', _) => (ExpansionPhase::Offset, 1),
            ('-' | '=' | '?' | '+', _) => (ExpansionPhase::Default, 1),
            ('#' | '%' | '/' | '^' | ',', _) => (ExpansionPhase::Pattern, 1),
            _ => {
                self.top().is_murky = true;
                (ExpansionPhase::Pattern, 1)
            }
        };
        self.phase(brace, phase);
        self.take(count);
    }

    fn in_expansion(&mut self, brace: Brace, found: char) {
        let is_posix = self.dialect == Dialect::Posix;
        match found {
            '\\' => self.escape(&[]),
            '$' => self.dollar(brace.is_quoted),
            '`' => self.backtick(),
            // Inside double quotes, shells disagree on the meaning of single quotes in an expansion.
            '\'' if brace.is_quoted => self.murky(),
            '"' if brace.is_quoted && (is_posix || self.in_body()) => self.murky(),
            '\'' => self.single(false),
            '"' => self.open_double(),
            _ => self.take(1),
        }
    }

    fn in_body(&self) -> bool {
        self.frames.iter().any(|frame| frame.kind == ContextKind::Body)
    }

    /// Scans a character of arithmetic.
    pub(super) fn in_arith(&mut self, found: char) {
        let ContextKind::Arith(arith) = self.kind() else { unreachable!("only there") };
        let deeper = |depth: usize| ContextKind::Arith(Arith { depth, ..arith });
        let (opens, closes) = if arith.is_double { ('(', ')') } else { ('[', ']') };
        match found {
            _ if found == opens => {
                self.top().kind = deeper(arith.depth + 1);
                self.take(1);
            }
            _ if found == closes && arith.depth > 0 => {
                self.top().kind = deeper(arith.depth - 1);
                self.take(1);
            }
            ')' if arith.is_double && self.peek(1) != Some(')') => self.no_arith(),
            _ if found == closes => {
                self.frames.pop();
                self.take(if arith.is_double { 2 } else { 1 });
            }
            '\\' => self.escape(&[]),
            '$' => self.dollar(true),
            '`' => self.backtick(),
            '\'' => self.murky(),
            _ => self.take(1),
        }
    }

    /// Corrects `$((`: it was a `(` inside a `$(`, and that `(` ends here.
    fn no_arith(&mut self) {
        let from = self.top().from;
        self.frames.pop();
        // Its holes were scanned as numbers; their real use is not certain, so they are refused.
        self.refuse_from(from, "it is not clear whether this is arithmetic; if it is not, write `( (` with a space");
        self.open(1, ContextKind::Paren);
        self.top().at_command = false;
        self.top().from = from;
    }
}
