//! A loop of a million iterations: what it takes on the disk and in memory must not depend on how long it runs.

use super::{
    bed::Bed,
    child::{self, resident_bytes},
    flows, runtime, scaled,
};
use anyhow::bail;
use onceflow_bench::{
    disk::{Scratch, bytes_used},
    report::{self, Line, Report, Target},
};
use onceflow_store::backend::journal::Durability;
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use tokio::runtime::Runtime;

const FLUSHED: u64 = 1_000_000;
const SYNCED: u64 = 20_000;
const LOOK: Duration = Duration::from_millis(5);
/// Warm after this part of all iterations.
const WARM: f64 = 0.1;

pub(super) fn measure(_: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for (durability, iterations) in [("flushed", scaled(FLUSHED, 1000)), ("synced", scaled(SYNCED, 1000))] {
        let scratch = Scratch::new("loop")?;
        eprintln!("loop: {iterations} iterations, {durability}, in a child");
        let one = child::run(&["loop", &scratch.path().display().to_string(), durability, &iterations.to_string()])?;
        eprintln!("loop: {one}");
        found.push(one);
    }
    let (mib, growth) = (|at: usize| number(&found[at]["disk_mib_max"]), |at: usize| number(&found[at]["rss_growth"]));
    let line = |what: &str, ours: String, synced: String, figure: f64, target: f64| Line {
        what: what.into(),
        ours,
        theirs: synced,
        figure,
        target: Target::AtMost(target),
    };
    let disk = mib(0).max(mib(1));
    let texts = [0, 1].map(|at| format!("{} {:.1} MiB", ["flushed", "synced"][at], mib(at)));
    let [flushed, synced] = texts;
    report.key("loop_disk_mib_max", line("most disk a loop of a million takes (MiB)", flushed, synced, disk, 64.0));
    let [flushed, synced] = [0, 1].map(|at| format!("{} {:+.1} %", ["flushed", "synced"][at], growth(at) * 100.0));
    let what = "memory at the end of it, above that when a tenth was done";
    report.key("loop_rss_growth", line(what, flushed, synced, growth(0).max(growth(1)), 0.1));
    let cpu_us = |at: usize| number(&found[at]["cpu_us_per_iteration"]);
    let [flushed, synced] = [0, 1].map(|at| format!("{} {:.1} µs", ["flushed", "synced"][at], cpu_us(at)));
    let what = "processor time of an iteration, flushed (µs)";
    report.key("loop_us_per_iteration", line(what, flushed, synced, cpu_us(0), 5.0));
    report.detail("loop", json!({ "flushed": found[0], "synced": found[1] }));
    Ok(())
}

fn number(found: &Value) -> f64 {
    found.as_f64().unwrap_or(f64::NAN)
}

/// A child: counts up, and looks at itself meanwhile.
pub(super) fn count(directory: &str, durability: &str, iterations: u64) -> anyhow::Result<Value> {
    let durability = match durability {
        "flushed" => Durability::Flushed,
        "synced" => Durability::Synced,
        other => bail!("no durability is called {other}"),
    };
    let directory = Path::new(directory);
    let runtime = runtime()?;
    let bed = Bed::journal(&runtime, directory, durability, false, iterations as i64)?;
    let done = AtomicBool::new(false);
    let (did, looks) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| looks(directory, &bed, iterations, &done));
        let did = runtime.block_on(bed.run(bed.start(flows::count_up(), ("x", flows::int(0))), iterations));
        done.store(true, Relaxed);
        (did, looking.join().expect("looking does not panic"))
    });
    let (did, looks) = (did?, looks?);
    bed.close(&runtime)?;
    let warm = looks.curve.iter().find(|(part, _)| *part >= WARM).map_or(f64::NAN, |(_, bytes)| *bytes);
    let after = looks.curve.iter().filter(|(part, _)| *part >= WARM).map(|(_, bytes)| *bytes);
    let most = after.fold(f64::NAN, f64::max);
    let curve: Vec<_> = looks.curve.iter().map(|(part, bytes)| json!([part, report::rounded(bytes / 1e6)])).collect();
    Ok(json!({
        "iterations": iterations,
        "disk_mib_max": looks.disk_bytes_max as f64 / f64::from(1 << 20),
        "rss_growth": most / warm - 1.0,
        "rss_mb_by_part": curve,
        "us_per_iteration": report::rounded(did.us_per_step()),
        "cpu_us_per_iteration": report::rounded(did.cpu_us_per_step()),
    }))
}

/// What was seen while it ran.
struct Looks {
    disk_bytes_max: u64,
    /// Bytes of memory when each tenth was done.
    curve: Vec<(f64, f64)>,
}

fn looks(directory: &Path, bed: &Bed, iterations: u64, done: &AtomicBool) -> anyhow::Result<Looks> {
    const TENTHS: u64 = 10;
    let mut looks = Looks { disk_bytes_max: 0, curve: Vec::new() };
    let mut tenth = 0;
    loop {
        let last = done.load(Relaxed);
        let blobs = bytes_used(&directory.join("blobs")).unwrap_or(0);
        looks.disk_bytes_max = looks.disk_bytes_max.max(bytes_used(directory)? + blobs);
        let now = bed.count.ran() * TENTHS / iterations;
        if now > tenth {
            tenth = now;
            looks.curve.push((tenth as f64 / TENTHS as f64, resident_bytes()));
        }
        if last {
            return Ok(looks);
        }
        std::thread::sleep(LOOK);
    }
}
