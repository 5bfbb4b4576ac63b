//! `sim/run`: runs seeds, and says what broke.

#![forbid(unsafe_code)]

use onceflow_sim::{
    explore,
    faults::StoreKind,
    hazards,
    scenario::{self, How, Outcome},
    streams,
};
use std::time::{Duration, Instant};

const HELP: &str = "sim/run: the real kernel in a world in which everything goes wrong

  --seeds N        runs seeds 0..N (1000)
  --from S         begins with seed S
  --seconds N      begins no further seed after N seconds
  --seed S         runs one seed; twice, and compares
  --trace          with --seed: prints what happened, with as little harm as still breaks the promise
  --hazards        switches every known mistake on, and says which seed notices it (of --seeds, 2000)
  --hazard NAME    the same for one, or with --seed for one seed
  --store KIND     on a `server`, on `redis` or `embedded` instead of what the seed chooses
  --explore        every interleaving of two workers on small flows, with crashes, expiries, restarts and cancels
  --streams        works on streams instead of on flows and values; with --hazards, makes the mistakes of streams
  --json           prints one object: seeds, violations, hazards_found, hazards_total (of those tried), seeds_per_s

Exits with 1 if a promise was broken, or a mistake was not noticed.";

#[derive(Default)]
struct Asked {
    seeds: Option<u64>,
    from: u64,
    seconds: Option<u64>,
    seed: Option<u64>,
    trace: bool,
    hazards: bool,
    hazard: Option<String>,
    store: Option<StoreKind>,
    explore: bool,
    streams: bool,
    json: bool,
}

impl Asked {
    /// The known mistakes of the workload.
    fn hazards(&self) -> &'static [hazards::Hazard] {
        if self.streams { streams::HAZARDS } else { hazards::ALL }
    }

    /// How seeds are run.
    fn how(&self) -> How {
        How { store: self.store, streams: self.streams, ..How::default() }
    }
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match argument.as_str() {
            "--seeds" => asked.seeds = Some(number(value()?)?),
            "--from" => asked.from = number(value()?)?,
            "--seconds" => asked.seconds = Some(number(value()?)?),
            "--seed" => asked.seed = Some(number(value()?)?),
            "--trace" => asked.trace = true,
            "--hazards" => asked.hazards = true,
            "--hazard" => asked.hazard = Some(value()?),
            "--store" => {
                asked.store = Some(match value()?.as_str() {
                    "server" => StoreKind::Server,
                    "redis" => StoreKind::Redis,
                    "embedded" => StoreKind::Embedded,
                    other => return Err(format!("{other} is no store: server, redis or embedded")),
                });
            }
            "--streams" => asked.streams = true,
            "--explore" => asked.explore = true,
            "--json" => asked.json = true,
            other => return Err(format!("{other}?\n\n{HELP}")),
        }
    }
    Ok(asked)
}

fn main() {
    // A panic is a broken promise like any other, and told as one.
    std::panic::set_hook(Box::new(|_| {}));
    let asked = match asked() {
        Ok(asked) => asked,
        Err(help) => {
            eprintln!("{help}");
            std::process::exit(2);
        }
    };
    let hazard = asked.hazard.as_ref().map(|name| {
        let known = asked.hazards().iter().find(|hazard| hazard.name == name);
        known.unwrap_or_else(|| {
            eprintln!("there is no hazard {name}");
            std::process::exit(2);
        })
    });
    if asked.explore {
        hazards::switch(hazard.map(|hazard| hazard.name));
        std::process::exit(i32::from(!small()));
    }
    let well = match (asked.seed, hazard) {
        (Some(seed), hazard) => {
            hazards::switch(hazard.map(|hazard| hazard.name));
            one(seed, &asked)
        }
        (None, Some(hazard)) => table(std::slice::from_ref(hazard), &asked),
        (None, None) if asked.hazards => table(asked.hazards(), &asked),
        (None, None) => many(&asked),
    };
    std::process::exit(i32::from(!well));
}

/// Runs one seed.
fn one(seed: u64, asked: &Asked) -> bool {
    let (trace, how) = (asked.trace, asked.how());
    let outcome = scenario::run(seed, how);
    let again = scenario::run(seed, how);
    assert_eq!(outcome.digest, again.digest, "the seed did not replay");
    let Some(violation) = outcome.violation else {
        if trace {
            let told = scenario::run(seed, How { trace, ..how });
            told.trace.iter().for_each(|line| println!("{line}"));
        }
        println!("seed {seed}: nothing is wrong ({} steps, {} bodies)", outcome.polls, outcome.bodies);
        return true;
    };
    let until_ms = least_harm(seed, violation.promise, how);
    if trace {
        let told = scenario::run(seed, How { trace, harm_until_ms: until_ms, ..how });
        told.trace.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {seed}: {}: {}", violation.promise, violation.seen);
    if let Some(until_ms) = until_ms {
        println!("it takes no harm after {until_ms} ms");
    }
    false
}

/// The earliest time at which harm can end so that the same promise is still broken.
fn least_harm(seed: u64, promise: &str, how: How) -> Option<u64> {
    let breaks = |until_ms: u64| {
        let outcome = scenario::run(seed, How { harm_until_ms: Some(until_ms), ..how });
        outcome.violation.is_some_and(|violation| violation.promise == promise)
    };
    let (mut least, mut enough) = (0, 16_384);
    if !breaks(enough) {
        return None;
    }
    while least < enough {
        let middle = least.midpoint(enough);
        if breaks(middle) { enough = middle } else { least = middle + 1 }
    }
    Some(enough)
}

#[expect(clippy::disallowed_methods, reason = "how long it really takes")]
fn now() -> Instant {
    Instant::now()
}

/// Runs many seeds.
fn many(asked: &Asked) -> bool {
    const SHOWN_MAX: u64 = 20;
    let began = now();
    let (mut seeds, mut failed, mut polls, mut bodies) = (0, 0, 0, 0);
    let wanted = asked.seeds.unwrap_or(if asked.seconds.is_some() { u64::MAX } else { 1000 });
    for seed in asked.from..asked.from.saturating_add(wanted) {
        if asked.seconds.is_some_and(|seconds| began.elapsed() > Duration::from_secs(seconds)) {
            break;
        }
        let outcome = scenario::run(seed, asked.how());
        if seed % 100 == 0 {
            let again = scenario::run(seed, asked.how());
            assert_eq!(outcome.digest, again.digest, "seed {seed} did not replay");
        }
        let Outcome { violation, polls: went, bodies: ran, .. } = outcome;
        (seeds, polls, bodies) = (seeds + 1, polls + went, bodies + ran);
        if let Some(violation) = violation {
            failed += 1;
            if failed <= SHOWN_MAX {
                let seen: String = violation.seen.chars().take(300).collect();
                eprintln!("seed {seed}: {}: {seen}", violation.promise);
            }
        }
    }
    let per_second = f64::from(u32::try_from(seeds).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64();
    if asked.json {
        println!(
            "{{\"seeds\": {seeds}, \"violations\": {failed}, \"hazards_found\": 0, \"hazards_total\": 0, \
             \"seeds_per_s\": {per_second:.1}}}"
        );
    } else {
        println!(
            "{seeds} seeds, {failed} with a broken promise; {polls} steps, {bodies} bodies; {per_second:.0} seeds/s"
        );
    }
    failed == 0
}

/// Explores everything that can happen to small flows.
fn small() -> bool {
    let (mut states, mut depth, mut well) = (0, 0, true);
    let mut tell = |title: &str, found: Result<explore::Explored, String>| match found {
        Ok(found) => {
            println!("{title:<24} {:>9} states, {:>3} deep, {} ends", found.states, found.depth, found.ends);
            (states, depth) = (states + found.states, depth.max(found.depth));
        }
        Err(why) => {
            println!("{title:<24} {why}");
            well = false;
        }
    };
    for scene in explore::values::SCENES {
        tell(scene.name, explore::values::explore(scene));
    }
    for (name, shape) in explore::SHAPES {
        for cancels in [false, true] {
            let title = format!("{name}{}", if cancels { ", cancelled" } else { "" });
            tell(&title, explore::explore(shape, cancels));
        }
    }
    println!("{states} states, up to {depth} events deep");
    well
}

/// Makes mistakes, and says which seed notices.
fn table(hazards: &[hazards::Hazard], asked: &Asked) -> bool {
    let (most, began) = (asked.seeds.unwrap_or(2000), now());
    let (mut found, mut seeds) = (0, 0);
    for hazard in hazards {
        let noticed = (asked.from..asked.from + most).find_map(|seed| {
            seeds += 1;
            hazards::switch(Some(hazard.name));
            let violation = scenario::run(seed, asked.how()).violation?;
            // It is the mistake that was noticed, if nothing is wrong without it.
            hazards::switch(None);
            let is_well = scenario::run(seed, asked.how()).violation.is_none();
            is_well.then_some((seed, violation))
        });
        hazards::switch(None);
        found += usize::from(noticed.is_some());
        let (seed, promise) = match noticed {
            Some((seed, violation)) => (seed.to_string(), violation.promise),
            None => (String::from("-"), "NOT NOTICED"),
        };
        if !asked.json {
            println!("{:<26} {:<22} {seed:>6}  {promise}", hazard.name, hazard.of);
        }
    }
    let per_second = f64::from(u32::try_from(seeds).unwrap_or(u32::MAX)) / began.elapsed().as_secs_f64();
    let total = hazards.len();
    if asked.json {
        println!(
            "{{\"seeds\": {seeds}, \"violations\": 0, \"hazards_found\": {found}, \"hazards_total\": {total}, \
             \"seeds_per_s\": {per_second:.1}}}"
        );
    } else {
        println!("{found} of {total} noticed within {most} seeds each");
    }
    found == total
}
