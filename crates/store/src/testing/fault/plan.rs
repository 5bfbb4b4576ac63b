//! When to fail, and how.

use crate::{
    records::Error,
    sync::{Mutex, lock},
    testing::random::Random,
};
use std::sync::Arc;

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process dies before the call does anything. It and all later calls fail.
    StopBefore,
    /// The call is executed, then the process dies. Its answer is lost and all later calls fail.
    StopAfter,
    /// The call is executed, and its answer is lost: [`Error::Unknown`] for a batch. Later calls work.
    /// For a call that changes nothing it is the same as [`Fault::FailOnce`].
    LoseReply,
    /// The call does nothing and fails with [`Error::Unavailable`]. Later calls work.
    FailOnce,
}

impl Fault {
    /// Every way to fail.
    pub const ALL: [Fault; 4] = [Fault::StopBefore, Fault::StopAfter, Fault::LoseReply, Fault::FailOnce];
}

/// How likely a call fails, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    /// With [`Fault::StopBefore`].
    pub stop_before: u32,
    /// With [`Fault::StopAfter`].
    pub stop_after: u32,
    /// With [`Fault::LoseReply`].
    pub lose_reply: u32,
    /// With [`Fault::FailOnce`].
    pub fail_once: u32,
}

impl Odds {
    fn draw(&self, random: &mut Random) -> Option<Fault> {
        let mut left = random.below(1000);
        let odds = [self.stop_before, self.stop_after, self.lose_reply, self.fail_once];
        for (fault, odds) in Fault::ALL.into_iter().zip(odds) {
            if left < odds as usize {
                return Some(fault);
            }
            left -= odds as usize;
        }
        None
    }
}

/// When to fail, and how. A handle: clones share the count of calls and the end of their process.
#[derive(Clone)]
pub struct FaultPlan(Arc<Mutex<Inner>>);

struct Inner {
    when: When,
    calls: u64,
    reached: bool,
    stopped: bool,
}

enum When {
    Never,
    At(u64, Fault),
    ByChance(Odds, Random),
}

/// The planned fate of a call.
pub(crate) enum Verdict {
    Go,
    LoseReply(Error),
    StopAfter(Error),
    Refuse(Error),
    Stopped(Error),
}

impl FaultPlan {
    /// Never fails by itself; counts calls, and stops when told.
    pub fn never() -> Self {
        FaultPlan::of(When::Never)
    }

    /// Fails once, at the n-th call, counted from 1.
    pub fn at(n: u64, fault: Fault) -> Self {
        FaultPlan::of(When::At(n, fault))
    }

    /// Fails by chance, the same with the same seed and calls.
    pub fn by_chance(seed: u64, odds: Odds) -> Self {
        FaultPlan::of(When::ByChance(odds, Random::new(seed)))
    }

    fn of(when: When) -> Self {
        FaultPlan(Arc::new(Mutex::new(Inner { when, calls: 0, reached: false, stopped: false })))
    }

    /// How many calls were made, failed ones included.
    pub fn calls(&self) -> u64 {
        lock(&self.0).calls
    }

    /// A call has failed by this plan.
    pub fn reached(&self) -> bool {
        lock(&self.0).reached
    }

    /// The process has died.
    pub fn stopped(&self) -> bool {
        lock(&self.0).stopped
    }

    /// Lets the process die now: all later calls fail.
    pub fn stop(&self) {
        lock(&self.0).stopped = true;
    }

    pub(crate) fn next_call(&self) -> Verdict {
        lock(&self.0).next_call()
    }
}

impl Inner {
    fn next_call(&mut self) -> Verdict {
        self.calls += 1;
        let n = self.calls;
        if self.stopped {
            return Verdict::Stopped(unavailable("the process is gone", n));
        }
        let fault = match &mut self.when {
            When::Never => None,
            When::At(at, fault) => (*at == n).then_some(*fault),
            When::ByChance(odds, random) => odds.draw(random),
        };
        let Some(fault) = fault else { return Verdict::Go };
        self.reached = true;
        self.stopped = matches!(fault, Fault::StopBefore | Fault::StopAfter);
        match fault {
            Fault::StopBefore => Verdict::Stopped(unavailable("the process died before", n)),
            Fault::StopAfter => Verdict::StopAfter(unknown("the process died after", n)),
            Fault::LoseReply => Verdict::LoseReply(unknown("the reply was lost of", n)),
            Fault::FailOnce => Verdict::Refuse(unavailable("not now, said", n)),
        }
    }
}

fn unavailable(why: &str, n: u64) -> Error {
    Error::Unavailable(format!("{why} call {n}, as planned").into())
}

fn unknown(why: &str, n: u64) -> Error {
    Error::Unknown(format!("{why} call {n}, as planned").into())
}
