//! Names the facts that a draft of a run requires, by their keys: a refused batch is understood by what changed, not by
//! the position of the require.

use crate::key::{Group, Key, Kind};

/// A fact that a draft of a run requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Premise {
    /// The state of the run: its phase and its generation.
    State,
    /// The claim on the step.
    Claim,
    /// The step is parked as it was read.
    Parked,
    /// No other step has kept the same memo.
    Memo,
    /// No report was made under the same id.
    Report,
    /// Another row: a registration, a row that a transactional body read, a value.
    Other,
}

/// The prefix of the names of rows that record a report, beside the reasons of a run.
pub const REPORT: &[u8] = b"said";

impl Premise {
    /// Returns the fact that a row with this key holds.
    pub fn of(key: &Key) -> Self {
        let name = key.name.as_bytes();
        match (key.group.kind(), kind_of(&key.group)) {
            (Kind::Claims, _) => Premise::Claim,
            (Kind::Rows, Some(b'R')) if name == b"s" => Premise::State,
            (Kind::Rows, Some(b'r')) if name.first() == Some(&b'p') => Premise::Parked,
            (Kind::Rows, Some(b'K')) if name.first() == Some(&b'm') => Premise::Memo,
            (Kind::Rows, Some(b'W')) if name.starts_with(REPORT) => Premise::Report,
            _ => Premise::Other,
        }
    }
}

/// The kind of a group of a run's rows, told by its first byte and its length; see [`super::keys`].
fn kind_of(group: &Group) -> Option<u8> {
    const RUN: usize = 8;
    const GENERATION: usize = 4;
    match (group.id().first()?, group.id().len() - 1) {
        (kind @ (b'R' | b'K' | b'W'), RUN) => Some(*kind),
        (kind @ b'r', len) if len == RUN + GENERATION => Some(*kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        digest::Digest,
        protocol::{
            ids::{Generation, RunId, StepId},
            keys::{self, Keys},
        },
    };

    #[test]
    fn every_fact_that_decides_anything_is_known_by_its_key() {
        // Ids are random: also those that begin like a name of ours.
        for id in [*b"01234567", *b"uns.due\0", [0xff; 8]] {
            let keys = Keys::new(RunId(id), Generation(3));
            let step = StepId::of_run(4);
            let claim = keys::internal_queue().claims().key(step.queue_name(keys.run, keys.generation));
            let report = keys::reasons(keys.run).key([REPORT, b"0123456789abcdef"].concat());
            let cases = [
                (keys.state(), Premise::State),
                (claim, Premise::Claim),
                (keys.parked(step), Premise::Parked),
                (keys.memo(&Digest::from_bytes([1; 32])), Premise::Memo),
                (report, Premise::Report),
                (keys.header(), Premise::Other),
                (keys.undo(1), Premise::Other),
                (keys.live(), Premise::Other),
                (keys::reasons(keys.run).key(keys.generation.0.to_be_bytes()), Premise::Other),
                (keys::heads().key("p"), Premise::Other),
                (Group::rows("flow/r").key("s"), Premise::Other),
            ];
            for (key, expected) in cases {
                assert_eq!(Premise::of(&key), expected, "{key:?}");
            }
        }
    }
}
