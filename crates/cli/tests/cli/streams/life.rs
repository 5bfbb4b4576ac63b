//! Streams that are paused, resumed, drained, cancelled and changed, by commands of other processes, and killed meanwhile.

use super::lines;
use crate::support::{Bed, signal, until_line};
use expect_test::expect;
use serde_json::json;

const TAIL: &str = "stream: tail
sources: { lines: { file: \"*.log\", follow: true, format: text } }
steps: { counts: { from: lines, key: record, window: { tumbling: 1m }, combine: { hits: count } } }
sinks:
  seen: { from: lines, stdout: true, format: text }
  out: { from: counts, file: out.jsonl }
";

#[test]
fn a_paused_stream_stays_paused_though_its_process_is_killed() {
    let bed = Bed::new();
    bed.write("stream.yaml", TAIL);
    bed.write("a.log", "one\ntwo\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "two");
    bed.run(&["pause", "tail"]).ends(0).expect(expect![[r#"
        -- stderr
        stream `tail` is paused: nothing of it is on its way
        next: onceflow resume tail
        -- exit 0
    "#]]);
    let again = bed.run(&["pause", "stream.yaml", "--json"]).ends(0).json();
    assert_eq!((&again["phase"], &again["changed"]), (&json!("paused"), &json!(false)));
    assert!(bed.run(&["ls"]).ends(0).stdout.contains("stream tail is paused"));
    assert!(bed.run(&["show", "tail", "--prometheus"]).stdout.contains("onceflow_stream_paused{stream=\"tail\"} 1\n"));
    signal(&child, "KILL");
    bed.end(child);
    bed.write("a.log", "one\ntwo\nthree\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stderr.as_mut().expect("a pipe"), "stream `tail` is paused; `onceflow resume tail` lets it go on");
    let shown = bed.run(&["show", "tail", "--json"]).ends(0).json();
    assert_eq!((&shown["phase"], &shown["stages"][0]["records_in"]), (&json!("paused"), &json!(2)));
    bed.run(&["resume", "stream.yaml"]).ends(0);
    until_line(child.stdout.as_mut().expect("a pipe"), "three");
    bed.run(&["drain", "tail"]).ends(0).expect(expect![[r#"
        -- stderr
        1 worker of stream `tail` drained
        next: `onceflow run` of its file goes on where it stopped
        -- exit 0
    "#]]);
    assert_eq!(bed.end(child).code, 3);
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stderr.as_mut().expect("a pipe"), "goes on where it was");
    bed.run(&["cancel", "tail"]).ends(5).expect(expect![[r#"
        -- stderr
        stream `tail` is cancelled; what its sinks wrote stays
        next: onceflow rm tail
        -- exit 5
    "#]]);
    assert_eq!(bed.end(child).code, 5);
    let refused = bed.run(&["run", "stream.yaml"]).ends(5);
    assert!(refused.stderr.contains("OF0414") && refused.stderr.contains("--new"), "{}", refused.stderr);
    assert_eq!(bed.run(&["resume", "tail"]).code, 5);
    assert!(bed.run(&["ls"]).ends(0).stdout.contains("stream tail was cancelled"));
    bed.run(&["rm", "tail", "--yes"]).ends(0);
    assert_eq!(bed.run(&["pause", "tail"]).code, 2);
}

#[test]
fn a_second_stream_begins_from_a_savepoint() {
    let bed = Bed::new();
    bed.write("stream.yaml", TAIL);
    bed.write("a.log", "one\ntwo\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "two");
    bed.run(&["pause", "tail"]).ends(0);
    assert!(
        bed.run(&["savepoint", "tail", "half"]).ends(0).stderr.contains("savepoint `half` of stream `tail` is made")
    );
    let again = bed.run(&["savepoint", "tail", "half"]).ends(2);
    assert!(again.stderr.contains("OF0412") && again.stderr.contains("--rm half"), "{}", again.stderr);
    let listed = bed.run(&["savepoint", "--json"]).ends(0).json();
    assert_eq!((&listed[0]["savepoint"], &listed[0]["stream"]), (&json!("half"), &json!("tail")));
    signal(&child, "KILL");
    bed.end(child);
    bed.write("a.log", "one\ntwo\none\n");
    // The second has a file of its own, and ends with its source.
    let second = TAIL.replace("stream: tail", "stream: second").replace("follow: true, ", "");
    bed.write("second.yaml", &second.replace("out.jsonl", "second.jsonl"));
    let ran = bed.run(&["run", "second.yaml", "--from", "half"]).ends(0);
    assert!(ran.stderr.contains("stream `second` begins where savepoint `half` was made"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "one\n", "what was read before the savepoint is not read again");
    let results = [lines(&bed, "out.jsonl"), lines(&bed, "second.jsonl")].concat();
    let hits: i64 = results.iter().filter_map(|line| line["hits"].as_i64()).sum();
    assert_eq!(hits, 3, "windows that were open at the savepoint have all their records: {results:?}");
    assert!(bed.run(&["run", "second.yaml", "--from", "half"]).ends(2).stderr.contains("OF0412"));
    assert!(bed.run(&["show", "tail"]).ends(0).stdout.contains("is paused"));
    bed.run(&["savepoint", "--rm", "half"]).ends(0);
    assert_eq!(bed.run(&["savepoint", "--rm", "half"]).code, 2);
    assert!(bed.run(&["savepoint"]).ends(0).stderr.contains("there are no savepoints"));
}

const HITS: &str = "stream: hits
sources: { log: { file: \"*.log\", follow: true, record: { at: int, page: text }, time: record.at } }
steps:
  known:  { from: log, filter: \"record.page != '/help'\" }
  counts: { from: known, key: record.page, window: { tumbling: 1m }, combine: { hits: count } }
sinks:
  seen: { from: log, stdout: true }
  out:  { from: counts, file: out.jsonl }
";

#[test]
fn a_changed_stream_goes_on_with_its_state_or_says_which_step_cannot() {
    let bed = Bed::new();
    let hit = |at: i64, page: &str| json!({"at": at, "page": page}).to_string() + "\n";
    let first = hit(0, "/a") + &hit(1, "/help") + &hit(2, "/a") + &hit(3, "/b");
    bed.write("stream.yaml", HITS);
    bed.write("a.log", &first);
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "/b");
    bed.write("stream.yaml", &HITS.replace("/help", "/other").replace("  seen: { from: log, stdout: true }\n", ""));
    let busy = bed.run(&["run", "stream.yaml", "--drop", "seen"]).ends(75);
    assert!(busy.stderr.contains("is at work"), "{}", busy.stderr);
    bed.run(&["drain", "hits"]).ends(0);
    bed.end(child);
    bed.write(
        "stream.yaml",
        &HITS.replace("tumbling: 1m", "tumbling: 2m").replace("key: record.page", "key: record.at"),
    );
    let refused = bed.run(&["run", "stream.yaml"]).ends(1);
    for told in [
        "error[OF0461]: the pipeline `hits` cannot go on with the state that this store has of it:",
        "step `counts`: its window was tumbling, 60000 ms, and is tumbling, 120000 ms now",
        "step `counts`: its key was record.page, and is record.at now",
        "a new name for the step",
    ] {
        assert!(refused.stderr.contains(told), "{told}: {}", refused.stderr);
    }
    // Another filter, a new step with a sink, and a sink that is gone; the source ends.
    let changed = HITS
        .replace("/help", "/other")
        .replace("follow: true, ", "")
        .replace("  seen: { from: log, stdout: true }\n", "  all: { from: all, file: all.jsonl }\n");
    let changed = changed.replace(
        "sinks:",
        "  all: { from: log, key: { every: \"record.at >= 0\" }, combine: { hits: count } }\nsinks:",
    );
    bed.write("stream.yaml", &changed);
    bed.write("a.log", &(first + &hit(4, "/a") + &hit(5, "/help")));
    let refused = bed.run(&["run", "stream.yaml"]).ends(1);
    assert!(
        refused.stderr.contains("step `to seen` is gone") && refused.stderr.contains("--drop"),
        "{}",
        refused.stderr
    );
    bed.run(&["run", "stream.yaml", "--drop", "seen"]).ends(0);
    let count = |page: &str, hits: i64| json!({"end": 60000, "hits": hits, "page": page, "start": 0});
    assert_eq!(lines(&bed, "out.jsonl"), [count("/b", 1), count("/help", 1), count("/a", 3)]);
    let all = lines(&bed, "all.jsonl");
    assert_eq!((all.len(), &all[0]["hits"]), (1, &json!(2)), "what was read before is not read again");
}
