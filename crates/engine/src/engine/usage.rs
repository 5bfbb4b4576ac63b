//! Disk usage: every value of the store, by the run that holds it, its purpose and its deadline.

use super::Engine;
use crate::{Error, runs::Run, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    Timestamp,
    model::program::ROOT,
    protocol::{
        ids::{END, FrameId, Generation, RunId, StepId},
        keys::{self, Keys},
        rows::{self, Finished, Head},
        run::{EVENTS, PROGRAM, SEALED},
    },
};
use onceflow_store::values::census::{Census, Root, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// The purpose that values are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageKind {
    /// Inputs of steps that wait.
    Input,
    /// Outputs of the run, active or ended.
    Output,
    /// Values that the run keeps, so that later plans reuse them.
    Kept,
    /// Inputs of compensations.
    Undo,
    /// The program.
    Program,
    /// The sealed record of a run that has ended.
    Record,
    /// Elements of a list that is being made.
    Elements,
    /// Rows of the run, without the logs of its steps and its event log.
    Rows,
    /// Logs of steps, and the event log.
    Logs,
}

impl UsageKind {
    /// The kind as one word.
    pub fn name(self) -> &'static str {
        match self {
            UsageKind::Input => "input",
            UsageKind::Output => "output",
            UsageKind::Kept => "kept",
            UsageKind::Undo => "undo",
            UsageKind::Program => "program",
            UsageKind::Record => "record",
            UsageKind::Elements => "elements",
            UsageKind::Rows => "rows",
            UsageKind::Logs => "logs",
        }
    }
}

/// A part of what a run holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsagePart {
    /// Its purpose.
    pub used: UsageKind,
    /// The step or output, where it is one.
    pub of: Option<String>,
    /// Its size; values that several parts share count for the first of them.
    pub weight: Weight,
    /// When the last of it is removed by itself, if that is known.
    pub until: Option<Timestamp>,
}

/// The values and rows that a run holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUsage {
    /// The run.
    pub run: RunId,
    /// Everything that the run holds, including values shared with other runs.
    pub weight: Weight,
    /// The parts, the largest first.
    pub parts: Vec<UsagePart>,
}

/// The disk usage of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The usage of each run, the largest first.
    pub runs: Vec<RunUsage>,
    /// Values held by no run: those being stored at present, or other users' own.
    pub others: Weight,
    /// Values held by nothing: deleted by the next reclaim.
    pub free: Weight,
    /// All values, each counted once.
    pub total: Weight,
}

/// The run and step that a root belongs to.
struct Belongs {
    run: RunId,
    used: UsageKind,
    /// The step that waits for the value, in an active plan; in a run that has ended, `port` is the output.
    step: Option<StepId>,
    port: Option<u16>,
}

impl Engine {
    /// The disk usage of the whole store. Reads all rows of values, and no contents.
    ///
    /// # Errors
    /// If the store does not answer, or is damaged.
    pub fn usage(&self) -> BoxFuture<'_, Result<Usage, Error>> {
        Box::pin(async move {
            let census = Census::of(&self.shared.values).await?;
            let mut of: BTreeMap<RunId, Vec<(&Root, Belongs)>> = BTreeMap::new();
            let mut others = Vec::new();
            for root in &census.roots {
                match belongs(root) {
                    Some(belongs) => of.entry(belongs.run).or_default().push((root, belongs)),
                    None => others.push(root),
                }
            }
            let scales = Scales { shared: &self.shared, census: &census };
            let heads = scales.ended().await?;
            for id in heads.keys() {
                of.entry(*id).or_default();
            }
            let mut usage = Usage { total: census.total(), ..Usage::default() };
            let mut seen = BTreeSet::new();
            for (id, roots) in &of {
                census.weigh(roots.iter().map(|(root, _)| *root), &mut seen);
                usage.runs.push(scales.of_run(*id, roots, heads.get(id).and_then(Option::as_ref)).await?);
            }
            usage.runs.sort_by_key(|run| std::cmp::Reverse(run.weight.bytes));
            usage.others = census.weigh(others, &mut seen);
            let in_use = census.weigh(&census.roots, &mut BTreeSet::new());
            let total = usage.total;
            usage.free = Weight {
                values: total.values - in_use.values,
                bytes: total.bytes.saturating_sub(in_use.bytes),
                referenced: total.referenced.saturating_sub(in_use.referenced),
                linked: total.linked.saturating_sub(in_use.linked),
            };
            Ok(usage)
        })
    }
}

/// The run that a root belongs to, from its name: see `keys`.
fn belongs(root: &Root) -> Option<Belongs> {
    let name = root.name.as_bytes();
    let plain = |run: RunId, used: UsageKind| Belongs { run, used, step: None, port: None };
    if let Some((run, port)) = keys::of_result_edge(name) {
        let used = match port {
            SEALED => UsageKind::Record,
            PROGRAM => UsageKind::Program,
            port if EVENTS.contains(&port) => UsageKind::Logs,
            _ => UsageKind::Output,
        };
        return Some(Belongs { port: Some(port), ..plain(run, used) });
    }
    if let Some(run) = keys::of_kept_edge(name) {
        return Some(plain(run, UsageKind::Kept));
    }
    let (run, rest) = name.strip_prefix(b"r")?.split_first_chunk()?;
    let (run, what) = (RunId(*run), rest.get(4..)?);
    if root.target.is_none() {
        return Some(plain(run, UsageKind::Elements));
    }
    let step = |bytes: Option<&[u8]>| bytes.and_then(StepId::from_bytes);
    Some(match what.first()? {
        _ if what == b"program" || what == b"full" => plain(run, UsageKind::Program),
        b'u' => plain(run, UsageKind::Undo),
        b'i' => Belongs { step: step(what.get(1..1 + StepId::BYTES)), ..plain(run, UsageKind::Input) },
        _ => plain(run, UsageKind::Input),
    })
}

/// The output of a finished run that an edge holds.
fn output_name(finished: &Finished, belongs: &Belongs) -> Option<String> {
    let (name, _) = finished.outputs.get(usize::from(belongs.port?))?;
    Some(name.clone())
}

/// Weighs the parts of runs.
struct Scales<'a> {
    shared: &'a Shared,
    census: &'a Census,
}

impl Scales<'_> {
    /// The usage of one run, from the roots that belong to it.
    async fn of_run(
        &self,
        id: RunId,
        roots: &[(&Root, Belongs)],
        finished: Option<&Finished>,
    ) -> Result<RunUsage, Error> {
        let run = if finished.is_some() { None } else { self.shared.runs.read_run(id).await? };
        type Group<'a> = (Vec<&'a Root>, Option<Timestamp>);
        // Outputs of earlier plans of the run stand under the same names until they are removed.
        let mut groups: BTreeMap<(UsageKind, Option<String>), Group<'_>> = BTreeMap::new();
        for (root, belongs) in roots {
            let of = match (&run, finished) {
                (Some(run), _) => self.step_name(run, belongs).await?,
                (None, Some(finished)) => output_name(finished, belongs),
                (None, None) => None,
            };
            let until = match (belongs.used, finished) {
                (UsageKind::Kept, Some(finished)) => finished.header.keep_ms.map(|ms| finished.ended.plus_ms(ms)),
                _ => root.deadline,
            };
            let (held, last) = groups.entry((belongs.used, of)).or_insert_with(|| (vec![], until));
            held.push(root);
            *last = last.zip(until).map(|(last, until)| last.max(until));
        }
        let (mut parts, mut seen) = (Vec::new(), BTreeSet::new());
        for ((used, of), (roots, until)) in groups {
            parts.push(UsagePart { used, of, until, weight: self.census.weigh(roots, &mut seen) });
        }
        for (used, weight) in self.weigh_rows(id, run.as_deref()).await? {
            parts.push(UsagePart { used, of: None, until: None, weight });
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.weight.bytes));
        let mut weight = Weight::default();
        parts.iter().for_each(|part| weight += part.weight);
        Ok(RunUsage { run: id, weight, parts })
    }

    /// All runs, with the head of each that has ended.
    async fn ended(&self) -> Result<BTreeMap<RunId, Option<Finished>>, Error> {
        let heads = self.shared.kernel.all_rows(keys::heads(), b"").await?;
        let one = |row: &[u8]| match rows::read::<Head>(row)? {
            Head::Active(id) => Some((id, None)),
            Head::Finished(finished) => Some((finished.run, Some(*finished))),
        };
        Ok(heads.iter().filter_map(|(_, row)| one(row)).collect())
    }

    /// The address of the step that waits for a value.
    async fn step_name(&self, run: &Run, belongs: &Belongs) -> Result<Option<String>, Error> {
        let Some(step) = belongs.step else { return Ok(None) };
        if step.frame == FrameId::ROOT && step.node == END {
            return Ok(None);
        }
        let block = match self.shared.runs.frame(run, step.frame).await? {
            Some(frame) => frame.block,
            None => ROOT,
        };
        let Some(node) = run.plan.program.blocks[block as usize].nodes.get(step.node as usize) else { return Ok(None) };
        Ok(Some(self.shared.runs.place(run, step.frame, step.index).await?.address(&node.path)))
    }

    /// The bytes of a run's own rows.
    async fn weigh_rows(&self, id: RunId, run: Option<&Run>) -> Result<Vec<(UsageKind, Weight)>, Error> {
        let keys = run.map_or_else(|| Keys::new(id, Generation(0)), |run| run.plan.keys.clone());
        let mut found = BTreeMap::<UsageKind, Weight>::new();
        let groups = [
            (UsageKind::Rows, keys.home),
            (UsageKind::Rows, keys.rows),
            (UsageKind::Rows, keys.kept),
            (UsageKind::Rows, keys::reasons(id)),
            (UsageKind::Logs, keys::logs(id)),
            (UsageKind::Logs, keys::events(id)),
        ];
        for (used, group) in groups {
            for (name, row) in self.shared.kernel.all_rows(group, b"").await? {
                found.entry(used).or_default().bytes += (name.as_bytes().len() + row.len()) as u64;
            }
        }
        Ok(found.into_iter().collect())
    }
}
