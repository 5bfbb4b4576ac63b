//! Makes text from steps, files and keys safe for a terminal: control characters are shown as escapes.

use super::Ink;

/// Marks of the beginning and end of our colours in a text: noncharacters of Unicode. A step that writes them can at
/// most cause a colour.
const INK: char = '\u{fdd0}';
const END: char = '\u{fdd1}';

const INKS: [(Ink, char, &str); 6] = [
    (Ink::Red, 'r', "31;1"),
    (Ink::Green, 'g', "32"),
    (Ink::Yellow, 'y', "33"),
    (Ink::Cyan, 'c', "36"),
    (Ink::Bold, 'b', "1"),
    (Ink::Dim, 'd', "2"),
];

/// Marks a word with a colour, which takes effect when the text is written.
pub(super) fn inked(ink: Ink, word: &str) -> String {
    let letter = INKS.iter().find(|(known, ..)| *known == ink).map_or('d', |(_, letter, _)| *letter);
    format!("{INK}{letter}{word}{END}")
}

/// Shows all control characters of a text of several lines, and turns our marks into colours.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            '\r' if letters.peek() == Some(&'\n') => {}
            INK => {
                let code = letters.next().and_then(|of| INKS.iter().find(|(_, letter, _)| *letter == of));
                code.iter().for_each(|(.., code)| shown.push_str(&format!("\x1b[{code}m")));
            }
            END => shown.push_str("\x1b[0m"),
            letter => push(&mut shown, letter),
        }
    }
    shown
}

/// Shows a name, for instance of a run, in one line whatever is in it.
pub(crate) fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|letter| push(&mut shown, letter));
    shown
}

fn push(shown: &mut String, letter: char) {
    match letter {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        letter if letter.is_control() => shown.push_str(&format!("\\x{:02x}", u32::from(letter))),
        // These reverse the direction of the text that follows.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            shown.push_str(&format!("\\u{{{:x}}}", u32::from(letter)));
        }
        letter => shown.push(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_step_never_commands_a_terminal() {
        let table = [
            ("\x1b[2J\x1b[Hgone", "\\x1b[2J\\x1b[Hgone"),
            ("10%\r20%\r\ndone\n", "10%\\r20%\ndone\n"),
            ("a\u{9b}31mb\u{7f}\0", "a\\x9b31mb\\x7f\\x00"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("Grüße, 世界\tx", "Grüße, 世界\tx"),
            ("\u{fdd0}q\u{fdd0}", ""),
        ];
        for (text, expected) in table {
            assert_eq!(visible(text), expected);
        }
        assert_eq!(visible(&inked(Ink::Green, "ok\x1b[2J")), "\x1b[32mok\\x1b[2J\x1b[0m");
        assert_eq!(name("a\nb\x1bc"), "a\\nb\\x1bc");
    }
}
