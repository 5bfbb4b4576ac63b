//! The effects of a batch, replayed elsewhere, give the same durable rows. A log relies on it.

use onceflow_store::{
    Position,
    core::{Group, Key, Row, Shard, Timestamp, row::bitmap},
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
