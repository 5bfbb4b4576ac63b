//! What goes wrong in a world, and how often. Swarm: every seed switches some faults off, so that those that are left
//! get deeper; a few seeds have none.

use onceflow_store::testing::random::Random;

/// How a store answers for what it has applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A server: what it answers lasts, and it loses nothing.
    Server,
    /// A Redis server that syncs before it answers. When it dies, what was applied and not synced is lost, as are the
    /// replies; claims are rows like others. Positions are those of when a call was sent.
    Redis,
    /// A directory that one node owns: its own calls are answered when they are applied, those of others when that is
    /// durable; when the owner dies, what was not synced is lost, and those who live assert their claims again.
    Embedded,
}

/// Rates are per thousand calls; intervals are virtual milliseconds; zero is never.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How the store answers.
    pub store: StoreKind,
    /// Whether what is not lost when the owner dies is what the real journal finds on a real log.
    pub journal: bool,
    /// A commit happens and the caller gets an error.
    pub reply_lost: u32,
    /// A call does not happen and the caller gets an error.
    pub call_failed: u32,
    /// A call about an object does not happen, and the caller gets an error.
    pub blob_failed: u32,
    /// An object is stored or deleted, and the caller gets an error.
    pub blob_reply_lost: u32,
    /// A batch is delivered twice.
    pub duplicated: u32,
    /// A call takes longer, up to `delay_ms`.
    pub delayed: u32,
    /// How long.
    pub delay_ms: u64,
    /// A wake-up is lost.
    pub wake_lost: u32,
    /// A node dies just after a batch of its happened.
    pub crash_after_batch: u32,
    /// Between crashes of nodes.
    pub crash_every_ms: u64,
    /// Between pauses of nodes.
    pub pause_every_ms: u64,
    /// Between times when the store cannot be asked.
    pub outage_every_ms: u64,
    /// How wrong clocks are, at most.
    pub skew_ms: u64,
    /// Whether the store's clock is set now and then.
    pub clock_jumps: bool,
    /// A sync takes up to this.
    pub sync_ms: u64,
    /// How long a claim stands.
    pub lease_ms: u64,
    /// When the harm ends.
    pub until_ms: u64,
    /// Between times when the owner of an embedded store closes it in order, and comes back as a guest. No harm: it
    /// happens in calm worlds, too.
    pub leave_every_ms: u64,
}

impl Faults {
    /// The faults of a seed.
    pub fn new(random: &mut Random) -> Self {
        let on = |random: &mut Random| random.percent(60);
        let rate = |random: &mut Random, most: usize| {
            if random.percent(55) { 1 + random.below(most) as u32 } else { 0 }
        };
        let every = |random: &mut Random, least: u64, most: u64| {
            if on(random) { least + random.below((most - least) as usize) as u64 } else { 0 }
        };
        let calm = random.percent(5);
        let faults = Faults {
            store: if random.percent(50) { StoreKind::Server } else { StoreKind::Embedded },
            journal: random.percent(40),
            reply_lost: rate(random, 60),
            call_failed: rate(random, 60),
            blob_failed: rate(random, 100),
            blob_reply_lost: rate(random, 100),
            duplicated: rate(random, 50),
            delayed: rate(random, 400),
            delay_ms: [5, 50, 400, 1500][random.below(4)],
            wake_lost: rate(random, 300),
            crash_after_batch: if random.percent(30) { 1 + random.below(12) as u32 } else { 0 },
            crash_every_ms: every(random, 100, 4_000),
            pause_every_ms: every(random, 200, 4_000),
            outage_every_ms: every(random, 300, 6_000),
            skew_ms: if on(random) { random.below(10_000) as u64 } else { 0 },
            clock_jumps: true,
            sync_ms: [0, 3, 30, 200][random.below(4)],
            lease_ms: [300, 1_000, 3_000][random.below(3)],
            until_ms: 1_000 + random.below(12_000) as u64,
            leave_every_ms: every(random, 100, 3_000),
        };
        if calm { faults.calm() } else { faults }
    }

    /// The same world without harm.
    pub fn calm(self) -> Self {
        Faults {
            reply_lost: 0,
            call_failed: 0,
            blob_failed: 0,
            blob_reply_lost: 0,
            duplicated: 0,
            delayed: 0,
            wake_lost: 0,
            crash_after_batch: 0,
            crash_every_ms: 0,
            pause_every_ms: 0,
            outage_every_ms: 0,
            skew_ms: 0,
            ..self
        }
    }
}
