//! The effects of a batch, replayed elsewhere, give the same durable rows. A log relies on it.

use onceflow_store::{
    CommitResult, Position,
    core::{Batch, Group, Key, Op, Row, Shard, Timestamp, batch::Invalid, row::bitmap},
    state::{Effects, StoreState},
    testing::oracle::script,
};

/// Effects as a log would keep them.
#[derive(Default)]
struct Log(Vec<Effect>);

enum Effect {
    Shard(Shard),
    Put(Key, Row),
    Delete(Key),
    DeleteGroup(Group),
    SetBit(Key, u32, u32),
}

impl Effects for Log {
    fn shard(&mut self, shard: Shard) {
        self.0.push(Effect::Shard(shard));
    }
    fn put(&mut self, key: &Key, row: &Row) {
        self.0.push(Effect::Put(key.clone(), row.clone()));
    }
    fn delete(&mut self, key: &Key) {
        self.0.push(Effect::Delete(key.clone()));
    }
    fn delete_group(&mut self, group: &Group) {
        self.0.push(Effect::DeleteGroup(group.clone()));
    }
    fn set_bit(&mut self, key: &Key, bit: u32, of: u32) {
        self.0.push(Effect::SetBit(key.clone(), bit, of));
    }
}

fn replay(log: Log, state: &mut StoreState) {
    let mut at = Shard(0);
    for effect in log.0 {
        match effect {
            Effect::Shard(shard) => at = shard,
            Effect::Put(key, row) => drop(state.set(at, &key, Some(row))),
            Effect::Delete(key) => drop(state.set(at, &key, None)),
            Effect::DeleteGroup(group) => drop(state.clear(at, &group)),
            Effect::SetBit(key, bit, of) => {
                let (row, full) = bitmap::with(state.get(at, &key).map(|row| &**row), bit, of);
                assert!(!full, "a full set goes and is told as gone");
                state.set(at, &key, Some(row));
            }
        }
    }
}

/// Where and when every batch is applied.
const AT: (Position, Timestamp) = (Position(0), Timestamp::ZERO);

#[test]
fn replayed_effects_give_the_same_lasting_rows() {
    for seed in 0..100 {
        let (mut state, mut again) = (StoreState::new(), StoreState::new());
        for (n, batch) in script(seed, 200).iter().enumerate() {
            let mut log = Log::default();
            // The effects of a batch that turned out to be wrong are told, and are to be thrown away.
            if state.apply(batch, AT, &mut log).is_ok() {
                replay(log, &mut again);
            }
            let (rows, _) = state.durable_after(None, usize::MAX);
            assert_eq!(again.durable_after(None, usize::MAX).0, rows, "seed {seed}, batch {n}: {batch:#?}");
            assert_eq!(again.durable_rows(), rows.len() as u64, "seed {seed}, batch {n}");
            assert_eq!(again.durable_bytes(), state.durable_bytes(), "seed {seed}, batch {n}");
        }
    }
}

/// These operations in a batch that uses up a permission, so that it may be repeated.
fn once(ops: Vec<Op>) -> Batch {
    let (permission, mut batch) = (Group::rows("permissions").key("once"), Batch::new(Shard(0)));
    batch.require_absent(permission.clone()).put(permission, Row::new("used"));
    batch.ops.extend(ops);
    batch
}

/// An arrival at a step with one input is a bitmap of one bit: it fires and is no row, whatever else the batch does to it.
#[test]
fn a_bitmap_of_one_bit_fires_as_often_as_its_row_would_and_is_logged_only_if_it_was_there() {
    let group = Group::rows("run");
    let (bits, then) = (group.key("bits"), group.key("then"));
    let arrive =
        || Op::SetBit { key: bits.clone(), bit: 0, of: 1, when_full: vec![Op::Put(then.clone(), Row::new("1"))] };
    let put = || Op::Put(bits.clone(), Row::new("other"));
    let cases: [(Vec<Op>, usize, usize); 6] = [
        (vec![arrive()], 1, 1),
        (vec![arrive(), arrive()], 1, 2),
        (vec![Op::Delete(bits.clone()), arrive()], 1, 2),
        (vec![arrive(), Op::Delete(bits.clone())], 0, 1),
        (vec![arrive(), Op::DeleteGroup(group.clone())], 0, 1),
        (vec![arrive(), put()], 0, 1),
    ];
    for (at, (ops, fired, told)) in cases.into_iter().enumerate() {
        let (mut state, mut log) = (StoreState::new(), Log::default());
        let (outcome, _) = state.apply(&once(ops), AT, &mut log).unwrap();
        let CommitResult::Applied(committed) = outcome else { panic!("case {at} was refused") };
        assert_eq!(committed.fired.len(), fired, "case {at}");
        assert_eq!(state.get(Shard(0), &then).is_some(), fired > 0, "case {at}");
        let effects = log.0.iter().filter(|effect| !matches!(effect, Effect::Shard(_))).count();
        assert_eq!(effects, told + 1, "case {at}: its own, and the permission that it uses up");
    }
    let mut state = StoreState::new();
    state.set(Shard(0), &bits, Some(Row::new("no bitmap")));
    let refused = state.apply(&once(vec![arrive()]), AT, &mut Log::default());
    assert!(
        matches!(refused, Err(Invalid::WrongContent { .. })),
        "the row that is there is no bitmap of one bit: {refused:?}"
    );
}

#[test]
fn a_walk_over_all_rows_finds_each_once_whatever_its_step() {
    for seed in 0..20 {
        let mut state = StoreState::new();
        for batch in script(seed, 200) {
            let _ = state.apply(&batch, AT, &mut Log::default());
        }
        let (all, _) = state.durable_after(None, usize::MAX);
        for step in [1, 2, 3, all.len().max(1)] {
            let (mut walked, mut place) = (vec![], None);
            loop {
                let (rows, next) = state.durable_after(place.as_ref(), step);
                walked.extend(rows);
                place = next;
                if place.is_none() {
                    break;
                }
            }
            assert_eq!(walked, all, "seed {seed}, step {step}");
        }
    }
}
