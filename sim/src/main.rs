//! `sim/run`: runs seeds, and says what broke.

#![forbid(unsafe_code)]

use onceflow_sim::scenario::{self, How, Outcome};

fn main() {
    let mut seeds = 0..1000_u64;
    let (mut trace, mut one) = (false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok()).expect("a number");
        match argument.as_str() {
            "--seeds" => seeds = 0..number(),
            "--from" => {
                let from = number();
                seeds = from..from + (seeds.end - seeds.start);
            }
            "--seed" => one = Some(number()),
            "--trace" => trace = true,
            other => panic!("{other}?"),
        }
    }
    std::panic::set_hook(Box::new(|info| {
        if std::env::var_os("SIM_PANICS").is_some() {
            eprintln!("{info}");
        }
    }));
    if let Some(seed) = one {
        let outcome = scenario::run(seed, How { trace, harm_until_ms: None });
        outcome.trace.iter().for_each(|line| println!("{line}"));
        println!("{:?} polls {} bodies {} digest {:x}", outcome.violation, outcome.polls, outcome.bodies, outcome.digest);
        return;
    }
    let began = std::time::Instant::now();
    let (mut failed, mut polls) = (0, 0);
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let Outcome { violation, polls: went, .. } = scenario::run(seed, How::default());
        polls += went;
        if let Some(violation) = violation {
            failed += 1;
            if failed <= 20 {
                println!("seed {seed}: {}: {}", violation.promise, violation.seen.chars().take(400).collect::<String>());
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} seeds, {failed} failed, {} polls a seed, {:.0} seeds/s", polls / count, count as f64 / seconds);
}
