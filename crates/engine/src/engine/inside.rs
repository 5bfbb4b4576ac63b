//! Explains the steps inside of containers, for runs with `keep`: a dry run of the flow on the known values, as far as
//! they reach.

use super::damage::is_intact;
use crate::{Error, shared::Shared};
use futures_util::future::BoxFuture;
use onceflow_core::{
    limits::{CALL_DEPTH_MAX, SCAN_ROWS_MAX},
    model::{
        InstancePath, Node, Program,
        program::{BlockIndex, NodeOp, Source},
    },
    payload::{Outcome, Payload},
    plan::{
        Fate, Reason,
        explain::{ExplanationLine, is_open},
    },
    protocol::{
        keys::Keys,
        memo::memo_of,
        rows::{self, Held, Memo},
    },
};
use std::sync::Arc;

/// A value, if it is known; else the address of the step that must run first.
pub(super) type Expected = Result<Outcome, Arc<str>>;

/// The outputs of a node that runs: unknown.
fn unknown(address: &str, outputs: usize) -> Vec<Expected> {
    let address: Arc<str> = address.into();
    vec![Err(address); outputs]
}

/// A dry run of a flow on the known values.
pub(super) struct ContainerPreview<'a> {
    pub(super) shared: &'a Shared,
    pub(super) keys: &'a Keys,
    pub(super) program: &'a Program,
    pub(super) lines: Vec<ExplanationLine>,
    pub(super) depth: u32,
}

impl ContainerPreview<'_> {
    /// Previews a container: returns its outputs, and adds a line for every step inside.
    pub(super) fn container<'b>(
        &'b mut self,
        node: &'b Node,
        place: &'b InstancePath,
        inputs: &'b [Expected],
    ) -> BoxFuture<'b, Result<Vec<Expected>, Error>> {
        Box::pin(async move {
            let unknown = || unknown(&place.address(&node.path), node.outputs.len());
            if self.depth >= CALL_DEPTH_MAX {
                return Ok(unknown());
            }
            self.depth += 1;
            let mut outputs = match &node.op {
                NodeOp::Each { body, .. } => self.each(*body, node, place, inputs).await?,
                NodeOp::Loop { body, carried } => self.repeat(*body, carried, node, place, inputs).await?,
                NodeOp::Call { body } => self.block(*body, &place.called(node), inputs).await?,
                NodeOp::Choice { arms } => {
                    let holds = |guard: Option<u16>| match guard {
                        None => Some(true),
                        Some(port) => inputs[usize::from(port)].as_ref().ok().map(Outcome::is_true),
                    };
                    match arms.iter().map(|arm| (holds(arm.guard), arm.body)).find(|(holds, _)| *holds != Some(false)) {
                        None => vec![Ok(Outcome::None); node.outputs.len()],
                        Some((Some(_), body)) => self.block(body, place, inputs).await?,
                        // The arm is known only when its guard is computed.
                        Some((None, _)) => unknown(),
                    }
                }
                NodeOp::Task(_) | NodeOp::Fused(_) | NodeOp::Relay => unknown(),
            };
            self.depth -= 1;
            let rest = if node.attempt { Ok(Outcome::None) } else { Err(place.address(&node.path).into()) };
            outputs.resize(node.outputs.len(), rest);
            Ok(outputs)
        })
    }

    async fn each(
        &mut self,
        body: BlockIndex,
        node: &Node,
        place: &InstancePath,
        inputs: &[Expected],
    ) -> Result<Vec<Expected>, Error> {
        let varying: Vec<_> = self.program.blocks[body as usize].inputs.iter().map(|input| input.varying).collect();
        let list =
            varying.iter().zip(inputs).find_map(|(varying, input)| varying.then_some(input.as_ref().ok()?.value()?));
        let n = list.and_then(Payload::list_len);
        let all_known = varying.iter().zip(inputs).all(|(varying, input)| !varying || input.is_ok());
        let each = place.address(&node.path);
        let (Some(n), true) = (n, all_known) else { return Ok(unknown(&each, node.outputs.len())) };
        let mut gathered: Vec<Option<Vec<Option<Payload>>>> = vec![Some(Vec::new()); node.outputs.len()];
        let mut first = 0;
        while first < n as u32 {
            let last = (first + SCAN_ROWS_MAX as u32).min(n as u32);
            let mut lists = Vec::with_capacity(inputs.len());
            for (varying, input) in varying.iter().zip(inputs) {
                lists.push(match input.as_ref().ok().and_then(Outcome::value) {
                    Some(list) if *varying => {
                        Some(self.shared.lists.elements(&self.shared.values, list, first..last).await?)
                    }
                    _ => None,
                });
            }
            for index in first..last {
                let element = |(list, input): (&Option<Vec<Outcome>>, &Expected)| match list {
                    Some(list) => Ok(list[(index - first) as usize].clone()),
                    None => input.clone(),
                };
                let element: Vec<_> = lists.iter().zip(inputs).map(element).collect();
                let given = self.block(body, &place.numbered(u64::from(index)), &element).await?;
                for (list, given) in gathered.iter_mut().zip(given) {
                    match (list.as_mut(), given) {
                        (Some(list), Ok(Outcome::Value(payload))) => list.push(Some(payload)),
                        (Some(list), Ok(Outcome::None)) => list.push(None),
                        _ => *list = None,
                    }
                }
            }
            first = last;
        }
        let whole = |list: Option<Vec<Option<Payload>>>| match list {
            Some(list) => Ok(Outcome::Value(Payload::List(list.into()))),
            None => Err(each.as_str().into()),
        };
        Ok(gathered.into_iter().map(whole).collect())
    }

    async fn repeat(
        &mut self,
        body: BlockIndex,
        carried: &[(u16, u16)],
        node: &Node,
        place: &InstancePath,
        inputs: &[Expected],
    ) -> Result<Vec<Expected>, Error> {
        let condition = node.outputs.len() - usize::from(node.attempt);
        let mut now = inputs.to_vec();
        for iteration in 0.. {
            let given = self.block(body, &place.numbered(iteration), &now).await?;
            match given.get(condition).and_then(|given| given.as_ref().ok()) {
                Some(again) if again.is_true() => {
                    for (from, to) in carried {
                        now[usize::from(*to)] = given[usize::from(*from)].clone();
                    }
                }
                Some(_) => return Ok(given[..condition].to_vec()),
                // Later iterations are known only when this one is computed.
                None => break,
            }
        }
        Ok(unknown(&place.address(&node.path), node.outputs.len()))
    }

    /// Previews a block; returns its outputs.
    async fn block(
        &mut self,
        block: BlockIndex,
        place: &InstancePath,
        inputs: &[Expected],
    ) -> Result<Vec<Expected>, Error> {
        let program = self.program;
        let block = &program.blocks[block as usize];
        let mut given: Vec<Vec<Expected>> = Vec::with_capacity(block.nodes.len());
        for (at, node) in (0..).zip(&block.nodes) {
            let known: Vec<_> = node.inputs.iter().map(|source| self.source(*source, inputs, &given)).collect();
            given.push(self.step(at, node, place, &known).await?);
        }
        Ok(block.outputs.iter().map(|output| self.source(output.from, inputs, &given)).collect())
    }

    fn source(&self, source: Source, inputs: &[Expected], given: &[Vec<Expected>]) -> Expected {
        match source {
            Source::Input(port) => inputs[usize::from(port)].clone(),
            Source::Node(node, port) => given[node as usize][usize::from(port)].clone(),
            Source::Constant(at) => Ok(Outcome::Value(self.program.constants[at as usize].clone())),
            Source::None => Ok(Outcome::None),
        }
    }

    async fn step(
        &mut self,
        at: u32,
        node: &Node,
        place: &InstancePath,
        inputs: &[Expected],
    ) -> Result<Vec<Expected>, Error> {
        if node.op == NodeOp::Relay {
            return Ok(vec![inputs[0].clone(); node.outputs.len()]);
        }
        let address = place.address(&node.path);
        let all: Result<Vec<_>, Arc<str>> =
            inputs.iter().map(|input| Ok(Held { owned: false, outcome: input.clone()? })).collect();
        let (memo, is_damaged) = match &all {
            Ok(inputs) => self.memo(node, &address, inputs).await?,
            Err(_) => (None, false),
        };
        let reason = match (&memo, &all) {
            (Some(_), _) => Reason::Kept,
            (None, _) if is_damaged => Reason::Damaged,
            (None, Ok(_)) => Reason::NoValue,
            (None, Err(source)) => Reason::SourceReruns { address: source.to_string() },
        };
        let fate = if memo.is_some() { Fate::Reused } else { Fate::Run };
        self.lines.push(ExplanationLine { node: at, address, fate, reason, is_open: is_open(node) });
        match memo {
            Some(memo) => Ok(memo.outputs.into_iter().map(Ok).collect()),
            None => self.container(node, place, inputs).await,
        }
    }

    /// The kept outputs of a step, if they are intact; and whether they are kept but damaged.
    async fn memo(&self, node: &Node, address: &str, inputs: &[Held]) -> Result<(Option<Memo>, bool), Error> {
        let key = self.keys.memo(&memo_of(self.program, node, address, inputs));
        let Some(row) = self.shared.row(key).await? else { return Ok((None, false)) };
        let Some(memo) = rows::read::<Memo>(&row) else { return Ok((None, true)) };
        for outcome in &memo.outputs {
            if !is_intact(&self.shared.values, outcome).await? {
                return Ok((None, true));
            }
        }
        Ok((Some(memo), false))
    }
}
