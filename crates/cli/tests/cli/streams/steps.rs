//! Streams that are steps of flows: their files are outputs, a kill changes nothing, and nothing of them is left behind.

use super::{Bed, hits, lines, log, top_pages};
use expect_test::expect;
use onceflow_core::{Group, Shard};
use onceflow_store::{Store, records::Scan};
use serde_json::json;
use std::{fs, path::PathBuf};

const STREAM: &str = include_str!("../../../../../examples/weblog/pages.yaml");
const FLOW: &str = include_str!("../../../../../examples/weblog/flow.yaml");

fn bed_with(stream: &str, hits: &[super::Hit]) -> Bed {
    let bed = Bed::new();
    bed.write("access.jsonl", &log(hits));
    bed.write("pages.yaml", stream);
    bed.write("flow.yaml", FLOW);
    bed
}

const RUN: [&str; 4] = ["run", "flow.yaml", "-i", "log=access.jsonl"];

/// The names of pipelines in the store, and the directories of their files.
fn left(bed: &Bed) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut left: Vec<String> = runtime.block_on(async {
        let store = Store::open(bed.path(".onceflow")).await.expect("the store");
        let rows = store.records().scan(Shard(0), Scan::of(Group::rows("streams"), 100)).await.expect("rows").rows;
        store.close().await.expect("the end");
        rows.into_iter().map(|(name, _)| format!("{name:?}")).collect()
    });
    let directories = fs::read_dir(bed.path(".onceflow/scratch/onceflow-open"));
    left.extend(directories.into_iter().flatten().map(|entry| entry.expect("an entry").path().display().to_string()));
    left
}

/// The file that a sink of the only open stream has written so far.
fn written(bed: &Bed, sink: &str) -> Option<PathBuf> {
    let only = |path: PathBuf| {
        let directory = |path: &PathBuf| path.is_dir();
        fs::read_dir(path).ok()?.map(|entry| entry.expect("an entry").path()).find(directory)
    };
    let place = only(only(bed.path(".onceflow/scratch/onceflow-open"))?)?;
    fs::read_dir(place.join(sink)).ok()?.next().map(|entry| entry.expect("an entry").path())
}

/// Starts the run, and kills it when a sink has written this many lines.
fn kill_after(bed: &Bed, lines: usize) {
    let mut child = bed.start(&RUN);
    let count = || written(bed, "all").and_then(|path| fs::read(path).ok()).unwrap_or_default();
    while count().iter().filter(|byte| **byte == b'\n').count() < lines {
        assert!(child.try_wait().expect("a child").is_none(), "it was over before it could be killed");
        std::thread::yield_now();
    }
    child.kill().expect("it is still at work");
    child.wait().expect("it was killed");
}

#[test]
fn a_killed_stream_step_goes_on_and_its_files_are_right() {
    let hits = hits(6000);
    let bed = bed_with(STREAM, &hits);
    for lines in [200, 1500, 3000] {
        kill_after(&bed, lines);
    }
    assert_eq!(left(&bed).len(), 2, "a killed step has its stream and its files");
    bed.run(&RUN).ends(0);
    assert_eq!(lines(&bed, "results/top.jsonl"), top_pages(&hits));
    let found = hits.iter().filter(|hit| hit.status < 400).count();
    assert_eq!(bed.read("results/all.jsonl").lines().count(), found);
    let shown = bed.run(&["show", "pages", "--json"]).ends(0).json();
    assert_eq!(shown["outputs"]["many"], json!(6000), "{shown}");
    assert_eq!(left(&bed), Vec::<String>::new());
    let listed = bed.run(&["ls"]).ends(0);
    assert!(!listed.stdout.contains("stream"), "{}", listed.stdout);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_stream_step_runs_again_when_its_stream_or_its_input_changes_and_is_reused_otherwise() {
    let (hits, plain) = (hits(300), STREAM.replace("bundle: 50", "bundle: 500"));
    let bed = bed_with(&plain, &hits);
    bed.run(&RUN).ends(0);
    let explained = || bed.run(&["explain", "flow.yaml", "-i", "log=access.jsonl"]).ends(0).stdout;
    let remarked = plain.replace("# small, so that", "# another remark:").replace("stream: pages", "stream: other");
    bed.write("pages.yaml", &remarked);
    assert!(!explained().contains("run    pages"), "{}", explained());
    bed.write("pages.yaml", &plain.replace("top: 3", "top: 2"));
    assert!(explained().contains("its code changed"), "{}", explained());
    bed.run(&RUN).ends(0);
    let first = &lines(&bed, "results/top.jsonl")[0];
    assert_eq!(first["pages"].as_array().map(Vec::len), Some(2), "{first}");
    assert_eq!(left(&bed), Vec::<String>::new());
}

#[test]
fn a_cancelled_stream_step_leaves_nothing_though_its_process_was_killed() {
    let bed = bed_with(STREAM, &hits(6000));
    kill_after(&bed, 200);
    assert_eq!(left(&bed).len(), 2);
    bed.run(&["cancel", "pages"]).ends(5);
    assert_eq!(left(&bed), Vec::<String>::new());
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_stream_step_that_fails_says_the_record_and_leaves_nothing() {
    let bed = bed_with(STREAM, &hits(200));
    let log = bed.read("access.jsonl");
    bed.write("access.jsonl", &format!("{log}{{\"at\": \"never\"}}\n"));
    let said = bed.run(&RUN).ends(1);
    assert!(
        said.all().contains("failed[OF0323] pages: the stream has stopped: log: access.jsonl, byte"),
        "{}",
        said.all()
    );
    assert_eq!(left(&bed), Vec::<String>::new());
    bed.write("access.jsonl", &log);
    bed.run(&RUN).ends(0);
    assert_eq!(lines(&bed, "results/top.jsonl"), top_pages(&hits(200)));
}

#[test]
fn a_stream_in_a_step_takes_files_directories_and_tables_and_gives_files_of_days() {
    let bed = Bed::new();
    bed.write("logs/a.log", "1 ann\n86400001 bob\n");
    bed.write("logs/b.log", "2 cid\n");
    bed.write("logs/.hidden", "3 dan\n");
    bed.write("users.csv", "name,city\nann,Ulm\nbob,Bonn\ncid,Kiel\n");
    bed.write(
        "flow.yaml",
        "flow: days
inputs: { logs: dir, users: file }
steps:
  days:
    stream:
      sources:
        lines: { directory: \"${{ inputs.logs }}\", format: text }
      steps:
        split:  { from: lines, map: { at: \"int(record.split(' ')[0])\", name: \"record.split(' ')[1]\" } }
        known:  { from: split, key: record.name, enrich: { file: \"${{ inputs.users }}\", key: record.name } }
        cities: { from: known, map: record.row.city }
      sinks:
        cities: { from: cities, file: cities.txt, format: text }
  count: { run: \"sort ${{ days.cities }} | tr '\\\\n' ' '\", out: { cities: text } }
outputs: { cities: count.cities, figures: days.figures }
",
    );
    bed.run(&["run", "flow.yaml", "-i", "logs=logs", "-i", "users=users.csv"]).ends(0);
    let shown = bed.run(&["show", "days", "--json"]).ends(0).json();
    assert_eq!(shown["outputs"]["cities"].as_str().map(str::trim), Some("Bonn Kiel Ulm"), "{shown}");
    assert_eq!(left(&bed), Vec::<String>::new());
}

#[test]
fn a_stream_with_inputs_is_no_stream_of_its_own() {
    let bed = bed_with(STREAM, &[]);
    bed.run(&["check", "pages.yaml"]).ends(0);
    let said = bed.run(&["run", "pages.yaml"]);
    expect![[r#"
        error[OF0419]: stream `pages` has inputs: it is a step of a flow
        hint: a flow with `steps: { pages: { stream: pages.yaml, in: { … } } }` runs it
    "#]]
    .assert_eq(&said.stderr);
}
