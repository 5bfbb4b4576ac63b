//! Ends leases: at or after their deadline on the store's clock, and not while the sweeper owes them grace.
//!
//! The holder of a lease counts on being able to renew it; while the sweeper's process was away, the store may have
//! been as well. So if the sweeper comes back much later than scheduled, no lease ends for as long again, but for a day
//! at most.

use super::{Error, ReclaimCall, Round, turn::Seen};
use crate::values::{
    EdgeName, ValueId,
    keys::read_due,
    limits,
    stored::{Edge, Sweeper},
    update::lower,
};
use onceflow_core::{Name, Row, Timestamp};
use std::collections::BTreeMap;

/// Operations that ending a lease takes at most.
pub(super) const LEASE_OPS: usize = 4;

/// The decision about leases.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// No lease ends before this.
    Later(Timestamp),
    /// The sweeper was away; no lease may end before this, and that is not recorded yet.
    Grace { until: Timestamp },
    /// These leases end.
    Now(Vec<(Timestamp, EdgeName)>, Timestamp),
}

/// Looks at the first rows of the index, of which there is at least one.
pub(super) fn look(due: &[(Name, Row)], sweeper: Option<Sweeper>, now: Timestamp) -> Result<Due, Error> {
    let leases = due.iter().map(|(name, _)| read_due(name.as_bytes())).collect::<Option<Vec<_>>>();
    let mut leases = leases.ok_or_else(|| Error::damaged("the index of deadlines"))?;
    let first = leases[0].0;
    let promised = sweeper.map(|sweeper| sweeper.back_by).filter(|back_by| *back_by != Timestamp::NEVER);
    let late_ms = now.ms_since(promised.unwrap_or(first));
    if late_ms > limits::SWEEPER_LATE_MS_MAX {
        return Ok(Due::Grace { until: now.plus_ms(late_ms.min(limits::GRACE_MS_MAX)) });
    }
    let not_before = first.max(sweeper.map_or(Timestamp::ZERO, |sweeper| sweeper.grace_until));
    if now < not_before {
        return Ok(Due::Later(not_before));
    }
    leases.retain(|(deadline, _)| *deadline <= now);
    Ok(Due::Now(leases, now))
}

impl ReclaimCall<'_> {
    pub(super) async fn expire(
        &mut self,
        seen: &Seen,
        leases: &[(Timestamp, EdgeName)],
        now: Timestamp,
    ) -> Result<Round, Error> {
        let keys = &self.values.rows.keys;
        let edges: Vec<_> = leases.iter().map(|(_, edge)| keys.edge(edge)).collect();
        let rows = self.values.rows.records.get(self.values.rows.shard, &edges).await?;
        let mut batch = self.batch_after(seen);
        let mut lowered: BTreeMap<ValueId, i64> = BTreeMap::new();
        for (((deadline, name), key), row) in leases.iter().zip(edges).zip(rows) {
            batch.delete(keys.due(*deadline, name));
            let edge = row.as_deref().and_then(Edge::from_row);
            batch.require_seen(key.clone(), row);
            // An index row that does not fit its edge is an error that fsck would report; it ends no lease.
            if let Some(edge) = edge.filter(|edge| edge.deadline == Some(*deadline)) {
                batch.delete(key);
                *lowered.entry(edge.target).or_default() += 1;
            }
        }
        for (id, by) in &lowered {
            lower(&mut batch, keys, id, *by);
        }
        let grace_until = seen.sweeper.map_or(Timestamp::ZERO, |sweeper| sweeper.grace_until);
        let sweeper = Sweeper { turn: self.values.writer.fence(), back_by: now, grace_until };
        batch.put(keys.sweeper(), sweeper.to_row());
        let round = self.commit(batch, Round::Did(leases.len())).await?;
        if let Round::Did(_) = round {
            self.done.expired += lowered.values().map(|by| by.unsigned_abs()).sum::<u64>();
        }
        Ok(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::Fences;

    const LATE: u64 = limits::SWEEPER_LATE_MS_MAX;

    fn due(deadlines: &[u64]) -> Vec<(Name, Row)> {
        let name = |ms: &u64| {
            let edge = EdgeName::root(ms.to_string());
            (crate::values::Keys::new().due(Timestamp::from_ms(*ms), &edge).name, Row::default())
        };
        deadlines.iter().map(name).collect()
    }

    /// The decision about leases that end at 1000 and 2000.
    fn at(now: u64, sweeper: Option<(u64, u64)>) -> String {
        let sweeper = sweeper.map(|(back_by, grace)| Sweeper {
            turn: Fences::new(1).next(),
            back_by: Timestamp::from_ms(back_by),
            grace_until: Timestamp::from_ms(grace),
        });
        match look(&due(&[1000, 2000]), sweeper, Timestamp::from_ms(now)).unwrap() {
            Due::Later(time) => format!("later {}", time.as_ms()),
            Due::Grace { until } => format!("grace {}", until.as_ms()),
            Due::Now(leases, _) => format!("now {}", leases.len()),
        }
    }

    #[test]
    fn a_lease_ends_at_its_deadline_and_not_before() {
        assert_eq!(at(999, None), "later 1000");
        assert_eq!(at(1000, None), "now 1");
        assert_eq!(at(2000, None), "now 2");
    }

    #[test]
    fn a_sweeper_that_was_away_gives_as_much_time_again() {
        assert_eq!(at(1000 + LATE, Some((1000, 0))), "now 2");
        assert_eq!(at(1001 + LATE, Some((1000, 0))), format!("grace {}", 1001 + LATE + LATE + 1));
        assert_eq!(at(1001 + LATE, None), format!("grace {}", 1001 + LATE + LATE + 1));
        assert_eq!(at(1001 + LATE, Some((u64::MAX, 0))), format!("grace {}", 1001 + LATE + LATE + 1));
    }

    #[test]
    fn grace_is_given_for_a_day_at_most() {
        let year_ms = 365 * limits::GRACE_MS_MAX;
        assert_eq!(at(1000 + year_ms, None), format!("grace {}", 1000 + year_ms + limits::GRACE_MS_MAX));
    }

    #[test]
    fn a_sweeper_that_kept_its_word_owes_nothing() {
        assert_eq!(at(5000 + LATE, Some((5000, 0))), "now 2");
    }

    #[test]
    fn nothing_ends_during_grace() {
        assert_eq!(at(2000, Some((9000, 9000))), "later 9000");
        assert_eq!(at(9000, Some((9000, 9000))), "now 2");
    }
}
