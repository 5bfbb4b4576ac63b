//! `soak/run`: real processes on a real journal, with real files, killed again and again while they bring many runs of every
//! shape to their ends; and then a look at whether all of it took effect once and nothing is left.
//!
//! | module | what it owns |
//! |---|---|
//! | `driver` | starts workers, gives them jobs, kills them, starts them again |
//! | `worker` | one such process |
//! | `jobs` | a job: a run, its outcome, and the outputs it must give |
//! | `flows`, `tasks` | what is run |
//! | `effects` | the file in which everything that happens is written down |
//! | `judge` | whether what happened may have happened |
//! | `remains` | what is left in the store, now and when all history is over |

#![forbid(unsafe_code)]

mod driver;
mod effects;
mod flows;
mod jobs;
mod judge;
mod remains;
mod tasks;
mod worker;

use clap::Parser;
use onceflow_store::{World, world::RealWorld};
use std::{path::PathBuf, process::ExitCode};

/// Runs mixed flows on a real journal, with random kill -9, and checks their outcomes.
#[derive(Parser)]
#[command(name = "soak/run")]
struct Args {
    /// How long new runs are started and workers killed. What is under way then comes to its end undisturbed.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides the runs, and when workers are killed; how far they have come by then is up to the machine.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Workers at a time, each a process.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// One line of JSON.
    #[arg(long)]
    json: bool,
    /// Does not remove the directory, and says where it is.
    #[arg(long)]
    leave: bool,
    /// A worker in this directory; the driver starts these.
    #[arg(long, hide = true)]
    worker: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(directory) = &args.worker {
        runtime.block_on(worker::live(directory, args.seed))?;
        return Ok(ExitCode::SUCCESS);
    }
    let directory = tempfile::Builder::new().prefix("onceflow-soak-").tempdir()?;
    let soaked = runtime.block_on(soak(&args, directory.path()));
    if args.leave {
        eprintln!("left in {}", directory.keep().display());
    }
    let (text, json, is_right) = soaked?;
    println!("{}", if args.json { json } else { text });
    Ok(ExitCode::from(u8::from(!is_right)))
}

/// Everything: what is told, as text and as JSON, and whether all of it is as it must be.
async fn soak(args: &Args, directory: &std::path::Path) -> anyhow::Result<(String, String, bool)> {
    let started = RealWorld::here().clock();
    let driven = driver::drive(directory, args.seed, args.seconds, args.workers).await?;
    let story = effects::Story::read(&jobs::effects_file(directory), None)?;
    let judged = judge::judge(args.seed, &story, &driven.ended);
    let remains = remains::look(directory).await?;
    let seconds = RealWorld::here().clock().ms_since(started) as f64 / 1000.0;
    let mut wrong = driven.wrong;
    wrong.extend(judged.wrong);
    wrong.extend(remains.wrong);
    let ends = driven.ended.values().fold(std::collections::BTreeMap::<String, u64>::new(), |mut ends, end| {
        *ends.entry(format!("{end:?}").to_lowercase()).or_default() += 1;
        ends
    });
    let told: Vec<_> = ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
    let mut text = format!(
        "{} runs ({}), {} steps with an effect, {} kills, {} restarts, {} calls repeated\n{} effects doubled, all in flight at a kill; \
         {} payments, none twice\n{} values before the history was over, {} rows and {} objects after it; fsck: {} problems, {} leaks\n{seconds:.1} s, seed {}",
        driven.ended.len(),
        told.join(", "),
        judged.steps,
        driven.kills,
        driven.restarts,
        driven.repeats,
        judged.doubles,
        judged.payments,
        remains.values,
        remains.rows,
        remains.objects,
        remains.problems,
        remains.leaks,
        args.seed,
    );
    wrong.iter().take(20).for_each(|wrong| text.push_str(&format!("\nWRONG: {wrong}")));
    let json = serde_json::json!({
        "seed": args.seed, "seconds": seconds, "runs": driven.ended.len(), "ends": ends, "steps": judged.steps,
        "kills": driven.kills, "restarts": driven.restarts, "repeats": driven.repeats, "doubles_in_flight": judged.doubles,
        "payments": judged.payments, "rows_left": remains.rows, "objects_left": remains.objects,
        "fsck_problems": remains.problems, "fsck_leaks": remains.leaks, "wrong": wrong,
    });
    Ok((text, json.to_string(), wrong.is_empty()))
}

/// Lets some time pass.
pub(crate) async fn pause(ms: u64) {
    RealWorld::here().sleep(ms).await;
}
