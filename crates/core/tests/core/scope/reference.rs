//! A small interpreter of drawn scopes, written from the rules and not from the machine: reachability is computed from
//! scratch, as the least fixpoint, whenever nothing else can happen.

use super::{
    draw::{Drawn, Kind, ROUNDS, behave, name},
    rig::Seen,
};
use onceflow_core::scope::BufferKeep;
use std::collections::{BTreeMap, VecDeque};

struct State<'a> {
    drawn: &'a Drawn,
    messages: VecDeque<(usize, i64)>,
    runs: VecDeque<(usize, Vec<i64>)>,
    futures: VecDeque<(usize, i64)>,
    buffers: BTreeMap<usize, VecDeque<i64>>,
    closed: Vec<bool>,
    held: Vec<i64>,
    has_given: bool,
    is_collect_dead: bool,
    rounds: Vec<u32>,
    end: Option<Result<i64, String>>,
}

/// Runs a scope. `None` if the rules leave open what comes first.
pub(super) fn run(drawn: &Drawn) -> Option<Seen> {
    let count = drawn.ops.len();
    let is_buffer = |op: &usize| matches!(drawn.ops[*op].0, Kind::Buffer(_));
    let mut state = State {
        drawn,
        messages: VecDeque::from([(drawn.start, drawn.input)]),
        runs: VecDeque::new(),
        futures: VecDeque::new(),
        buffers: (0..count).filter(is_buffer).map(|op| (op, VecDeque::new())).collect(),
        closed: vec![false; count],
        held: Vec::new(),
        has_given: false,
        is_collect_dead: false,
        rounds: vec![0; count],
        end: None,
    };
    while state.end.is_none() {
        state.step();
    }
    for (op, message) in std::mem::take(&mut state.messages) {
        match drawn.ops[op].0 {
            Kind::Buffer(_) => state.store(op, message),
            Kind::Push { buffer } => state.store(buffer, message),
            _ => {}
        }
    }
    let found = state.buffers.into_iter().map(|(op, entries)| (name(op), entries.into())).collect();
    Some(Seen { end: state.end?, found })
}

impl State<'_> {
    fn step(&mut self) {
        if let Some((op, message)) = self.messages.pop_front() {
            self.take(op, message);
        } else if let Some((op, input)) = self.runs.pop_front() {
            if self.drawn.ops[op].0 == Kind::Future {
                self.futures.push_back((op, input[0]));
            } else {
                self.emit(op, &input);
            }
        } else {
            self.idle();
        }
    }

    fn emit(&mut self, op: usize, input: &[i64]) {
        for (port, message) in behave(self.drawn.ops[op].0, input) {
            self.send(op, port as usize, message);
        }
    }

    fn send(&mut self, op: usize, port: usize, message: i64) {
        if let Some(target) = self.drawn.ops[op].1[port] {
            self.messages.push_back((target, message));
        }
    }

    fn is_on_cycle(&self, op: usize) -> bool {
        let mut open: Vec<usize> = self.successors(op);
        let mut seen = vec![false; self.drawn.ops.len()];
        while let Some(next) = open.pop() {
            if next == op {
                return true;
            }
            if !std::mem::replace(&mut seen[next], true) {
                open.extend(self.successors(next));
            }
        }
        false
    }

    fn successors(&self, op: usize) -> Vec<usize> {
        let mut next: Vec<usize> = self.drawn.ops[op].1.iter().flatten().copied().collect();
        let joins = |buffer: usize| move |(_, (kind, _)): &(usize, &(Kind, Vec<Option<usize>>))| matches!(kind, Kind::Join { a, b, .. } if *a == buffer || *b == buffer);
        match self.drawn.ops[op].0 {
            Kind::Buffer(_) => {
                next.extend(self.drawn.ops.iter().enumerate().filter(joins(op)).map(|(join, _)| join));
            }
            Kind::Gate { buffer, opens: true } => {
                next.extend(self.drawn.ops.iter().enumerate().filter(joins(buffer)).map(|(join, _)| join));
            }
            Kind::Push { buffer } => next.push(buffer),
            _ => {}
        }
        next
    }

    fn take(&mut self, op: usize, message: i64) {
        if self.is_on_cycle(op) {
            self.rounds[op] += 1;
            if self.rounds[op] > ROUNDS {
                self.end = Some(Err(format!("rounds {}", name(op))));
                return;
            }
        }
        match self.drawn.ops[op].0 {
            Kind::Terminate => self.end = Some(Ok(message)),
            Kind::Cancel { .. } => self.end = Some(Err(format!("{} {:?}", name(op), Some(message.to_string())))),
            Kind::Dispose => {}
            Kind::Clone => (0..2).for_each(|port| self.send(op, port, message)),
            Kind::Collect { max, .. } => {
                self.held.push(message);
                if max.is_some_and(|max| self.held.len() >= max as usize) {
                    self.give(op);
                }
            }
            Kind::Buffer(_) => self.put(op, message),
            Kind::Push { buffer } => {
                self.put(buffer, message);
                self.runs.push_back((op, Vec::new()));
            }
            Kind::Gate { buffer, opens } => {
                if std::mem::replace(&mut self.closed[buffer], !opens) == opens && opens {
                    self.join(buffer);
                }
                self.send(op, 0, message);
            }
            Kind::Join { .. } => unreachable!("nothing leads to a join"),
            _ => self.runs.push_back((op, vec![message])),
        }
    }

    fn give(&mut self, op: usize) {
        self.has_given = true;
        let held = std::mem::take(&mut self.held);
        self.runs.push_back((op, held));
    }

    fn store(&mut self, buffer: usize, message: i64) {
        let Kind::Buffer(keep) = self.drawn.ops[buffer].0 else { unreachable!("a buffer") };
        let entries = self.buffers.get_mut(&buffer).expect("a buffer");
        match keep {
            BufferKeep::First(most) if entries.len() >= most as usize => {}
            BufferKeep::Last(most) if entries.len() >= most as usize => {
                entries.pop_front();
                entries.push_back(message);
            }
            _ => entries.push_back(message),
        }
    }

    fn put(&mut self, buffer: usize, message: i64) {
        self.store(buffer, message);
        if !self.closed[buffer] {
            self.join(buffer);
        }
    }

    fn join(&mut self, changed: usize) {
        for op in 0..self.drawn.ops.len() {
            let Kind::Join { a, b, copies_b } = self.drawn.ops[op].0 else { continue };
            while [a, b].contains(&changed) && [a, b].iter().all(|buffer| self.shows(*buffer)) {
                let first = self.buffers.get_mut(&a).and_then(VecDeque::pop_front).expect("shown");
                let entries = self.buffers.get_mut(&b).expect("a buffer");
                let second = if copies_b { entries[0] } else { entries.pop_front().expect("shown") };
                self.runs.push_back((op, vec![first, second]));
            }
        }
    }

    fn shows(&self, buffer: usize) -> bool {
        !self.closed[buffer] && !self.buffers[&buffer].is_empty()
    }

    /// The least fixpoint of what can still get a message.
    fn reachable(&self) -> Vec<bool> {
        let ops = &self.drawn.ops;
        let mut alive = vec![false; ops.len()];
        self.futures.iter().for_each(|(op, _)| alive[*op] = true);
        loop {
            let before = alive.clone();
            for op in 0..ops.len() {
                alive[op] |= match ops[op].0 {
                    Kind::Join { a, b, .. } => [a, b].iter().all(|buffer| {
                        let can_open = (0..ops.len()).any(|gate| {
                            alive[gate]
                                && matches!(ops[gate].0, Kind::Gate { buffer: of, opens: true } if of == *buffer)
                        });
                        let has = alive[*buffer] || !self.buffers[buffer].is_empty();
                        has && (!self.closed[*buffer] || can_open)
                    }),
                    _ => (0..ops.len()).any(|from| {
                        alive[from] && (ops[from].1.contains(&Some(op)) || ops[from].0 == Kind::Push { buffer: op })
                    }),
                };
            }
            if alive == before {
                return alive;
            }
        }
    }

    fn idle(&mut self) {
        let alive = self.reachable();
        let collect = self.drawn.ops.iter().position(|(kind, _)| matches!(kind, Kind::Collect { .. }));
        if let Some(op) = collect.filter(|op| !alive[*op] && !self.is_collect_dead) {
            let Kind::Collect { min, .. } = self.drawn.ops[op].0 else { unreachable!("a collect") };
            if self.held.len() >= min as usize && (!self.held.is_empty() || !self.has_given) {
                return self.give(op);
            }
            self.held.clear();
            self.is_collect_dead = true;
        }
        let is_goal = |kind: &Kind| matches!(kind, Kind::Terminate | Kind::Cancel { implicit: false });
        if !self.drawn.ops.iter().zip(&alive).any(|((kind, _), alive)| *alive && is_goal(kind)) {
            self.end = Some(Err(String::from("Unreachable")));
            return;
        }
        let (op, message) = self.futures.pop_front().expect("something reachable is active");
        self.emit(op, &[message]);
    }
}
