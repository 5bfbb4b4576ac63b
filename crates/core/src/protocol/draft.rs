//! A commit under construction: one batch, and its changes to values.
//!
//! Relies on the batch requiring the step's claim: only the worker that holds it delivers, so every row and edge set
//! here is set for the first time, and every one cleared exists.

use super::{
    ids::{END, FrameId, LANE, SETTLE, StepId},
    keys::{self, Keys},
    rows::{self, Elements, Frame, Held, ReadyStep, Received, RunState, Shape, Why},
    settings::Settings,
    timer::Timer,
};
use crate::{
    batch::{Batch, Op},
    key::{Group, Key, Name, Shard},
    model::{
        TaskSpec,
        program::{self, BlockIndex, NodeIndex, PortIndex, Program},
        wiring::{Consumer, Delivery, Wiring},
    },
    payload::Outcome,
    queue::Inbox,
    row::Row,
    seams,
    value::{Element, ValueChange, ValueId},
};
use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

/// The program of one generation of a run, with the keys of its rows. Does not change while the generation lasts; the
/// settings over it may.
#[derive(Clone, Debug)]
pub struct InstalledProgram {
    /// The shard of the run's rows.
    pub shard: Shard,
    /// The keys of the generation's rows.
    pub keys: Keys,
    /// The program.
    pub program: Arc<Program>,
    /// The consumers of every node's outputs.
    pub wiring: Arc<Wiring>,
    /// The queue of every task, by its own class.
    queues: Arc<[Group]>,
    internal: Group,
    /// The ready row of the settling step, which nearly every commit may trigger.
    settle: (Name, Row),
    /// The settings that changed since the program was installed, as last read.
    settings: Arc<RwLock<Arc<Settings>>>,
}

impl InstalledProgram {
    /// Installs a program under these keys.
    pub fn new(shard: Shard, keys: Keys, program: Arc<Program>, wiring: Arc<Wiring>) -> Self {
        assert_eq!(wiring.blocks.len(), program.blocks.len(), "a program is installed with the wiring of another");
        let queues = program.tasks.iter().map(|task| keys::class_queue(&task.class)).collect();
        let settle = StepId::of_run(SETTLE);
        let ready_step = ReadyStep::begins(keys.generation, program::ROOT, vec![]);
        let settle = (settle.queue_name(keys.run, keys.generation), ready_row(&keys, settle, &ready_step));
        InstalledProgram {
            shard,
            keys,
            program,
            wiring,
            queues,
            internal: keys::internal_queue(),
            settle,
            settings: Arc::default(),
        }
    }

    /// Returns the settings over the program.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings over the program, unless they are later ones already.
    pub fn set_settings(&self, settings: Settings) {
        let mut now = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        if now.revision < settings.revision {
            *now = Arc::new(settings);
        }
    }

    /// Returns the queue of a node's ready rows.
    pub fn queue(&self, block: BlockIndex, node: NodeIndex) -> Group {
        match self.settings().steps.get(&(block, node)) {
            Some(settings) => keys::class_queue(&settings.class),
            None => self.task(block, node).map_or(&self.internal, |task| &self.queues[task as usize]).clone(),
        }
    }

    /// Returns the class of a node's steps; `None` if they are internal.
    pub fn class(&self, block: BlockIndex, node: NodeIndex) -> Option<String> {
        Some(self.spec(block, node)?.class.clone())
    }

    /// Returns the class that a node's steps had when the program was installed; `None` if they are internal.
    pub fn own_class(&self, block: BlockIndex, node: NodeIndex) -> Option<&String> {
        Some(&self.program.tasks[self.task(block, node)? as usize].class)
    }

    /// Returns the task of a node with its present settings; of a fused one, the first: fused tasks agree in effect,
    /// class and limits. `None` if its steps are internal.
    pub fn spec(&self, block: BlockIndex, node: NodeIndex) -> Option<Cow<'_, TaskSpec>> {
        let spec = &self.program.tasks[self.task(block, node)? as usize];
        Some(match self.settings().steps.get(&(block, node)) {
            Some(settings) => Cow::Owned(settings.applied_to(spec.clone())),
            None => Cow::Borrowed(spec),
        })
    }

    fn task(&self, block: BlockIndex, node: NodeIndex) -> Option<u32> {
        let block = &self.program.blocks[block as usize];
        match &block.nodes.get(node as usize)?.op {
            program::NodeOp::Task(task) => Some(*task),
            program::NodeOp::Fused(tasks) => Some(tasks[0].task),
            _ => None,
        }
    }

    /// Returns the classes whose queues may have steps of this generation.
    pub fn classes(&self) -> BTreeSet<String> {
        let settings = self.settings();
        let of_tasks = self.program.tasks.iter().map(|task| &task.class);
        let of_steps = settings.steps.values().map(|step| &step.class);
        of_tasks.chain(of_steps).chain(&settings.former_classes).cloned().collect()
    }
}

/// An instance of a block: the target of deliveries.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its frame.
    pub id: FrameId,
    /// The content of the frame's row.
    pub frame: &'a Frame,
    /// The index of the instance.
    pub index: u32,
    /// The block.
    pub block: BlockIndex,
}

/// A commit under construction.
#[derive(Debug)]
pub struct Draft<'a> {
    plan: &'a InstalledProgram,
    /// The requires and operations so far.
    pub batch: Batch,
    /// Its changes to values.
    pub changes: Vec<ValueChange>,
    live: i64,
    /// Deliveries are held by a frame that outlives their consumer, so they need no edge of their own.
    borrowing: bool,
}

impl<'a> Draft<'a> {
    /// Creates an empty draft that requires this state of the run.
    pub fn new(plan: &'a InstalledProgram, state: RunState) -> Self {
        // Settings are replaced before the state that names them; so a draft never rests on a state that it knows the
        // settings of no better than before.
        let is_read = plan.settings().revision >= state.settings || state.generation != plan.keys.generation;
        assert!(is_read, "a commit rests on settings {} of its run, which were not read", state.settings);
        let mut batch = Batch::new(plan.shard);
        seams::require_state(&mut batch, plan.keys.state(), state.to_row());
        Draft { plan, batch, changes: Vec::new(), live: 0, borrowing: false }
    }

    /// Creates an empty draft for a run whose rows do not exist yet.
    pub fn of_new_run(plan: &'a InstalledProgram) -> Self {
        Draft { plan, batch: Batch::new(plan.shard), changes: Vec::new(), live: 0, borrowing: false }
    }

    /// Returns the program that the draft is for.
    pub fn plan(&self) -> &'a InstalledProgram {
        self.plan
    }

    /// Returns the batch, and the changes to values that belong to it.
    pub fn finish(mut self) -> (Batch, Vec<ValueChange>) {
        if self.live != 0 {
            let op = self.count_live(self.live);
            self.batch.ops.push(op);
        }
        (self.batch, self.changes)
    }

    /// Returns an estimate of the operations that the batch will have.
    pub fn ops(&self) -> usize {
        self.batch.ops.len() + self.changes.iter().map(ValueChange::ops).sum::<usize>()
    }

    /// Changes the count of steps in flight: those that are ready or claimed.
    pub fn live(&mut self, delta: i64) {
        self.live += delta;
    }

    fn count_live(&self, delta: i64) -> Op {
        Op::Add { key: self.plan.keys.live(), delta, at_zero: vec![self.settle()] }
    }

    /// Returns the operation that makes the settling step ready, which decides how the run continues.
    pub fn settle(&self) -> Op {
        let (name, row) = self.plan.settle.clone();
        Op::Put(Key { group: self.plan.internal.clone(), name }, row)
    }

    /// Returns the content of the ready row of a step of this generation.
    pub fn ready_step(&self, block: BlockIndex, inputs: Vec<Received>) -> ReadyStep {
        ReadyStep::begins(self.plan.keys.generation, block, inputs)
    }

    /// Returns the operation that makes a step ready.
    pub fn ready(&self, step: StepId, queue: &Group, ready_step: &ReadyStep) -> Op {
        let name = step.queue_name(self.plan.keys.run, self.plan.keys.generation);
        Op::Put(Key { group: queue.clone(), name }, ready_row(&self.plan.keys, step, ready_step))
    }

    /// Returns the key of the timer of a suspended step, if it has a deadline.
    pub fn timer(&self, step: StepId, why: &Why) -> Option<(Key, Timer)> {
        let Why::Suspended { wakes: Some(deadline), .. } = why else { return None };
        let timer = Timer::Step { run: self.plan.keys.run, generation: self.plan.keys.generation, step };
        Some((timer.key(*deadline), timer))
    }

    /// Makes a step ready, and counts it.
    pub fn enable(&mut self, step: StepId, queue: &Group, ready_step: &ReadyStep) {
        let op = self.ready(step, queue, ready_step);
        self.batch.ops.push(op);
        self.live += 1;
    }

    fn enable_when_full(&self, step: StepId, queue: &Group, ready_step: &ReadyStep) -> Vec<Op> {
        seams::enabled_by_join(self.ready(step, queue, ready_step), self.count_live(1))
    }

    /// Delivers the outputs of a node, an opening or a frame to all their consumers. `given` returns the outcome of
    /// each output port.
    pub fn deliver(&mut self, site: Site<'_>, targets: &[Delivery], given: &dyn Fn(PortIndex) -> Outcome) {
        for target in targets {
            let received = target.ports.iter().map(|(from, to)| self.received(*to, given(*from))).collect();
            match target.to {
                Consumer::Node(node) => {
                    let step = StepId { frame: site.id, index: site.index, node };
                    let joins = self.plan.wiring.blocks[site.block as usize].joins(node);
                    let of = joins.expect("a delivery leads to a node of its block").of;
                    let queue = self.plan.queue(site.block, node);
                    self.arrive(step, &queue, site.block, (target.bit, of), received);
                }
                Consumer::End => self.arrive_at_end(site, target.bit, received),
            }
        }
    }

    /// Delivers to a step; the last of its deliveries makes it ready.
    fn arrive(
        &mut self,
        step: StepId,
        queue: &Group,
        block: BlockIndex,
        (bit, of): (u32, u32),
        received: Vec<Received>,
    ) {
        assert!(bit < of, "delivery {bit} to step {step:?}, which waits for {of}: it would never be ready");
        for received in received.iter().filter(|received| seams::holds_delivery(received)) {
            self.hold(&self.plan.keys.arrival(step, received.port), received.port, &received.outcome);
        }
        if of == 1 {
            let ready_step = self.ready_step(block, received);
            self.enable(step, queue, &ready_step);
            return;
        }
        for received in received {
            self.batch.put(self.plan.keys.arrival(step, received.port), rows::write(&received));
        }
        let when_full = self.enable_when_full(step, queue, &self.ready_step(block, vec![]));
        self.batch.set_bit(self.plan.keys.join(step), bit, of, when_full);
    }

    /// Delivers to the end of an instance.
    fn arrive_at_end(&mut self, site: Site<'_>, bit: u32, received: Vec<Received>) {
        let end = StepId { frame: site.id, index: site.index, node: END };
        let of = self.plan.wiring.blocks[site.block as usize].end.of;
        match site.frame.shape {
            Shape::Single => {
                let queue = self.plan.internal.clone();
                self.arrive(end, &queue, site.block, (bit, of), received);
            }
            Shape::Run => {
                for received in received {
                    let key = self.plan.keys.arrival(end, received.port);
                    self.hold(&key, received.port, &received.outcome);
                    // A caller may wait for this output.
                    self.batch.put(key, rows::write(&received)).ring();
                }
            }
            Shape::Each(elements) => {
                for received in received {
                    self.element(site, received.port, received.outcome);
                }
                let ended = self.element_ended(site, elements);
                match of {
                    1 => self.batch.ops.push(ended),
                    _ => drop(self.batch.set_bit(self.plan.keys.join(end), bit, of, vec![ended])),
                }
            }
        }
    }

    /// Adds one output of an element. Of an output that no consumer reads, only a failure is kept.
    pub(super) fn element(&mut self, site: Site<'_>, port: PortIndex, outcome: Outcome) {
        let hidden = self.plan.program.blocks[site.block as usize].outputs[usize::from(port)].hidden;
        if hidden && !matches!(outcome, Outcome::Failed(_)) {
            return;
        }
        let prefix = self.plan.keys.elements(site.id, port);
        self.changes.push(ValueChange::Element { prefix, index: site.index.into(), element: element_of(&outcome) });
    }

    /// Returns the operation that marks an element as ended. The last element of a chunk makes its lane open the next
    /// chunk; the last lane makes the each close.
    pub(super) fn element_ended(&self, site: Site<'_>, elements: Elements) -> Op {
        let chunk = elements.chunk_of(site.index);
        let range = elements.of_chunk(chunk);
        assert!(range.contains(&site.index), "element {} has ended, of {elements:?}", site.index);
        let (lane, next) = (chunk % elements.lanes, chunk + elements.lanes);
        let when_full = if next < elements.chunks() {
            let mut ready_step = self.ready_step(site.block, vec![]);
            ready_step.cursor = next;
            self.enable_when_full(lane_step(site.id, lane), &self.plan.internal, &ready_step)
        } else {
            let close = close_step(site.id);
            let enable = self.enable_when_full(close, &self.plan.internal, &self.ready_step(site.block, vec![]));
            let key = self.plan.keys.join(close);
            vec![Op::SetBit { key, bit: lane, of: elements.lanes, when_full: enable }]
        };
        let key = self.plan.keys.join(StepId { frame: site.id, index: chunk, node: LANE });
        Op::SetBit { key, bit: site.index - range.start, of: range.end - range.start, when_full }
    }

    /// Opens an instance: delivers its varying inputs to their consumers, and makes every node ready that waits for
    /// nothing.
    pub fn open(&mut self, site: Site<'_>, varying: &dyn Fn(PortIndex) -> Outcome) {
        let plan = self.plan;
        let wiring = &plan.wiring.blocks[site.block as usize];
        self.deliver(site, &wiring.opening.targets, varying);
        for node in &wiring.opening.enabled {
            let step = StepId { frame: site.id, index: site.index, node: *node };
            let ready_step = self.ready_step(site.block, vec![]);
            self.enable(step, &plan.queue(site.block, *node), &ready_step);
        }
        match site.frame.shape {
            Shape::Run => {}
            Shape::Single if wiring.opening.end_enabled => {
                let end = StepId { frame: site.id, index: site.index, node: END };
                let ready_step = self.ready_step(site.block, vec![]);
                self.enable(end, &plan.internal, &ready_step);
            }
            Shape::Single => {}
            Shape::Each(elements) => self.open_element(site, elements, wiring.opening.end_enabled),
        }
    }

    /// As [`Draft::open`], for inputs that the frame itself holds: elements of its lists.
    pub fn open_borrowing(&mut self, site: Site<'_>, varying: &dyn Fn(PortIndex) -> Outcome) {
        assert!(!self.borrowing, "an opening inside an opening would hold its inputs no longer");
        self.borrowing = true;
        self.open(site, varying);
        self.borrowing = false;
    }

    fn received(&self, port: u16, outcome: Outcome) -> Received {
        Received { port, owned: !self.borrowing && stored(&outcome).is_some(), outcome }
    }

    /// Adds the outputs of an element that no step computes: shared inputs and constants.
    fn open_element(&mut self, site: Site<'_>, elements: Elements, end_enabled: bool) {
        let plan = self.plan;
        let block = &plan.program.blocks[site.block as usize];
        for (port, output) in block.outputs.iter().enumerate() {
            if let Some(outcome) = standing(plan, site, output.from) {
                self.element(site, port as PortIndex, outcome);
            }
        }
        if end_enabled {
            let ended = self.element_ended(site, elements);
            self.batch.ops.push(ended);
        }
    }

    /// Sets an edge from a row to a value, if the value is stored.
    pub fn hold(&mut self, row: &Key, port: u16, outcome: &Outcome) {
        if let Some(stored) = stored(outcome) {
            self.changes.push(ValueChange::set(self.plan.keys.edge(row, port), stored.clone()));
        }
    }

    /// Clears the edge from a row to a value.
    pub fn release(&mut self, row: &Key, port: u16, outcome: &Outcome) {
        if let Some(stored) = stored(outcome) {
            self.changes.push(ValueChange::clear(self.plan.keys.edge(row, port), stored.clone()));
        }
    }

    /// Puts a frame's row, with edges to the inputs it owns.
    pub fn put_frame(&mut self, id: FrameId, frame: &Frame) {
        let key = self.plan.keys.frame(id);
        for (port, held) in frame_holds(frame) {
            self.hold(&key, port, &held.outcome);
        }
        self.batch.put(key, rows::write(frame));
    }

    /// Deletes a frame's row, and clears the edges to the inputs it owns.
    pub fn drop_frame(&mut self, id: FrameId, frame: &Frame) {
        let key = self.plan.keys.frame(id);
        for (port, held) in frame_holds(frame) {
            self.release(&key, port, &held.outcome);
        }
        self.batch.delete(key);
    }
}

/// Returns the step that opens elements on a lane.
pub fn lane_step(frame: FrameId, lane: u32) -> StepId {
    StepId { frame, index: lane, node: LANE }
}

/// Returns the step that closes an each.
pub fn close_step(frame: FrameId) -> StepId {
    StepId { frame, index: u32::MAX, node: END }
}

/// Returns the outcome of a source that exists from the beginning of an instance: a shared input or a constant.
pub fn standing(plan: &InstalledProgram, site: Site<'_>, source: program::Source) -> Option<Outcome> {
    let block = &plan.program.blocks[site.block as usize];
    match source {
        program::Source::Input(port) if !block.inputs[port as usize].varying => {
            let held = site.frame.inputs.get(port as usize).and_then(Option::as_ref);
            Some(held.expect("a frame holds every input that does not vary").outcome.clone())
        }
        program::Source::Constant(at) => Some(Outcome::Value(plan.program.constants[at as usize].clone())),
        program::Source::None => Some(Outcome::None),
        program::Source::Input(_) | program::Source::Node(..) => None,
    }
}

fn frame_holds(frame: &Frame) -> impl Iterator<Item = (u16, &Held)> {
    let held = frame.inputs.iter().enumerate().filter_map(|(port, held)| Some((port as u16, held.as_ref()?)));
    held.filter(|(_, held)| held.owned)
}

/// Returns the stored value that the holder of this outcome must hold an edge to.
pub fn stored(outcome: &Outcome) -> Option<&ValueId> {
    match outcome {
        Outcome::Value(payload) => payload.stored().map(|stored| &stored.id),
        Outcome::None | Outcome::Failed(_) => None,
    }
}

/// Returns the element of a list that holds an outcome.
fn element_of(outcome: &Outcome) -> Element {
    let bytes = rows::write(outcome);
    match stored(outcome) {
        None => Element::Inline(bytes),
        Some(to) => Element::Described { bytes, to: to.clone() },
    }
}

/// Returns a step's row in a queue. Deliveries that come with the ready row need no inbox.
pub fn ready_row(keys: &Keys, step: StepId, ready_step: &ReadyStep) -> Row {
    let write = |head: &[&[u8]]| rows::write_after(head, ready_step);
    match ready_step.inputs.is_empty() {
        true => Inbox::with_head(&keys.rows, keys.inbox(step).as_bytes(), write),
        false => Inbox::with_head(&Group::rows(""), b"", write),
    }
}
