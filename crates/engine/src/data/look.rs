//! Digests data without storing any of it: the payloads have the right digest, and refer to no value yet. That is
//! enough to compare with a run, and to plan; only a run that begins stores its inputs.

use super::lists::bytes_of;
use crate::{
    Error,
    task::{Data, DataList, FileData, KnownContent},
};
use onceflow_core::{
    Digest, ValueId,
    limits::INLINE_BYTES_MAX,
    payload::{ListHasher, Outcome, Payload, Stored, digest_of},
};
use onceflow_store::{
    blobs::content,
    values::{SourceFile, source::load_file},
};

/// Data that was digested.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// The data, with digests and facts of its files.
    pub(crate) data: Data,
    /// The outcome it will have when stored. Its values and its long lists have no id yet.
    pub(crate) outcome: Outcome,
}

impl Looked {
    /// The outcome with the elements of all lists, also of long ones, which have nothing to be read from yet.
    pub(crate) fn with_elements(&self) -> Outcome {
        match (&self.outcome, payload(&self.data, usize::MAX)) {
            (Outcome::Value(_), Some(whole)) => Outcome::Value(whole),
            // Of an input that a run holds only the outcome is known, and its lists are stored.
            _ => self.outcome.clone(),
        }
    }
}

/// Digests data; reads files whose content is not known.
pub(crate) async fn look(mut data: Data) -> Result<Looked, Error> {
    let mut files = Vec::new();
    unknown(&mut data, &mut files);
    for file in files {
        if file.by_reference {
            let found = load_file(&file.path).await.map_err(|error| unreadable(file, &error))?;
            file.known = Some(KnownContent { digest: found.digest, len: found.stat.len });
            file.facts = Some((found.stat, found.is_settled));
            continue;
        }
        let found = content::digest_of(&file.path).await;
        let found = found.map_err(|error| unreadable(file, &error))?;
        file.known = Some(KnownContent { digest: found.digest, len: found.len });
    }
    let outcome = Outcome::of(payload(&data, INLINE_BYTES_MAX));
    Ok(Looked { data, outcome })
}

pub(super) fn unreadable(file: &FileData, error: &dyn std::fmt::Display) -> Error {
    Error::Inputs(format!("file {} cannot be read: {error}", file.path.display()))
}

/// Collects all files by reference in digested data.
pub(crate) fn sources(data: &Data, found: &mut Vec<SourceFile>) {
    match data {
        Data::File(file) => found.extend(file.source()),
        Data::List(elements) => elements.with_files().iter().for_each(|element| sources(element, found)),
        Data::Bytes(_) | Data::None => {}
    }
}

/// Collects the files whose digest or facts are not known.
fn unknown<'a>(data: &'a mut Data, files: &mut Vec<&'a mut FileData>) {
    match data {
        Data::File(file) if file.known.is_none() || file.by_reference && file.facts.is_none() => files.push(file),
        Data::List(elements) => elements.with_files_mut().iter_mut().for_each(|element| unknown(element, files)),
        Data::File(_) | Data::Bytes(_) | Data::None => {}
    }
}

impl Data {
    /// The digest of the data as an input of a run: equal for equal data. `None` if the content of one of its files is
    /// not known.
    pub fn digest(&self) -> Option<Digest> {
        is_known(self).then(|| Outcome::of(payload(self, INLINE_BYTES_MAX)).digest())
    }
}

fn is_known(data: &Data) -> bool {
    match data {
        Data::File(file) => file.known.is_some(),
        Data::List(elements) => elements.with_files().iter().all(is_known),
        Data::Bytes(_) | Data::None => true,
    }
}

/// The payload that data will have when stored, without ids. A list of more than `inline_bytes_max` bytes is only
/// digested: as payloads its elements take ten times the memory of the data.
fn payload(data: &Data, inline_bytes_max: usize) -> Option<Payload> {
    Some(match data {
        Data::None => return None,
        Data::Bytes(bytes) if bytes.len() <= INLINE_BYTES_MAX => Payload::inline(bytes),
        Data::Bytes(bytes) => Payload::Stored(unnamed(Digest::of(bytes), bytes.len() as u64)),
        Data::File(file) => {
            let known = file.known.expect("all files were looked at");
            Payload::File { name: file.name.clone(), content: unnamed(known.digest, known.len) }
        }
        Data::List(elements) => list(elements, inline_bytes_max),
    })
}

fn list(elements: &DataList, inline_bytes_max: usize) -> Payload {
    let (mut digest, mut inline, mut bytes) = (ListHasher::default(), Vec::new(), 0);
    for element in elements.iter() {
        let element = payload(&element, inline_bytes_max);
        digest.push(digest_of(element.as_ref()));
        bytes += bytes_of(element.as_ref());
        match bytes <= inline_bytes_max {
            true => inline.push(element),
            false => inline = Vec::new(),
        }
    }
    if bytes <= inline_bytes_max {
        return Payload::List(inline.into());
    }
    let len = digest.count();
    Payload::StoredList(unnamed(digest.finish(), len))
}

fn unnamed(digest: Digest, len: u64) -> Stored {
    Stored { id: ValueId::default(), digest, len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_digested_without_payloads_of_their_elements() {
        let numbers = |n: u32| Data::List((0..n).map(|n| Data::Bytes(n.to_be_bytes().to_vec().into())).collect());
        for (data, is_inline) in [
            (numbers(3), true),
            (numbers(10_000), false),
            (Data::List(vec![numbers(2), Data::None].into()), true),
            (Data::List(vec![numbers(10_000), numbers(1)].into()), true),
            (Data::List((0..1000).map(|_| numbers(4)).collect()), false),
        ] {
            let looked = Looked { outcome: Outcome::of(payload(&data, INLINE_BYTES_MAX)), data };
            assert_eq!(matches!(looked.outcome.value(), Some(Payload::List(_))), is_inline);
            let whole = looked.with_elements();
            assert!(matches!(whole.value(), Some(Payload::List(_))), "an explanation goes over the elements");
            assert_eq!(whole.digest(), looked.outcome.digest(), "the digest does not depend on what is kept");
            assert_eq!(whole.value().and_then(Payload::list_len), looked.outcome.value().and_then(Payload::list_len));
        }
    }
}
