//! The version of a function that names none: a digest of its signature and body. White space, comments, doc comments
//! and trailing commas do not matter, nor does what the function is called; so formatting it runs nothing again.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// FNV-1a over 128 bits: no attacker writes a function whose change we must notice.
pub(crate) struct CodeDigest(u128);

impl CodeDigest {
    pub(crate) fn new() -> Self {
        CodeDigest(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds code to the digest.
    pub(crate) fn code(mut self, code: TokenStream) -> Self {
        self.tokens(code, false);
        self
    }

    pub(crate) fn finish(self) -> String {
        format!("{:032x}", self.0)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }

    /// Adds one token, and a terminator.
    fn word(&mut self, word: &str) {
        self.bytes(word.as_bytes());
        self.bytes(&[0]);
    }

    /// Adds tokens. `keep_last_comma` is set where the last comma makes a tuple, `(a,)`.
    fn tokens(&mut self, code: TokenStream, keep_last_comma: bool) {
        let tokens: Vec<_> = code.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            let last = at + 1 == tokens.len();
            match &tokens[at] {
                TokenTree::Punct(hash) if hash.as_char() == '#' && tokens.get(at + 1).is_some_and(is_doc) => at += 1,
                TokenTree::Punct(comma) if comma.as_char() == ',' && last && !keep_last_comma => {}
                TokenTree::Punct(punct) => self.word(punct.as_char().encode_utf8(&mut [0; 4])),
                TokenTree::Ident(ident) => self.word(&ident.to_string()),
                TokenTree::Literal(literal) => self.word(&literal.to_string()),
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    let before = at.checked_sub(1).map(|before| &tokens[before]);
                    self.word(open);
                    self.tokens(group.stream(), open == "(" && !is_call(before) && commas(group.stream()) == 1);
                    self.word(close);
                }
            }
            at += 1;
        }
    }
}

fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && first.is_some_and(|first| first.to_string() == "doc")
}

fn commas(code: TokenStream) -> usize {
    code.into_iter().filter(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')).count()
}

/// Parentheses after this token are those of a call, a pattern or parameters, so that `(a,)` is the same as `(a)`.
fn is_call(before: Option<&TokenTree>) -> bool {
    const KEYWORDS: [&str; 12] =
        ["as", "break", "else", "if", "in", "let", "match", "move", "mut", "ref", "return", "while"];
    match before {
        Some(TokenTree::Ident(ident)) => !KEYWORDS.contains(&ident.to_string().as_str()),
        Some(TokenTree::Group(_)) => true,
        Some(TokenTree::Punct(punct)) => matches!(punct.as_char(), '>' | '!' | '?'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(code: &str) -> String {
        CodeDigest::new().code(format!("fn {code}").parse().expect("tokens")).finish()
    }

    #[test]
    fn how_a_function_is_laid_out_does_not_matter() {
        let plain = digest("(text: String) -> u64 { count(text, 1) + vec![1, 2].len() as u64 }");
        for same in [
            "(text:String)->u64{count(text,1)+vec![1,2].len()as u64}",
            "(text: String,) -> u64 {\n // says why\n count(\n text,\n 1,\n ) + vec![\n 1,\n 2,\n ].len() as u64\n}",
            "(text: String) -> u64 { count(/* this */ text, 1) + vec![1, 2].len() as u64 }",
        ] {
            assert_eq!(digest(same), plain, "{same}");
        }
        assert_eq!(digest("{ /** docs */ struct A; }"), digest("{ struct A; }"));
        assert_eq!(digest("{ x = -1 }"), digest("{ x=-1 }"));
        assert_eq!(digest("f(\na,\n)"), digest("f(a)"));
    }

    #[test]
    fn the_digest_of_a_function_covers_its_body() {
        let codes = [
            "(a: u64) -> u64 { a }",
            "(a: u64) -> u64 { a + 1 }",
            "(a: u64) -> u64 { a + 2 }",
            "(a: u32) -> u64 { a }",
            "(b: u64) -> u64 { a }",
            "(a: u64) -> u64 { (a) }",
            "(a: u64) -> u64 { return (a,) }",
            "(a: u64) -> u64 { return (a) }",
            "(a: u64) -> u64 { ab }",
            "(a: u64) -> u64 { a b }",
            "(a: u64) -> u64 { \"a b\" }",
            "(a: u64) -> u64 { \"a  b\" }",
            "(a: u64) -> u64 { [a] }",
        ];
        let digests: std::collections::BTreeSet<_> = codes.iter().map(|code| digest(code)).collect();
        assert_eq!(digests.len(), codes.len());
    }

    #[test]
    fn the_digest_of_a_function_never_changes_with_our_releases() {
        assert_eq!(digest("(a: u64) -> u64 { a + 1 }"), "94615268f17035a3d0aad3a868eb3307");
    }
}
