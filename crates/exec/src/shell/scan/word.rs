//! Scans words, operators and keywords, to find where commands begin and so recognise `case`, `[[` and comments.

use super::{
    Piece, Scan, Use,
    context::{Arith, ContextKind},
};

/// Words that are followed by a command.
const BEFORE_COMMANDS: [&str; 13] =
    ["!", "{", "then", "do", "else", "elif", "if", "while", "until", "time", "coproc", "&&", "||"];

/// Operators of `[[` that evaluate their operands as arithmetic, or as the name of a variable.
const ARITHMETIC: [&str; 7] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"];

impl Scan {
    /// Scans a character in a context of words.
    pub(super) fn in_commands(&mut self, found: char) {
        let is_test = self.kind() == ContextKind::Test;
        match found {
            '\\' => self.backslash(),
            '\'' => self.single(false),
            '"' => self.open_double(),
            '$' => self.dollar(false),
            '`' => self.backtick(),
            '#' if !self.top().in_word => self.comment(),
            ' ' | '\t' => {
                self.end_word();
                self.take(1);
            }
            '\n' => self.newline(),
            '(' | ')' if is_test => self.test_bracket(found),
            '<' | '>' if self.peek(1) == Some('(') => {
                self.top().word_mixed();
                self.open(2, ContextKind::Paren);
            }
            '<' if self.starts_with("<<") && !self.starts_with("<<<") && !is_test => {
                self.end_number_word();
                self.heredoc();
            }
            '<' | '>' => self.redirection(),
            ';' | '&' | '|' => self.operator(found),
            '(' => self.open_bracket(),
            ')' => self.close_bracket(),
            _ => {
                self.top().word_char(found);
                self.take(1);
            }
        }
    }

    fn backslash(&mut self) {
        if self.peek(1) != Some('\n') {
            self.top().word_mixed();
        }
        self.escape(&[]);
    }

    fn newline(&mut self) {
        self.end_word();
        self.take(1);
        let is_body = self.kind() != ContextKind::Array && self.kind() != ContextKind::Test;
        self.top().at_command = is_body;
        self.bodies();
    }

    /// Ends a word before a redirection; a word of digits is dropped, as the `2` of `2>` belongs to the operator.
    fn end_number_word(&mut self) {
        let top = self.top();
        if top.in_word && !top.is_mixed && top.word.chars().all(|c| c.is_ascii_digit()) {
            (top.in_word, top.word) = (false, String::new());
        }
        self.end_word();
    }

    fn redirection(&mut self) {
        if self.kind() == ContextKind::Test {
            self.end_word();
            return self.take(1);
        }
        self.end_number_word();
        let count = match (self.peek(0), self.peek(1), self.peek(2)) {
            (Some('<'), Some('<'), Some('<')) => 3,
            (_, Some('>' | '&' | '|'), _) => 2,
            _ => 1,
        };
        self.top().redirects = true;
        self.take(count);
    }

    fn operator(&mut self, found: char) {
        self.end_word();
        if found == '&' && self.peek(1) == Some('>') {
            self.top().redirects = true;
            self.take(1);
            while self.peek(0) == Some('>') {
                self.take(1);
            }
            return;
        }
        let top = self.top();
        top.redirects = false;
        top.at_command = !matches!(top.kind, ContextKind::Array | ContextKind::Test);
        if top.kind == ContextKind::Test {
            top.tested.push((String::new(), vec![]));
        }
        self.take(1);
    }

    fn open_bracket(&mut self) {
        let top = self.top();
        let is_assignment = top.in_word && !top.is_mixed && top.word.ends_with('=');
        let is_for = !top.in_word && top.last_word == "for";
        let is_command = !top.in_word && top.at_command;
        let is_word = top.in_word;
        if is_assignment {
            top.word_mixed();
            return self.open(1, ContextKind::Array);
        }
        if is_word && self.peek(1) == Some(')') {
            // `name()` defines a function.
            self.end_word();
            self.top().at_command = true;
            return self.take(2);
        }
        if self.peek(1) == Some('(') && (is_for || is_command) {
            return self.open_arith(2, Arith { is_double: true, is_value: false, depth: 0 });
        }
        self.open(1, ContextKind::Paren);
    }

    fn close_bracket(&mut self) {
        self.end_word();
        match self.kind() {
            ContextKind::Paren | ContextKind::Array => {
                self.frames.pop();
                let is_case = matches!(self.kind(), ContextKind::Case { .. });
                let top = self.top();
                match top.in_word || !top.kind.is_commands() {
                    true => {}
                    false => top.at_command = is_case,
                }
            }
            // The bracket ends a pattern of `case`.
            ContextKind::Case { .. } => self.top().at_command = true,
            _ => {}
        }
        self.take(1);
    }

    /// Scans a bracket inside `[[`: between words it groups, inside a word it belongs to a pattern.
    fn test_bracket(&mut self, found: char) {
        match self.top().in_word && found == '(' || self.top().word.contains('(') {
            true => self.top().word_char(found),
            false => self.end_word(),
        }
        self.take(1);
    }

    /// Notes the next hole as part of the enclosing test.
    pub(super) fn note_in_test(&mut self) {
        let piece = self.pieces.len();
        let inner = self
            .frames
            .iter_mut()
            .rev()
            .find(|frame| !matches!(frame.kind, ContextKind::Double | ContextKind::Brace(_)));
        if let Some(frame) = inner
            && frame.kind == ContextKind::Test
        {
            frame.word_holes.push(piece);
        }
    }

    /// Ends a word, which may have been a keyword.
    pub(super) fn end_word(&mut self) {
        let top = self.top();
        if !top.kind.is_commands() || !top.in_word {
            return;
        }
        let word = std::mem::take(&mut top.word);
        let holes = std::mem::take(&mut top.word_holes);
        let is_keyword = !top.is_mixed;
        (top.in_word, top.is_mixed) = (false, false);
        if std::mem::take(&mut top.redirects) {
            return;
        }
        match top.kind {
            ContextKind::Test => self.tested(word, holes, is_keyword),
            ContextKind::Case { seen_in: false } => {
                if is_keyword && word == "in" && !top.last_word.is_empty() {
                    top.kind = ContextKind::Case { seen_in: true };
                    top.at_command = true;
                }
                top.last_word = String::from("subject");
            }
            _ if top.at_command => self.command_word(word, is_keyword),
            _ => top.last_word = word,
        }
    }

    fn command_word(&mut self, word: String, is_keyword: bool) {
        let is_case = matches!(self.kind(), ContextKind::Case { .. });
        let top = self.top();
        top.at_command = is_assignment(&word);
        if is_keyword {
            match word.as_str() {
                "case" => self.open(0, ContextKind::Case { seen_in: false }),
                "esac" if is_case => {
                    self.frames.pop();
                    self.top().at_command = false;
                }
                "[[" => self.open(0, ContextKind::Test),
                word if BEFORE_COMMANDS.contains(&word) => top.at_command = true,
                _ => top.last_word = word,
            }
        }
    }

    /// Adds a word to a test; at the end of the test it is known which words are evaluated as numbers.
    fn tested(&mut self, word: String, holes: Vec<usize>, is_keyword: bool) {
        if !is_keyword || word != "]]" {
            self.top().tested.push((if is_keyword { word } else { String::new() }, holes));
            return;
        }
        let words = std::mem::take(&mut self.top().tested);
        self.frames.pop();
        self.top().at_command = false;
        let is_operator = |at: Option<usize>| {
            at.and_then(|at| words.get(at)).is_some_and(|(word, _)| ARITHMETIC.contains(&word.as_str()))
        };
        for (at, (_, holes)) in words.iter().enumerate() {
            if is_operator(at.checked_sub(1)) || is_operator(Some(at + 1)) {
                for piece in holes {
                    if let Some(Piece::Hole(_, used)) = self.pieces.get_mut(*piece) {
                        *used = Use::Number { index: true };
                    }
                }
            }
        }
    }
}

/// The word is an assignment, so a command may still follow.
fn is_assignment(word: &str) -> bool {
    let name = word.split(['=', '[', '+']).next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name && word.contains('=')
}
