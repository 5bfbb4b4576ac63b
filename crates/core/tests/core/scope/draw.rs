//! Draws scopes from a seed. An operation is known by its name, so that a scope can be numbered in any order.

use onceflow_core::scope::{
    BufferKeep, CleanupFlow, CleanupWhen, Distribution, GateAction, JoinInput, OpId, OpKind, Operation, Scope,
    ScopeDraft, ScopeFault, ScopeSettings, TaskMode,
};

/// Messages an operation on a cycle may take, so that every session ends.
pub(super) const ROUNDS: u32 = 40;

/// A kind of operation, with references by index into the drawn list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Terminate,
    Cancel { implicit: bool },
    Dispose,
    Map,
    Future,
    Fork,
    Spread,
    Filter,
    Clone,
    Collect { min: u32, max: Option<u32> },
    Buffer(BufferKeep),
    Join { a: usize, b: usize, copies_b: bool },
    Gate { buffer: usize, opens: bool },
    Push { buffer: usize },
}

#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) ops: Vec<(Kind, Vec<Option<usize>>)>,
    pub(super) start: usize,
    pub(super) input: i64,
}

pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

pub(super) fn name(op: usize) -> String {
    format!("op{op}")
}

impl Drawn {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        for _ in 0..8 {
            chance.below(2);
        }
        let buffers = chance.below(4);
        let mut kinds = vec![Kind::Terminate];
        for _ in 0..buffers {
            let keep = [BufferKeep::All, BufferKeep::Last(1), BufferKeep::First(2)][chance.below(3)];
            kinds.push(Kind::Buffer(keep));
        }
        // Each buffer has one join at most: which of two would be first is a matter of numbers.
        if buffers >= 2 && chance.below(4) > 0 {
            kinds.push(Kind::Join { a: 1, b: 2, copies_b: chance.below(3) == 0 });
        }
        if chance.below(3) > 0 {
            kinds.push(Kind::Collect {
                min: u32::try_from(chance.below(3)).expect("small"),
                max: [None, Some(3)][chance.below(2)],
            });
        }
        for _ in 0..2 + chance.below(7) {
            kinds.push(match chance.below(12) {
                0..3 => Kind::Map,
                3..5 => Kind::Future,
                5 => Kind::Fork,
                6 => Kind::Spread,
                7 => Kind::Filter,
                8 => Kind::Clone,
                9 if buffers > 0 => Kind::Gate { buffer: 1 + chance.below(buffers), opens: chance.below(2) == 0 },
                10 if buffers > 0 => Kind::Push { buffer: 1 + chance.below(buffers) },
                11 => [Kind::Cancel { implicit: chance.below(2) == 0 }, Kind::Dispose][chance.below(2)],
                _ => Kind::Clone,
            });
        }
        let takes: Vec<usize> = (0..kinds.len()).filter(|op| !matches!(kinds[*op], Kind::Join { .. })).collect();
        let mut target = || match chance.below(9) {
            0 => None,
            1 => Some(0),
            _ => Some(takes[chance.below(takes.len())]),
        };
        let ops = kinds.iter().map(|kind| (*kind, (0..ports(*kind)).map(|_| target()).collect())).collect();
        let start = takes[chance.below(takes.len())];
        Drawn { ops, start, input: i64::try_from(chance.below(50)).expect("small") }
    }

    /// The scope, its operations numbered as they were drawn or shuffled.
    pub(super) fn scope(&self, shuffle: Option<u64>) -> Result<Scope, Vec<ScopeFault>> {
        let mut order: Vec<usize> = (0..self.ops.len()).collect();
        if let Some(seed) = shuffle {
            let mut chance = Chance::new(seed ^ 0x5151);
            (1..order.len()).rev().for_each(|at| order.swap(at, chance.below(at + 1)));
        }
        let id = |op: usize| {
            let at = order.iter().position(|other| *other == op).expect("all are numbered");
            OpId(u32::try_from(at).expect("small"))
        };
        let op = |at: &usize| {
            let (kind, outputs) = &self.ops[*at];
            let outputs = outputs.iter().map(|target| target.map(id)).collect();
            Operation { name: name(*at), kind: op_kind(*kind, &id), outputs }
        };
        let buffers = (0..self.ops.len()).filter(|op| matches!(self.ops[*op].0, Kind::Buffer(_)));
        let cleanup = |op| CleanupFlow {
            name: format!("clean {}", name(op)),
            when: CleanupWhen::Ended,
            buffers: vec![id(op)],
            timeout_ms: None,
        };
        Scope::check(ScopeDraft {
            ops: order.iter().map(op).collect(),
            start: Some(id(self.start)),
            cleanups: buffers.map(cleanup).collect(),
            streams: Vec::new(),
            settings: ScopeSettings { rounds_max: Some(ROUNDS), ..ScopeSettings::default() },
        })
    }
}

fn ports(kind: Kind) -> usize {
    match kind {
        Kind::Terminate | Kind::Cancel { .. } | Kind::Dispose | Kind::Buffer(_) => 0,
        Kind::Fork | Kind::Clone => 2,
        _ => 1,
    }
}

fn op_kind(kind: Kind, id: &impl Fn(usize) -> OpId) -> OpKind {
    match kind {
        Kind::Terminate => OpKind::Terminate,
        Kind::Cancel { implicit } => OpKind::Cancel { implicit },
        Kind::Dispose => OpKind::Dispose,
        Kind::Map => OpKind::Task { mode: TaskMode::Blocking, streams: 0 },
        Kind::Future => OpKind::Task { mode: TaskMode::Async, streams: 0 },
        Kind::Fork => OpKind::Distribute(Distribution::Fork),
        Kind::Spread => OpKind::Distribute(Distribution::Spread),
        Kind::Filter => OpKind::Distribute(Distribution::Filter),
        Kind::Clone => OpKind::Clone,
        Kind::Collect { min, max } => OpKind::Collect { min, max },
        Kind::Buffer(keep) => OpKind::Buffer { keep },
        Kind::Join { a, b, copies_b } => {
            let input = |buffer, by_clone| JoinInput { buffer: id(buffer), by_clone };
            OpKind::Join { inputs: vec![input(a, false), input(b, copies_b)] }
        }
        Kind::Gate { buffer, opens } => {
            OpKind::Gate { buffers: vec![id(buffer)], action: if opens { GateAction::Open } else { GateAction::Close } }
        }
        Kind::Push { buffer } => OpKind::Push { buffer: id(buffer) },
    }
}

/// Messages by port that an operation makes of its input.
pub(super) fn behave(kind: Kind, input: &[i64]) -> Vec<(u32, i64)> {
    match kind {
        Kind::Map | Kind::Future => vec![(0, (input[0] * 3 + 1) % 101)],
        Kind::Fork => vec![(u32::from(input[0] % 2 != 0), input[0])],
        Kind::Spread => (0..input[0] % 3).map(|more| (0, input[0] + more)).collect(),
        Kind::Filter => (input[0] % 5 != 0).then_some((0, input[0])).into_iter().collect(),
        Kind::Collect { .. } | Kind::Join { .. } => {
            vec![(0, input.iter().fold(7, |sum, part| (sum * 5 + part) % 101))]
        }
        Kind::Push { .. } => vec![(0, 1)],
        _ => Vec::new(),
    }
}
