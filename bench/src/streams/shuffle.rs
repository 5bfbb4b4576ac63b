//! The price of deduplication: the same pipeline with and without it, all edges through the full shuffle.

use super::{
    bed::{Bed, MemorySink, options, records},
    corpus::{Corpus, check, mixed},
};
use anyhow::ensure;
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side},
};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, Pipeline, StreamOptions, combine::Count, plan::PlanOptions, window::Windowing,
};
use serde_json::json;
use tokio::runtime::Runtime;

/// Words of one turn, and records with ids of one.
const WORDS: u64 = 1_000_000;
const IDS: u64 = 3_000_000;

/// Records of a bundle.
const BUNDLE: usize = 10_000;

/// Records with ids in a millisecond of their time: all of them are within the horizon.
const IDS_PER_MS: u64 = 100;

fn words(corpus: &Corpus, sink: &MemorySink, deduplicate: bool) -> Pipeline {
    let all_edges = StreamOptions { edges: EdgeMode::Retry, deduplicate, ..options(BUNDLE) };
    let unlifted = PlanOptions { lift: false, ..PlanOptions::default() };
    let pipeline = Pipeline::new("words").options(all_edges).planning(unlifted);
    let (text, count) = (corpus.clone(), corpus.len());
    let words = pipeline.source("words", Generator::new(count, move |n| (text.word(n), EventTime(n as i64))));
    let counts = words.key_value("word", |word| (word, ())).combine("count", Windowing::global(), Count::new());
    counts.sink("counts", sink.clone(), |pane, line| {
        line.extend(format!("{} {}\n", pane.key, pane.value).bytes());
    });
    pipeline
}

/// Ids between stages: intervals of numbers per sender.
pub(super) fn between_stages(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "shuffle")?, MemorySink::default());
    let corpus = Corpus::new(records(WORDS));
    let right = corpus.counts();
    let turn = |deduplicate| {
        let ran = bed.run(&words(&corpus, &sink, deduplicate), 1)?;
        check("words", &sink.take_lines(), &right)?;
        Ok(ran.rate(corpus.len()))
    };
    let sides: &mut [Side<'_>] = &mut [&mut || turn(true), &mut || turn(false)];
    let rounds = Rounds::run("words through the shuffle (/s)", 0, sides)?;
    rate_line(report, "eo_vs_alo", "exactly once ÷ at least once, between stages", &rounds, Target::AtLeast(0.85));
    Ok(())
}

fn rate_line(report: &mut Report, name: &str, what: &str, rounds: &Rounds, target: Target) {
    let rate = |side| format!("{:.0} k/s", rounds.median(side) / 1e3);
    let line = Line { what: what.into(), ours: rate(0), theirs: rate(1), figure: rounds.ratio(0, 1), target };
    report.key(name, line);
    let figures = json!({ "one": report::figures(rounds.figures(0)), "other": report::figures(rounds.figures(1)) });
    report.detail(name, figures);
}

fn with_ids(count: u64, sink: &MemorySink, deduplicate: bool) -> Pipeline {
    let all_edges = StreamOptions { edges: EdgeMode::Retry, deduplicate, ..options(BUNDLE) };
    let pipeline = Pipeline::new("ids").options(all_edges);
    let make = |n| (mixed(n), EventTime((n / IDS_PER_MS) as i64));
    let sent = pipeline.source("sent", Generator::new(count, make));
    let once = sent.once_per_id("once", (IDS / IDS_PER_MS) as i64, |id| id.to_be_bytes());
    let counts = once.key_value("of a few", |id| (id % 100, ())).combine("count", Windowing::global(), Count::new());
    counts.sink("counts", sink.clone(), |pane, line| {
        line.extend(format!("{} {}\n", pane.key, pane.value).bytes());
    });
    pipeline
}

/// Ids that clients chose: every one is in a filter and in a sorted segment.
pub(super) fn external(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "external")?, MemorySink::default());
    let count = records(IDS);
    let mut right = vec![0; 100];
    (0..count).for_each(|n| right[(mixed(n) % 100) as usize] += 1);
    let mut right: Vec<String> = right.iter().enumerate().map(|(key, count)| format!("{key} {count}")).collect();
    right.sort_unstable();
    let mut saved = Vec::new();
    let mut turn = |deduplicate| {
        let ran = bed.run(&with_ids(count, &sink, deduplicate), 1)?;
        check("records with ids", &sink.take_lines(), &right)?;
        if deduplicate {
            let counts = ran.counts("once")?;
            ensure!(counts.client_duplicates == 0, "no id came twice, and {} were dropped", counts.client_duplicates);
            ensure!(counts.lookups + counts.lookups_saved == count, "ids were not counted: {counts:?}");
            saved.push(counts.lookups_saved as f64 / count as f64);
        }
        Ok(ran.rate(count))
    };
    let turn = std::cell::RefCell::new(&mut turn);
    let sides: &mut [Side<'_>] = &mut [&mut || (turn.borrow_mut())(true), &mut || (turn.borrow_mut())(false)];
    let rounds = Rounds::run("records with ids of clients (/s)", 0, sides)?;
    let what = "exactly once ÷ at least once, ids of clients";
    rate_line(report, "eo_vs_alo_external", what, &rounds, Target::AtLeast(0.5));
    let figure = saved.iter().copied().fold(1.0, f64::min);
    let what = format!("look-ups that filters save, of {count} new ids");
    let (ours, theirs) = (format!("{:.2} %", figure * 100.0), String::new());
    report.key("bloom_lookups_saved", Line { what, ours, theirs, figure, target: Target::AtLeast(0.98) });
    Ok(())
}
