//! A cascade: one edge is cleared, and everything it held is reclaimed in calls of bounded size, while a second client asks
//! whether the server still answers. Against one giant script that does all of it in one call.

use super::{giant, server::Bench};
use anyhow::ensure;
use onceflow_bench::{
    program::scaled,
    report::{self, Line, Report, Target, per_second},
    rounds::median,
};
use onceflow_store::{
    Store,
    values::{EdgeName, Update, ValueId, Values},
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

pub(super) const CONTENT_BYTES: usize = 100;
const VALUES: u64 = 1_000_000;
/// What is compared with the giant script.
const VALUES_COMPARED: u64 = 100_000;
const ROUNDS: usize = 3;
/// References of a page: what one batch can put with what it refers to.
const PAGE_REFS: u64 = 400;
/// Calls that take longer are kept by the server.
const SLOW_US: u64 = 200;

/// One cascade.
struct Cascade {
    values: u64,
    seconds: f64,
    server_cpu_seconds: f64,
    /// The longest call on the server, and those that one in a hundred of the slow ones and every other exceed.
    call_ms_max: f64,
    call_ms_p99: f64,
    call_ms_median: f64,
    slow: usize,
    ping_ms_max: f64,
    commands: serde_json::Value,
}

impl Cascade {
    fn per_second(&self) -> f64 {
        self.values as f64 / self.seconds
    }
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let server = runtime.block_on(Bench::start())?;
    report.note(match server.favour() {
        true => "cascade: the server ran at a higher priority, for both, so that its calls are not timed with others' work in them",
        false => "cascade: the server ran at ordinary priority, so its longest call may include the work of other processes",
    });
    // To write its log anew the server forks, and pays for every page it touches while its child writes.
    let _: String = runtime.block_on(server.ask(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]))?;
    let values = scaled(VALUES, 20_000);
    let large = runtime.block_on(cascade(&server, values))?;
    say(&large);
    let idle = runtime.block_on(idle_call_ms(&server, large.slow, (large.call_ms_median * 1e3) as u64))?;
    let line = |what: String, ours, theirs, figure, target| Line { what, ours, theirs, figure, target };
    report.key(
        "cascade_call_cpu_ms",
        line(
            format!("longest call on the server while {values} values are reclaimed"),
            format!("worst ping {:.1} ms", large.ping_ms_max),
            format!("as long a call that touches nothing: {idle:.1} ms"),
            large.call_ms_max,
            Target::AtMost(3.0),
        ),
    );
    let compared = scaled(VALUES_COMPARED, 20_000);
    let (mut ours, mut giants, mut ratios, mut cpus) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let one = runtime.block_on(cascade(&server, compared))?;
        say(&one);
        let giant = runtime.block_on(giant_cascade(&server, compared))?;
        say(&giant);
        ratios.push(one.per_second() / giant.per_second());
        cpus.push(giant.server_cpu_seconds / one.server_cpu_seconds);
        ours.push(one);
        giants.push(giant);
    }
    let worst = |some: &[Cascade]| some.iter().map(|one| one.ping_ms_max).fold(0.0, f64::max);
    let rate = |some: &[Cascade]| median(some.iter().map(Cascade::per_second).collect());
    let words = |some: &[Cascade]| format!("{}, worst ping {:.0} ms", per_second(rate(some)), worst(some));
    report.key(
        "cascade_vs_giant",
        line(
            format!("reclaiming {compared} values, against one giant script"),
            words(&ours),
            words(&giants),
            median(ratios.clone()),
            Target::AtLeast(0.8),
        ),
    );
    let cpu_us = |some: &[Cascade]| {
        some.iter().map(|one| one.server_cpu_seconds * 1e6 / one.values as f64).map(report::rounded).collect::<Vec<_>>()
    };
    report.detail(
        "cascade",
        json!({
            "values": large.values, "per_s": report::rounded(large.per_second()),
            "call_ms_max": large.call_ms_max, "call_ms_p99_of_slow": large.call_ms_p99, "slow_calls": large.slow,
            "call_ms_median": large.call_ms_median, "idle_call_ms_max": idle,
            "ping_ms_max": report::rounded(large.ping_ms_max),
            "server_cpu_us_per_value": report::rounded(large.server_cpu_seconds * 1e6 / large.values as f64),
            "calls_and_us_per_value": large.commands,
        }),
    );
    report.detail(
        "giant",
        json!({
            "ratios": report::figures(&ratios), "ratios_of_server_cpu": report::figures(&cpus),
            "ours_cpu_us_per_value": cpu_us(&ours), "giant_cpu_us_per_value": cpu_us(&giants),
        }),
    );
    Ok(())
}

fn say(one: &Cascade) {
    eprintln!(
        "cascade of {}: {:.0} values/s, server {:.2} µs a value, longest call {:.2} ms (p99 of slow {:.2}), worst ping {:.2} ms",
        one.values,
        one.per_second(),
        one.server_cpu_seconds * 1e6 / one.values as f64,
        one.call_ms_max,
        one.call_ms_p99,
        one.ping_ms_max,
    );
}

/// Our way.
async fn cascade(server: &Bench, many: u64) -> anyhow::Result<Cascade> {
    let store = Store::connect(&server.url()).await?;
    let values = store.values().await?;
    let root = EdgeName::root("all");
    let stored = build(&values, &root, many).await?;
    values.update(Update::new().clear(&root)).await?;
    let (pings, before) = (Pings::start(server).await?, server.commands().await?);
    server.watch_slow(SLOW_US).await?;
    let (start, cpu, mut swept) = (Instant::now(), server.cpu_seconds(), 0);
    loop {
        // What the reclaim loop of a process does at a time.
        let reclaimed = values.reclaim(values.reclaim_budget()).await?;
        swept += reclaimed.swept;
        if !reclaimed.more {
            break;
        }
    }
    store.records().durable(store.records().position()).await?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu_seconds() - cpu);
    let (ping_ms_max, after) = (pings.stop().await?, server.commands().await?);
    ensure!(swept == stored, "{swept} values were swept, not {stored}");
    let rest = values.rows().await?;
    ensure!(rest.is_empty(), "reclaiming left rows behind: {rest:?}");
    let mut slow = server.slow().await?;
    slow.retain(|call| ["evalsha", "eval", "hmget"].contains(&&*call.name));
    slow.sort_by_key(|call| call.us);
    let ms = |at: usize| slow.get(at).map_or(0.0, |call| call.us as f64 / 1e3);
    let last = slow.len().saturating_sub(1);
    let cascade = Cascade {
        values: stored,
        seconds,
        server_cpu_seconds: cpu,
        call_ms_max: ms(last),
        call_ms_p99: ms(last * 99 / 100),
        call_ms_median: ms(last / 2),
        slow: slow.len(),
        ping_ms_max,
        commands: after.per_step(&before, stored),
    };
    server.flush().await?;
    Ok(cascade)
}

/// The longest of as many calls that take as long but touch nothing, in milliseconds: what the machine adds to a call.
async fn idle_call_ms(server: &Bench, calls: usize, us: u64) -> anyhow::Result<f64> {
    const LOOP: &str = "local n = 0 for i = 1, ARGV[1] do n = n + i end return 0";
    const TRIED: u64 = 200_000;
    let longest = async |turns: u64, calls: usize| {
        server.watch_slow(0).await?;
        for _ in 0..calls {
            let _: u64 = server.ask(&["EVAL", LOOP, "0", &turns.to_string()]).await?;
        }
        let mut slow = server.slow().await?;
        slow.retain(|call| call.name == "eval");
        slow.sort_by_key(|call| call.us);
        anyhow::Ok((slow[slow.len() / 2].us, slow[slow.len() - 1].us))
    };
    let (median, _) = longest(TRIED, 11).await?;
    let (_, max) = longest(TRIED * us / median.max(1), calls).await?;
    Ok(max as f64 / 1e3)
}

/// The classic way.
async fn giant_cascade(server: &Bench, many: u64) -> anyhow::Result<Cascade> {
    let mut all = vec![];
    plan(many, |_, page| {
        all.extend(page.iter().map(|(name, refs)| (name.clone(), refs.clone())));
    });
    let pings = Pings::start(server).await?;
    let before = server.commands().await?;
    let (seconds, cpu) = giant::cascade(server, &all).await?;
    let values = all.len() as u64;
    let commands = server.commands().await?.per_step(&before, values);
    let ping_ms_max = pings.stop().await?;
    server.flush().await?;
    let call_ms_max = seconds * 1e3;
    Ok(Cascade {
        values,
        seconds,
        server_cpu_seconds: cpu,
        call_ms_max,
        call_ms_p99: call_ms_max,
        call_ms_median: call_ms_max,
        slow: 1,
        ping_ms_max,
        commands,
    })
}

/// A value by name and what it refers to, in an order in which everything is there before it is referred to.
type Planned = (String, Vec<String>);

/// Leaves, pages of them, pages of pages, up to one: told batch by batch.
fn plan(many: u64, mut tell: impl FnMut(u64, &[Planned])) {
    let mut level = vec![];
    for first in (0..many).step_by(PAGE_REFS as usize) {
        let mut batch: Vec<Planned> = (first..many.min(first + PAGE_REFS)).map(|n| (leaf(n), vec![])).collect();
        let page = format!("page-0-{first:08}");
        batch.push((page.clone(), batch.iter().map(|(name, _)| name.clone()).collect()));
        tell(first, &batch);
        level.push(page);
    }
    for height in 1.. {
        if level.len() == 1 {
            break;
        }
        let mut above = vec![];
        for (number, pages) in level.chunks(PAGE_REFS as usize).enumerate() {
            let page = format!("page-{height}-{number:08}");
            tell(number as u64, &[(page.clone(), pages.to_vec())]);
            above.push(page);
        }
        level = above;
    }
}

/// Sixteen characters, spread as those of a digest.
fn leaf(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

async fn build(values: &Values, root: &EdgeName, many: u64) -> anyhow::Result<u64> {
    let mut updates = vec![];
    let (mut stored, mut top) = (0, String::new());
    plan(many, |_, batch| {
        stored += batch.len() as u64;
        top.clone_from(&batch.last().expect("a batch has a page").0);
        updates.push(batch.iter().fold(Update::new(), |update, (name, refs)| {
            update.put(id(name), refs.iter().map(|name| id(name)), [0x5a; CONTENT_BYTES])
        }));
    });
    for update in updates {
        values.update(update).await?;
    }
    values.update(Update::new().set(root, id(&top))).await?;
    Ok(stored)
}

fn id(name: &str) -> ValueId {
    ValueId::new(name)
}

/// A second client that asks all the time whether the server is there.
struct Pings {
    stop: Arc<AtomicBool>,
    task: std::thread::JoinHandle<anyhow::Result<f64>>,
}

impl Pings {
    /// On a thread and a connection of its own, so that only the server can keep it waiting.
    async fn start(server: &Bench) -> anyhow::Result<Pings> {
        let (url, stop) = (server.url(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let task = std::thread::spawn(move || {
            let mut link = redis::Client::open(url)?.get_connection()?;
            let mut worst = Duration::ZERO;
            while !stopped.load(Relaxed) {
                let start = Instant::now();
                let _: String = redis::cmd("PING").query(&mut link)?;
                worst = worst.max(start.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(worst.as_secs_f64() * 1e3)
        });
        Ok(Pings { stop, task })
    }

    /// The longest, in milliseconds.
    async fn stop(self) -> anyhow::Result<f64> {
        self.stop.store(true, Relaxed);
        tokio::task::spawn_blocking(|| self.task.join()).await?.map_err(|_| anyhow::anyhow!("the pings panicked"))?
    }
}
