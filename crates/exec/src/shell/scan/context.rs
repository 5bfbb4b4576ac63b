//! The syntactic contexts that the scanner is inside of.

use super::super::Use;

/// A kind of context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextKind {
    /// The command itself.
    Top,
    /// Commands up to a `)`.
    Paren,
    /// Words up to a `)`: the elements of an array.
    Array,
    /// Commands up to a backtick.
    Backtick,
    /// From `case` to `esac`.
    Case { seen_in: bool },
    /// From `[[` to `]]`.
    Test,
    /// Between double quotes.
    Double,
    /// The body of a here-document that is expanded.
    Body,
    /// From `${` to `}`.
    Brace(Brace),
    /// Arithmetic.
    Arith(Arith),
}

impl ContextKind {
    /// Words are read in this context, as in commands.
    pub(super) fn is_commands(self) -> bool {
        !matches!(self, ContextKind::Double | ContextKind::Body | ContextKind::Brace(_) | ContextKind::Arith(_))
    }
}

/// The delimiters of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arith {
    /// It ends with `))`; else with `]`.
    pub(super) is_double: bool,
    /// It began with `$`.
    pub(super) is_value: bool,
    /// Brackets open inside.
    pub(super) depth: usize,
}

/// An expansion of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Brace {
    /// It stands in double quotes.
    pub(super) is_quoted: bool,
    pub(super) phase: ExpansionPhase,
}

/// How far an expansion has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpansionPhase {
    Name,
    Index,
    AfterName,
    /// `:-` and its like.
    Default,
    /// `#`, `%`, `/` and their like.
    Pattern,
    /// `:` and a number.
    Offset,
}

impl Brace {
    /// The scanner is still in the variable's name.
    pub(super) fn is_name(self) -> bool {
        matches!(self.phase, ExpansionPhase::Name | ExpansionPhase::AfterName)
    }

    /// Returns the use of a hole in a phase where only a number can be.
    pub(super) fn is_number(self) -> Option<Use> {
        match self.phase {
            ExpansionPhase::Index => Some(Use::Number { index: true }),
            ExpansionPhase::Offset => Some(Use::Number { index: false }),
            _ => None,
        }
    }

    /// Returns the use of a hole in this phase. It is quoted, so it does not act as a pattern.
    pub(super) fn hole(self) -> Use {
        match self.phase {
            ExpansionPhase::Default if self.is_quoted => Use::Text,
            _ => Use::Words { alone: false },
        }
    }
}

/// A context, and the word that is being read in it.
#[derive(Clone, Debug)]
pub(super) struct ShellContext {
    pub(super) kind: ContextKind,
    /// The number of pieces when the context began.
    pub(super) from: usize,
    /// The quoting became too involved to follow.
    pub(super) is_murky: bool,
    /// The literal characters of the word so far.
    pub(super) word: String,
    pub(super) in_word: bool,
    /// The word has quotes or values in it, so it is no keyword.
    pub(super) is_mixed: bool,
    /// The next word is the name of a command, or a keyword.
    pub(super) at_command: bool,
    /// The next word is the target of a redirection.
    pub(super) redirects: bool,
    /// The word before.
    pub(super) last_word: String,
    /// The words of a test so far, each with the pieces in it that are holes.
    pub(super) tested: Vec<(String, Vec<usize>)>,
    /// Holes in the word that is being read, as pieces.
    pub(super) word_holes: Vec<usize>,
}

impl ShellContext {
    pub(super) fn new(kind: ContextKind) -> Self {
        ShellContext {
            kind,
            from: 0,
            is_murky: false,
            word: String::new(),
            in_word: false,
            is_mixed: false,
            at_command: !matches!(kind, ContextKind::Array | ContextKind::Test | ContextKind::Case { .. }),
            redirects: false,
            last_word: String::new(),
            tested: vec![],
            word_holes: vec![],
        }
    }

    /// Adds a literal character to the word.
    pub(super) fn word_char(&mut self, found: char) {
        self.in_word = true;
        self.word.push(found);
    }

    /// Marks the word as not entirely literal.
    pub(super) fn word_mixed(&mut self) {
        self.in_word = true;
        self.is_mixed = true;
    }

    /// The word so far has opened an index: `name[`, or `[` in an array.
    pub(super) fn in_index(&self) -> bool {
        let Some((name, rest)) = self.word.split_once('[') else { return false };
        let is_name = match name.is_empty() {
            true => self.kind == ContextKind::Array,
            false => name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with(char::is_numeric),
        };
        is_name && !rest.contains(']')
    }
}
