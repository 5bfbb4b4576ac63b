//! A flow's own rows and its outbox. The writes of a transactional body go into the commit of its step, so they happen
//! exactly once. The commit requires that the rows the body has read are the same; if they are not, the body runs
//! again.

use crate::{Error, shared::Shared, shared::lock};
use bytes::Bytes;
use onceflow_core::{
    Batch, Group, Key, Name, Row, Timestamp,
    limits::ROW_BYTES_MAX,
    protocol::{
        claim::WorkClaim,
        keys::Keys,
        rows::{self, Phase, RunState},
    },
};
use onceflow_store::records::Scan;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The transaction of a transactional body: its reads and writes. Cheap to clone; all clones are one transaction.
#[derive(Clone)]
pub struct Tx {
    rows: FlowRows,
    step: Arc<StepClaim>,
    done: Arc<Mutex<Done>>,
}

/// The claim of a step, and the generation of its run that the step belongs to.
pub(crate) struct StepClaim {
    pub(crate) claim: WorkClaim,
    pub(crate) keys: Keys,
}

#[derive(Default)]
struct Done {
    read: BTreeMap<Name, Option<Row>>,
    written: BTreeMap<Name, Option<Row>>,
    sent: Vec<Row>,
    /// Rows that are not the flow's own, and that the commit deletes.
    deleted: Vec<Key>,
    /// The store's error on a read: it excuses a failure of the body.
    trouble: Option<onceflow_store::Error>,
}

const ROW: &[u8] = b"r";
const OUTBOX: &[u8] = b"o";

impl Tx {
    pub(crate) fn new(rows: FlowRows, step: StepClaim) -> Self {
        Tx { rows, step: Arc::new(step), done: Arc::default() }
    }

    /// A row of the flow, as this transaction sees it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let name = Name::join(&[ROW, name.as_bytes()]);
        if let Some(row) = lock(&self.done).written.get(&name) {
            return Ok(row.as_ref().map(|row| Bytes::copy_from_slice(row)));
        }
        if let Some(row) = lock(&self.done).read.get(&name) {
            return Ok(row.as_ref().map(|row| Bytes::copy_from_slice(row)));
        }
        let found = match self.rows.shared.row(self.rows.group.key(&name)).await {
            Ok(found) => found,
            Err(error) => {
                if let Error::Store(trouble) = &error {
                    lock(&self.done).trouble = Some(trouble.clone());
                }
                return Err(error);
            }
        };
        lock(&self.done).read.insert(name, found.clone());
        Ok(found.map(|row| Bytes::copy_from_slice(&row)))
    }

    /// Writes a row of the flow.
    ///
    /// # Panics
    /// If the content is larger than a row can be, [`ROW_BYTES_MAX`].
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        assert!(content.as_ref().len() <= ROW_BYTES_MAX, "a row has at most {ROW_BYTES_MAX} bytes");
        lock(&self.done).written.insert(Name::join(&[ROW, name.as_bytes()]), Some(Row::new(content)));
    }

    /// Removes a row of the flow.
    pub fn delete(&self, name: &str) {
        lock(&self.done).written.insert(Name::join(&[ROW, name.as_bytes()]), None);
    }

    /// Deletes a row that is not the flow's own, with the commit of the step.
    pub(crate) fn delete_key(&self, key: Key) {
        lock(&self.done).deleted.push(key);
    }

    /// Requires that the step is still claimed here and belongs to the valid plan of its run. False if the run has a
    /// new plan or dispatches nothing, so that the batch must not be committed.
    pub(crate) async fn require_step(&self, batch: &mut Batch) -> Result<bool, Error> {
        let StepClaim { claim, keys } = &*self.step;
        let Some(row) = self.rows.shared.row(keys.state()).await? else { return Ok(false) };
        let state: RunState = rows::read(&row).ok_or_else(|| Error::damaged("the state of a run"))?;
        let goes_on = matches!(state.phase, Phase::Running | Phase::Failing);
        claim.require(batch);
        batch.require_equals(keys.state(), row);
        Ok(goes_on && state.generation == keys.generation)
    }

    /// The run of a step goes on, so that the step is done or taken up again.
    pub(crate) async fn goes_on(&self, step: &crate::task::Step) -> Result<bool, Error> {
        let run = self.rows.shared.runs.read_run(step.run()).await?;
        let goes_on = |phase| {
            matches!(phase, Phase::Running | Phase::Failing | Phase::Failed { .. } | Phase::Waiting | Phase::Frozen)
        };
        Ok(run.is_some_and(|run| goes_on(run.state().phase)))
    }

    /// Puts a message into the flow's outbox: it is there once the step has committed, until [`FlowRows::taken`].
    pub fn send(&self, message: impl AsRef<[u8]>) {
        lock(&self.done).sent.push(Row::new(message));
    }

    /// Notes that the store did not answer: it excuses a failure of the body.
    pub(crate) fn note_trouble(&self, trouble: &onceflow_store::Error) {
        lock(&self.done).trouble = Some(trouble.clone());
    }

    /// The store's error, if a read failed.
    pub(crate) fn trouble(&self) -> Option<onceflow_store::Error> {
        lock(&self.done).trouble.clone()
    }

    /// Adds the reads, as requires, and the writes to the batch of the commit.
    pub(crate) fn apply_to(&self, batch: &mut Batch, now: Timestamp, step: &[u8]) {
        let done = lock(&self.done);
        for (name, seen) in &done.read {
            crate::seams::require_read(batch, self.rows.group.key(name), seen.clone());
        }
        for (name, row) in &done.written {
            let key = self.rows.group.key(name);
            match row {
                Some(row) => batch.put(key, row.clone()),
                None => batch.delete(key),
            };
        }
        for key in &done.deleted {
            batch.delete(key.clone());
        }
        for (at, row) in (0_u32..).zip(&done.sent) {
            let name = Name::join(&[OUTBOX, &now.to_sortable(), step, &at.to_be_bytes()]);
            batch.put(self.rows.group.key(name), row.clone());
        }
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tx")
    }
}

/// A flow's own rows, outside of a transaction.
#[derive(Clone)]
pub struct FlowRows {
    shared: Arc<Shared>,
    group: Group,
}

/// A message in an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Names it, for [`FlowRows::taken`].
    pub id: Name,
    /// The content that was sent.
    pub content: Bytes,
}

impl FlowRows {
    pub(crate) fn new(shared: Arc<Shared>, flow: &str) -> Self {
        FlowRows { shared, group: Group::rows(Name::join(&[b"flow/", flow.as_bytes()])) }
    }

    /// Reads a row. Its content is durable when this returns.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let found = self.shared.row(self.key(name)).await?;
        self.shared.records.durable(self.shared.records.position()).await?;
        Ok(found.map(|row| Bytes::copy_from_slice(&row)))
    }

    fn key(&self, name: &str) -> Key {
        self.group.key(Name::join(&[ROW, name.as_bytes()]))
    }

    /// The oldest messages of the outbox, at most `limit`. They stay there until [`FlowRows::taken`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn outbox(&self, limit: usize) -> Result<Vec<Message>, Error> {
        let scan = Scan::of(self.group.clone(), limit).prefix(OUTBOX);
        let page = self.shared.records.scan(self.shared.shard(), scan).await?;
        self.shared.records.durable(self.shared.records.position()).await?;
        let message = |(id, row): (Name, Row)| Message { id, content: Bytes::copy_from_slice(&row) };
        Ok(page.rows.into_iter().map(message).collect())
    }

    /// Removes a message that was delivered. Repeating it does nothing.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn taken(&self, message: &Message) -> Result<(), Error> {
        let mut batch = Batch::new(self.shared.shard());
        batch.delete(self.group.key(&message.id));
        let outcome = self.shared.records.commit(batch).await?;
        Ok(self.shared.records.durable(outcome.position()).await?)
    }
}
