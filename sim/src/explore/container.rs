//! The steps of the model's worker: tasks, and the frames of eaches and loops. Elements are rows beside those of the
//! run here, put and deleted by the same batches that would change values.

use super::flow;
use onceflow_core::{
    Batch, Group, Key, Name, Row, Shard,
    model::program::{NodeOp, PortIndex},
    payload::{Outcome, Payload},
    protocol::{
        draft::{Draft, InstalledProgram},
        ids::{END, LANE},
        rows::{self, Failed, Frame, Held, Phase, RunState, Shape, Why},
        step::{self, Taken},
        turn,
    },
};
use onceflow_store::{
    records::Scan,
    state::StoreState,
    values::{Element, ValueChange},
};

/// Performs a step of a block. `None`: another worker has it, and has deleted what it needs.
pub(super) fn perform<'a>(
    plan: &'a InstalledProgram,
    all: &StoreState,
    taken: &Taken,
    state: RunState,
    retried: bool,
) -> Result<Option<Draft<'a>>, String> {
    match taken.step.node {
        LANE => open_chunk(plan, taken, state).map(Some),
        END if step::is_close_of_each(taken) => close_each(plan, all, taken, state),
        END => end(plan, all, taken, state),
        _ => node(plan, taken, state, retried).map(Some),
    }
}

fn node<'a>(plan: &'a InstalledProgram, taken: &Taken, state: RunState, retried: bool) -> Result<Draft<'a>, String> {
    let node = taken.node(plan);
    let inputs = taken.inputs(plan, &node.inputs).ok_or("an input is missing")?;
    match &node.op {
        NodeOp::Task(task) => Ok(match &*plan.program.tasks[*task as usize].name {
            "f" if !retried => {
                let failed = Failed { address: "/f".into(), attempt: 1, causes: vec![], started: false };
                step::park(plan, state, taken, Why::Failed(failed), Phase::Failing)
            }
            name => {
                let outputs = [flow::given(name, &inputs)];
                match turn::following(plan, taken, &outputs) {
                    Some(turn) => turn::commit(plan, state, taken, &outputs, &turn),
                    None => step::commit(plan, state, taken, &outputs),
                }
            }
        }),
        NodeOp::Each { body, concurrency } => {
            let n = inputs[0].outcome.value().and_then(Payload::list_len).ok_or("no list")?;
            let elements = step::elements(n as u32, 1, *concurrency);
            Ok(step::open_each(plan, state, taken, *body, elements, &inputs, None))
        }
        NodeOp::Loop { body, .. } => Ok(step::open(plan, state, taken, *body, 0, &inputs, None)),
        other => Err(format!("{other:?} is not explored")),
    }
}

fn open_chunk<'a>(plan: &'a InstalledProgram, taken: &Taken, state: RunState) -> Result<Draft<'a>, String> {
    let element = |port: PortIndex, index: u32| match taken.frame.inputs[usize::from(port)].as_ref() {
        Some(Held { outcome: Outcome::Value(Payload::List(list)), .. }) => {
            list[index as usize].clone().map_or(Outcome::None, Outcome::Value)
        }
        other => panic!("{other:?} is gone over"),
    };
    match taken.frame.shape {
        Shape::Each(_) => Ok(step::open_chunk(plan, state, taken, &element)),
        _ => Err(String::from("a lane outside an each")),
    }
}

/// Ends an iteration of a loop: opens the next, or closes the loop.
fn end<'a>(
    plan: &'a InstalledProgram,
    all: &StoreState,
    taken: &Taken,
    state: RunState,
) -> Result<Option<Draft<'a>>, String> {
    let block = &plan.program.blocks[taken.ready_step.block as usize];
    let sources: Vec<_> = block.outputs.iter().map(|output| output.from).collect();
    let mut given = taken.inputs(plan, &sources).ok_or("an output of an iteration is missing")?;
    let goes_on = given.pop().ok_or("a loop has a condition")?.outcome.is_true();
    if goes_on {
        let next = |port: PortIndex| given[usize::from(port)].outcome.clone();
        return Ok(Some(step::next_iteration(plan, state, taken, &next)));
    }
    let outputs: Vec<_> = given.into_iter().map(|held| held.outcome).collect();
    close(plan, all, taken, state, &outputs)
}

fn close_each<'a>(
    plan: &'a InstalledProgram,
    all: &StoreState,
    taken: &Taken,
    state: RunState,
) -> Result<Option<Draft<'a>>, String> {
    let Shape::Each(elements) = taken.frame.shape else { return Err(String::from("the frame of an each")) };
    let prefix = plan.keys.elements(taken.step.frame, 0);
    let rows = under(all, &prefix);
    let values: Option<Vec<_>> =
        rows.iter().map(|(_, row)| Some(rows::read::<Outcome>(row)?.value().cloned())).collect();
    let values = values.ok_or("an element")?;
    if values.len() != elements.n as usize {
        return match all.get(Shard(0), &taken.claim.claim_key()) {
            Some(fence) if fence[..] == taken.claim.fence.to_bytes() => {
                Err(format!("an each of {} closes with {} elements", elements.n, values.len()))
            }
            _ => Ok(None),
        };
    }
    let list = Outcome::Value(Payload::List(values.into()));
    let mut draft = close(plan, all, taken, state, &[list])?;
    if let Some(draft) = &mut draft {
        for (key, _) in rows {
            draft.batch.delete(key);
        }
    }
    Ok(draft)
}

fn close<'a>(
    plan: &'a InstalledProgram,
    all: &StoreState,
    taken: &Taken,
    state: RunState,
    outputs: &[Outcome],
) -> Result<Option<Draft<'a>>, String> {
    let (opener, _) = taken.frame.opened_by.ok_or("the frame of a run was closed by a step")?;
    let Some(outer) = all.get(Shard(0), &plan.keys.frame(opener.frame)) else { return Ok(None) };
    let outer: Frame = rows::read(outer).ok_or("a frame")?;
    Ok(Some(step::close(plan, state, taken, &outer, outputs)))
}

/// The batch of a draft, with its elements as rows.
pub(super) fn with_elements(draft: Draft<'_>, all: &StoreState) -> Batch {
    let (mut batch, changes) = draft.finish();
    for change in changes {
        match change {
            ValueChange::Element { prefix, index, element: Element::Inline(bytes) } => {
                batch.put(element_key(&prefix, index), bytes);
            }
            ValueChange::Release { prefix } => {
                for (key, _) in under(all, &prefix) {
                    batch.delete(key);
                }
            }
            // Everything else is about stored values, of which there are none here but the program.
            _ => {}
        }
    }
    batch
}

fn elements() -> Group {
    Group::rows("elements")
}

fn element_key(prefix: &Name, index: u64) -> Key {
    elements().key(Name::join(&[prefix.as_bytes(), &index.to_be_bytes()]).as_bytes())
}

fn under(all: &StoreState, prefix: &Name) -> Vec<(Key, Row)> {
    let scan = Scan::of(elements(), 1000).prefix(prefix.as_bytes());
    let key = |(name, row): (Name, Row)| (Key { group: elements(), name }, row);
    all.scan(Shard(0), &scan).rows.into_iter().map(key).collect()
}
