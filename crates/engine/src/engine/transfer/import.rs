//! Imports a run from a stream.

use super::{EVENTS_NAME, ExportedRun, MAGIC, MANIFEST_BYTES_MAX, Tree, Whole};
use crate::{
    Error, Handle,
    data::{Files, Storing},
    engine::{Engine, fork::rename_classes},
    event_log::{SealedLog, SealedRow},
    shared::Shared,
    task::{Data, FileData, KnownContent},
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Batch, Digest, Key, Row, Timestamp,
    limits::{MODULE_PORTS_MAX, RUN_KEY_BYTES_MAX},
    model::Program,
    payload::{Outcome, Payload, Stored},
    protocol::{
        draft::stored,
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Finished, Head, Header, Memo},
        run::{self, Due, PROGRAM, SEALED},
    },
};
use onceflow_store::{
    CommitResult,
    values::{ValueChange, ValueId},
};
use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

/// How long the rows of an unfinished import stay at least: an import that takes longer is refused in the end.
const TAKING_MS: u64 = 60 * 60 * 1000;

/// How long an imported run stays at most, unless the options say less: a century, which is for ever and still a time.
const STAYS_MS_MAX: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

/// Bytes of the name of a kept row: a letter and half a digest, and some to spare.
const KEPT_NAME_BYTES_MAX: usize = 64;

/// Settings of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The key of the run here; `None` is the key it had.
    pub key: Option<String>,
    /// The import replaces a run of this key that has ended.
    pub replace: bool,
    /// Tasks of the first class are of the second here.
    pub classes: Vec<(String, String)>,
    /// The directory for contents until they are stored: created by the import, removed by the caller.
    pub scratch: PathBuf,
    /// The longest history that the run gets here, in milliseconds; `None` is a century.
    pub history_ms_max: Option<u64>,
    /// The longest time that its kept values are kept here, in milliseconds; `None` is a century.
    pub keep_ms_max: Option<u64>,
}

impl ImportOptions {
    /// The header of the exported run, with its times cut to the limits here: the stream is not trusted.
    fn bounded(&self, key: &str, header: &Header) -> Header {
        let most = |said: u64, most: Option<u64>| said.min(most.unwrap_or(STAYS_MS_MAX));
        Header {
            key: key.to_owned(),
            history_ms: most(header.history_ms, self.history_ms_max),
            keep_ms: header.keep_ms.map(|ms| most(ms, self.keep_ms_max)).filter(|ms| *ms > 0),
            full: None,
            ..header.clone()
        }
    }
}

impl ExportedRun {
    /// Reads the manifest.
    ///
    /// # Errors
    /// [`Error::Inputs`] if this is not such a stream, or it is damaged.
    pub fn read(from: &mut (dyn Read + Send)) -> Result<Self, Error> {
        let short = |error: std::io::Error| Error::Inputs(format!("it ends too early, or cannot be read: {error}"));
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(short)?;
        if magic != MAGIC {
            let is_later = magic.starts_with(b"onceflow run ");
            let why = if is_later { "it was written by a later version" } else { "it was not written by `export`" };
            return Err(Error::Inputs(why.to_owned()));
        }
        let (mut len, mut digest) = ([0; 8], [0; 32]);
        from.read_exact(&mut len).map_err(short)?;
        from.read_exact(&mut digest).map_err(short)?;
        let len = u64::from_le_bytes(len);
        if len > MANIFEST_BYTES_MAX {
            return Err(Error::Inputs(String::from("its first part is damaged")));
        }
        let mut manifest = Vec::new();
        from.take(len).read_to_end(&mut manifest).map_err(short)?;
        let is_whole = manifest.len() as u64 == len && *blake3::hash(&manifest).as_bytes() == digest;
        let carried: Option<ExportedRun> = if is_whole { rows::read(&manifest) } else { None };
        let carried = carried.ok_or_else(|| Error::Inputs(String::from("its first part is damaged")))?;
        match carried.is_sound() {
            true => Ok(carried),
            false => Err(Error::Inputs(String::from("its parts do not fit together"))),
        }
    }

    /// The manifest is one that a store could have written: all contents that it names are listed, and nothing exceeds
    /// its limit.
    fn is_sound(&self) -> bool {
        let header = &self.header;
        let is_kept = |(name, wholes): &(Vec<u8>, Vec<Whole>)| {
            let is_named = name.first() == Some(&b'm') && name.len() <= KEPT_NAME_BYTES_MAX;
            is_named && wholes.len() <= MODULE_PORTS_MAX
        };
        is_key(&header.key)
            && !header.flow.chars().any(char::is_control)
            && is_id(&header.program)
            && self.generation < u32::MAX
            && self.outputs.len() <= MODULE_PORTS_MAX
            && self.kept.iter().all(is_kept)
            && self.has_contents()
    }

    /// All contents that the values name are listed.
    fn has_contents(&self) -> bool {
        let known = self.contents.len() as u32;
        let mut look: Vec<&Tree> = self.outputs.iter().map(|(_, whole)| &whole.tree).collect();
        look.extend(self.kept.iter().flat_map(|(_, wholes)| wholes.iter().map(|whole| &whole.tree)));
        while let Some(tree) = look.pop() {
            match tree {
                Tree::Content(at) | Tree::File { content: at, .. } if *at >= known => return false,
                Tree::List(elements) => look.extend(elements),
                _ => {}
            }
        }
        [self.program, self.sealed].into_iter().flatten().all(|at| at < known)
    }

    /// Digest and length of a content.
    fn known(&self, at: u32) -> KnownContent {
        let (digest, len) = self.contents[at as usize];
        KnownContent { digest, len }
    }
}

/// The key is valid for a run: it meets the rule for every run, and has no control characters, which a terminal would
/// obey.
fn is_key(key: &str) -> bool {
    (1..=RUN_KEY_BYTES_MAX).contains(&key.len()) && !key.chars().any(char::is_control)
}

/// The id of the value is well-formed, whether the value exists or not.
fn is_id(stored: &Stored) -> bool {
    ValueId::checked(stored.id.as_bytes()).is_some()
}

/// All ids that a constant refers to are well-formed.
fn has_ids(constant: &Payload) -> bool {
    match constant {
        Payload::List(elements) => elements.iter().flatten().all(has_ids),
        other => other.stored().is_none_or(is_id),
    }
}

/// Reads some bytes; none at the end.
fn read_some(from: &mut (dyn Read + Send), buffer: &mut [u8]) -> Result<usize, Error> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Inputs(format!("it cannot be read: {error}"))),
            Ok(got) => return Ok(got),
        }
    }
}

/// Contents as files, until they are stored.
struct Unpacked<'a> {
    carried: &'a ExportedRun,
    scratch: &'a Path,
}

impl Unpacked<'_> {
    fn path(&self, at: u32) -> PathBuf {
        self.scratch.join(at.to_string())
    }

    fn bytes(&self, at: u32) -> Result<Vec<u8>, Error> {
        std::fs::read(self.path(at)).map_err(|error| Error::Scratch(error.to_string()))
    }

    fn data(&self, tree: &Tree) -> Result<Data, Error> {
        Ok(match tree {
            Tree::None | Tree::Failed(_) => Data::None,
            Tree::Bytes(bytes) => Data::Bytes(bytes.clone().into()),
            Tree::Content(at) => Data::Bytes(self.bytes(*at)?.into()),
            Tree::File { name, content } => Data::from(FileData {
                name: name.clone(),
                path: self.path(*content),
                known: Some(self.carried.known(*content)),
                by_reference: false,
                facts: None,
            }),
            Tree::List(elements) => {
                Data::List(elements.iter().map(|element| self.data(element)).collect::<Result<_, _>>()?)
            }
        })
    }

    async fn store(&self, whole: &Whole, storing: &mut Storing<'_>) -> Result<Outcome, Error> {
        let outcome = match &whole.tree {
            Tree::Failed(why) => Outcome::Failed(why.as_str().into()),
            tree => storing.store(&self.data(tree)?).await?,
        };
        match outcome.digest() == whole.digest {
            true => Ok(outcome),
            false => Err(Error::Inputs(String::from("a value is not what was exported"))),
        }
    }

    /// Reads the contents from the stream into files, and checks them.
    fn unpack(&self, from: &mut (dyn Read + Send)) -> Result<(), Error> {
        std::fs::create_dir_all(self.scratch).map_err(|error| Error::Scratch(error.to_string()))?;
        for (at, (digest, len)) in (0..).zip(&self.carried.contents) {
            let (mut hasher, mut left) = (blake3::Hasher::new(), *len);
            let mut file = File::create(self.path(at)).map_err(|error| Error::Scratch(error.to_string()))?;
            let mut buffer = vec![0; 1 << 16];
            while left > 0 {
                let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let got = read_some(from, &mut buffer[..wanted])?;
                if got == 0 {
                    return Err(Error::Inputs(format!("it ends within content {at}")));
                }
                hasher.update(&buffer[..got]);
                file.write_all(&buffer[..got]).map_err(|error| Error::Scratch(error.to_string()))?;
                left -= got as u64;
            }
            if Digest::from(hasher.finalize()) != *digest {
                return Err(Error::Inputs(format!("content {at} is not what was exported")));
            }
        }
        match read_some(from, &mut [0])? {
            0 => Ok(()),
            _ => Err(Error::Inputs(String::from("there is more than was exported"))),
        }
    }
}

impl Engine {
    /// Imports a run whose manifest was read from this stream, with the contents that follow. Everything is checked
    /// first; durable when it returns. Its history, and the time of its kept values, begin anew.
    ///
    /// # Errors
    /// [`Error::Inputs`] if something differs from what was exported; [`Error::Refused`] if there is a run of this key.
    pub fn import<'a>(
        &'a self,
        carried: &'a ExportedRun,
        from: &'a mut (dyn Read + Send),
        how: ImportOptions,
    ) -> BoxFuture<'a, Result<Handle, Error>> {
        Box::pin(async move {
            let key = how.key.clone().unwrap_or_else(|| carried.header.key.clone());
            if !is_key(&key) {
                return Err(Error::Inputs(format!("a run cannot be called {key:?}")));
            }
            let seen = self.free(&key, how.replace).await?;
            let unpacked = Unpacked { carried, scratch: &how.scratch };
            unpacked.unpack(from)?;
            let run = self.new_run();
            let header = how.bounded(&key, &carried.header);
            let taking = Taking { shared: &self.shared, unpacked, run, key, header, how: &how };
            let program = carried.program.map(|at| taking.program(at)).transpose()?;
            let dues = taking.prepare().await?;
            taking.kept(&dues).await?;
            taking.rows(&dues).await?;
            taking.finish(seen, program, &dues).await?;
            Ok(self.handle(&taking.key, run))
        })
    }

    /// The present row of the key, if a run may be put there.
    async fn free(&self, key: &str, replace: bool) -> Result<Option<Row>, Error> {
        let seen = self.shared.row(keys::heads().key(key)).await?;
        let refused = |why: &str| Err(Error::Refused { key: key.to_owned(), why: why.to_owned() });
        match seen.as_deref().map(rows::read::<Head>) {
            None => Ok(None),
            Some(Some(Head::Finished(_))) if replace => Ok(seen),
            Some(Some(Head::Finished(_))) => refused("is there already"),
            Some(Some(Head::Active(_))) => refused("is there already, and has not ended"),
            Some(None) => Err(Error::damaged(format!("the row of run `{key}`"))),
        }
    }
}

/// The error when the first rows of an import were removed before the last were written.
const TOO_LONG: &str = "took too long to be taken in; try again";

/// A run that is being imported.
struct Taking<'a> {
    shared: &'a Shared,
    unpacked: Unpacked<'a>,
    run: RunId,
    key: String,
    /// Its header, as it will be here.
    header: Header,
    how: &'a ImportOptions,
}

impl Taking<'_> {
    fn carried(&self) -> &ExportedRun {
        self.unpacked.carried
    }

    /// Schedules the removal of the run before any of its rows exist. Every later batch requires these rows, so that no
    /// row is written after the removal has begun.
    async fn prepare(&self) -> Result<Vec<Key>, Error> {
        let now = self.shared.records.now().await?;
        let mut batch = Batch::new(self.shared.shard());
        let dues = self.dues(now, TAKING_MS);
        for (key, row) in &dues {
            batch.put(key.clone(), row.clone());
        }
        self.commit(batch, "cannot be taken in").await?;
        Ok(dues.into_iter().map(|(key, _)| key).collect())
    }

    /// The rows that schedule the end of its history and of its kept values, for a run imported at `now`: at least
    /// `ms_min` later.
    fn dues(&self, now: Timestamp, ms_min: u64) -> Vec<(Key, Row)> {
        let header = &self.header;
        let due = |ms: u64, what: u8, due: Due| {
            (keys::due(now.plus_ms(ms.max(ms_min)), what, self.run, &self.key), rows::write(&due))
        };
        let mut dues = vec![due(header.history_ms, b'h', Due::History(self.run))];
        if let (Some(ms), false) = (header.keep_ms, self.carried().kept.is_empty()) {
            dues.push(due(ms, b'k', Due::Keep(self.run)));
        }
        dues
    }

    /// A batch that is refused if the rows imported so far are removed, or are being removed.
    fn batch(&self, dues: &[Key]) -> Batch {
        let mut batch = Batch::new(self.shared.shard());
        for due in dues {
            batch.require_present(due.clone());
        }
        batch
    }

    async fn commit(&self, batch: Batch, otherwise: &str) -> Result<(), Error> {
        match self.shared.records.commit(batch).await? {
            CommitResult::Applied(committed) => {
                self.shared.values.notify_committed(&committed);
                Ok(())
            }
            CommitResult::Refused(_) => Err(Error::Refused { key: self.key.clone(), why: otherwise.to_owned() }),
        }
    }

    /// Imports the kept values of the run, a row at a time.
    async fn kept(&self, dues: &[Key]) -> Result<(), Error> {
        let keys = Keys::new(self.run, Generation(0));
        if self.header.keep_ms.is_none() {
            return Ok(());
        }
        for (name, wholes) in &self.carried().kept {
            let mut storing = Storing::new(&self.shared.values, Files::Copied);
            let mut outputs = Vec::with_capacity(wholes.len());
            for whole in wholes {
                outputs.push(self.unpacked.store(whole, &mut storing).await?);
            }
            let mut changes = storing.changes();
            for (port, held) in (0_u16..).zip(&outputs).filter_map(|(port, outcome)| Some((port, stored(outcome)?))) {
                let edge = keys.kept_edge(name, port);
                changes.push(ValueChange::set(edge, held.clone()));
            }
            let mut batch = self.batch(dues);
            batch.require_absent(keys.kept.key(name)).put(keys.kept.key(name), rows::write(&Memo { outputs }));
            self.shared.values.add_changes(&mut batch, &changes).await?;
            self.commit(batch, TOO_LONG).await?;
        }
        Ok(())
    }

    /// Imports the rows of its reasons and logs.
    async fn rows(&self, dues: &[Key]) -> Result<(), Error> {
        const AT_ONCE: usize = 20;
        let carried = self.carried();
        let of = [(keys::reasons(self.run), &carried.reasons), (keys::logs(self.run), &carried.logs)];
        for (group, rows) in of {
            for some in rows.chunks(AT_ONCE) {
                let mut batch = self.batch(dues);
                for (name, row) in some {
                    batch.put(group.key(name), Row::new(row));
                }
                self.commit(batch, TOO_LONG).await?;
            }
        }
        Ok(())
    }

    /// Puts the event log as a value, and returns the row that refers to it.
    async fn events(
        &self,
        until: Timestamp,
        changes: &mut Vec<ValueChange>,
        held: &mut Vec<ValueChange>,
    ) -> Result<Option<(Key, Row)>, Error> {
        let log = self.carried().beside.iter().find(|(name, _)| name == EVENTS_NAME);
        let Some(log) = log.and_then(|(_, log)| SealedLog::import(log)) else { return Ok(None) };
        let stored = self.value(rows::bytes(&log), changes).await?;
        let sealed = SealedRow::first(stored, &log, self.shared.options.event_log);
        held.push(ValueChange::lease(sealed.edge(self.run), sealed.stored.id.clone(), until));
        Ok(Some((keys::events(self.run).key(keys::sealed_events()), rows::write(&sealed))))
    }

    /// Puts bytes as a value.
    async fn value(&self, bytes: Vec<u8>, changes: &mut Vec<ValueChange>) -> Result<Stored, Error> {
        let (change, stored) = self.shared.values.put_bytes(bytes).await?;
        changes.push(change);
        Ok(stored)
    }

    /// The program, with its classes renamed for workers here.
    fn program(&self, at: u32) -> Result<Vec<u8>, Error> {
        let bytes = self.unpacked.bytes(at)?;
        let program: Option<Program> = rows::read(&bytes);
        let mut program = program.ok_or_else(|| Error::Inputs(String::from("its program cannot be read")))?;
        if !program.is_sound() || !program.constants.iter().all(has_ids) {
            return Err(Error::Inputs(String::from("the parts of its program do not fit together")));
        }
        rename_classes(&mut program, &self.how.classes);
        Ok(rows::write(&program).to_vec())
    }

    /// Puts the outputs, the program, the record, and the head row with which the run exists.
    async fn finish(&self, seen: Option<Row>, program: Option<Vec<u8>>, dues: &[Key]) -> Result<(), Error> {
        let (carried, now) = (self.carried(), self.shared.records.now().await?);
        let until = now.plus_ms(self.header.history_ms);
        let mut storing = Storing::new(&self.shared.values, Files::Copied);
        let mut outputs = Vec::with_capacity(carried.outputs.len());
        for (name, whole) in &carried.outputs {
            outputs.push((name.clone(), self.unpacked.store(whole, &mut storing).await?));
        }
        let mut changes = storing.changes();
        let mut header = self.header.clone();
        let keys = Keys::new(self.run, Generation(carried.generation));
        let lease =
            |port: u16, to: &ValueId, until: Timestamp| ValueChange::lease(keys.result_edge(port), to.clone(), until);
        let mut held = Vec::new();
        if let Some(program) = program {
            header.program = self.value(program, &mut changes).await?;
            let keep = header.keep_ms.unwrap_or(0).saturating_sub(header.history_ms);
            held.push(lease(PROGRAM, &header.program.id, until.plus_ms(keep)));
        }
        let sealed = match carried.sealed {
            Some(at) => Some(self.value(self.unpacked.bytes(at)?, &mut changes).await?),
            None => None,
        };
        held.extend(sealed.as_ref().map(|sealed| lease(SEALED, &sealed.id, until)));
        for (port, (_, outcome)) in (0_u16..).zip(&outputs) {
            held.extend(stored(outcome).map(|stored| lease(port, stored, until)));
        }
        let events = self.events(until, &mut changes, &mut held).await?;
        changes.extend(held);
        let finished = Finished {
            run: self.run,
            generation: keys.generation,
            status: carried.status.clone(),
            header,
            // An end later than now would outlive the row that schedules its removal.
            ended: Timestamp::from_ms(carried.ended_ms).min(now),
            outputs,
            sealed,
        };
        let head = keys::heads().key(&self.key);
        let mut batch = self.batch(dues);
        for due in dues {
            batch.delete(due.clone());
        }
        for (due, row) in self.dues(now, 0) {
            batch.put(due, row);
        }
        if let Some(Head::Finished(replaced)) = seen.as_deref().and_then(rows::read::<Head>) {
            run::supersede(&mut batch, &replaced, now);
        }
        if let Some((key, row)) = events {
            batch.put(key, row);
        }
        batch.require_seen(head.clone(), seen).put(head, rows::write(&Head::Finished(Box::new(finished))));
        self.shared.values.add_changes(&mut batch, &changes).await?;
        self.commit(batch, "was started meanwhile, or took too long to be taken in").await?;
        Ok(self.shared.records.durable(self.shared.records.position()).await?)
    }
}
