//! Headers that requests must have, such as a token. Their values are made when the source is opened, and compared in a
//! time that does not depend on where they differ.

use super::secret::SecretText;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use onceflow_core::Digest;
use std::io::{Error, ErrorKind, Result};

/// Headers, each with the value that a request must have.
#[derive(Clone, Debug, Default)]
pub(super) struct RequiredHeaders(Vec<(HeaderName, SecretText)>);

/// The same, with values that can be compared.
pub(super) struct KnownHeaders(Vec<(HeaderName, [u8; 32])>);

impl RequiredHeaders {
    /// Adds a header.
    pub(super) fn add(&mut self, name: &str, value: SecretText) -> std::result::Result<(), String> {
        let name = HeaderName::try_from(name).map_err(|_| format!("`{name}` cannot be the name of a header"))?;
        self.0.push((name, value));
        Ok(())
    }

    /// Makes the values.
    pub(super) fn reveal(&self) -> Result<KnownHeaders> {
        let one = |(name, value): &(HeaderName, SecretText)| {
            let text = value.reveal()?;
            // An empty secret would let everyone in.
            if text.trim().is_empty() || HeaderValue::try_from(&text).is_err() {
                let why = format!("the value of header `{name}` is empty, or cannot be one of a header");
                return Err(Error::new(ErrorKind::InvalidInput, why));
            }
            Ok((name.clone(), digest(text.as_bytes())))
        };
        self.0.iter().map(one).collect::<Result<_>>().map(KnownHeaders)
    }
}

impl KnownHeaders {
    /// The request has every one of the headers, once, with its value.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, known)| {
            let mut values = headers.get_all(name).iter();
            match (values.next(), values.next()) {
                (Some(value), None) => is_same(&digest(value.as_bytes()), known),
                _ => false,
            }
        })
    }
}

/// Digests have one length, and say nothing about a value when only a part of them is the same.
fn digest(value: &[u8]) -> [u8; 32] {
    *Digest::of(value).as_bytes()
}

fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let one = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        of.iter().map(one).collect()
    }

    #[test]
    fn a_request_is_admitted_with_every_header_once_and_not_otherwise() {
        let mut required = RequiredHeaders::default();
        required.add("Authorization", SecretText::from("Bearer xyz")).expect("a name");
        let known = required.reveal().expect("a value");
        for (given, is_admitted) in [
            (&[("authorization", "Bearer xyz")][..], true),
            (&[("authorization", "Bearer xyz"), ("other", "a")], true),
            (&[("authorization", "Bearer xy")], false),
            (&[("authorization", "")], false),
            (&[("other", "Bearer xyz")], false),
            (&[], false),
        ] {
            assert_eq!(known.admits(&headers(given)), is_admitted, "{given:?}");
        }
        let mut twice = headers(&[("authorization", "Bearer xyz")]);
        twice.append("authorization", HeaderValue::from_static("Bearer xyz"));
        assert!(!known.admits(&twice));
        assert!(RequiredHeaders::default().reveal().expect("nothing").admits(&headers(&[])));
    }

    #[test]
    fn an_empty_secret_lets_no_client_in() {
        let mut required = RequiredHeaders::default();
        required.add("authorization", SecretText::from(" ")).expect("a name");
        assert!(required.reveal().is_err());
    }
}
