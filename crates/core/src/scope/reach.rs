//! Decides which operations of a session can still get a message: the least fixpoint over an AND/OR graph (a join needs
//! all of its buffers, one of which can still change; everything else needs any of its sources).
//!
//! Within a session an operation that is dead stays dead, because messages come from operations only. So the fixpoint
//! is kept up to date by following deaths: an operation dies when it is idle and the last one that supports it has
//! died. Only a strongly connected component whose support from outside, or whose last activity, was lost is looked at
//! as a whole. All deaths of a session together cost as much as the scope has connections.

pub(crate) mod graph;

use super::{
    definition::{GateAction, OpId, OpKind},
    effect::Contents,
    operation::collect,
    session::{Machine, machine::op_ids},
};
use graph::{Shape, is_goal};

/// The reachability of one session, made when it is first idle.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// Per operation: the edges from other components whose source is not dead.
    outside: Vec<u32>,
    /// Per component: the sum of those.
    outside_sum: Vec<u32>,
    /// Per operation.
    marks: Vec<Marks>,
    /// Per buffer: the gates that may open it and are not dead.
    openers: Vec<u32>,
    goals: u32,
    /// Operations to be looked at.
    candidates: Vec<OpId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    is_dead: bool,
    /// A join that lacks a buffer for ever.
    is_doomed: bool,
    /// A buffer that is closed for ever.
    is_sealed: bool,
    /// It lives by its own activity: when that ends, it is looked at.
    lives_by_itself: bool,
}

impl Reach {
    /// An operation that was active is idle now.
    pub(crate) fn became_idle(&mut self, op: OpId, is_mixed: bool) {
        if self.marks[op.at()].lives_by_itself || is_mixed {
            self.candidates.push(op);
        }
    }

    /// Something about a buffer changed that its readers may not survive: it was closed, or emptied after it died.
    pub(crate) fn recheck(&mut self, buffer: OpId) {
        self.candidates.push(buffer);
    }

    pub(crate) fn is_dead(&self, op: OpId) -> bool {
        self.marks[op.at()].is_dead
    }
}

impl<M, C: Contents<M>> Machine<'_, M, C> {
    /// Follows the deaths that are due. Returns whether the session can still end as its author meant, unless a
    /// collection was given on meanwhile: then there is more to do first.
    pub(crate) fn follow_deaths(&mut self) -> bool {
        if self.session.reach.is_none() {
            self.session.reach = Some(Box::new(self.fresh_reach()));
        }
        while let Some(op) = self.reach().candidates.pop() {
            if let OpKind::Buffer { .. } = self.scope.op(op).kind {
                self.check_buffer(op);
            }
            if self.examine(op) {
                // The collection is under way, and its order's end makes the collect a candidate again.
                return true;
            }
        }
        self.reach().goals > 0
    }

    fn fresh_reach(&self) -> Reach {
        let graph = &self.scope.wiring.graph;
        let mut reach = Reach {
            outside: graph.outside.clone(),
            outside_sum: graph.outside_sum.clone(),
            marks: vec![Marks::default(); self.scope.ops.len()],
            openers: graph.openers.clone(),
            goals: graph.goals,
            candidates: Vec::new(),
        };
        // Operations that nothing leads to have never been supported; the start is no more, for its message has left.
        let start = self.scope.start;
        reach.outside[start.at()] -= 1;
        reach.outside_sum[graph.component[start.at()] as usize] -= 1;
        let is_candidate = |op: &OpId| {
            let component = graph.component[op.at()] as usize;
            graph.outside_sum[component] == 0 || graph.shape[component] == Shape::Mixed || *op == start
        };
        reach.candidates = op_ids(self.scope.ops.len()).filter(is_candidate).collect();
        let closed = self.scope.wiring.buffers.iter().filter(|buffer| self.store(**buffer).is_closed);
        reach.candidates.extend(closed);
        reach
    }

    fn reach(&mut self) -> &mut Reach {
        self.session.reach.as_mut().expect("made before deaths are followed")
    }

    fn marks(&mut self, op: OpId) -> &mut Marks {
        &mut self.reach().marks[op.at()]
    }

    /// Checks whether the component of an operation can still get messages. Returns true if a collection was passed on, so that
    /// more operations may be reachable.
    fn examine(&mut self, op: OpId) -> bool {
        let graph = &self.scope.wiring.graph;
        let component = graph.component[op.at()] as usize;
        match graph.shape[component] {
            Shape::Single => {
                let is_join = matches!(self.scope.op(op).kind, OpKind::Join { .. });
                let is_active = self.session.ops[op.at()].active > 0;
                let reach = self.reach();
                let is_lost = is_join && reach.marks[op.at()].is_doomed;
                let is_supported = reach.outside[op.at()] > 0 && !is_lost;
                if is_supported || is_active || reach.marks[op.at()].is_dead {
                    reach.marks[op.at()].lives_by_itself = !is_supported;
                    return false;
                }
                self.give_up(&[op])
            }
            Shape::Cycle => {
                let is_active = self.session.cycles[component] > 0;
                let is_supported = self.reach().outside_sum[component] > 0;
                let members = graph.members.row(component);
                if is_supported || is_active {
                    if !is_supported && !self.marks(OpId(members[0])).lives_by_itself {
                        members.iter().for_each(|op| self.marks(OpId(*op)).lives_by_itself = true);
                    }
                    return false;
                }
                let members: Vec<OpId> = members.iter().map(|op| OpId(*op)).collect();
                self.give_up(&members)
            }
            Shape::Mixed => {
                let members: Vec<OpId> = graph.members.row(component).iter().map(|op| OpId(*op)).collect();
                let lost = self.unsupported(&members);
                self.give_up(&lost)
            }
        }
    }

    /// Finds the members of a component that nothing supports: the complement of its least fixpoint.
    fn unsupported(&mut self, members: &[OpId]) -> Vec<OpId> {
        let at = |op: OpId| members.binary_search(&op);
        let mut found = vec![false; members.len()];
        let mut open: Vec<OpId> = Vec::new();
        for op in members {
            let is_active = self.session.ops[op.at()].active > 0;
            let is_join = matches!(self.scope.op(*op).kind, OpKind::Join { .. });
            let reach = self.reach();
            let has_outside = reach.outside[op.at()] > 0;
            if !reach.is_dead(*op) && (is_active || has_outside && (!is_join || self.join_holds(*op, members, &found)))
            {
                found[at(*op).expect("a member")] = true;
                open.push(*op);
            }
        }
        while let Some(op) = open.pop() {
            let is_sealed = self.marks(op).is_sealed;
            for next in self.scope.wiring.graph.supports.row(op.at()).iter().map(|next| OpId(*next)) {
                let Ok(index) = at(next) else { continue };
                let holds = match self.scope.op(next).kind {
                    OpKind::Join { .. } => self.join_holds(next, members, &found),
                    OpKind::Listen { .. } => !is_sealed,
                    _ => true,
                };
                if holds && !self.marks(next).is_dead && !std::mem::replace(&mut found[index], true) {
                    open.push(next);
                }
            }
        }
        members.iter().zip(found).filter(|(_, is_found)| !is_found).map(|(op, _)| *op).collect()
    }

    /// A join on a cycle has all its buffers, or can still get what it lacks.
    fn join_holds(&mut self, op: OpId, members: &[OpId], found: &[bool]) -> bool {
        let OpKind::Join { inputs } = &self.scope.op(op).kind else { return false };
        let marks = *self.marks(op);
        let has = |buffer: OpId| match members.binary_search(&buffer) {
            Ok(index) => found[index] || !self.store(buffer).entries.is_empty(),
            Err(_) => true,
        };
        !marks.is_doomed && inputs.iter().all(|input| has(input.buffer))
    }

    /// Lets operations die, unless one of them is a collect that has something to give.
    fn give_up(&mut self, ops: &[OpId]) -> bool {
        for op in ops {
            let is_collect = matches!(self.scope.op(*op).kind, OpKind::Collect { .. });
            if is_collect && !self.marks(*op).is_dead && collect::give_what_is_there(self, *op) {
                self.marks(*op).lives_by_itself = true;
                return true;
            }
        }
        for op in ops {
            if !std::mem::replace(&mut self.marks(*op).is_dead, true) {
                self.die(*op);
            }
        }
        false
    }

    fn die(&mut self, op: OpId) {
        let graph = &self.scope.wiring.graph;
        let kind = &self.scope.op(op).kind;
        if is_goal(kind) {
            self.reach().goals -= 1;
        }
        for next in graph.supports.row(op.at()).iter().map(|next| OpId(*next)) {
            let component = graph.component[next.at()];
            if component != graph.component[op.at()] {
                let reach = self.reach();
                reach.outside[next.at()] -= 1;
                reach.outside_sum[component as usize] -= 1;
                reach.candidates.push(next);
            }
        }
        if let OpKind::Gate { buffers, action: GateAction::Open | GateAction::Dynamic } = kind {
            for buffer in buffers {
                self.reach().openers[buffer.at()] -= 1;
                self.reach().candidates.push(*buffer);
            }
        }
        if let OpKind::Buffer { .. } = kind {
            self.check_buffer(op);
        }
    }

    /// Finds readers that a buffer will never serve again: it is empty and dead, or closed for ever.
    fn check_buffer(&mut self, buffer: OpId) {
        let (is_empty, is_closed) = (self.store(buffer).entries.is_empty(), self.store(buffer).is_closed);
        let reach = self.reach();
        let is_sealed = is_closed && reach.openers[buffer.at()] == 0;
        let is_lost = is_sealed || (is_empty && reach.marks[buffer.at()].is_dead);
        reach.marks[buffer.at()].is_sealed = is_sealed;
        if is_sealed {
            let slot = self.scope.slot(buffer);
            let listens = self.scope.wiring.listens_of[slot].iter().copied();
            self.reach().candidates.extend(listens);
        }
        if is_lost {
            for join in &self.scope.wiring.joins_of[self.scope.slot(buffer)] {
                self.marks(*join).is_doomed = true;
                self.reach().candidates.push(*join);
            }
        }
    }
}
