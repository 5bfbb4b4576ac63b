//! A bounded part of what the simulator can do, for every test run: `sim/run` does more of it.

#[cfg(feature = "hazards")]
use onceflow_sim::streams;
use onceflow_sim::{
    explore,
    faults::StoreKind,
    hazards,
    scenario::{self, How},
};

/// How many seeds are run; a hundred times as many if `ONCEFLOW_LONG` is set.
const SEEDS: u64 = 5_000;

/// How many seeds a known mistake may take to be noticed.
#[cfg(feature = "hazards")]
const NOTICED_WITHIN: u64 = 20_000;

#[cfg(feature = "hazards")]
const STREAMS_NOTICED_WITHIN: u64 = 1_000;

fn break_no_promise(seeds: std::ops::Range<u64>) {
    let scale = if std::env::var_os("ONCEFLOW_LONG").is_some() { 100 } else { 1 };
    for seed in seeds.start * scale..seeds.end * scale {
        let violation = scenario::run(seed, How::default()).violation;
        assert!(violation.is_none(), "sim/run --seed {seed} --trace: {violation:?}");
    }
}

#[test]
fn no_seed_breaks_a_promise() {
    break_no_promise(0..SEEDS / 2);
}

#[test]
fn no_later_seed_breaks_a_promise() {
    break_no_promise(SEEDS / 2..SEEDS);
}

/// The n-th seed that is about scopes.
fn of_scopes(n: u64) -> u64 {
    (n + 1) * scenario::SEEDS_OF_SCOPES - 1
}

#[test]
fn no_session_of_a_scope_breaks_a_promise() {
    let scale = if std::env::var_os("ONCEFLOW_LONG").is_some() { 100 } else { 1 };
    for seed in (SEEDS / 10..SEEDS / 5 * scale).map(of_scopes) {
        let violation = scenario::run(seed, How::default()).violation;
        assert!(violation.is_none(), "sim/run --seed {seed} --trace: {violation:?}");
    }
}

#[test]
fn no_seed_breaks_a_promise_on_redis() {
    let how = How { store: Some(StoreKind::Redis), ..How::default() };
    for seed in 0..SEEDS / 5 * if std::env::var_os("ONCEFLOW_LONG").is_some() { 100 } else { 1 } {
        let violation = scenario::run(seed, how).violation;
        assert!(violation.is_none(), "sim/run --store redis --seed {seed} --trace: {violation:?}");
    }
}

const STREAMS: How = How { trace: false, harm_until_ms: None, store: None, streams: true };

#[test]
fn no_seed_breaks_a_promise_of_streams() {
    let scale = if std::env::var_os("ONCEFLOW_LONG").is_some() { 100 } else { 1 };
    for seed in 0..SEEDS / 50 * scale {
        let violation = scenario::run(seed, STREAMS).violation;
        assert!(violation.is_none(), "sim/run --streams --seed {seed} --trace: {violation:?}");
    }
}

#[test]
fn a_seed_replays_exactly() {
    for (seed, how) in (0..50).map(|seed| (seed, How::default())).chain((0..5).map(|seed| (seed, STREAMS))) {
        let digests = [(); 2].map(|()| scenario::run(seed, how).digest);
        assert_eq!(digests[0], digests[1], "seed {seed}, {how:?}");
    }
}

#[test]
fn small_flows_hold_whatever_interleaves() {
    // The wide ones take minutes, and so do eaches and loops that may be cancelled; `sim/run --explore` does them all.
    const WIDE: [&str; 4] = ["fan of 3", "two ends", "failure beside a step", "failure in an each"];
    for (name, shape) in explore::SHAPES.iter().filter(|(name, _)| !WIDE.contains(name)) {
        let opens = name.starts_with("each") || name.starts_with("loop");
        for cancels in [false, true].into_iter().filter(|cancels| !(opens && *cancels)) {
            let found = explore::explore(shape, cancels).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(found.ends > 0 && found.states > 100, "{name}: {found:?}");
        }
    }
}

#[test]
fn values_hold_whatever_interleaves() {
    // The longest takes half a minute.
    for scene in explore::values::SCENES.iter().filter(|scene| scene.name != "a chain let go") {
        let found = explore::values::explore(scene).unwrap_or_else(|why| panic!("{}: {why}", scene.name));
        assert!(found.ends > 0 && found.states > 100, "{}: {found:?}", scene.name);
    }
}

#[test]
fn every_known_mistake_is_told_apart() {
    let mut names: Vec<_> = hazards::ALL.iter().map(|hazard| hazard.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), hazards::ALL.len());
}

/// The explorer would notice, too.
#[cfg(feature = "hazards")]
#[test]
fn the_explorer_notices_a_referenced_value_that_is_swept() {
    hazards::switch(Some("buried-though-referenced"));
    let noticed = explore::values::SCENES.iter().any(|scene| explore::values::explore(scene).is_err());
    hazards::switch(None);
    assert!(noticed);
}

/// The checks would notice: each known mistake, switched on, breaks a promise that holds without it.
#[cfg(feature = "hazards")]
#[test]
fn known_mistakes_are_noticed() {
    notice(|of| of != hazards::OF_SCOPES);
}

#[cfg(feature = "hazards")]
#[test]
fn known_mistakes_about_scopes_are_noticed() {
    notice(|of| of == hazards::OF_SCOPES);
}

#[cfg(feature = "hazards")]
fn notice(is_asked: fn(&str) -> bool) {
    let violation = |seed, name| {
        hazards::switch(name);
        scenario::run(seed, How::default()).violation
    };
    let asked: Vec<_> = hazards::ALL.iter().filter(|hazard| is_asked(hazard.of)).collect();
    on_all_processors(&asked, |hazard| {
        let notices = |seed: &u64| violation(*seed, Some(hazard.name)).is_some() && violation(*seed, None).is_none();
        let noticed = match hazard.of {
            hazards::OF_SCOPES => (0..NOTICED_WITHIN / scenario::SEEDS_OF_SCOPES).map(of_scopes).find(notices),
            _ => (0..NOTICED_WITHIN).find(notices),
        };
        assert!(noticed.is_some(), "{} ({}) is not noticed: {}", hazard.name, hazard.of, hazard.what);
    });
}

/// The same for streams.
#[cfg(feature = "hazards")]
#[test]
fn known_mistakes_of_streams_are_noticed() {
    let violation = |seed, name| {
        hazards::switch(name);
        scenario::run(seed, STREAMS).violation
    };
    let all: Vec<_> = streams::HAZARDS.iter().collect();
    on_all_processors(&all, |hazard| {
        let notices = |seed: &u64| violation(*seed, Some(hazard.name)).is_some() && violation(*seed, None).is_none();
        let noticed = (0..STREAMS_NOTICED_WITHIN).find(notices);
        assert!(noticed.is_some(), "{} ({}) is not noticed: {}", hazard.name, hazard.of, hazard.what);
    });
}

/// Does the work for every mistake, several at once: a world has one thread, and one mistake may take most of a minute.
#[cfg(feature = "hazards")]
fn on_all_processors<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}
