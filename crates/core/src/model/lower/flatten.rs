//! Inlines composites and calls that do not recur into the block around them. Loops, eaches, arms and modules with
//! `attempt` get blocks of their own, and so does every recursive flow, once.

use crate::{
    digest::Digest,
    model::{
        Arm, Block, BlockInput, BlockOutput, Graph, Library, Module, Node, PathSegment, Port, Program, Source,
        TaskSpec,
        check::{
            calls::Calls,
            face::Face,
            links::{Feed, Feeds},
        },
        graph::ModuleKind,
        program::{BlockIndex, NodeIndex, NodeOp, PortIndex, ProgramArm},
    },
    payload::Payload,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Returns the program of all of `main`, with only its requested outputs.
pub(super) fn flatten(library: &Library, main: &str, requested: &BTreeSet<&str>) -> Program {
    let recursive = Calls::of(library, main).recursive();
    let mut flattener = Flattener {
        library,
        recursive,
        program: Program { blocks: vec![], tasks: vec![], constants: vec![] },
        tasks: BTreeMap::new(),
        shared_tasks: BTreeMap::new(),
        outputs: BTreeMap::new(),
        constants: BTreeMap::new(),
        flows: BTreeMap::new(),
        waiting: vec![],
    };
    let graph = &library.flows[main];
    let root = flattener.block(graph, &[], &[]);
    flattener.program.blocks[root as usize].outputs.retain(|output| requested.contains(output.port.name.as_str()));
    while let Some((flow, block)) = flattener.waiting.pop() {
        let graph = &library.flows[flow];
        flattener.program.blocks[block as usize] = flattener.draft(graph, &[], &[]);
    }
    flattener.program
}

/// The sources of the outputs of those modules of a graph that are in the block already.
struct Made {
    /// Per module: where its outputs begin.
    starts: Vec<u32>,
    sources: Vec<Source>,
}

struct Flattener<'a> {
    library: &'a Library,
    recursive: BTreeSet<&'a str>,
    program: Program,
    /// Task indices by name, version and params: many tasks of a flow file have the same version.
    tasks: BTreeMap<(String, String, Vec<u8>), Vec<u32>>,
    /// Task indices by the address of the spec in the library: modules of one task share the spec.
    shared_tasks: BTreeMap<*const TaskSpec, u32>,
    /// The output ports that the nodes of each task share.
    outputs: BTreeMap<u32, Arc<[Port]>>,
    constants: BTreeMap<Digest, Vec<u32>>,
    /// The blocks of recursive flows.
    flows: BTreeMap<&'a str, BlockIndex>,
    /// The recursive flows whose blocks are not filled in yet.
    waiting: Vec<(&'a str, BlockIndex)>,
}

fn placeholder() -> Block {
    Block { inputs: vec![], outputs: vec![], nodes: vec![], digest: crate::Digest::default() }
}

fn below<P: FromIterator<PathSegment>>(path: &[PathSegment], more: impl IntoIterator<Item = PathSegment>) -> P {
    path.iter().cloned().chain(more).collect()
}

fn name(name: &str) -> PathSegment {
    PathSegment::Name(name.into())
}

fn inputs(count: usize) -> Vec<Source> {
    (0..count).map(|at| Source::Input(at as PortIndex)).collect()
}

fn at<T: PartialEq + ?Sized>(ports: &[Port], wanted: &T) -> usize
where
    String: PartialEq<T>,
{
    ports.iter().position(|port| port.name == *wanted).expect("checked: the port is there")
}

impl<'a> Flattener<'a> {
    fn reserve(&mut self) -> BlockIndex {
        self.program.blocks.push(placeholder());
        self.program.blocks.len() as BlockIndex - 1
    }

    /// Adds a block for a graph; inputs named in `varying` differ between instances.
    fn block(&mut self, graph: &'a Graph, path: &[PathSegment], varying: &[&str]) -> BlockIndex {
        let index = self.reserve();
        self.program.blocks[index as usize] = self.draft(graph, path, varying);
        index
    }

    fn draft(&mut self, graph: &'a Graph, path: &[PathSegment], varying: &[&str]) -> Block {
        let mut block = placeholder();
        let input = |port: &Port| BlockInput { port: port.clone(), varying: varying.contains(&port.name.as_str()) };
        block.inputs = graph.inputs.iter().map(input).collect();
        let given = self.graph(&mut block, graph, path, &inputs(graph.inputs.len()));
        let output = |(port, from): (&Port, Source)| BlockOutput { port: port.clone(), from, hidden: false };
        block.outputs = graph.outputs.iter().zip(given).map(output).collect();
        block
    }

    /// Adds the modules of `graph` to `block`, and returns the sources of the graph's outputs.
    fn graph(&mut self, block: &mut Block, graph: &'a Graph, path: &[PathSegment], given: &[Source]) -> Vec<Source> {
        let face = |at: usize| Face::of(self.library, &graph.modules[at]).expect("checked: the flow is there");
        let count = graph.modules.len();
        let faces: Vec<_> = (0..count).map(face).collect();
        let feeds = Feeds::of(graph, &faces);
        // Faces are computed again for each module below: half a million of them would take memory beside the nodes.
        drop(faces);
        let order = feeds.order();
        assert!(order.as_ref().is_none_or(|order| order.len() == count), "checked: nothing goes round");
        let mut made = Made { starts: vec![0; count], sources: Vec::with_capacity(count) };
        for step in 0..count {
            let at = order.as_ref().map_or(step, |order| order[step] as usize);
            let module = &graph.modules[at];
            let face = Face::of(self.library, module).expect("checked: the flow is there");
            let inputs = feeds.to(at).iter().map(|feed| made.source(*feed, given)).collect();
            made.starts[at] = made.sources.len() as u32;
            self.module(block, module, &face, path, inputs, &mut made.sources);
        }
        feeds.to(count).iter().map(|feed| made.source(*feed, given)).collect()
    }

    /// Adds a module to `block`, and the sources of its outputs to `made`.
    fn module(
        &mut self,
        block: &mut Block,
        module: &'a Module,
        face: &Face<'_>,
        path: &[PathSegment],
        sources: Box<[Source]>,
        made: &mut Vec<Source>,
    ) {
        let here: Arc<[PathSegment]> = below(path, [name(&module.name)]);
        let op = match &module.kind {
            ModuleKind::Constant(_, payload) => {
                return made.extend([Source::Constant(self.constant(payload)), Source::None]);
            }
            ModuleKind::Composite(body) if !module.attempt => {
                return made.extend(self.graph(block, body, &here, &sources));
            }
            ModuleKind::Call { flow } if !module.attempt && !self.recursive.contains(flow.as_str()) => {
                return made.extend(self.graph(block, &self.library.flows[flow], &here, &sources));
            }
            ModuleKind::Composite(body) => NodeOp::Call { body: self.block(body, &[], &[]) },
            ModuleKind::Call { flow } => NodeOp::Call { body: self.flow(flow) },
            ModuleKind::Task(spec) => NodeOp::Task(self.shared_task(spec)),
            ModuleKind::Each { body, over, concurrency } => {
                let varying: Vec<_> = over.iter().map(String::as_str).collect();
                let body = self.block(body, &below::<Vec<_>>(&here, [PathSegment::Element]), &varying);
                NodeOp::Each { body, concurrency: *concurrency }
            }
            ModuleKind::Loop { body, carried, condition } => self.repeat(body, carried, condition, &here),
            ModuleKind::Choice { arms } => {
                let own = &face.outputs[..face.outputs.len() - usize::from(module.attempt)];
                let arms = arms.iter().map(|arm| self.arm(arm, face, own, &here));
                NodeOp::Choice { arms: arms.collect() }
            }
        };
        let node = block.nodes.len() as NodeIndex;
        let outputs = match op {
            NodeOp::Task(task) if !module.attempt => {
                self.outputs.entry(task).or_insert_with(|| (*face.outputs).into()).clone()
            }
            _ => (*face.outputs).into(),
        };
        block.nodes.push(Node { path: here, op, inputs: sources, outputs, attempt: module.attempt, gate: None });
        made.extend((0..face.outputs.len()).map(|port| Source::Node(node, port as PortIndex)));
    }

    /// Lowers a loop. The condition becomes the last output of its body.
    fn repeat(
        &mut self,
        body: &'a Graph,
        carried: &[(String, String)],
        condition: &str,
        here: &[PathSegment],
    ) -> NodeOp {
        let varying: Vec<_> = carried.iter().map(|(_, input)| input.as_str()).collect();
        let index = self.block(body, &below::<Vec<_>>(here, [PathSegment::Iteration]), &varying);
        let block = &mut self.program.blocks[index as usize];
        let last = block.outputs.iter().position(|output| output.port.name == *condition);
        let last = block.outputs.remove(last.expect("checked: the condition is an output"));
        block.outputs.push(last);
        let outputs: Vec<_> = block.outputs.iter().map(|output| output.port.clone()).collect();
        let pair = |(output, input): &(String, String)| {
            (at(&outputs, output.as_str()) as PortIndex, at(&body.inputs, input.as_str()) as PortIndex)
        };
        NodeOp::Loop { body: index, carried: carried.iter().map(pair).collect() }
    }

    /// Lowers an arm. Its block has the inputs and outputs of the whole choice.
    fn arm(&mut self, arm: &'a Arm, face: &Face<'_>, outputs: &[Port], here: &[PathSegment]) -> ProgramArm {
        let index = self.reserve();
        let mut block = placeholder();
        block.inputs = face.inputs.iter().map(|port| BlockInput { port: port.clone(), varying: false }).collect();
        let given = arm.body.inputs.iter().map(|port| Source::Input(at(&face.inputs, port.name.as_str()) as PortIndex));
        let given: Vec<_> = given.collect();
        let made = self.graph(&mut block, &arm.body, &below::<Vec<_>>(here, [name(&arm.name)]), &given);
        for port in outputs {
            let own = arm.body.outputs.iter().position(|output| output.name == port.name);
            let from = own.map_or(Source::None, |at| made[at]);
            block.outputs.push(BlockOutput { port: port.clone(), from, hidden: false });
        }
        self.program.blocks[index as usize] = block;
        let guard = arm.guard.as_ref().map(|guard| at(&face.inputs, guard.as_str()) as PortIndex);
        ProgramArm { guard, body: index }
    }

    /// Returns the block of a flow that is called as a block of its own: shared by all calls if the flow recurs.
    fn flow(&mut self, flow: &'a str) -> BlockIndex {
        if !self.recursive.contains(flow) {
            return self.block(&self.library.flows[flow], &[], &[]);
        }
        if let Some(block) = self.flows.get(flow) {
            return *block;
        }
        let block = self.reserve();
        self.flows.insert(flow, block);
        self.waiting.push((flow, block));
        block
    }

    fn shared_task(&mut self, spec: &Arc<TaskSpec>) -> u32 {
        if let Some(at) = self.shared_tasks.get(&Arc::as_ptr(spec)) {
            return *at;
        }
        let at = self.task(spec);
        self.shared_tasks.insert(Arc::as_ptr(spec), at);
        at
    }

    fn task(&mut self, spec: &TaskSpec) -> u32 {
        let tasks = &mut self.program.tasks;
        let known = self.tasks.entry((spec.name.clone(), spec.version.clone(), spec.params.clone())).or_default();
        if let Some(at) = known.iter().find(|at| tasks[**at as usize] == *spec) {
            return *at;
        }
        tasks.push(spec.clone());
        let index = tasks.len() as u32 - 1;
        known.push(index);
        if let Some(undo) = &spec.compensation {
            self.task(&undo_of(spec, undo));
        }
        index
    }

    fn constant(&mut self, payload: &Payload) -> u32 {
        let constants = &mut self.program.constants;
        let known = self.constants.entry(payload.digest()).or_default();
        if let Some(at) = known.iter().find(|at| constants[**at as usize] == *payload) {
            return *at;
        }
        constants.push(payload.clone());
        known.push(constants.len() as u32 - 1);
        constants.len() as u32 - 1
    }
}

/// Returns the compensation of `spec` as the program lists it: with the inputs and the class of the task it undoes.
fn undo_of(spec: &TaskSpec, undo: &TaskSpec) -> TaskSpec {
    TaskSpec {
        class: spec.class.clone(),
        inputs: spec.inputs.clone(),
        outputs: vec![],
        depends: None,
        compensation: None,
        ..undo.clone()
    }
}

impl Made {
    /// Returns the source that feeds a port, [`Source::None`] if nothing does; `given` has the sources of the graph's
    /// inputs.
    fn source(&self, feed: Feed, given: &[Source]) -> Source {
        match feed {
            Feed::Nothing => Source::None,
            Feed::Nowhere => unreachable!("checked: every connection comes from a module that is there"),
            Feed::Graph(input) => given[input as usize],
            Feed::Module(module, port) => self.sources[self.starts[module as usize] as usize + usize::from(port)],
        }
    }
}
