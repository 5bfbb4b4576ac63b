//! Writes a run to a stream.

use super::{EVENTS_NAME, ExportedRun, MAGIC, MANIFEST_BYTES_MAX, Tree, Whole};
use crate::{Error, Handle, data, engine::known::PreviousPlan};
use futures_util::{TryStreamExt, future::BoxFuture};
use onceflow_core::{
    Digest,
    limits::INLINE_BYTES_MAX,
    payload::{Outcome, Payload, Stored},
    protocol::{
        keys::{self, Keys},
        rows::{self, Head, Memo},
    },
};
use onceflow_store::values::{Content, SourceError, Values};
use std::{collections::BTreeMap, io::Write};

/// Contents to be written, each once.
struct Contents<'a> {
    key: &'a str,
    values: &'a Values,
    /// Bytes of small values so far: they are part of the manifest, which is built in memory.
    listed: u64,
    at: BTreeMap<Digest, u32>,
    all: Vec<Stored>,
}

impl Contents<'_> {
    fn add(&mut self, stored: &Stored) -> u32 {
        *self.at.entry(stored.digest).or_insert_with(|| {
            self.all.push(stored.clone());
            self.all.len() as u32 - 1
        })
    }

    fn small(&mut self, bytes: Vec<u8>) -> Result<Tree, Error> {
        self.listed += bytes.len() as u64;
        fits(self.key, self.listed)?;
        Ok(Tree::Bytes(bytes))
    }

    async fn whole(&mut self, outcome: &Outcome) -> Result<Whole, Error> {
        let tree = match outcome {
            Outcome::None => Tree::None,
            Outcome::Failed(why) => Tree::Failed(why.to_string()),
            Outcome::Value(payload) => self.tree(payload).await?,
        };
        Ok(Whole { digest: outcome.digest(), tree })
    }

    fn tree<'b>(&'b mut self, payload: &'b Payload) -> BoxFuture<'b, Result<Tree, Error>> {
        Box::pin(async move {
            Ok(match payload {
                Payload::Inline(bytes) => self.small(bytes.to_vec())?,
                Payload::Stored(stored) if stored.len as usize <= INLINE_BYTES_MAX => {
                    let bytes = self.values.read_all(&stored.id).await?;
                    self.small(bytes.to_vec())?
                }
                Payload::Stored(stored) => Tree::Content(self.add(stored)),
                Payload::File { name, content } => Tree::File { name: name.clone(), content: self.add(content) },
                Payload::List(elements) => {
                    let mut list = Vec::with_capacity(elements.len());
                    for element in elements.iter() {
                        list.push(self.element(element.as_ref()).await?);
                    }
                    Tree::List(list)
                }
                Payload::StoredList(stored) => {
                    let mut list = Vec::with_capacity(stored.len as usize);
                    for outcome in data::elements(self.values, payload, 0..stored.len as u32).await? {
                        list.push(self.element(outcome.value()).await?);
                    }
                    Tree::List(list)
                }
            })
        })
    }

    async fn element(&mut self, payload: Option<&Payload>) -> Result<Tree, Error> {
        match payload {
            None => Ok(Tree::None),
            Some(payload) => self.tree(payload).await,
        }
    }
}

impl Handle {
    /// Writes a run that has ended, with data that the caller adds, to a stream: see `transfer`. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// [`Error::Refused`] if the run has not ended; [`Error::Scratch`] if the stream cannot be written.
    pub fn export<'a>(
        &'a self,
        beside: Vec<(String, Vec<u8>)>,
        to: &'a mut (dyn Write + Send),
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let shared = &self.shared;
            let row = shared.row(keys::heads().key(&self.key)).await?;
            let row = row.ok_or_else(|| Error::NoRun(self.key.clone()))?;
            let finished = match rows::read(&row) {
                Some(Head::Finished(finished)) => *finished,
                Some(Head::Active(_)) => {
                    return Err(Error::Refused { key: self.key.clone(), why: String::from("has not ended") });
                }
                None => return Err(Error::damaged(format!("the row of run `{}`", self.key))),
            };
            let mut contents =
                Contents { key: &self.key, values: &shared.values, listed: 0, at: BTreeMap::new(), all: vec![] };
            let program = finished.header.full.clone().unwrap_or_else(|| finished.header.program.clone());
            let is_there = PreviousPlan::read(&shared.values, &finished.header).await?.is_some();
            let program = is_there.then(|| contents.add(&program));
            let sealed = finished.sealed.as_ref().map(|sealed| contents.add(sealed));
            let mut outputs = Vec::with_capacity(finished.outputs.len());
            for (name, outcome) in &finished.outputs {
                outputs.push((name.clone(), contents.whole(outcome).await?));
            }
            let mut kept = Vec::new();
            let group = Keys::new(finished.run, finished.generation).kept;
            for (name, row) in shared.kernel.all_rows(group, b"m").await? {
                let memo: Memo = rows::read(&row).ok_or_else(|| Error::damaged("the kept outputs of a step"))?;
                let mut wholes = Vec::with_capacity(memo.outputs.len());
                for outcome in &memo.outputs {
                    wholes.push(contents.whole(outcome).await?);
                }
                kept.push((name.as_bytes().to_vec(), wholes));
            }
            let plain = |rows: Vec<(onceflow_core::Name, onceflow_core::Row)>| {
                rows.into_iter().map(|(name, row)| (name.as_bytes().to_vec(), row.to_vec())).collect()
            };
            let mut beside = beside;
            beside.extend(self.history().exported_events().await?.map(|log| (String::from(EVENTS_NAME), log)));
            let carried = ExportedRun {
                status: finished.status,
                generation: finished.generation.0,
                ended_ms: finished.ended.as_ms(),
                outputs,
                kept,
                program,
                sealed,
                reasons: plain(shared.kernel.all_rows(keys::reasons(finished.run), b"").await?),
                logs: plain(shared.kernel.all_rows(keys::logs(finished.run), b"").await?),
                beside,
                contents: contents.all.iter().map(|stored| (stored.digest, stored.len)).collect(),
                header: finished.header,
            };
            let manifest = rows::write(&carried);
            fits(&self.key, manifest.len() as u64)?;
            let full = |error: std::io::Error| Error::Scratch(error.to_string());
            let mut out = Counted { to, bytes: 0 };
            out.write(MAGIC).map_err(full)?;
            out.write(&(manifest.len() as u64).to_le_bytes()).map_err(full)?;
            out.write(blake3::hash(&manifest).as_bytes()).map_err(full)?;
            out.write(&manifest).map_err(full)?;
            for stored in &contents.all {
                copy(&shared.values, stored, &mut out).await?;
            }
            out.to.flush().map_err(full)?;
            Ok(out.bytes)
        })
    }
}

/// Refuses a manifest that is longer than an import would read.
fn fits(key: &str, bytes: u64) -> Result<(), Error> {
    match bytes <= MANIFEST_BYTES_MAX {
        true => Ok(()),
        false => {
            let why =
                format!("has too much to carry: {bytes} bytes of rows and small values, at most {MANIFEST_BYTES_MAX}");
            Err(Error::Refused { key: key.to_owned(), why })
        }
    }
}

struct Counted<'a> {
    to: &'a mut (dyn Write + Send),
    bytes: u64,
}

impl Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes)
    }
}

/// Writes a content, and checks its digest.
async fn copy(values: &Values, stored: &Stored, out: &mut Counted<'_>) -> Result<(), Error> {
    let full = |error: std::io::Error| Error::Scratch(error.to_string());
    let (id, mut hasher, mut is_source) = (stored.id.clone(), blake3::Hasher::new(), false);
    match values.get(&id).await?.content {
        content @ (Content::Object { .. } | Content::Source(_)) => {
            is_source = matches!(content, Content::Source(_));
            let mut chunks = values.contents().stream(&id, None).await?;
            while let Some(chunk) = chunks.try_next().await? {
                hasher.update(&chunk);
                out.write(&chunk).map_err(full)?;
            }
        }
        Content::Inline(bytes) => {
            hasher.update(&bytes);
            out.write(&bytes).map_err(full)?;
        }
        Content::Gathered { .. } => return Err(Error::damaged(format!("value {id} is a list, and should be bytes"))),
    }
    match Digest::from(hasher.finalize()) == stored.digest {
        true => Ok(()),
        // The user's file was written to while it was read.
        false if is_source => {
            let path = values.sources().path(&id).await?.unwrap_or_default();
            Err(Error::from(SourceError::Changed { path }))
        }
        false => Err(Error::damaged(format!("value {id} is not what was stored"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_part_that_would_not_be_read_is_not_written() {
        assert!(fits("r", 0).is_ok() && fits("r", MANIFEST_BYTES_MAX).is_ok());
        let refused = fits("r", MANIFEST_BYTES_MAX + 1).unwrap_err();
        assert!(matches!(&refused, Error::Refused { key, .. } if key == "r"), "{refused}");
    }
}
