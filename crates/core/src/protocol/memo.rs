//! The memo of a step: one digest of its code, its parameters and the content of its inputs. Equal digests mean equal
//! outputs, so a run that keeps memos can reuse them.
//!
//! Unless a step is pure, its memo includes its address: two charges of the same amount are two charges.

use super::rows::Held;
use crate::{
    digest::Digest,
    model::{
        Effect,
        program::{Node, NodeOp, Program},
    },
};

/// Returns the memo of the node at an address, with these inputs.
pub fn memo_of(program: &Program, node: &Node, address: &str, inputs: &[Held]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("onceflow memo");
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    match &node.op {
        NodeOp::Task(task) => code(program, *task, &mut part),
        NodeOp::Fused(tasks) => tasks.iter().for_each(|fused| {
            code(program, fused.task, &mut part);
            part(format!("{:?}{:?}", fused.inputs, fused.outputs).as_bytes());
        }),
        NodeOp::Relay => part(b"relay"),
        NodeOp::Each { body, .. } => {
            [b"each", &program.blocks[*body as usize].digest.as_bytes()[..]].into_iter().for_each(&mut part);
        }
        NodeOp::Loop { body, carried } => {
            part(b"loop");
            part(program.blocks[*body as usize].digest.as_bytes());
            part(format!("{carried:?}").as_bytes());
        }
        NodeOp::Choice { arms } => arms.iter().for_each(|arm| {
            part(format!("{:?}", arm.guard).as_bytes());
            part(program.blocks[arm.body as usize].digest.as_bytes());
        }),
        NodeOp::Call { body } => {
            [b"call", &program.blocks[*body as usize].digest.as_bytes()[..]].into_iter().for_each(&mut part);
        }
    }
    part(&[u8::from(node.attempt)]);
    if !is_pure(program, node) {
        part(address.as_bytes());
    }
    for input in crate::seams::memo_inputs(inputs) {
        part(input.outcome.digest().as_bytes());
    }
    hasher.finalize().into()
}

fn is_pure(program: &Program, node: &Node) -> bool {
    let is_pure = |task: u32| program.tasks[task as usize].effect == Effect::Pure;
    match &node.op {
        NodeOp::Task(task) => is_pure(*task),
        NodeOp::Fused(tasks) => tasks.iter().all(|fused| is_pure(fused.task)),
        NodeOp::Relay => true,
        NodeOp::Each { .. } | NodeOp::Loop { .. } | NodeOp::Choice { .. } | NodeOp::Call { .. } => false,
    }
}

fn code(program: &Program, task: u32, part: &mut impl FnMut(&[u8])) {
    let task = &program.tasks[task as usize];
    part(task.name.as_bytes());
    part(task.version.as_bytes());
}
