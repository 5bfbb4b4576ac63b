//! `fuzz/run`: runs targets for so many inputs or so long, and says what they did. stdout is data, stderr is talk.

use clap::Parser;
use onceflow_fuzz::{
    drive::{Budget, attempt},
    targets::{self, TARGETS, Target},
    watch,
};
use serde_json::json;
use std::{fs, path::PathBuf, process::ExitCode};

/// Throws arbitrary bytes at every door that takes bytes.
#[derive(Parser)]
#[command(name = "fuzz/run")]
struct Args {
    /// What to try; everything without one.
    targets: Vec<String>,
    /// Inputs of each target.
    #[arg(long, conflicts_with = "seconds")]
    runs: Option<u64>,
    /// How long each target is tried.
    #[arg(long)]
    seconds: Option<u64>,
    /// The same seed tries the same inputs in the same order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One line of JSON for each target.
    #[arg(long)]
    json: bool,
    /// Tries this one input, in this process.
    #[arg(long)]
    r#try: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let budget = match (args.runs, args.seconds) {
        (Some(runs), _) => Budget::Runs(runs),
        (None, seconds) => Budget::Seconds(seconds.unwrap_or(20)),
    };
    let wanted = wanted(&args.targets)?;
    if let Some(path) = &args.r#try {
        anyhow::ensure!(wanted.len() == 1, "--try needs the one target that the input is for");
        return try_one(wanted[0], path);
    }
    if let Some(file) = watch::input_file() {
        println!("{}", watch::be_child(wanted[0], args.seed, budget, &file)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut broken = false;
    for target in wanted {
        broken |= run(target, args.seed, budget, args.json)?;
    }
    Ok(ExitCode::from(u8::from(broken)))
}

fn wanted(names: &[String]) -> anyhow::Result<Vec<&'static Target>> {
    let all = TARGETS.iter().map(|target| target.name);
    let names: Vec<&str> =
        if names.is_empty() { all.clone().collect() } else { names.iter().map(String::as_str).collect() };
    let known = all.collect::<Vec<_>>().join(", ");
    names.iter().map(|name| targets::find(name).ok_or_else(|| anyhow::anyhow!("no target `{name}`: {known}"))).collect()
}

/// Runs a target; true if a promise was broken.
fn run(target: &'static Target, seed: u64, budget: Budget, is_json: bool) -> anyhow::Result<bool> {
    match watch::run(target, seed, budget)? {
        Ok(tally) => {
            let per_second = tally.runs as f64 / tally.seconds.max(0.001);
            if is_json {
                let line = json!({ "target": target.name, "seed": seed, "runs": tally.runs, "classes": tally.classes,
                    "seconds": tally.seconds, "runs_per_s": per_second, "failures": 0 });
                println!("{line}");
            } else {
                println!(
                    "{:8} {:>9} inputs, {:>5} ways to come out, {:>7.0} a second, no promise broken",
                    target.name, tally.runs, tally.classes, per_second
                );
            }
            Ok(false)
        }
        Err(failure) => {
            let kept = watch::keep(target, &failure)?;
            if is_json {
                println!(
                    "{}",
                    json!({ "target": target.name, "seed": seed, "failures": 1, "message": failure.message })
                );
            } else {
                println!("{:8} BROKEN: {}", target.name, failure.message);
            }
            eprintln!("  --> {kept}");
            Ok(true)
        }
    }
}

fn try_one(target: &Target, path: &PathBuf) -> anyhow::Result<ExitCode> {
    if watch::input_file().is_some() {
        watch::limit();
    }
    match attempt(target, &fs::read(path)?) {
        Ok(class) => println!("{}: {class}", target.name),
        Err(message) => {
            println!("{} BROKEN: {message}", target.name);
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
