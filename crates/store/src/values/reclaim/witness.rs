//! How late it is, as far as that can be believed: what ends by itself after days must not end because a clock was wrong for
//! a moment.
//!
//! The store remembers when it was looked at last: the wall clock, and how long the machine had been up. A wall clock that
//! is further ahead than the machine's uptime explains has jumped. What it says is believed when it has lasted for
//! [`LASTS_MS`]; until then time goes on from what was believed. A clock that is set right again before is as if nothing
//! had been. After a restart, and between machines, uptime explains nothing: then every pause longer than [`JUMP_MS`] has
//! to last, which only means that things end a little later.
//!
//! The row stands beside the sweeper's, and goes with it.

use crate::{values::stored, world::Uptime};
use onceflow_core::{Row, Timestamp};

/// What a clock may be ahead of what is explained: more than clocks of machines differ, less than anything is kept for that
/// is kept for long.
pub(in crate::values) const JUMP_MS: u64 = 3_600_000;

/// How long a time must have lasted that nothing explains: longer than it takes to notice a wrong clock, and less than the
/// day between two runs of a nightly job.
pub(in crate::values) const LASTS_MS: u64 = 12 * 3_600_000;

/// How old what is remembered may get while somebody reclaims: machines that share a store know of each other's time.
const OLD_MS: u64 = 600_000;

/// The last time the store believed, and a later one it does not believe yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::values) struct Witness {
    /// When and where it was looked at.
    uptime: Uptime,
    /// How late it was, as far as that is believed.
    trusted: Timestamp,
    /// The wall clock when it was first found ahead; zero if it is not.
    ahead_since: Timestamp,
}

impl Witness {
    /// What is known after another look, at a clock that says `wall` on a machine that is up for so long.
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

    /// How late it is for what ends after a long time, when the store's clock says `now`. That may be ahead of what is
    /// believed: because a clock jumped, or because one had and the store's does not go back.
    pub(in crate::values) fn now(&self, now: Timestamp) -> Timestamp {
        if now.ms_since(self.trusted) > JUMP_MS { self.trusted } else { now }
    }

    /// Whether it says something that `written` does not, so that it has to be written.
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
    fn time_that_passes_is_believed_however_long_nobody_looks() {
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
        // And what is wrong again begins to last again.
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
