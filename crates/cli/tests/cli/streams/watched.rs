//! The figures of a stream at work: shown, watched, and as text for Prometheus.

use crate::support::{Bed, signal, until_line};
use serde_json::json;

const TAIL: &str = "stream: tail
sources: { lines: { file: \"*.log\", follow: true, format: text } }
steps: { counts: { from: lines, key: record, window: { tumbling: 1m }, combine: { hits: count } } }
sinks:
  seen: { from: lines, stdout: true, format: text }
  out: { from: counts, file: out.jsonl }
";

#[test]
fn a_stream_is_watched_until_it_rests_and_its_figures_are_text_for_prometheus() {
    let bed = Bed::new();
    bed.write("stream.yaml", TAIL);
    bed.write("a.log", "one\ntwo\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "two");
    let mut watching = bed.start(&["watch", "tail"]);
    until_line(watching.stderr.as_mut().expect("a pipe"), "waits");
    let text = bed.run(&["show", "--prometheus"]).ends(0).stdout;
    assert!(text.contains("# TYPE onceflow_stream_records_in_total counter\n"), "{text}");
    assert!(text.contains("onceflow_stream_workers{stream=\"tail\"} 1\n"), "{text}");
    let first = text.lines().find(|line| line.starts_with("onceflow_stream_records_in_total{")).expect("a first stage");
    assert!(first.contains("stage=\"lines →") && first.ends_with(" 2"), "{first}");
    let waits = text.lines().filter(|line| line.starts_with("onceflow_stream_system_lag_seconds{")).count();
    let stages = text.lines().filter(|line| line.starts_with("onceflow_stream_partitions{")).count();
    assert_eq!(waits + 1, stages, "every stage but the source has a system lag: {text}");
    assert_eq!(bed.run(&["show", "stream.yaml", "--prometheus"]).ends(0).stdout.lines().count(), text.lines().count());
    let shown = bed.run(&["show", "tail", "--json"]).ends(0).json();
    assert_eq!(shown["stages"][0]["system_lag_ms"], json!(null));
    assert!(shown["stages"][1]["system_lag_ms"].is_u64(), "{shown}");
    signal(&watching, "INT");
    assert_eq!(bed.end(watching).code, 130);
    signal(&child, "INT");
    bed.end(child);
    let watched = bed.run(&["watch", "stream.yaml"]).ends(3);
    assert!(watched.stdout.contains("rests") && watched.stdout.contains("waits"), "{}", watched.stdout);
    let unknown = bed.run(&["show", "nobody", "--prometheus"]).ends(2);
    assert!(unknown.stderr.contains("there is no stream `nobody`"), "{}", unknown.stderr);
}

#[test]
fn a_stream_that_ended_is_watched_no_longer() {
    let bed = Bed::new();
    bed.write("stream.yaml", &TAIL.replace("follow: true, ", ""));
    bed.write("a.log", "one\none\n");
    bed.run(&["run", "stream.yaml"]).ends(0);
    let watched = bed.run(&["watch", "tail", "--json"]).ends(0).json();
    assert_eq!((&watched["ended"], &watched["stages"][0]["records_in"]), (&json!(true), &json!(2)));
}
