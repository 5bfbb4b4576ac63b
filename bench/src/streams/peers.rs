//! Words of a file, counted beside others: timely, which keeps nothing, and bytewax, which keeps as much as we do.

use super::{
    bed::{Bed, MemorySink, options, records},
    corpus::{Corpus, WORDS_PER_LINE, check},
    installed::{from_pypi, quietly},
};
use ::timely::{
    Config,
    container::CapacityContainerBuilder,
    dataflow::{
        ProbeHandle,
        channels::pact::Exchange,
        operators::{
            Operator, Probe,
            generic::OutputBuilderSession,
            vec::{Map, ToStream},
        },
    },
};
use anyhow::ensure;
use onceflow_bench::{
    report::{self, Line, Report, Target},
    rounds::{Rounds, Side, Turn, timed},
};
use onceflow_store::{Store, world::RealWorld};
use onceflow_stream::{
    EventTime, FileLines, FileSink, Pipeline,
    combine::Count,
    step::process::{KeyedProcess, ProcessContext},
    window::Windowing,
};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashMap},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::BufRead,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};
use tokio::runtime::Runtime;

const WORDS: u64 = 1_000_000;

/// Everything is durable after so many words.
const DURABLE_EVERY: usize = 10_000;

const BYTEWAX: &str = include_str!("bytewax_words.py");

fn words(name: &str, paths: &[PathBuf], sink: &MemorySink) -> Pipeline {
    let pipeline = Pipeline::new(name).options(options(DURABLE_EVERY / WORDS_PER_LINE));
    let lines = pipeline.source("lines", FileLines::new(paths.to_vec(), |_| EventTime(0)));
    let words = lines.flat_map("words", |line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let counts = words.key_value("word", |word| (word, ())).combine("count", Windowing::global(), Count::new());
    counts.sink("counts", sink.clone(), |pane, line| {
        line.extend(format!("{} {}\n", pane.key, pane.value).bytes());
    });
    pipeline
}

/// The counting step of timely has no output.
type NoOutput<'a> = OutputBuilderSession<'a, u64, CapacityContainerBuilder<Vec<()>>>;

/// The same in timely, on as many threads as there are files.
fn timely_words(paths: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let all = paths.to_vec();
    let run = move |worker: &mut ::timely::worker::Worker| {
        let path = all[worker.index()].clone();
        let counts = std::rc::Rc::new(std::cell::RefCell::new(HashMap::<String, u64>::new()));
        let (probe, counting) = (ProbeHandle::new(), counts.clone());
        worker.dataflow::<u64, _, _>(|scope| {
            let file = std::io::BufReader::new(fs::File::open(&path).expect("the file was written just now"));
            let lines = file.lines().map(|line| line.expect("the file can be read"));
            let by_word = Exchange::new(|word: &String| {
                let mut hasher = DefaultHasher::new();
                word.hash(&mut hasher);
                hasher.finish()
            });
            lines
                .to_stream(scope)
                .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
                .unary(by_word, "count", move |_, _| {
                    move |input, _: &mut NoOutput<'_>| {
                        input.for_each_time(|_, data| {
                            let mut counts = counting.borrow_mut();
                            for words in data {
                                for word in words.drain(..) {
                                    *counts.entry(word).or_default() += 1;
                                }
                            }
                        });
                    }
                })
                .container::<Vec<()>>()
                .probe_with(&probe);
        });
        while !probe.done() {
            worker.step();
        }
        counts.take()
    };
    let guards = ::timely::execute(Config::process(paths.len()), run).map_err(anyhow::Error::msg)?;
    let mut lines = Vec::new();
    for counts in guards.join() {
        let counts = counts.map_err(anyhow::Error::msg)?;
        lines.extend(counts.into_iter().map(|(word, count)| format!("{word} {count}")));
    }
    lines.sort_unstable();
    Ok(lines)
}

pub(super) fn timely(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "timely")?, MemorySink::default());
    let corpus = Corpus::new(records(WORDS));
    let paths = [bed.scratch.join("words-0"), bed.scratch.join("words-1")];
    corpus.write(&paths.each_ref().map(PathBuf::as_path))?;
    let right = corpus.counts();
    let pipeline = words("words", &paths, &sink);
    let sides: &mut [Side<'_>] = &mut [
        &mut || {
            let ran = bed.run(&pipeline, paths.len())?;
            check("our words", &sink.take_lines(), &right)?;
            Ok(ran.rate(corpus.len()))
        },
        &mut || {
            let (seconds, lines) = timed(|| timely_words(&paths))?;
            check("timely's words", &lines, &right)?;
            Ok(Turn { figure: corpus.len() as f64 / seconds, seconds })
        },
    ];
    let rounds = Rounds::run("words of a file (/s)", 0, sides)?;
    let what = "words of a file on two threads ÷ timely, which keeps nothing";
    line(report, "vs_timely", what, &rounds, Target::AtLeast(0.2));
    Ok(())
}

fn line(report: &mut Report, name: &str, what: &str, rounds: &Rounds, target: Target) {
    let rate = |side| format!("{:.0} k/s", rounds.median(side) / 1e3);
    let line = Line { what: what.into(), ours: rate(0), theirs: rate(1), figure: rounds.ratio(0, 1), target };
    report.key(name, line);
    let figures = json!({ "ours": report::figures(rounds.figures(0)), "theirs": report::figures(rounds.figures(1)) });
    report.detail(name, figures);
}

/// bytewax says how long its flow took: the start of Python does not count.
fn bytewax_words(python: &Path, scratch: &Path, words: &Path) -> anyhow::Result<(f64, Vec<String>)> {
    let (script, state, out) = (scratch.join("words.py"), scratch.join("bytewax"), scratch.join("bytewax.out"));
    fs::write(&script, BYTEWAX)?;
    if state.exists() {
        fs::remove_dir_all(&state)?;
    }
    fs::create_dir(&state)?;
    let lines_per_batch = (DURABLE_EVERY / WORDS_PER_LINE).to_string();
    let mut command = Command::new(python);
    command.arg(&script).args([words, &state, &out]).arg(lines_per_batch);
    let seconds = quietly(&mut command)?.trim().parse()?;
    let mut lines: Vec<String> = fs::read_to_string(&out)?.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    fs::remove_file(out)?;
    Ok((seconds, lines))
}

pub(super) fn bytewax(runtime: &Runtime, report: &mut Report) -> anyhow::Result<()> {
    let (bed, sink) = (Bed::new(runtime, "bytewax")?, MemorySink::default());
    let python = from_pypi("bytewax", "bytewax==0.21.1")?.join("bin/python");
    let corpus = Corpus::new(records(WORDS));
    let path = bed.scratch.join("words");
    corpus.write(&[&path])?;
    let right = corpus.counts();
    let pipeline = words("words", std::slice::from_ref(&path), &sink);
    let sides: &mut [Side<'_>] = &mut [
        &mut || {
            let ran = bed.run(&pipeline, 1)?;
            check("our words", &sink.take_lines(), &right)?;
            Ok(ran.rate(corpus.len()))
        },
        &mut || {
            let (seconds, lines) = bytewax_words(&python, bed.scratch.path(), &path)?;
            check("bytewax's words", &lines, &right)?;
            Ok(Turn { figure: corpus.len() as f64 / seconds, seconds })
        },
    ];
    let rounds = Rounds::run("words of a file, durable (/s)", 0, sides)?;
    let what = "words of a file, durable every 10 000, ÷ bytewax";
    line(report, "vs_bytewax", what, &rounds, Target::AtLeast(20.0));
    let duplicates = duplicates_after_kill(runtime, &bed.scratch.join("killed"), &corpus, &path)?;
    let line = Line {
        what: "results written twice after a kill -9 in the middle".into(),
        ours: duplicates.to_string(),
        theirs: String::new(),
        figure: duplicates as f64,
        target: Target::AtMost(0.0),
    };
    report.key("duplicates_after_kill", line);
    Ok(())
}

/// Numbers the occurrences of each word.
struct Numbered;

impl KeyedProcess for Numbered {
    type Key = String;
    type In = ();
    type Out = String;
    type State = u64;

    fn on_record(&mut self, context: &mut ProcessContext<'_, String>, word: &String, state: &mut Option<u64>, (): ()) {
        let number = state.unwrap_or(0) + 1;
        *state = Some(number);
        context.emit(format!("{word} {number}"));
    }
}

/// Writes every word with the number of its occurrence: whatever is lost or doubled by a kill shows.
fn numbered(words: &Path, out: &Path) -> Pipeline {
    let pipeline = Pipeline::new("numbered").options(options(DURABLE_EVERY / WORDS_PER_LINE));
    let lines = pipeline.source("lines", FileLines::new(vec![words.to_owned()], |_| EventTime(0)));
    let words = lines.flat_map("words", |line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let numbered = words.key_value("word", |word| (word, ())).process("number", || Numbered).gather("together");
    numbered.sink("out", FileSink::new(out), |line, bytes| {
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
    });
    pipeline
}

/// The child that is killed.
pub(super) fn count_until_killed(arguments: &[String]) -> anyhow::Result<()> {
    let [directory, words, out] = arguments else { anyhow::bail!("count DIRECTORY WORDS OUT") };
    onceflow_bench::program::runtime()?.block_on(async {
        let store = Store::open_url(format!("journal:{directory}")).await?;
        let pipeline = numbered(Path::new(words), Path::new(out)).locks(format!("{directory}/locks"));
        pipeline.run(store.records(), RealWorld::here()).await?;
        Ok(store.close().await?)
    })
}

fn duplicates_after_kill(runtime: &Runtime, directory: &Path, corpus: &Corpus, words: &Path) -> anyhow::Result<usize> {
    let out = directory.with_extension("out");
    let mut child = Command::new(std::env::current_exe()?).arg("count").args([directory, words, &out]).spawn()?;
    let has_third = || fs::metadata(&out).is_ok_and(|out| out.len() > corpus.len() * 10 / 3);
    kill_once(&mut child, has_third)?;
    runtime.block_on(async {
        let store = Store::open_url(format!("journal:{}", directory.display())).await?;
        let pipeline = numbered(words, &out).locks(directory.join("locks"));
        pipeline.run(store.records(), RealWorld::here()).await?;
        anyhow::Ok(store.close().await?)
    })?;
    let text = fs::read_to_string(&out)?;
    let distinct: BTreeSet<&str> = text.lines().collect();
    ensure!(distinct.len() as u64 == corpus.len(), "{} of {} words were written", distinct.len(), corpus.len());
    Ok(text.lines().count() - distinct.len())
}

fn kill_once(child: &mut Child, is_time: impl Fn() -> bool) -> anyhow::Result<()> {
    while !is_time() {
        ensure!(child.try_wait()?.is_none(), "the child ended before it was killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    Ok(())
}
