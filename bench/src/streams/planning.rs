//! The gain of the planner: steps that run together, and combines that begin before the shuffle.

use super::{
    bed::{Bed, MemorySink, options, records},
    corpus::{Corpus, check},
};
use anyhow::ensure;
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side, cpu_seconds, median},
};
use onceflow_stream::{EventTime, Generator, Pipeline, combine::Count, plan::PlanOptions, window::Windowing};
use serde_json::json;
use std::{cell::RefCell, sync::Arc};
use tokio::runtime::Runtime;

/// Words of which lifting keeps some out of the shuffle.
const WORDS: u64 = 500_000;

/// Lines of a turn of steps. The end of a run costs as much as it has keys, whatever the number of steps, so that a short
/// run would compare ends.
const LINES: u64 = 2_000_000;

/// Parse, map, filter and key in front of a count. The lines are made before: what a source does is not in question.
fn steps(lines: &Arc<Vec<String>>, sink: &MemorySink, fuse: bool) -> Pipeline {
    let planning = PlanOptions { lift: false, fuse };
    let pipeline = Pipeline::new("steps").options(options(10_000)).planning(planning);
    let lines = lines.clone();
    let count = lines.len() as u64;
    let line = move |n| (lines[n as usize].clone(), EventTime(n as i64));
    let parsed = pipeline.source("lines", Generator::new(count, line)).flat_map("parse", |line| {
        line.split_once(';').and_then(|(n, word)| Some((n.parse::<u64>().ok()?, word.to_owned())))
    });
    let mapped = parsed.map("map", |(n, word)| (n + 1, word.to_uppercase()));
    let kept = mapped.filter("filter", |(n, _)| n % 2 == 0);
    let counts = kept.key_value("word", |(_, word)| (word, ())).combine("count", Windowing::global(), Count::new());
    counts.sink("counts", sink.clone(), |pane, line| {
        line.extend(format!("{} {}\n", pane.key.to_lowercase(), pane.value).bytes());
    });
    pipeline
}

pub(super) fn fused(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "fused")?, MemorySink::default());
    let corpus = Corpus::new(records(LINES));
    let lines = Arc::new((0..corpus.len()).map(|n| format!("{n};{}", corpus.word(n))).collect());
    let mut right = std::collections::BTreeMap::<String, u64>::new();
    (0..corpus.len()).filter(|n| n % 2 == 1).for_each(|n| *right.entry(corpus.word(n)).or_default() += 1);
    let mut right: Vec<String> = right.iter().map(|(word, count)| format!("{word} {count}")).collect();
    right.sort_unstable();
    let cpu = RefCell::new([Vec::new(), Vec::new()]);
    let turn = |fuse| {
        let before = cpu_seconds();
        let ran = bed.run(&steps(&lines, &sink, fuse), 1)?;
        cpu.borrow_mut()[usize::from(!fuse)].push(cpu_seconds() - before);
        check("steps", &sink.take_lines(), &right)?;
        Ok(ran.rate(corpus.len()))
    };
    let sides: &mut [Side<'_>] = &mut [&mut || turn(true), &mut || turn(false)];
    let rounds = Rounds::run("four steps and a count (/s)", 0, sides)?;
    let rate = |side| format!("{:.0} k/s", rounds.median(side) / 1e3);
    let line = Line {
        what: "four steps and a count, fused ÷ not".into(),
        ours: rate(0),
        theirs: rate(1),
        figure: rounds.ratio(0, 1),
        target: Target::AtLeast(3.0),
    };
    report.key("fused_vs_unfused", line);
    let [fused, unfused] = cpu.take().map(median);
    let line = Line {
        what: "the same in processor time, not fused ÷ fused".into(),
        ours: format!("{fused:.2} s"),
        theirs: format!("{unfused:.2} s"),
        figure: unfused / fused,
        target: Target::None,
    };
    report.key("fused_vs_unfused_cpu", line);
    let figures = json!({ "fused": report::figures(rounds.figures(0)), "unfused": report::figures(rounds.figures(1)) });
    report.detail("fused", figures);
    Ok(())
}

/// Words, counted; answers how many records were shuffled.
fn shuffled(bed: &Bed<'_>, corpus: &Corpus, bundle: usize, lift: bool) -> anyhow::Result<u64> {
    let sink = MemorySink::default();
    let planning = PlanOptions { lift, ..PlanOptions::default() };
    let pipeline = Pipeline::new("words").options(options(bundle)).planning(planning);
    let (text, count) = (corpus.clone(), corpus.len());
    let words = pipeline.source("words", Generator::new(count, move |n| (text.word(n), EventTime(n as i64))));
    let counts = words.key_value("word", |word| (word, ())).combine("count", Windowing::global(), Count::new());
    counts.sink("counts", sink.clone(), |pane, line| {
        line.extend(format!("{} {}\n", pane.key, pane.value).bytes());
    });
    let ran = bed.run(&pipeline, 1)?;
    check("words", &sink.take_lines(), &corpus.counts())?;
    let sent = ran.counts("words")?.records_out;
    ensure!(lift || sent == count, "{sent} of {count} words were sent one by one");
    Ok(sent)
}

pub(super) fn lifted(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let bed = Bed::new(runtime, "lift")?;
    let corpus = Corpus::new(records(WORDS));
    let mut curve = Vec::new();
    for bundle in [1_000, 10_000, 100_000] {
        let unlifted = shuffled(&bed, &corpus, bundle, false)?;
        let reduction = unlifted as f64 / shuffled(&bed, &corpus, bundle, true)? as f64;
        let bound = corpus.bound(bundle);
        curve.push(json!({ "bundle": bundle, "reduction": reduction, "bound": bound }));
        if bundle == 10_000 {
            let line = Line {
                what: "records that lifting keeps out of the shuffle ÷ the bound of the text".into(),
                ours: format!("{reduction:.2} times fewer"),
                theirs: format!("{bound:.2}"),
                figure: reduction / bound,
                target: Target::AtLeast(0.95),
            };
            report.key("lift_vs_bound", line);
        }
    }
    report.detail("lift", json!(curve));
    Ok(())
}
