//! Apache Flink on its local mini cluster, in the same run: the words of files, and Nexmark's queries 5 and 8. Exactly once,
//! a checkpoint every second, as many threads as we have workers. Figures are differences of twice the records and the
//! records, so that the start of a virtual machine, and most of its compiler's work, do not count.

use super::{
    bed::{Bed, MemorySink, options, records},
    corpus::{Corpus, WORDS_PER_LINE, check},
    installed::{from_pypi, quietly},
    nexmark,
};
use anyhow::{Context, ensure};
use onceflow_bench::{
    disk,
    report::{Line, Report, Target},
    rounds::{cpu_seconds, median},
};
use onceflow_stream::{EventTime, FileLines, Pipeline, combine::Count, window::Windowing};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tokio::runtime::Runtime;

/// Words of one run, and events; the other run has twice as many.
const WORDS: u64 = 10_000_000;
const EVENTS: u64 = 5_000_000;

const ROUNDS: usize = 3;

/// Threads of Flink, and workers of ours.
const THREADS: usize = 2;

const PROGRAM: &str = include_str!("flink/FlinkBench.java");

/// What a run took.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    cpu_seconds: f64,
}

/// Runs the records so many times over, and checks the answer.
type RunSide<'a> = &'a dyn Fn(usize) -> anyhow::Result<Cost>;

/// The program, compiled, beside Flink.
struct Flink {
    class_path: String,
}

impl Flink {
    fn install(scratch: &Path) -> anyhow::Result<Flink> {
        if Command::new("javac").arg("-version").output().is_err() {
            eprintln!("installing a JDK from the distribution");
            quietly(Command::new("apt-get").args(["install", "-y", "-q", "openjdk-17-jdk-headless"]))
                .context("Flink needs a JDK; `apt-get install openjdk-17-jdk-headless` did not bring one")?;
        }
        let home = from_pypi("flink", "apache-flink-libraries==2.3.0")?;
        let packages = fs::read_dir(home.join("lib"))?.next().context("an environment has a library")??.path();
        let jars = packages.join("site-packages/pyflink/lib");
        ensure!(jars.is_dir(), "the package has no jars at {}", jars.display());
        let (source, classes) = (scratch.join("FlinkBench.java"), scratch.join("classes"));
        fs::write(&source, PROGRAM)?;
        let jars = jars.join("*").display().to_string();
        quietly(Command::new("javac").args(["-nowarn", "-cp", &jars, "-d"]).arg(&classes).arg(&source))?;
        Ok(Flink { class_path: format!("{}:{jars}", classes.display()) })
    }

    fn run(&self, scratch: &Path, work: &str, arguments: &[String], right: &[String]) -> anyhow::Result<Cost> {
        let (checkpoints, out) = (scratch.join("checkpoints"), scratch.join("flink.out"));
        let mut command = Command::new("java");
        command.args(["-Xms1g", "-Xmx4g", "-Dlog4j2.level=ERROR", "-Djava.net.preferIPv4Stack=true"]);
        for package in ["lang", "util", "time", "util.concurrent"] {
            command.arg(format!("--add-opens=java.base/java.{package}=ALL-UNNAMED"));
        }
        command.args(["-cp", &self.class_path, "FlinkBench", work, &THREADS.to_string()]);
        let printed = quietly(command.arg(&checkpoints).arg(&out).args(arguments))?;
        let mut lines: Vec<String> = fs::read_to_string(&out)?.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        check(&format!("Flink's {work}"), &lines, right)?;
        fs::remove_dir_all(checkpoints)?;
        let (seconds, cpu) = printed.trim().split_once(' ').context("Flink says how long it took")?;
        Ok(Cost { seconds: seconds.parse()?, cpu_seconds: cpu.parse()? })
    }
}

/// The words of files, durable with every bundle.
fn words(bed: &Bed<'_>, paths: &[PathBuf], right: &[String]) -> anyhow::Result<Cost> {
    let sink = MemorySink::default();
    let pipeline = Pipeline::new("words").options(options(100_000 / WORDS_PER_LINE));
    let lines = pipeline.source("lines", FileLines::new(paths.to_vec(), |_| EventTime(0)));
    let words = lines.flat_map("words", |line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let counts = words.key_value("word", |word| (word, ())).combine("count", Windowing::global(), Count::new());
    counts.sink("counts", sink.clone(), |pane, line| {
        line.extend(format!("{} {}\n", pane.key, pane.value).bytes());
    });
    let before = cpu_seconds();
    let ran = bed.run(&pipeline, THREADS)?;
    let cpu_seconds = cpu_seconds() - before;
    check("our words", &sink.take_lines(), right)?;
    Ok(Cost { seconds: ran.seconds, cpu_seconds })
}

/// The least ratios of all works so far, by the clock and by processors.
struct Least(f64, f64);

/// Both sides take turns; both run one share of the records, then twice as many.
fn compare(
    report: &mut Report,
    least: &mut Least,
    work: &str,
    what: &str,
    ours: RunSide<'_>,
    flink: RunSide<'_>,
) -> anyhow::Result<()> {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut costs = [None; 2];
        // Each side is first in its turn.
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let run = [ours, flink][side];
            disk::drain()?;
            let (once, twice) = (run(1)?, run(2)?);
            let (seconds, cpu_seconds) = (twice.seconds - once.seconds, twice.cpu_seconds - once.cpu_seconds);
            eprintln!(
                "{work}: round {}, {}: {seconds:.2} s, {cpu_seconds:.2} s of processors",
                round + 1,
                ["ours", "Flink"][side]
            );
            costs[side] = Some(Cost { seconds, cpu_seconds });
        }
        let [Some(ours), Some(flink)] = costs else { unreachable!("both sides had their turn") };
        rounds.push((ours, flink));
    }
    let of = |figure: fn(&(Cost, Cost)) -> f64| median(rounds.iter().map(figure).collect());
    let clock = of(|(ours, flink)| flink.seconds / ours.seconds);
    let processors = of(|(ours, flink)| flink.cpu_seconds / ours.cpu_seconds);
    *least = Least(least.0.min(clock), least.1.min(processors));
    for (name, by, figure, ours, theirs) in [
        ("", "by the clock", clock, of(|round| round.0.seconds), of(|round| round.1.seconds)),
        ("_cpu", "in processor time", processors, of(|round| round.0.cpu_seconds), of(|round| round.1.cpu_seconds)),
    ] {
        let (what, target) = (format!("{what}, {by}, ÷ Flink"), Target::AtLeast(3.0));
        let line = Line { what, ours: format!("{ours:.2} s"), theirs: format!("{theirs:.2} s"), figure, target };
        report.key(&format!("vs_flink_{work}{name}"), line);
    }
    let raw = |cost: &Cost| json!([cost.seconds, cost.cpu_seconds]);
    let rounds: Vec<_> = rounds.iter().map(|(ours, flink)| json!([raw(ours), raw(flink)])).collect();
    report.detail(&format!("vs_flink_{work}"), json!(rounds));
    Ok(())
}

pub(super) fn measure(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let bed = Bed::new(runtime, "flink")?;
    let flink = Flink::install(bed.scratch.path())?;
    let mut least = Least(f64::INFINITY, f64::INFINITY);
    let many = records(WORDS);
    let mut texts = Vec::new();
    for times in 1..=2 {
        let corpus = Corpus::new(many * times as u64);
        let paths = [0, 1].map(|part| bed.scratch.join(&format!("words-{times}-{part}")));
        corpus.write(&paths.each_ref().map(PathBuf::as_path))?;
        texts.push((paths, corpus.counts()));
    }
    let ours = |times: usize| words(&bed, &texts[times - 1].0, &texts[times - 1].1);
    let theirs = |times: usize| {
        let (paths, right) = &texts[times - 1];
        flink.run(bed.scratch.path(), "words", &paths.each_ref().map(|path| path.display().to_string()), right)
    };
    compare(report, &mut least, "words", &format!("{many} words of files"), &ours, &theirs)?;
    let many = records(EVENTS);
    for work in ["q5", "q8"] {
        let houses = [1, 2].map(|times| nexmark::house(many * times));
        let answers = houses.map(|house| house.answer(work));
        let ours = |times: usize| {
            let (seconds, cpu_seconds) = nexmark::run(&bed, houses[times - 1], work, THREADS, &answers[times - 1])?;
            Ok(Cost { seconds, cpu_seconds })
        };
        let theirs = |times: usize| {
            let events = houses[times - 1].events.to_string();
            flink.run(bed.scratch.path(), work, &[events], &answers[times - 1])
        };
        compare(report, &mut least, work, &format!("{many} events of Nexmark {work}"), &ours, &theirs)?;
    }
    for (name, by, figure) in [("vs_flink", "by the clock", least.0), ("vs_flink_cpu", "in processor time", least.1)] {
        let what = format!("÷ Flink, the least of the three, {by}");
        let line = Line { what, ours: String::new(), theirs: String::new(), figure, target: Target::AtLeast(3.0) };
        report.key(name, line);
    }
    Ok(())
}
