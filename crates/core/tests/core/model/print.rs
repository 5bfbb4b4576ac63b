//! Prints programs as short text, for snapshots.

use onceflow_core::model::{
    BlockOutput, InstancePath, Node, Program, Source,
    program::{NodeOp, PortIndex},
};
use std::fmt::Write;

/// Returns a text with one line for every block, node and output.
pub(crate) fn print(program: &Program) -> String {
    let mut text = String::new();
    for (at, block) in program.blocks.iter().enumerate() {
        let input = |input: &onceflow_core::model::BlockInput| {
            format!("{}{}: {}", if input.varying { "~" } else { "" }, input.port.name, input.port.ty)
        };
        let inputs: Vec<_> = block.inputs.iter().map(input).collect();
        writeln!(text, "block {at}({})", inputs.join(", ")).expect("a string");
        for (at, node) in block.nodes.iter().enumerate() {
            writeln!(text, "  {at} {}", print_node(program, node)).expect("a string");
        }
        for BlockOutput { port, from, hidden } in &block.outputs {
            let hidden = if *hidden { "hidden " } else { "" };
            writeln!(text, "  {hidden}{}: {} = {}", port.name, port.ty, print_source(*from)).expect("a string");
        }
    }
    text
}

fn print_node(program: &Program, node: &Node) -> String {
    let op = match &node.op {
        NodeOp::Task(task) => program.tasks[*task as usize].name.clone(),
        NodeOp::Relay => "relay".into(),
        NodeOp::Each { body, concurrency } => {
            format!("each {body}{}", concurrency.map_or_else(String::new, |max| format!(" max {max}")))
        }
        NodeOp::Loop { body, carried } => {
            let pair = |(output, input): &(PortIndex, PortIndex)| format!("{output}>{input}");
            format!("loop {body} [{}]", carried.iter().map(pair).collect::<Vec<_>>().join(" "))
        }
        NodeOp::Choice { arms } => {
            let arm = |arm: &onceflow_core::model::program::ProgramArm| match arm.guard {
                Some(guard) => format!("{guard}?{}", arm.body),
                None => format!("{}", arm.body),
            };
            format!("choice [{}]", arms.iter().map(arm).collect::<Vec<_>>().join(" "))
        }
        NodeOp::Call { body } => format!("call {body}"),
        NodeOp::Fused(_) => "fused".into(),
    };
    let inputs: Vec<_> = node.inputs.iter().map(|source| print_source(*source)).collect();
    let outputs: Vec<_> = node.outputs.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect();
    let gate = node.gate.map_or_else(String::new, |gate| format!(" after {}", print_source(gate)));
    let attempt = if node.attempt { "attempt " } else { "" };
    let path = InstancePath::root().address(&node.path);
    format!("{path} = {attempt}{op}({}){gate} -> ({})", inputs.join(", "), outputs.join(", "))
}

fn print_source(source: Source) -> String {
    match source {
        Source::Input(input) => format!("in{input}"),
        Source::Node(node, port) => format!("{node}.{port}"),
        Source::Constant(constant) => format!("#{constant}"),
        Source::None => "none".into(),
    }
}
