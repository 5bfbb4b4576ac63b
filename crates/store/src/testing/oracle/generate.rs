//! Random batches over so few keys that they meet all the time. A script depends on its seed alone.

use super::model::Model;
use crate::testing::{
    batches::{add, bit, count, delete, delete_group, put, row},
    random::Random,
};
use onceflow_core::{
    Batch, Claim, Fences, Group, Inbox, Key, Name, Op, Pick, Require, Shard,
    limits::{BITMAP_BITS_MAX, NAME_BYTES_MAX},
};

/// Triggers may lead from a level to the next one, and from the last to none.
const LEVELS: usize = 3;

/// The groups a script touches.
pub(super) fn groups() -> Vec<Group> {
    let queues = queues();
    let companions = queues.iter().flat_map(|queue| [queue.claims(), queue.deadlines()]);
    let plain = ["permits", "g", "h", "gh"].map(Group::rows);
    plain.into_iter().chain(companions).chain(queues.clone()).collect()
}

/// The shards a script touches.
pub(super) const SHARDS: [Shard; 2] = [Shard(0), Shard(7)];

fn queues() -> [Group; 2] {
    ["q", "p"].map(Group::queue)
}

fn names() -> [Name; 6] {
    [&b""[..], b"a", b"ab", b"b\0", b"\xFF", b"\xFF\xFF"].map(Name::new)
}

fn work() -> [Name; 7] {
    ["x", "xy", "lane-aaa", "lane-aaa1", "lane-aaa2", "lane-bbb1", "lane-ccc1"].map(Name::new)
}

/// The batches of a seed.
pub fn script(seed: u64, batches: usize) -> Vec<Batch> {
    let mut generator = Generator { seed, random: Random::new(seed), fences: Fences::new(u128::from(seed)) };
    let mut model = Model::default();
    let mut script: Vec<Batch> = Vec::with_capacity(batches);
    for _ in 0..batches {
        let again = script.last().filter(|_| generator.random.percent(5)).cloned();
        let batch = again.unwrap_or_else(|| generator.batch(&model));
        model.commit(&batch, onceflow_core::Timestamp::ZERO);
        script.push(batch);
    }
    script
}

/// The batches that some bytes stand for: the first names what follows from what, each of the others makes a choice. At
/// most `batches` of them.
pub fn script_of(bytes: &[u8], batches: usize) -> Vec<Batch> {
    let (seed, choices) = bytes.split_first().map_or((0, bytes), |(seed, choices)| (u64::from(*seed), choices));
    let mut generator = Generator { seed, random: Random::of_bytes(choices), fences: Fences::new(u128::from(seed)) };
    let mut model = Model::default();
    let mut script: Vec<Batch> = Vec::new();
    while script.len() < batches && !generator.random.is_spent() {
        let again = script.last().filter(|_| generator.random.percent(5)).cloned();
        let batch = again.unwrap_or_else(|| generator.batch(&model));
        model.commit(&batch, onceflow_core::Timestamp::ZERO);
        script.push(batch);
    }
    script
}

struct Generator {
    seed: u64,
    random: Random,
    fences: Fences,
}

impl Generator {
    fn batch(&mut self, model: &Model) -> Batch {
        let mut batch = Batch::new(SHARDS[usize::from(self.random.percent(25))]);
        for _ in 0..self.random.below(3) {
            batch.requires.push(self.require(model, batch.shard));
        }
        if self.random.percent(95) {
            self.add_permit(&mut batch, model);
        }
        for _ in 0..self.random.below(9) {
            let level = if self.random.percent(70) { 0 } else { self.random.below(LEVELS) };
            let op = self.op(level);
            batch.ops.push(op);
        }
        if self.random.percent(4) {
            let at = self.random.below(batch.ops.len() + 1);
            batch.ops.insert(at, self.wrong_op());
        }
        if self.random.percent(40) {
            batch.claim = Some(self.claim());
        }
        batch
    }

    /// A permission that is used up, so that the batch may be repeated.
    fn add_permit(&mut self, batch: &mut Batch, model: &Model) {
        let key = Group::rows("permits").key([self.random.below(4) as u8]);
        let seen = model.get(batch.shard, &key).cloned();
        match (seen, self.random.percent(50)) {
            (None, _) => batch.require_absent(key.clone()).put(key, row("1")),
            (Some(_), true) => batch.require_present(key.clone()).delete(key),
            (Some(seen), false) => {
                let changed = row([&seen[..], b"+"].concat());
                batch.require_equals(key.clone(), seen).put(key, changed)
            }
        };
    }

    /// Mostly one that holds.
    fn require(&mut self, model: &Model, shard: Shard) -> Require {
        let key = self.key(0);
        let comparable = key.group.kind() != onceflow_core::Kind::Deadlines;
        match (model.get(shard, &key), self.random.below(10)) {
            (_, 0) => Require::Absent(key),
            (_, 1) => Require::Present(key),
            (_, 2) => Require::Equals(key, count(1)),
            (Some(row), 3..7) if comparable => Require::Equals(key, row.clone()),
            (Some(_), _) => Require::Present(key),
            (None, _) => Require::Absent(key),
        }
    }

    /// Any key, of any kind.
    fn key(&mut self, level: usize) -> Key {
        match self.random.below(10) {
            0..3 => self.plain(),
            3..5 => self.counter(level),
            5..7 => self.set(level).0,
            _ => {
                let queue = self.random.pick(&queues()).clone();
                let group = self.random.pick(&[queue.clone(), queue.claims(), queue.deadlines()]).clone();
                group.key(self.random.pick(&work()))
            }
        }
    }

    fn plain(&mut self) -> Key {
        let group = *self.random.pick(&["g", "h", "gh"]);
        Group::rows(group).key(self.random.pick(&names()))
    }

    fn counter(&mut self, level: usize) -> Key {
        Group::rows("g").key([b'n', level as u8, self.random.below(2) as u8])
    }

    /// A set's key, and its size, which follows from the key.
    fn set(&mut self, level: usize) -> (Key, u32) {
        let which = self.random.below(3);
        (Group::rows("h").key([b's', level as u8, which as u8]), [1, 2, 9][which])
    }

    fn op(&mut self, level: usize) -> Op {
        match self.random.below(100) {
            0..15 => put(self.plain(), row(self.random.pick(&["", "0", "1"]))),
            15..22 => delete(self.key(level)),
            22..25 => delete_group(self.random.pick(&groups()).clone()),
            25..48 if level < LEVELS => self.add(level),
            48..73 if level < LEVELS => self.set_bit(level),
            73..77 if level < LEVELS => put(self.counter(level), count(self.random.below(4) as i64)),
            77..78 => put(self.key_of_rows(level), row("neither a number nor a set")),
            78..83 => delete(self.random.pick(&queues()).claims().key(self.random.pick(&work()))),
            83..85 => put(self.random.pick(&queues()).claims().key(self.random.pick(&work())), row("by hand")),
            85..87 => delete(self.random.pick(&queues()).key(self.random.pick(&work()))),
            _ => self.ready(),
        }
    }

    fn key_of_rows(&mut self, level: usize) -> Key {
        if self.random.percent(50) { self.counter(level) } else { self.set(level).0 }
    }

    fn ready(&mut self) -> Op {
        let group = *self.random.pick(&["g", "h", "none"]);
        let prefix = self.random.pick(&names()).clone();
        let inbox = Inbox { group: Group::rows(group), prefix, note: vec![self.random.below(3) as u8] };
        put(self.random.pick(&queues()).key(self.random.pick(&work())), inbox.to_row())
    }

    fn add(&mut self, level: usize) -> Op {
        let key = self.counter(level);
        let (delta, then) = (*self.random.pick(&[-2, -1, -1, 0, 1, 1, 2]), self.trigger(&key, level));
        add(key, delta, then)
    }

    fn set_bit(&mut self, level: usize) -> Op {
        let (key, of) = self.set(level);
        let (number, then) = (self.random.below(of as usize) as u32, self.trigger(&key, level));
        bit(key, number, of, then)
    }

    /// The operations that follow when a row is complete. They depend on the key, so that all operations on it agree,
    /// but for a few.
    fn trigger(&mut self, key: &Key, level: usize) -> Vec<Op> {
        let differs = u64::from(self.random.per_mille(3));
        let seed = key.name.as_bytes().iter().fold(self.seed ^ differs, |seed, byte| seed * 31 + u64::from(*byte));
        let fences = Fences::new(0);
        let mut generator = Generator { seed: self.seed, random: Random::new(seed), fences };
        (0..generator.random.below(4)).map(|_| generator.op(level + 1)).collect()
    }

    fn claim(&mut self) -> Claim {
        let [one, other] = queues();
        let queues = match self.random.below(8) {
            0..4 => vec![one, other],
            4..6 => vec![other, one],
            6 => vec![other],
            _ => vec![],
        };
        let pick = *self.random.pick(&[Pick::EnabledFirst, Pick::InTurn]);
        Claim { queues, fence: self.fences.next(), ttl_ms: self.random.below(1000) as u64, pick }
    }

    fn wrong_op(&mut self) -> Op {
        let (key, plain) = (self.set(0).0, self.plain());
        match self.random.below(7) {
            0 => bit(key, 3, 3, []),
            1 => bit(key, 0, BITMAP_BITS_MAX + 1, []),
            2 => bit(key, 1, 4, []),
            3 => put(queues()[0].key("x"), row("no inbox")),
            4 => put(Group::rows("g").key([b'y'; NAME_BYTES_MAX + 1]), row("")),
            5 => add(queues()[1].key("x"), 1, []),
            _ => add(plain, i64::MAX, [add(self.plain(), 1, [])]),
        }
    }
}
