//! Keeps secrets out of logs and failures, also where a secret is split between two pieces of output.

/// The replacement of a secret.
const MASK: &[u8] = b"***";

/// The texts to be masked.
#[derive(Clone, Default)]
pub(crate) struct Mask {
    /// The longest first, so that a secret inside a longer one does not leave the rest of the longer one visible.
    secrets: Vec<Vec<u8>>,
}

impl Mask {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut all = Vec::new();
        for secret in secrets {
            // Many tools print a secret of several lines line by line.
            all.extend(secret.lines().filter(|line| line.len() >= 4).map(|line| line.as_bytes().to_vec()));
            all.push(secret.into_bytes());
        }
        all.retain(|secret| !secret.is_empty());
        all.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        all.dedup();
        assert!(all.is_sorted_by_key(|secret| usize::MAX - secret.len()), "of a long secret, the end would be shown");
        assert!(all.iter().all(|secret| !secret.is_empty()), "an empty secret is everywhere: nothing would be shown");
        Mask { secrets: all }
    }

    /// Masks the secrets in a text.
    pub(crate) fn text(&self, text: &str) -> String {
        if self.secrets.is_empty() {
            return text.to_owned();
        }
        let mut stream = Stream::new(self.clone());
        let mut clean = stream.push(text.as_bytes());
        clean.extend(stream.finish());
        String::from_utf8_lossy(&clean).into_owned()
    }
}

/// A mask over bytes that arrive piece by piece.
pub(crate) struct Stream {
    mask: Mask,
    /// Held back: bytes that may be the beginning of a secret.
    held: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(mask: Mask) -> Self {
        Stream { mask, held: vec![] }
    }

    /// Takes more bytes; returns those, masked, that cannot be part of a secret any more.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.mask.secrets.is_empty() {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        self.drain(false)
    }

    /// Returns the bytes held back, masked.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.drain(true)
    }

    fn drain(&mut self, is_last: bool) -> Vec<u8> {
        let mut clean = Vec::with_capacity(self.held.len());
        let mut at = 0;
        'next: while at < self.held.len() {
            let rest = &self.held[at..];
            for secret in &self.mask.secrets {
                if rest.starts_with(secret) {
                    clean.extend_from_slice(MASK);
                    at += secret.len();
                    continue 'next;
                }
                if !is_last && secret.starts_with(rest) {
                    break 'next;
                }
            }
            clean.push(rest[0]);
            at += 1;
        }
        self.held.drain(..at);
        assert!(!is_last || self.held.is_empty(), "the last bytes of an output are held back for ever");
        let longest = self.mask.secrets.first().map_or(0, Vec::len);
        assert!(self.held.len() <= longest, "more bytes are held back than could begin a secret");
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn masked(secrets: &[&str], pieces: &[&str]) -> String {
        let mut stream = Stream::new(Mask::new(secrets.iter().map(|secret| (*secret).to_owned())));
        let mut clean: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece.as_bytes())).collect();
        clean.extend(stream.finish());
        String::from_utf8(clean).unwrap()
    }

    #[test]
    fn a_secret_is_masked_wherever_it_is_cut() {
        assert_eq!(masked(&["hunter2"], &["a hun", "te", "r2 b"]), "a *** b");
        assert_eq!(masked(&["hunter2"], &["a hunter"]), "a hunter");
        assert_eq!(masked(&["ab", "abc"], &["xab", "cab"]), "x******");
        assert_eq!(masked(&["line one\nline two"], &["> line one\n> line two"]), "> ***\n> ***");
        assert_eq!(masked(&[""], &["abc"]), "abc");
    }

    proptest! {
        #[test]
        fn no_cut_lets_a_secret_through(text in "[ab]{0,40}", cuts in proptest::collection::vec(0..40_usize, 0..6)) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let clean = masked(&["abba", "bab"], &pieces);
            prop_assert!(!clean.contains("abba") && !clean.contains("bab"), "{}", clean);
            prop_assert_eq!(clean, masked(&["abba", "bab"], &[&text]));
        }
    }
}
