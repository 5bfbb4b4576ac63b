//! Stream files: checked, explained, drawn, run, drained, killed and run again.

mod calls;
mod checked;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod databases;
mod http;
mod language;
mod life;
#[cfg(feature = "postgres")]
mod postgres_server;
mod sinks;
mod steps;
mod watched;

use crate::support::{Bed, signal, until_line};
use expect_test::expect;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _, io::Write as _};

const EXAMPLE: &str = include_str!("../../../../examples/weblog/stream.yaml");

struct Hit {
    at: i64,
    user: String,
    page: String,
    status: i64,
    bytes: i64,
}

fn hits(count: i64) -> Vec<Hit> {
    let hit = |n: i64| Hit {
        at: 1_767_225_600_000 + n * 500 + (n * 37 % 50) * 60,
        user: format!("u{}", (n * n + n / 300) % 7),
        page: format!("/{}", (n * n + n / 11) % 9),
        status: if n % 13 == 0 { 404 } else { 200 },
        bytes: 100 + n % 77,
    };
    (0..count).map(hit).collect()
}

fn log(hits: &[Hit]) -> String {
    hits.iter().fold(String::new(), |mut log, Hit { at, user, page, status, bytes }| {
        let line = json!({"at": at, "user": user, "page": page, "status": status, "sent": bytes, "agent": "x"});
        writeln!(log, "{line}").expect("memory");
        log
    })
}

/// The lines of a file of results, in order.
fn lines(bed: &Bed, name: &str) -> Vec<Value> {
    let text = bed.read(name);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.into_iter().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn sorted(values: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut lines: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    lines.sort_unstable();
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The top pages, computed over all hits at once.
fn top_pages(hits: &[Hit]) -> Vec<Value> {
    let mut minutes: BTreeMap<i64, BTreeMap<&str, (i64, i64)>> = BTreeMap::new();
    for hit in hits.iter().filter(|hit| hit.status < 400) {
        let page = minutes.entry(hit.at / 60_000 * 60_000).or_default().entry(&hit.page).or_default();
        *page = (page.0 + 1, page.1 + hit.bytes);
    }
    let top = |(start, pages): (i64, BTreeMap<&str, (i64, i64)>)| {
        let mut pages: Vec<_> = pages.into_iter().collect();
        pages.sort_by_key(|(page, (hits, _))| (-hits, *page));
        let end = start + 60_000;
        let page = |(page, (hits, bytes)): (&str, (i64, i64))| json!({"end": end, "hits": hits, "page": page, "sent": bytes, "start": start});
        let pages: Vec<_> = pages.into_iter().take(3).map(page).collect();
        json!({"end": end, "pages": pages, "start": start})
    };
    sorted(minutes.into_iter().map(top))
}

/// The sessions, computed over all hits at once.
fn sessions(hits: &[Hit]) -> Vec<Value> {
    let mut users: BTreeMap<&str, Vec<&Hit>> = BTreeMap::new();
    for hit in hits.iter().filter(|hit| hit.status < 400) {
        users.entry(&hit.user).or_default().push(hit);
    }
    let mut sessions = Vec::new();
    for (user, mut hits) in users {
        hits.sort_by_key(|hit| hit.at);
        for session in hits.chunk_by(|one, next| next.at - one.at < 600_000) {
            let bytes: i64 = session.iter().map(|hit| hit.bytes).sum();
            sessions.push(json!({
                "end": session[session.len() - 1].at + 600_000, "longest": session.iter().map(|hit| hit.bytes).max(),
                "pages": session.len(), "sent": bytes, "start": session[0].at, "user": user,
            }));
        }
    }
    sorted(sessions)
}

#[test]
fn sessions_and_top_pages_of_a_web_log_are_right_though_the_command_is_killed_while_it_runs() {
    let (bed, hits) = (Bed::new(), hits(6000));
    bed.write("access.jsonl", &log(&hits));
    // A second reader of the results shows how far it is.
    bed.write("stream.yaml", &format!("{EXAMPLE}  progress: {{ from: top, stdout: true }}\n"));
    let mut kills = 0;
    for after in [3, 8, 20] {
        let mut child = bed.start(&["run", "stream.yaml"]);
        let mut stdout = child.stdout.take().expect("a pipe");
        (0..after).for_each(|_| drop(until_line(&mut stdout, "pages")));
        child.kill().expect("it is still at work");
        child.wait().expect("it was killed");
        kills += 1;
    }
    let said = bed.run(&["run", "stream.yaml"]).ends(0);
    assert!(said.stderr.contains("goes on where it was"), "{}", said.stderr);
    assert_eq!(kills, 3);
    assert_eq!(lines(&bed, "top.jsonl"), top_pages(&hits));
    assert_eq!(lines(&bed, "sessions.jsonl"), sessions(&hits));
    let shown = bed.run(&["show", "weblog", "--json"]).ends(0).json();
    assert_eq!(shown["ended"], json!(true));
    assert_eq!((&shown["stages"][0]["records_in"], &shown["stages"][0]["late"]), (&json!(6000), &json!(0)));
    let again = bed.run(&["run", "stream.yaml"]).ends(0);
    assert!(again.stderr.contains("has ended before"), "{}", again.stderr);
    assert_eq!(lines(&bed, "top.jsonl"), top_pages(&hits), "run once more, it changes nothing");
    bed.write("access.jsonl", &log(&hits[..100]));
    bed.run(&["run", "stream.yaml", "--new"]).ends(0);
    assert_eq!(lines(&bed, "top.jsonl"), top_pages(&hits[..100]), "anew, nothing of the old is left");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_stream_that_follows_is_drained_by_ctrl_c_and_goes_on_with_rotated_files() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: tail
sources: { lines: { file: \"*.log\", follow: true, format: text } }
steps: { loud: { from: lines, map: \"record + '!'\" } }
sinks:
  out:  { from: loud, file: out.txt, format: text }
  seen: { from: loud, stdout: true, format: text }
",
    );
    bed.write("a.log", "one\ntwo\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "two!");
    let shown = bed.run(&["show", "tail"]).ends(0).stdout;
    assert!(shown.contains("is at work in 1 worker") && shown.contains("lines → loud"), "{shown}");
    let mut log = std::fs::File::options().append(true).open(bed.path("a.log")).expect("a log");
    log.write_all(b"three\n").expect("a line");
    until_line(child.stdout.as_mut().expect("a pipe"), "three!");
    signal(&child, "INT");
    let said = bed.end(child);
    assert_eq!(said.code, 130, "{}", said.stderr);
    assert!(said.stderr.contains("draining"), "{}", said.stderr);
    log.write_all(b"four\n").expect("a line");
    std::fs::rename(bed.path("a.log"), bed.path("a.old")).expect("a rotation");
    bed.write("a.log", "five\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "!");
    until_line(child.stdout.as_mut().expect("a pipe"), "!");
    signal(&child, "INT");
    bed.end(child);
    let mut lines: Vec<String> = bed.read("out.txt").lines().map(str::to_owned).collect();
    lines[3..].sort_unstable();
    assert_eq!(lines, ["one!", "two!", "three!", "five!", "four!"]);
}

#[test]
fn lines_of_standard_input_are_counted_once_and_an_ended_stream_does_not_read_them_again() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: words
sources: { lines: { stdin: true, format: text, on_error: skip } }
steps:
  words:  { from: lines, flat_map: \"record.split(' ')\" }
  counts: { from: words, key: { word: record }, combine: { count: count, all: { distinct: record } } }
sinks: { out: { from: counts, file: counts.jsonl } }
",
    );
    bed.write("text", "a b a\nb a\n");
    let run = || {
        let mut command = bed.command(&["run", "stream.yaml"]);
        command.stdin(std::fs::File::open(bed.path("text")).expect("a text"));
        bed.said(command.output().expect("it runs")).ends(0)
    };
    run();
    let expected = [json!({"all": 1, "count": 2, "word": "b"}), json!({"all": 1, "count": 3, "word": "a"})];
    assert_eq!(lines(&bed, "counts.jsonl"), sorted(expected));
    assert!(run().stderr.contains("has ended before"));
}

#[test]
fn merged_joined_generated_and_repeated_records_give_what_their_definition_says() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: shop
sources:
  orders:   { generate: \"{'id': n % 20, 'user': n % 4, 'at': n * 10}\", count: 40, time: record.at, out_of_order: 1s }
  payments: { generate: \"{'user': n % 4, 'paid': n, 'at': n * 10}\", count: 8, time: record.at }
steps:
  once:  { from: orders, once: { id: record.id, horizon: 1h } }
  paid:  { from: once, key: record.user, join: { from: payments, key: record.user, before: 0, after: 50ms } }
  pair:  { from: paid, map: { order: record.left.id, paid: record.right.paid } }
  both:  { from: [orders, payments] }
  all:   { from: both, combine: { n: count, first: { min: record.at }, last: { max: record.at }, mean: { mean: record.at } } }
sinks:
  pairs: { from: pair, file: pairs.jsonl }
  all:   { from: all, file: all.jsonl }
",
    );
    bed.run(&["run", "stream.yaml"]).ends(0);
    let order = |n: i64| (n, n % 4, n * 10);
    let pairs = (0..20).map(order).flat_map(|(id, user, at)| {
        let fits = move |n: &i64| n % 4 == user && (at..=at + 50).contains(&(n * 10));
        (0..8).filter(fits).map(move |n| json!({"order": id, "paid": n}))
    });
    assert_eq!(lines(&bed, "pairs.jsonl"), sorted(pairs));
    let sum: i64 = (0..40).chain(0..8).map(|n| n * 10).sum();
    let all = json!({"first": 0, "last": 390, "mean": sum as f64 / 48.0, "n": 48});
    assert_eq!(lines(&bed, "all.jsonl"), [all]);
    let shown = bed.run(&["show", "shop", "--json"]).ends(0).json();
    let copies = shown["stages"].as_array().expect("stages").iter().map(|it| it["client_duplicates"].as_u64());
    assert_eq!(copies.map(Option::unwrap_or_default).sum::<u64>(), 20);
}

#[test]
fn a_stream_says_where_a_record_is_wrong_and_goes_on_when_it_is_corrected() {
    let bed = Bed::new();
    let stream = |on_error: &str| {
        format!(
            "stream: strict
sources: {{ lines: {{ file: in.jsonl, record: {{ n: int }}{on_error} }} }}
steps: {{ twice: {{ from: lines, map: {{ n: record.n * 2 }} }} }}
sinks: {{ out: {{ from: twice, file: out.jsonl }} }}
"
        )
    };
    bed.write("stream.yaml", &stream(""));
    bed.write("in.jsonl", "{\"n\": 1}\n{\"n\": \"x\"}\n{\"n\": 3}\n");
    bed.run(&["run", "stream.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0460]: lines: [dir]/in.jsonl, byte 9: `n`: int wanted, but "x" (text) found; the record is {"n":"x"}
        hint: what was done is kept; the same command goes on from there
        -- exit 1
    "#]]);
    bed.write("stream.yaml", &stream(", on_error: skip"));
    bed.run(&["run", "stream.yaml"]).ends(0);
    assert_eq!(lines(&bed, "out.jsonl"), [json!({"n": 2}), json!({"n": 6})]);
    let shown = bed.run(&["show", "stream.yaml", "--json"]).ends(0).json();
    assert_eq!(shown["stages"][0]["skipped"], json!(1));
}

const NUMBERS: &str = "stream: numbers
sources: { n: { file: \"*.in\", format: text } }
sinks: { out: { from: n, file: out.txt, format: text } }
";

#[test]
fn a_file_that_the_stream_did_not_write_is_refused_and_left_as_it_is() {
    let bed = Bed::new();
    bed.write("stream.yaml", NUMBERS);
    bed.write("a.in", "1\n2\n");
    bed.write("out.txt", "precious\n");
    bed.run(&["run", "stream.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0460]: to out: [dir]/out.txt holds 9 bytes that this stream did not write: the file is left as it is; move it away, or name another file
        hint: what was done is kept; the same command goes on from there
        -- exit 1
    "#]]);
    assert_eq!(bed.read("out.txt"), "precious\n");
    std::fs::rename(bed.path("out.txt"), bed.path("kept.txt")).expect("a file");
    bed.run(&["run", "stream.yaml"]).ends(0);
    assert_eq!(bed.read("out.txt"), "1\n2\n");
    bed.write("out.txt", "1\nedited\n");
    bed.run(&["run", "stream.yaml", "--new"]).expect(expect![[r#"
        -- stderr
        error[OF0460]: [dir]/out.txt holds bytes that stream `numbers` did not write, so it is not replaced
        hint: nothing was changed; move the file away, or name another one
        -- exit 1
    "#]]);
    assert_eq!(bed.read("out.txt"), "1\nedited\n");
    bed.write("out.txt", "1\n2\n");
    bed.write("a.in", "3\n");
    bed.run(&["run", "stream.yaml", "--new"]).ends(0);
    assert_eq!(bed.read("out.txt"), "3\n");
}

#[test]
fn a_killed_stream_rests_at_once_and_compressed_files_are_read_but_not_followed() {
    let bed = Bed::new();
    let follow = NUMBERS.replace(
        "format: text } }\nsinks: {",
        "follow: true, format: text } }\nsinks: { seen: { from: n, stdout: true, format: text },",
    );
    bed.write("stream.yaml", &follow);
    bed.write("a.in", "1\n2\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "2");
    assert!(bed.run(&["show", "numbers"]).ends(0).stdout.contains("is at work in 1 worker"));
    child.kill().expect("it is still at work");
    child.wait().expect("it was killed");
    let shown = bed.run(&["show", "numbers"]).ends(0).stdout;
    assert!(shown.contains("stream numbers rests"), "{shown}");
    let packed = std::process::Command::new("gzip").args(["-c", "a.in"]).current_dir(bed.path("")).output();
    std::fs::write(bed.path("b.in"), packed.expect("gzip").stdout).expect("a file");
    let refused = bed.run(&["run", "stream.yaml"]).ends(1).stderr;
    assert!(refused.contains("b.in is compressed") && refused.contains("cannot be followed"), "{refused}");
    bed.run(&["rm", "numbers", "--yes"]).ends(0);
    bed.write("stream.yaml", &NUMBERS.replace("out.txt", "both.txt"));
    bed.run(&["run", "stream.yaml"]).ends(0);
    let both = bed.read("both.txt");
    let mut lines: Vec<_> = both.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "1", "2", "2"]);
}

#[test]
fn commands_that_take_runs_say_so_when_they_are_given_a_stream() {
    let bed = Bed::new();
    bed.write("stream.yaml", NUMBERS);
    bed.write("a.in", "1\n");
    bed.run(&["run", "stream.yaml"]).ends(0);
    // A run whose name begins like the stream's must not be taken for it.
    bed.write("flow.yaml", "flow: f\nsteps:\n  a: { run: echo hi, out: { x: text } }\noutputs: { x: a.x }\n");
    bed.run(&["run", "flow.yaml", "--key", "numbers-2"]).ends(0);
    let verbs: [&[&str]; 11] = [
        &["retry"],
        &["why", "out"],
        &["logs"],
        &["du"],
        &["timeline"],
        &["report"],
        &["send", "event"],
        &["resolve", "out", "--redo"],
        &["export", "out.tar"],
        &["diff", "numbers-2"],
        &["fork", "--key", "other"],
    ];
    for verb in verbs {
        for word in ["numbers", "stream.yaml"] {
            let said = bed.run(&[&verb[..1], &[word], &verb[1..]].concat());
            assert_eq!(said.code, 2, "{verb:?}: {}", said.stderr);
            assert!(said.stderr.contains(&format!("`{word}` is a stream")), "{verb:?} {word}: {}", said.stderr);
            assert!(said.stderr.contains("`rm` take streams"), "{verb:?}: {}", said.stderr);
        }
    }
    bed.run(&["rm", "stream.yaml", "--yes"]).ends(0);
    bed.run(&["show", "numbers-2"]).ends(0);
    let said = bed.run(&["show", "numbers"]).ends(0);
    assert!(said.stdout.contains("numbers-2"), "the stream is gone, so the word stands for the run: {}", said.stdout);
}

#[test]
fn a_changed_stream_that_has_ended_is_refused_until_it_has_a_name_of_its_own() {
    let bed = Bed::new();
    let stream = |window: &str| {
        format!(
            "stream: counted
sources: {{ n: {{ generate: \"{{'at': n}}\", count: 10, time: record.at }} }}
steps: {{ c: {{ from: n, window: {{ tumbling: {window} }}, combine: {{ n: count }} }} }}
sinks: {{ out: {{ from: c, file: out.jsonl }} }}
"
        )
    };
    bed.write("stream.yaml", &stream("1m"));
    bed.run(&["run", "stream.yaml"]).ends(0);
    for changed in [stream("2m"), stream("1m").replace("n: count", "m: count, n: { max: record.at }")] {
        bed.write("stream.yaml", &changed);
        let said = bed.run(&["run", "stream.yaml"]).ends(1);
        assert!(said.stderr.contains("OF0461") && said.stderr.contains("--key NAME"), "{}", said.stderr);
    }
    let said = bed.run(&["run", "stream.yaml", "--key", "other"]).ends(1);
    assert!(said.stderr.contains("bytes that this stream did not write"), "{}", said.stderr);
    assert_eq!(lines(&bed, "out.jsonl"), [json!({"end": 60000, "n": 10, "start": 0})], "the results of the first stay");
    bed.run(&["rm", "other", "--yes"]).ends(0);
    bed.write("stream.yaml", &bed.read("stream.yaml").replace("out.jsonl", "other.jsonl"));
    bed.run(&["run", "stream.yaml", "--key", "other"]).ends(0);
    assert_eq!(lines(&bed, "other.jsonl"), [json!({"end": 60000, "m": 10, "n": 9, "start": 0})]);
    assert_eq!(bed.run(&["run", "stream.yaml", "-i", "a=b"]).code, 2);
    bed.run(&["ls"]).ends(0).expect(expect![[r#"
        -- stdout
        stream counted has ended
        stream other has ended
        -- stderr
        next: onceflow show counted
        -- exit 0
    "#]]);
    bed.run(&["rm", "other", "--yes"]).ends(0).expect(expect![[r#"
        -- stderr
        stream `other` is removed; what its sinks wrote stays
        -- exit 0
    "#]]);
    assert_eq!(bed.run(&["show", "other"]).code, 2);
    bed.run(&["show", "counted"]).ends(0);
}
