//! The time, as far as it can be trusted: a lease of days must not expire because a clock was wrong for a moment.
//!
//! The store remembers the last look at the clocks: the wall clock, and the machine's uptime. A wall clock that is
//! further ahead than the uptime explains has jumped. Its time is trusted once the jump has lasted for [`LASTS_MS`];
//! until then time goes on from the last trusted one. A clock that is corrected before that leaves no trace. After a
//! restart, and between machines, uptime explains nothing: then every pause longer than [`JUMP_MS`] has to last, which
//! only means that leases end a little later.
//!
//! The row stands beside the sweeper's, and is deleted with it.

use crate::{
    values::stored,
    world::{Uptime, World},
};
use onceflow_core::{Row, Timestamp};

/// How far a clock may be ahead of the explained time: more than the clocks of machines differ, less than any lease of
/// days lasts.
pub(in crate::values) const JUMP_MS: u64 = 3_600_000;

/// How long an unexplained time must have lasted: longer than it takes to notice a wrong clock, and less than the day
/// between two runs of a nightly job.
pub(in crate::values) const LASTS_MS: u64 = 12 * 3_600_000;

/// How old the record may get while a sweeper runs: machines that share a store learn of each other's time.
const OLD_MS: u64 = 600_000;

/// The last time the store believed, and a later one it does not believe yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::values) struct Witness {
    /// When and where the clocks were read.
    uptime: Uptime,
    /// The trusted time.
    trusted: Timestamp,
    /// The wall clock when it was first found ahead; zero if it is not ahead.
    ahead_since: Timestamp,
}

impl Witness {
    /// The record after a look at the clocks of this process.
    pub(in crate::values) fn of(world: &dyn World, known: Option<Self>) -> Self {
        Witness::look(known, world.clock(), world.uptime())
    }

    /// The record after another look, at a clock that says `wall` on a machine with this uptime.
    pub(in crate::values) fn look(known: Option<Self>, wall: Timestamp, uptime: Option<Uptime>) -> Self {
        let here = uptime.unwrap_or(Uptime { boot: 0, ms: 0 });
        let plain = Witness { uptime: here, trusted: wall, ahead_since: Timestamp::ZERO };
        let Some(known) = known else { return plain };
        let is_same = uptime.is_some_and(|uptime| uptime.boot == known.uptime.boot);
        let passed_ms = if is_same { here.ms.saturating_sub(known.uptime.ms) } else { 0 };
        let explained = known.trusted.plus_ms(passed_ms);
        if wall.ms_since(explained) <= JUMP_MS {
            return plain;
        }
        match known.ahead_since {
            since if since == Timestamp::ZERO || since > wall => {
                Witness { uptime: here, trusted: explained, ahead_since: wall }
            }
            since if wall.ms_since(since) >= LASTS_MS => plain,
            since => Witness { uptime: here, trusted: explained, ahead_since: since },
        }
    }

    /// The time for deadlines of days, when the store's clock says `now`. That clock may be ahead of the trusted time:
    /// because a clock jumped, or because one had jumped and the store's clock never goes back.
    pub(in crate::values) fn now(&self, now: Timestamp) -> Timestamp {
        if now.ms_since(self.trusted) > JUMP_MS { self.trusted } else { now }
    }

    /// The record differs from `written`, so that it has to be written.
    pub(in crate::values) fn is_news(&self, written: Option<Self>) -> bool {
        written.is_none_or(|written| {
            written.ahead_since != self.ahead_since
                || written.uptime.boot != self.uptime.boot
                || self.trusted.ms_since(written.trusted) > OLD_MS
                || written.trusted.ms_since(self.trusted) > OLD_MS
        })
    }

    pub(in crate::values) fn to_row(self) -> Row {
        let Uptime { boot, ms } = self.uptime;
        let times = [self.trusted.to_sortable(), self.ahead_since.to_sortable()];
        stored::checked(&[&boot.to_be_bytes(), &ms.to_be_bytes(), &times[0], &times[1]])
    }

    pub(in crate::values) fn from_row(row: &[u8]) -> Option<Self> {
        let (boot, rest) = stored::body(row)?.split_first_chunk()?;
        let (ms, rest) = rest.split_first_chunk()?;
        let (trusted, ahead_since) = rest.split_at_checked(8)?;
        Some(Witness {
            uptime: Uptime { boot: u128::from_be_bytes(*boot), ms: u64::from_be_bytes(*ms) },
            trusted: Timestamp::from_sortable(trusted)?,
            ahead_since: Timestamp::from_sortable(ahead_since)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;

    /// A machine that was started so often, and its looks: hours it was up, and what its clock says in hours.
    fn believed(looks: &[(u128, u64, u64)]) -> Vec<u64> {
        let mut known = None;
        let look = |(boot, up, wall): &(u128, u64, u64)| {
            let uptime = Uptime { boot: *boot, ms: up * HOUR };
            let seen = Witness::look(known, Timestamp::from_ms(wall * HOUR), Some(uptime));
            assert_eq!(Witness::from_row(&seen.to_row()), Some(seen));
            known = Some(seen);
            // The store's clock does not go back.
            seen.now(Timestamp::from_ms(1000 * DAY)).as_ms() / HOUR
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_long_idle_time_is_not_taken_for_a_clock_jump() {
        assert_eq!(believed(&[(1, 0, 100), (1, 5, 105), (1, 905, 1005)]), [100, 105, 1005]);
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_believed_when_it_has_lasted() {
        assert_eq!(
            believed(&[(1, 0, 100), (1, 1, 293), (1, 2, 294), (1, 12, 304), (1, 13, 305)]),
            [100, 101, 102, 112, 305]
        );
    }

    #[test]
    fn a_clock_that_is_set_right_again_is_as_if_nothing_had_been() {
        assert_eq!(believed(&[(1, 0, 100), (1, 1, 293), (1, 2, 102), (1, 3, 103)]), [100, 101, 102, 103]);
        // And a clock that is wrong again has to last again.
        assert_eq!(believed(&[(1, 0, 100), (1, 1, 293), (1, 2, 102), (1, 14, 306)]), [100, 101, 102, 114]);
    }

    #[test]
    fn after_a_restart_a_long_pause_has_to_last() {
        assert_eq!(believed(&[(1, 50, 100), (2, 0, 200), (2, 1, 201), (2, 12, 212)]), [100, 100, 101, 212]);
        assert_eq!(believed(&[(1, 50, 100), (2, 0, 101)]), [100, 101], "a short one need not");
        assert_eq!(believed(&[(1, 50, 100), (2, 0, 124), (3, 0, 148)]), [100, 100, 148], "a nightly job");
    }

    #[test]
    fn only_news_is_written() {
        let at = |boot, up, wall| Witness::look(None, Timestamp::from_ms(wall), Some(Uptime { boot, ms: up }));
        let first = at(1, 0, DAY);
        assert!(first.is_news(None) && !first.is_news(Some(first)));
        assert!(!at(1, 1000, DAY + 1000).is_news(Some(first)) && at(1, HOUR, DAY + HOUR).is_news(Some(first)));
        assert!(at(2, 0, DAY).is_news(Some(first)));
    }
}
