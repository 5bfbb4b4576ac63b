//! Digests data without storing any of it: the payloads have the right digest, and refer to no value yet. That is
//! enough to compare with a run, and to plan; only a run that begins stores its inputs.

use crate::{
    Error,
    task::{Data, FileData, KnownContent},
};
use onceflow_core::{
    Digest, ValueId,
    limits::INLINE_BYTES_MAX,
    payload::{Outcome, Payload, Stored},
};
use onceflow_store::{
    blobs::content::digest_of,
    values::{SourceFile, source::load_file},
};

/// Data that was digested.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// The data, with digests and facts of its files.
    pub(crate) data: Data,
    /// The outcome it will have when stored. Its lists are inline, and its values have no id yet.
    pub(crate) outcome: Outcome,
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
        let found = digest_of(&file.path).await;
        let found = found.map_err(|error| unreadable(file, &error))?;
        file.known = Some(KnownContent { digest: found.digest, len: found.len });
    }
    let outcome = Outcome::of(payload(&data));
    Ok(Looked { data, outcome })
}

pub(super) fn unreadable(file: &FileData, error: &dyn std::fmt::Display) -> Error {
    Error::Inputs(format!("file {} cannot be read: {error}", file.path.display()))
}

/// Collects all files by reference in digested data.
pub(crate) fn sources(data: &Data, found: &mut Vec<SourceFile>) {
    match data {
        Data::File(file) => found.extend(file.source()),
        Data::List(elements) => elements.iter().for_each(|element| sources(element, found)),
        Data::Bytes(_) | Data::None => {}
    }
}

/// Collects the files whose digest or facts are not known.
fn unknown<'a>(data: &'a mut Data, files: &mut Vec<&'a mut FileData>) {
    match data {
        Data::File(file) if file.known.is_none() || file.by_reference && file.facts.is_none() => files.push(file),
        Data::List(elements) => elements.iter_mut().for_each(|element| unknown(element, files)),
        Data::File(_) | Data::Bytes(_) | Data::None => {}
    }
}

impl Data {
    /// The digest of the data as an input of a run: equal for equal data. `None` if the content of one of its files is
    /// not known.
    pub fn digest(&self) -> Option<Digest> {
        is_known(self).then(|| Outcome::of(payload(self)).digest())
    }
}

fn is_known(data: &Data) -> bool {
    match data {
        Data::File(file) => file.known.is_some(),
        Data::List(elements) => elements.iter().all(is_known),
        Data::Bytes(_) | Data::None => true,
    }
}

fn payload(data: &Data) -> Option<Payload> {
    let unnamed = |digest, len| Stored { id: ValueId::default(), digest, len };
    Some(match data {
        Data::None => return None,
        Data::Bytes(bytes) if bytes.len() <= INLINE_BYTES_MAX => Payload::inline(bytes),
        Data::Bytes(bytes) => Payload::Stored(unnamed(Digest::of(bytes), bytes.len() as u64)),
        Data::File(file) => {
            let known = file.known.expect("all files were looked at");
            Payload::File { name: file.name.clone(), content: unnamed(known.digest, known.len) }
        }
        Data::List(elements) => Payload::List(elements.iter().map(payload).collect()),
    })
}
