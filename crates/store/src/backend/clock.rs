//! The store's clock: the world's, held so that it never goes back and never stands still.

use onceflow_core::Timestamp;

/// Remembers the latest time it gave, and the time of the world's clock then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreClock {
    given: Timestamp,
    world: Option<Timestamp>,
}

impl StoreClock {
    /// A clock that gives no time before this one.
    pub(crate) fn not_before(time: Timestamp) -> Self {
        StoreClock { given: time, world: None }
    }

    /// The latest time given.
    pub(crate) fn latest(&self) -> Timestamp {
        self.given
    }

    /// The store's time when the world's clock shows `world`. While that is behind, after it was set back, time passes
    /// at half its speed: a lease of ten seconds ends after twenty, not when the old time comes round again, and the
    /// world catches up.
    pub(crate) fn read(&mut self, world: Timestamp) -> Timestamp {
        let before = *self.world.get_or_insert(world);
        let half = world.ms_since(before) / 2;
        if world >= self.given {
            (self.given, self.world) = (world, Some(world));
        } else if half > 0 || world < before {
            self.given = self.given.plus_ms(half);
            self.world = Some(world);
        }
        self.given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_neither_goes_back_nor_stands_still() {
        let mut clock = StoreClock::not_before(Timestamp::from_ms(1_000));
        let mut read = |world| clock.read(Timestamp::from_ms(world)).as_ms();
        let given = [500, 600, 2_000, 100, 101, 102, 300, 2_500].map(&mut read);
        assert_eq!(given, [1_000, 1_050, 2_000, 2_000, 2_000, 2_001, 2_100, 2_500]);
    }
}
