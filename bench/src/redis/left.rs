//! What finished runs leave behind when their history has lapsed: no key, and no row in the keys that a shard always has.

use super::{server::Bench, workers::Workers};
use onceflow_bench::{
    program::scaled,
    report::{Line, Report, Target},
};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const STEPS: u64 = 100_000;
const CHAIN_STEPS: usize = 100;
const HISTORY_MS: u64 = 1;
/// How long housekeeping may take to come round.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    runtime.block_on(async {
        let server = Bench::start().await?;
        let workers = Workers::start(&server, 2).await?;
        let baseline = keys(&server).await?;
        let runs = (scaled(STEPS, 2000) / CHAIN_STEPS as u64) as usize;
        // No caller can wait for their ends: they are forgotten too soon.
        workers.chains(runs, CHAIN_STEPS, HISTORY_MS).await?;
        workers.until((runs * CHAIN_STEPS) as u64).await;
        let (ended, start) = (keys(&server).await?, Instant::now());
        let mut left = ended;
        while left > baseline && start.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK).await;
            left = keys(&server).await?;
        }
        let steps = workers.count.ran();
        workers.close().await?;
        report.key(
            "keys_left",
            Line {
                what: format!("keys and rows above the baseline after {steps} steps of {runs} runs"),
                ours: format!("{left} of {ended}"),
                theirs: format!("{baseline} before"),
                figure: left.saturating_sub(baseline) as f64,
                target: Target::AtMost(0.0),
            },
        );
        report.detail("left", json!({ "steps": steps, "seconds_until_clean": start.elapsed().as_secs_f64() }));
        Ok(())
    })
}

/// Keys, and what stands in them but in the clock: a shard has the same few keys whatever it holds.
async fn keys(server: &Bench) -> anyhow::Result<u64> {
    let mut all = server.ask::<u64>(&["DBSIZE"]).await?;
    for key in server.ask::<Vec<String>>(&["KEYS", "*"]).await? {
        all += match server.ask::<String>(&["TYPE", &key]).await?.as_str() {
            "hash" if !key.ends_with(":clock") => server.ask::<u64>(&["HLEN", &key]).await?,
            "zset" => server.ask::<u64>(&["ZCARD", &key]).await?,
            _ => 0,
        };
    }
    Ok(all)
}
