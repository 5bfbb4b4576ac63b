//! Checks that the rows of runs can be read and fit together: no row that a run needs can vanish or change unnoticed.
//!
//! | row | if it is missing or damaged |
//! |---|---|
//! | head, state, header, program, frame, ready row, arrival, join, count in flight, parked step | reported here |
//! | head of an ended run | reported if it cannot be read; if missing, the run is forgotten, and a start runs it anew |
//! | due | reported here: the remains of the run would never be removed |
//! | memo (kept outputs) | reported if it holds a value or cannot be read; else a missing one is computed again |
//! | an output that arrived and is no stored value | not reported: the run finds it missing when it is settled |
//! | sessions of scopes, with all of their rows | reported here; as is a row that no order needs any more |
//! | reasons, logs, events, workers, unserved tasks | only people read these; or the count of steps in flight reveals it |
//! | claims and deadlines | the step is claimed again |

use super::Engine;
use crate::{
    Error,
    run_rows::Noted,
    scope::{ReadGroup, check_hosted, check_sessions},
    shared::Shared,
};
use futures_util::future::BoxFuture;
use onceflow_core::{
    EdgeName, Group, Inbox, Name, Row,
    model::wiring::Consumer,
    payload::Outcome,
    protocol::{
        draft::{InstalledProgram, stored},
        ids::{END, FrameId, Generation, LANE, RunId, SETTLE, StepId, TEARDOWN, UNDO},
        keys::{self, Keys},
        rows::{
            self, Finished, Frame, Head, Header, Memo, Parked, Phase, ReadyStep, Received, RunState, Shape, Undo, Why,
        },
        run::{self, Due},
    },
    row::{bitmap, counter},
};
use onceflow_store::values::census::Census;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Scans until two in a row see the same rows.
const READINGS_MAX: usize = 4;

impl Engine {
    /// Reports the rows of runs that cannot be read, are missing or do not fit together; `None` if the store kept
    /// changing, so that no two scans agree. Values are checked by
    /// [`Values::fsck`](onceflow_store::values::Values::fsck). Changes nothing.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn fsck(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, Error>> {
        Box::pin(async move {
            let mut last = None;
            for _ in 0..READINGS_MAX {
                let mut reading = Reading::new(&self.shared);
                reading.all().await?;
                let mut found = reading.found;
                if let Some(server) = self.shared.records.server() {
                    found.extend(server.inconsistencies(self.shared.shard()).await?);
                }
                let now = (reading.seen.finalize(), found);
                if last.as_ref() == Some(&now) {
                    return Ok(Some(now.1));
                }
                last = Some(now);
            }
            Ok(None)
        })
    }
}

struct Reading<'a> {
    shared: &'a Shared,
    found: Vec<String>,
    /// The hash of all rows read.
    seen: blake3::Hasher,
    /// The names of the edges that hold values.
    edges: BTreeSet<Name>,
    /// The names of the edges that rows account for.
    held: BTreeSet<Name>,
    /// Runs whose rows are being removed, or may be: their rows are not checked.
    leaving: BTreeSet<RunId>,
}

impl<'a> Reading<'a> {
    fn new(shared: &'a Shared) -> Self {
        let (edges, held, leaving) = Default::default();
        Reading { shared, found: vec![], seen: blake3::Hasher::new(), edges, held, leaving }
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.found.push(what.into());
    }

    async fn rows(&mut self, group: Group) -> Result<Vec<(Name, Row)>, Error> {
        let rows = self.shared.kernel.all_rows(group, b"").await?;
        for (name, row) in &rows {
            self.seen.update(name.as_bytes()).update(row);
        }
        Ok(rows)
    }

    async fn all(&mut self) -> Result<(), Error> {
        match Census::of(&self.shared.values).await {
            Ok(census) => {
                // Without lists whose elements are not gathered yet.
                let roots = census.roots.into_iter().filter(|root| root.target.is_some());
                self.edges = roots.map(|root| root.name).collect();
            }
            // The check of values reports this.
            Err(error) if Error::from(error.clone()).is_damage() => {}
            Err(error) => return Err(error.into()),
        }
        let mut dues = BTreeMap::new();
        for (name, row) in self.rows(keys::dues()).await? {
            match keys::of_due(name.as_bytes()).zip(rows::read::<Due>(&row)) {
                Some(((deadline, _), due)) => drop(dues.entry(format!("{due:?}")).or_insert(deadline)),
                None => self.tell(format!("what is due at {name:?} cannot be read")),
            }
        }
        let removed = self.rows(keys::internal_queue()).await?;
        let removed = removed.iter().filter_map(|(name, _)| StepId::from_queue_name(name.as_bytes()));
        self.leaving.extend(removed.filter(|(_, step)| step.node == TEARDOWN).map(|(run, _)| run));
        let mut runs = BTreeSet::new();
        for (name, row) in self.rows(keys::heads()).await? {
            let key = String::from_utf8_lossy(name.as_bytes()).into_owned();
            match rows::read::<Head>(&row) {
                None => self.tell(format!("the row of run `{key}` cannot be read")),
                Some(Head::Active(run)) => {
                    runs.insert(run);
                    self.active(&key, run, &dues).await?;
                    let found = check_sessions(run, self).await?;
                    self.found.extend(found.into_iter().map(|what| format!("run `{key}`: {what}")));
                    self.kept(&key, &Keys::new(run, Generation(0))).await?;
                }
                Some(Head::Finished(finished)) => {
                    runs.insert(finished.run);
                    self.finished(&key, &finished, &dues);
                    if !self.rows(keys::sessions(finished.run)).await?.is_empty() {
                        self.tell(format!("run `{key}` is over, and sessions of its scopes are kept"));
                    }
                    self.kept(&key, &Keys::new(finished.run, Generation(0))).await?;
                }
            }
        }
        let found = check_hosted(self).await?;
        self.found.extend(found);
        self.unheld(&runs);
        Ok(())
    }

    fn finished(&mut self, key: &str, finished: &Finished, dues: &BTreeMap<String, onceflow_core::Timestamp>) {
        if finished.header.key != key {
            self.tell(format!("the row of run `{key}` is that of `{}`", finished.header.key));
        }
        let is_due = |due: Due| dues.contains_key(&format!("{due:?}"));
        if !is_due(Due::History(finished.run)) {
            self.tell(format!("the history of run `{key}` never ends: that it is due is missing"));
        }
        if finished.header.keep_ms.is_some() && !is_due(Due::Keep(finished.run)) && self.keeps(finished.run) {
            self.tell(format!("what run `{key}` keeps is kept for ever: that it is due is missing"));
        }
        let keys = Keys::new(finished.run, finished.generation);
        for (port, (name, outcome)) in (0..).zip(&finished.outputs) {
            if stored(outcome).is_some() && !self.edges.contains(keys.result_edge(port).name()) {
                self.tell(format!("output `{name}` of run `{key}` is held by nothing"));
            }
        }
    }

    /// The run holds kept values.
    fn keeps(&self, run: RunId) -> bool {
        self.edges.iter().any(|edge| keys::of_kept_edge(edge.as_bytes()) == Some(run))
    }

    /// Checks the kept outputs of a run's steps.
    async fn kept(&mut self, key: &str, keys: &Keys) -> Result<(), Error> {
        for (name, row) in self.rows(keys.kept.clone()).await? {
            if name.as_bytes().first() != Some(&b'm') {
                continue;
            }
            let Some(memo) = rows::read::<Memo>(&row) else {
                self.tell(format!("what a step of run `{key}` gave before cannot be read"));
                continue;
            };
            for (port, outcome) in (0..).zip(&memo.outputs) {
                self.holds(key, keys.kept_edge(name.as_bytes(), port), outcome);
            }
        }
        Ok(())
    }

    /// Notes that a row of the run holds this outcome by this edge, if it is a stored value; reports a missing edge.
    fn holds(&mut self, key: &str, edge: EdgeName, outcome: &Outcome) {
        if stored(outcome).is_none() {
            return;
        }
        let edge = edge.name();
        if !self.edges.contains(edge) {
            self.tell(format!("something that run `{key}` has is held by nothing: {edge:?}"));
        }
        self.held.insert(edge.clone());
    }

    /// Reports edges that hold a value for a row that is missing.
    fn unheld(&mut self, runs: &BTreeSet<RunId>) {
        let mut found = Vec::new();
        for edge in self.edges.difference(&self.held) {
            let bytes = edge.as_bytes();
            if keys::of_result_edge(bytes).is_some() {
                continue;
            }
            // The edge is named after the plan's rows, whose id begins with the run's, and the row.
            let of_plan =
                bytes.strip_prefix(b"r").filter(|rest| rest.len() > 8 + 4).and_then(|rest| rest.first_chunk());
            let run = keys::of_kept_edge(bytes).or(of_plan.map(|run| RunId(*run)));
            // Kept values of a run that is gone are removed bit by bit.
            let is_of_kept = keys::of_kept_edge(bytes).is_some();
            if run.is_some_and(|run| !self.leaving.contains(&run) && (runs.contains(&run) || !is_of_kept)) {
                found.push(format!("a value is held for a row of a run that is not there: {edge:?}"));
            }
        }
        self.found.extend(found);
    }

    async fn active(
        &mut self,
        key: &str,
        id: RunId,
        dues: &BTreeMap<String, onceflow_core::Timestamp>,
    ) -> Result<(), Error> {
        let home: BTreeMap<_, _> = self.rows(Keys::new(id, Generation(0)).home).await?.into_iter().collect();
        let row = |name: &str| home.get(&Name::new(name));
        // The state row has no checksum, so it must equal the row that its state is written as.
        let state = row("s").and_then(|row| rows::read::<RunState>(row).filter(|state| state.to_row() == *row));
        let header = row("h").and_then(|row| rows::read::<Header>(row));
        let (Some(state), Some(header)) = (state, header) else {
            self.leaving.insert(id);
            self.tell(format!("the state or the header of run `{key}` is missing, or cannot be read"));
            return Ok(());
        };
        if header.key != key {
            self.tell(format!("the header of run `{key}` is that of `{}`", header.key));
        }
        if let Phase::Failed { until } = state.phase
            && dues.get(&format!("{:?}", Due::Failed(id))) != Some(&until)
        {
            self.tell(format!("run `{key}` failed, and stays for ever: that it is due is missing"));
        }
        let program = match self.shared.values.read_all(&header.program.id).await {
            Ok(bytes) => rows::read(&bytes),
            Err(error) if Error::from(error.clone()).is_damage() => None,
            Err(error) => return Err(error.into()),
        };
        let Some(program) = program else {
            self.leaving.insert(id);
            self.tell(format!("the program of run `{key}` is missing, or cannot be read"));
            return Ok(());
        };
        let plan = self.shared.runs.plan(Keys::new(id, state.generation), Arc::new(program));
        for (edge, _) in run::programs(&plan, &header) {
            self.held.insert(edge.name().clone());
        }
        self.plan(key, &plan, state).await
    }

    /// Checks the rows of a plan.
    async fn plan(&mut self, key: &str, plan: &InstalledProgram, state: RunState) -> Result<(), Error> {
        let mut rows = PlanRows::default();
        for (name, row) in self.rows(plan.keys.rows.clone()).await? {
            if rows.take(&name, &row).is_none() {
                self.tell(format!("row {name:?} of run `{key}` cannot be read"));
            }
        }
        let is_open = matches!(
            state.phase,
            Phase::Running | Phase::Failing | Phase::Cancelling | Phase::Failed { .. } | Phase::Waiting
        );
        if !self.shared.runs.read_settings(plan, state).await? {
            self.tell(format!("the settings of run `{key}` are missing, or cannot be read"));
        }
        match self.shared.queues().ready_steps(plan).await {
            Ok(ready) => {
                for (at, step, ready_step) in ready {
                    self.seen.update(at.name.as_bytes());
                    let row = self.shared.row(at).await?;
                    let inbox = row.as_deref().and_then(Inbox::place);
                    let own = plan.keys.inbox(step);
                    // A step whose inputs stand in its ready row needs no inbox.
                    let (nowhere, own) = (Group::rows(""), own.as_bytes());
                    let wanted =
                        if ready_step.inputs.is_empty() { (&plan.keys.rows, own) } else { (&nowhere, &b""[..]) };
                    if inbox.as_ref().is_none_or(|(group, prefix)| (group, *prefix) != wanted) {
                        self.tell(format!("the inbox of step {step:?} of run `{key}` is not its own"));
                    }
                    rows.ready_steps.insert(step, ready_step);
                }
            }
            Err(error) if error.is_damage() => {
                self.leaving.insert(plan.keys.run);
                self.tell(format!("a step of run `{key}` that is ready cannot be read"));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        for (edge, outcome) in rows.held(&plan.keys) {
            self.holds(key, edge, &outcome);
        }
        if is_open {
            let found = rows.inconsistencies(plan, state.phase);
            self.found.extend(found.into_iter().map(|what| format!("run `{key}`: {what}")));
        } else {
            // The rows of such a run are removed, or replaced, as a whole.
            self.leaving.insert(plan.keys.run);
        }
        Ok(())
    }
}

impl ReadGroup for Reading<'_> {
    async fn read_group(&mut self, group: Group) -> Result<Vec<(Name, Row)>, Error> {
        self.rows(group).await
    }
}

/// The rows of a plan, as far as they can be read.
#[derive(Default)]
struct PlanRows {
    frames: BTreeMap<FrameId, Frame>,
    arrived: BTreeMap<StepId, BTreeMap<u16, Received>>,
    /// The number of inputs a join waits for, and those that have arrived.
    joins: BTreeMap<StepId, (u32, Vec<u32>)>,
    live: i64,
    parked: BTreeMap<StepId, Parked>,
    undos: BTreeMap<u32, Undo>,
    ready_steps: BTreeMap<StepId, ReadyStep>,
}

impl PlanRows {
    fn take(&mut self, name: &Name, row: &Row) -> Option<()> {
        let (kind, rest) = name.as_bytes().split_first()?;
        let step = || StepId::from_bytes(rest.get(..StepId::BYTES)?);
        match kind {
            b'f' => drop(self.frames.insert(FrameId::from_bytes(rest)?, rows::read(row)?)),
            b'i' => {
                let received: Received = rows::read(row)?;
                let port = Keys::port_of_arrival(name.as_bytes()).filter(|port| *port == received.port)?;
                self.arrived.entry(step()?).or_default().insert(port, received);
            }
            b'j' => drop(self.joins.insert(step()?, bitmap::read(row)?)),
            b'l' => self.live = counter::read(row)?,
            b'o' => drop(rows::read::<onceflow_core::protocol::settings::Settings>(row)?),
            b'p' => drop(self.parked.insert(step()?, rows::read(row)?)),
            // The notes of failures while the run is undone: only people read them.
            b'x' => drop(rows::read::<Noted>(row)?),
            b'u' => drop(self.undos.insert(u32::from_be_bytes(rest.try_into().ok()?), rows::read(row)?)),
            _ => return None,
        }
        Some(())
    }

    /// The edges by which these rows hold values.
    fn held(&self, keys: &Keys) -> Vec<(EdgeName, Outcome)> {
        let mut found = Vec::new();
        for (id, frame) in &self.frames {
            for (port, held) in (0..).zip(&frame.inputs) {
                if let Some(held) = held.as_ref().filter(|held| held.owned) {
                    found.push((keys.edge(&keys.frame(*id), port), held.outcome.clone()));
                }
            }
        }
        let parked = self.parked.iter().map(|(step, parked)| (step, &parked.ready_step));
        let of_tickets = self.ready_steps.iter().chain(parked).filter(|(step, _)| step.node != TEARDOWN);
        let of_tickets =
            of_tickets.flat_map(|(step, ready_step)| ready_step.inputs.iter().map(move |input| (step, input)));
        let of_inboxes = self.arrived.iter().flat_map(|(step, ports)| ports.values().map(move |input| (step, input)));
        for (step, received) in of_tickets.chain(of_inboxes) {
            let is_output = *step == StepId::of_run(END);
            if received.owned || is_output {
                found.push((keys.edge(&keys.arrival(*step, received.port), received.port), received.outcome.clone()));
            }
        }
        for (number, undo) in &self.undos {
            for (port, held) in (0..).zip(&undo.inputs) {
                found.push((keys.edge(&keys.undo(*number), port), held.outcome.clone()));
            }
        }
        found
    }

    fn inconsistencies(&self, plan: &InstalledProgram, phase: Phase) -> Vec<String> {
        let mut found = Vec::new();
        if !self.frames.contains_key(&FrameId::ROOT) {
            found.push(String::from("its outermost frame is missing"));
        }
        let is_counted = |step: &&StepId| !matches!(step.node, SETTLE | UNDO | TEARDOWN);
        let flying = self.ready_steps.keys().filter(is_counted).count() as i64;
        if flying != self.live {
            found.push(format!("{flying} of its steps are ready or taken, and {} should be", self.live));
        }
        let is_settled = self.ready_steps.keys().any(|step| matches!(step.node, SETTLE | UNDO));
        let rests = |wanted: fn(&Why) -> bool| self.parked.values().any(|parked| wanted(&parked.why));
        let is_right = match phase {
            Phase::Failed { .. } => rests(|why| matches!(why, Why::Failed(_))),
            Phase::Waiting => rests(|why| why.awaited().is_some()),
            _ => self.live > 0 || is_settled,
        };
        if !is_right {
            found.push(String::from("nothing of it is ready or put aside, though it has not ended"));
        }
        let numbers = self.undos.keys().copied();
        if !numbers.clone().eq(0..self.undos.len() as u32) {
            found.push(String::from("how to undo one of its steps is missing"));
        }
        let steps: BTreeSet<_> = self.arrived.keys().chain(self.joins.keys()).chain(self.ready_steps.keys()).collect();
        for step in steps.into_iter().chain(self.parked.keys()).filter(is_counted) {
            match self.frames.get(&step.frame) {
                None => found.push(format!("the frame of step {step:?} is missing")),
                Some(frame) => found.extend(self.inbox_misfit(plan, *step, frame)),
            }
        }
        found.sort();
        found.dedup();
        found
    }

    /// Reports a step whose arrivals do not match its join.
    fn inbox_misfit(&self, plan: &InstalledProgram, step: StepId, frame: &Frame) -> Option<String> {
        let block = &plan.wiring.blocks[frame.block as usize];
        let (to, of) = match (step.node, frame.shape) {
            (END, Shape::Single) => (Consumer::End, block.end.of),
            (END | LANE, _) => return None,
            (node, _) => (Consumer::Node(node), block.joins(node)?.of),
        };
        if of < 2 {
            return None;
        }
        let is_waited_for = !self.ready_steps.contains_key(&step) && !self.parked.contains_key(&step);
        let bits = self.joins.get(&step);
        if is_waited_for && bits.is_none_or(|(all, _)| *all != of) {
            return Some(format!("who has arrived at step {step:?} is missing, or cannot be"));
        }
        let arrived = block.all_targets().filter(|target| target.to == to);
        let arrived =
            arrived.filter(|target| !is_waited_for || bits.is_some_and(|(_, bits)| bits.contains(&target.bit)));
        let wanted: BTreeSet<u16> = arrived.flat_map(|target| target.ports.iter().map(|(_, to)| *to)).collect();
        let found: BTreeSet<u16> = self.arrived.get(&step).into_iter().flat_map(BTreeMap::keys).copied().collect();
        (wanted != found).then(|| format!("{} of {} inputs of step {step:?} are there", found.len(), wanted.len()))
    }
}
