//! `soak/attack`: uses the real command the way that once broke the promise, and looks whether it still does.
//!
//! | module | attack | what must hold |
//! |---|---|---|
//! | `load` | many runs at a time on one directory, no fault | every step starts exactly once, every run succeeds |
//! | `links` | steps that replace their directories by links | nothing outside the work directory changes |
//! | `damage` | objects of the store are flipped, cut, emptied, swapped, deleted | no wrong byte is delivered, and the run heals |
//! | `crashes` | the process is killed while it stores a large input, again and again | nothing is left behind |
//!
//! Every attack works in a directory of its own below one temporary directory, and harms nothing outside it.

#![forbid(unsafe_code)]

mod bed;
mod crashes;
mod damage;
mod links;
mod load;

use bed::Bed;
use clap::Parser;
use onceflow_store::testing::random::Random;
use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Attacks the `onceflow` command, and checks that its promises hold.
#[derive(Parser)]
#[command(name = "soak/attack")]
struct Args {
    /// How long all attacks together may take; each gets a quarter.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Decides which objects are damaged, and when processes are killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The command to attack; default: `onceflow` beside this program.
    #[arg(long)]
    tool: Option<PathBuf>,
    /// Only this attack: load, links, damage or crashes.
    #[arg(long)]
    only: Option<String>,
    /// One line of JSON.
    #[arg(long)]
    json: bool,
}

/// The counts of an attack, and the promises that did not hold.
#[derive(Default)]
pub(crate) struct Findings {
    /// Counts by name, in the order they are printed.
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) wrong: Vec<String>,
}

impl Findings {
    pub(crate) fn count(&mut self, name: &'static str, by: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += by,
            None => self.counts.push((name, by)),
        }
    }
}

/// An attack that works in a directory until its time is over.
type Attack = fn(&Bed, Deadline, &mut Random) -> anyhow::Result<Findings>;

const ATTACKS: [(&str, Attack); 4] =
    [("load", load::attack), ("links", links::attack), ("damage", damage::attack), ("crashes", crashes::attack)];

/// When an attack starts nothing new.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "attacks run in the real world only")]
    fn after(time: Duration) -> Self {
        Deadline(Instant::now() + time)
    }

    #[expect(clippy::disallowed_methods, reason = "attacks run in the real world only")]
    pub(crate) fn is_over(self) -> bool {
        Instant::now() >= self.0
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("onceflow"));
    let tool = args.tool.clone().map_or_else(beside, Ok)?;
    let directory = tempfile::Builder::new().prefix("onceflow-attack-").tempdir()?;
    let chosen: Vec<_> =
        ATTACKS.iter().filter(|(name, _)| args.only.as_deref().is_none_or(|only| only == *name)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no attack is called {:?}", args.only.unwrap_or_default());
    let share = Duration::from_secs(args.seconds) / u32::try_from(chosen.len())?;
    let (mut report, mut is_right) = (serde_json::Map::new(), true);
    for (name, attack) in chosen {
        let bed = Bed::at(directory.path().join(name), &tool)?;
        let found = attack(&bed, Deadline::after(share), &mut Random::new(args.seed))?;
        is_right &= found.wrong.is_empty();
        let counts: Vec<_> = found.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        if !args.json {
            println!("{name}: {}", counts.join(", "));
            found.wrong.iter().take(20).for_each(|wrong| println!("WRONG: {wrong}"));
        }
        let mut entry: serde_json::Map<_, _> =
            found.counts.iter().map(|(what, count)| (what.replace(' ', "_"), (*count).into())).collect();
        entry.insert("wrong".into(), found.wrong.into());
        report.insert((*name).into(), entry.into());
    }
    if args.json {
        println!("{}", serde_json::Value::Object(report));
    }
    Ok(ExitCode::from(u8::from(!is_right)))
}
