//! Texts with secrets: `Bearer ${{ secrets.TOKEN }}`. They are made of the environment when a source or sink is opened, and neither
//! stored nor shown.

use crate::{
    source::Text,
    syntax::fields::{FieldReader, clipped},
    words,
};
use onceflow_stream::SecretText;
use std::io::{Error, ErrorKind};

/// A text, and the secrets in it.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretTemplate {
    pieces: Vec<TextPiece>,
}

#[derive(Clone, Debug)]
enum TextPiece {
    Plain(String),
    Secret(String),
}

impl SecretTemplate {
    /// Returns the text, to be made when it is needed.
    pub(super) fn text(&self) -> SecretText {
        let pieces = self.pieces.clone();
        SecretText::new(move || {
            let mut made = String::new();
            for piece in &pieces {
                match piece {
                    TextPiece::Plain(text) => made.push_str(text),
                    TextPiece::Secret(name) => match std::env::var(name) {
                        Ok(secret) if !secret.is_empty() => made.push_str(&secret),
                        Ok(_) => {
                            let why = format!("secret `{name}` is empty in the environment");
                            return Err(Error::new(ErrorKind::InvalidInput, why));
                        }
                        Err(_) => {
                            let why = format!("secret `{name}` is not in the environment");
                            return Err(Error::new(ErrorKind::NotFound, why));
                        }
                    },
                }
            }
            Ok(made)
        })
    }
}

/// Reads a text with secrets; `None` after reporting a problem.
pub(super) fn read(reader: FieldReader<'_>, text: &Text, secrets: &[Text]) -> Option<SecretTemplate> {
    let (mut pieces, mut rest, mut at) = (Vec::new(), text.text.as_str(), 0);
    while let Some(begin) = rest.find("${{") {
        let Some(length) = rest[begin..].find("}}") else {
            let span = reader.source.inside(text, at + begin..text.text.len());
            reader.say(span, "OF0114", "a hole is not closed", "`${{ secrets.NAME }}`");
            return None;
        };
        let span = reader.source.inside(text, at + begin..at + begin + length + 2);
        let inside = rest[begin + 3..begin + length].trim();
        let known = || secrets.iter().map(|secret| secret.text.as_str());
        match inside.strip_prefix("secrets.") {
            Some(name) if known().any(|known| known == name) => {
                pieces.push(TextPiece::Plain(rest[..begin].to_owned()));
                pieces.push(TextPiece::Secret(name.to_owned()));
            }
            Some(name) => {
                let meant = words::meant(name, known());
                let hint = if meant.is_empty() { format!("add `secrets: [{name}]` to the stream") } else { meant };
                reader.say(span, "OF0126", format!("the secret `{}` is not declared", clipped(name)), hint);
                return None;
            }
            None => {
                let message = format!("`{}` is no secret, and nothing else can stand here", clipped(inside));
                reader.say(span, "OF0116", message, "`${{ secrets.NAME }}`, with `secrets: [NAME]` in the stream");
                return None;
            }
        }
        (rest, at) = (&rest[begin + length + 2..], at + begin + length + 2);
    }
    pieces.push(TextPiece::Plain(rest.to_owned()));
    Some(SecretTemplate { pieces })
}
