//! The kept values of a run (`keep`): the outputs of its steps under their memos, which serve later starts of the same
//! key. They stay as long as the run says, and are read only if they are intact.

use super::{CheckedStart, known::KnownValues};
use crate::{Error, data, kernel::Kernel};
use onceflow_core::{
    Batch, Key, Name, Row,
    limits::REMOVE_ROWS_MAX,
    model::{
        InstancePath, Program,
        program::{NodeOp, PortIndex, ROOT, Source},
    },
    payload::Outcome,
    protocol::{
        draft::stored,
        keys::Keys,
        memo::memo_of,
        rows::{self, Held, Memo},
    },
};
use onceflow_store::{records::Scan, values::ValueChange};

/// The kept values of a run.
pub(crate) struct KeptValues<'a> {
    kernel: &'a Kernel,
    keys: &'a Keys,
}

impl<'a> KeptValues<'a> {
    pub(crate) fn new(kernel: &'a Kernel, keys: &'a Keys) -> Self {
        KeptValues { kernel, keys }
    }

    /// The kept values of a run that are valid for this request: computed by the same code from the same inputs.
    pub(super) async fn valid_for(&self, asked: &CheckedStart) -> Result<KnownValues, Error> {
        self.of_program(&asked.program, &|port| asked.inputs.outcome(port).clone()).await
    }

    /// The kept values of a run that this program computes from these inputs.
    pub(super) async fn of_program(
        &self,
        program: &Program,
        given: &(dyn Fn(PortIndex) -> Outcome + Sync),
    ) -> Result<KnownValues, Error> {
        let mut known = KnownValues::new();
        for (at, node) in (0..).zip(&program.blocks[ROOT as usize].nodes) {
            let is_before = |source: &Source| !matches!(source, Source::Node(other, _) if *other >= at);
            assert!(node.inputs.iter().all(is_before), "a node stands before one that it reads from");
            let input = |source: &Source| match source {
                Source::Input(port) => Some(given(*port)),
                Source::Constant(at) => Some(Outcome::Value(program.constants[*at as usize].clone())),
                Source::None => Some(Outcome::None),
                Source::Node(node, port) => known.get(&(*node, *port)).map(|(outcome, _)| outcome.clone()),
            };
            let inputs: Option<Vec<_>> = node.inputs.iter().map(input).collect();
            let Some(inputs) = inputs else { continue };
            if node.op == NodeOp::Relay {
                known.extend((0..node.outputs.len()).map(|port| ((at, port as u16), (inputs[0].clone(), None))));
                continue;
            }
            let held: Vec<_> = inputs.into_iter().map(|outcome| Held { owned: false, outcome }).collect();
            let key = self.keys.memo(&memo_of(program, node, &InstancePath::root().address(&node.path), &held));
            let Some(row) = self.kernel.row(key.clone()).await? else { continue };
            // A memo that cannot be read is dropped when its step is claimed.
            let Some(memo) = rows::read::<Memo>(&row) else { continue };
            for (port, outcome) in (0..).zip(memo.outputs) {
                known.insert((at, port), (outcome, Some(key.clone())));
            }
        }
        Ok(known)
    }

    /// The kept outputs of a step, if all of them are intact. Broken ones are dropped, with the row that keeps them.
    pub(crate) async fn if_intact(&self, key: Key) -> Result<Option<Vec<Outcome>>, Error> {
        let Some(row) = self.kernel.row(key.clone()).await? else { return Ok(None) };
        let (memo, mut is_whole) = (rows::read::<Memo>(&row), true);
        for outcome in memo.iter().flat_map(|memo| &memo.outputs) {
            for id in data::broken(&self.kernel.values, outcome).await? {
                is_whole = false;
                self.kernel.values.integrity().drop_if_broken(&id).await?;
            }
        }
        match memo {
            Some(memo) if is_whole => Ok(Some(memo.outputs)),
            _ => {
                tracing::warn!(?key, "a kept result is damaged; its step runs again");
                self.remove(&[(key.name, row)]).await?;
                Ok(None)
            }
        }
    }

    /// Removes all kept values.
    pub(super) async fn remove_all(&self) -> Result<(), Error> {
        loop {
            let page =
                self.kernel.records.scan(self.kernel.shard, Scan::of(self.keys.kept.clone(), REMOVE_ROWS_MAX)).await?;
            if page.rows.is_empty() {
                return Ok(());
            }
            self.remove(&page.rows).await?;
        }
    }

    /// Removes some rows of kept values, and releases the values.
    async fn remove(&self, rows: &[(Name, Row)]) -> Result<(), Error> {
        let mut batch = Batch::new(self.kernel.shard);
        let mut changes = Vec::new();
        for (name, row) in rows {
            let key = self.keys.kept.key(name);
            batch.require_present(key.clone()).delete(key);
            let memo = if name.as_bytes().first() == Some(&b'm') { rows::read::<Memo>(row) } else { None };
            for (port, outcome) in memo.iter().flat_map(|memo| memo.outputs.iter().enumerate()) {
                if let Some(stored) = stored(outcome) {
                    let edge = self.keys.kept_edge(name.as_bytes(), port as u16);
                    changes.push(ValueChange::clear(edge, stored.clone()));
                }
            }
            if batch.ops.len() + 3 * changes.len() > onceflow_core::limits::REMOVE_OPS_MAX {
                break;
            }
        }
        self.kernel.values.add_changes(&mut batch, &changes).await?;
        if let onceflow_store::CommitResult::Applied(committed) = self.kernel.records.commit(batch).await? {
            self.kernel.values.notify_committed(&committed);
        }
        Ok(())
    }
}
