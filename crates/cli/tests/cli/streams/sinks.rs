//! Sinks of stream files: files with dates, killed while the day changes, and begun anew.

use super::lines;
use crate::support::{Bed, signal, until_line};
use serde_json::{Value, json};
use std::{os::unix::fs::PermissionsExt, process::Child};

const FLOW: &str = "flow: alarm
inputs: { page: text, count: int }
steps:
  ring: { run: \"echo ${{ inputs.page }} ${{ inputs.count }} >> PATH/alarms.txt\" }
outputs: {}
";

/// As in the issue that asked for streams.
const CLICKS: &str = r#"stream: clicks
sources: { lines: { file: "logs/*.jsonl", follow: true, format: json, time: "record.at", lateness: 30s } }
steps:
  valid:  { from: lines, filter: "record.user != ''" }
  counts: { from: valid, key: record.page, window: { tumbling: 1m }, count: {} }
  top:    { from: counts, window: { tumbling: 1m }, top: { n: 10, by: count } }
  alarm:  { from: counts, filter: "count > 1000", call: alarm.yaml }          # a flow per record, once
sinks:  { out: { from: top, file: "top-%Y%m%d.jsonl" } }
"#;

/// 2026-01-01T23:58:00Z
const BEFORE_MIDNIGHT: i64 = 1_767_311_880_000;

fn click(at: i64, user: &str, page: &str) -> String {
    json!({"at": BEFORE_MIDNIGHT + at, "user": user, "page": page}).to_string() + "\n"
}

fn minutes(bed: &Bed, name: &str) -> Vec<(i64, Vec<(String, i64)>)> {
    let page =
        |page: &Value| (page["page"].as_str().expect("a page").to_owned(), page["count"].as_i64().expect("a count"));
    let minute = |top: Value| {
        let pages = top["top"].as_array().expect("pages").iter().map(page).collect();
        ((top["start"].as_i64().expect("a start") - BEFORE_MIDNIGHT) / 60_000, pages)
    };
    lines(bed, name).into_iter().map(minute).collect()
}

fn until(child: &mut Child, is_so: impl Fn() -> bool) {
    while !is_so() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
        std::thread::yield_now();
    }
}

#[test]
fn clicks_of_the_issue_are_counted_ranked_by_day_and_ring_an_alarm_though_killed_at_midnight() {
    let bed = Bed::new();
    bed.write("stream.yaml", CLICKS);
    bed.write("alarm.yaml", &FLOW.replace("PATH", &bed.dir.path().display().to_string()));
    let mut log = String::new();
    for n in 0..1500 {
        log += &click(n * 30, "ada", "/hot");
    }
    for n in 0..20 {
        log += &click(60_000 + n * 3000, if n % 4 == 0 { "" } else { "bob" }, &format!("/{}", n % 16));
    }
    bed.write("logs/a.jsonl", &log);
    let mut child = bed.start(&["run", "stream.yaml"]);
    until(&mut child, || bed.path("alarms.txt").exists());
    child.kill().expect("it is at work");
    child.wait().expect("it was killed");
    let mut log = std::fs::File::options().append(true).open(bed.path("logs/a.jsonl")).expect("a log");
    let mut after: String = (0..1200).map(|n| click(120_000 + n * 20, "ada", "/new")).collect();
    after += &click(185_000, "eve", "/late");
    std::io::Write::write_all(&mut log, after.as_bytes()).expect("lines");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until(&mut child, || bed.path("top-20260101.jsonl").exists() && lines(&bed, "top-20260101.jsonl").len() == 2);
    child.kill().expect("it is at work");
    child.wait().expect("it was killed");
    // Nothing comes any more: a new file lets the watermark pass the third minute.
    bed.write("logs/b.jsonl", &click(400_000, "eve", "/end"));
    std::io::Write::write_all(&mut log, click(400_000, "eve", "/end").as_bytes()).expect("a line");
    let mut child = bed.start(&["run", "stream.yaml"]);
    let has_two_days = || bed.path("top-20260102.jsonl").exists() && lines(&bed, "top-20260102.jsonl").len() == 2;
    let has_rung = || bed.read("alarms.txt").contains("/new");
    until(&mut child, || has_two_days() && has_rung());
    signal(&child, "INT");
    assert_eq!(bed.end(child).code, 130);
    let first = minutes(&bed, "top-20260101.jsonl");
    assert_eq!(first[0], (0, vec![(String::from("/hot"), 1500)]));
    assert_eq!((first[1].0, first[1].1.len(), first.len()), (1, 10, 2), "the ten best of the second minute");
    assert_eq!(first[1].1.iter().map(|(_, count)| count).sum::<i64>(), 13, "{first:?}");
    let second = minutes(&bed, "top-20260102.jsonl");
    assert_eq!(second, [(2, vec![(String::from("/new"), 1200)]), (3, vec![(String::from("/late"), 1)])]);
    // The step of a run that was killed with its worker may have rung twice; there is one run for each record.
    let mut alarms: Vec<String> = bed.read("alarms.txt").lines().map(str::to_owned).collect();
    alarms.sort_unstable();
    alarms.dedup();
    assert_eq!(alarms, ["/hot 1500", "/new 1200"]);
}

const DAYS: &str = "stream: days
bundle: 50
partitions: 2
sources: { n: { generate: \"{'n': n, 'at': 1767225600000 + n * 1800000 - n % 7 * 3600000}\", count: 400, time: at, lateness: 8h } }
steps: { odd: { from: n, filter: n % 2 == 1 } }
sinks:
  out:  { from: odd, file: \"out/%Y-%m/%d.jsonl\" }
  seen: { from: odd, stdout: true }
";

fn day_of(n: i64) -> String {
    let hours = (n - n % 7 * 2).div_euclid(48);
    if hours < 0 { String::from("out/2025-12/31.jsonl") } else { format!("out/2026-01/{:02}.jsonl", hours + 1) }
}

fn days(bed: &Bed) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    for month in ["2025-12", "2026-01"] {
        let Ok(entries) = std::fs::read_dir(bed.path("out").join(month)) else { continue };
        for entry in entries {
            let name = format!("out/{month}/{}", entry.expect("a file").file_name().to_string_lossy());
            found.extend(lines(bed, &name).iter().map(|line| (name.clone(), line["n"].as_i64().expect("a number"))));
        }
    }
    found.sort();
    found
}

#[test]
fn every_day_has_its_file_with_each_record_once_though_the_command_is_killed() {
    let bed = Bed::new();
    // Lines of 4 KB fill the pipe, so that the command cannot end before it is killed, however late that is.
    bed.write("stream.yaml", &DAYS.replace("'n': n,", &format!("'n': n, 'pad': '{}',", "x".repeat(4000))));
    for after in [2, 30, 60] {
        let mut child = bed.start(&["run", "stream.yaml"]);
        let mut stdout = child.stdout.take().expect("a pipe");
        (0..after).for_each(|_| drop(until_line(&mut stdout, "\"n\"")));
        child.kill().expect("it is still at work");
        child.wait().expect("it was killed");
    }
    bed.run(&["run", "stream.yaml"]).ends(0);
    let mut expected: Vec<(String, i64)> = (0..400).filter(|n| n % 2 == 1).map(|n| (day_of(n), n)).collect();
    expected.sort();
    assert_eq!(days(&bed), expected);
    let mode = |name: &str| bed.path(name).metadata().expect("a file").permissions().mode();
    assert_eq!(mode("out/2026-01/01.jsonl") & 0o222, 0, "a day that is over is sealed");
    // Begun anew, it removes the files that it wrote, and no other.
    bed.write("out/2026-01/notes.txt", "mine\n");
    bed.run(&["run", "stream.yaml", "--new"]).ends(0);
    assert_eq!(bed.read("out/2026-01/notes.txt"), "mine\n");
    std::fs::remove_file(bed.path("out/2026-01/notes.txt")).expect("a file");
    assert_eq!(days(&bed), expected);
    let changed = bed.path("out/2026-01/02.jsonl");
    std::fs::set_permissions(&changed, std::fs::Permissions::from_mode(0o600)).expect("a file");
    std::fs::write(&changed, "mine\n").expect("a file");
    let refused = bed.run(&["run", "stream.yaml", "--new"]).ends(1);
    assert!(refused.stderr.contains("02.jsonl holds bytes that stream `days` did not write"), "{}", refused.stderr);
    assert_eq!(bed.read("out/2026-01/02.jsonl"), "mine\n");
    assert!(bed.path("out/2026-01/03.jsonl").exists(), "nothing was removed");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn names_with_wrong_dates_and_other_wrong_sinks_are_reported_at_their_places() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: wrong
sources: { lines: { file: in.jsonl } }
sinks:
  a: { from: lines, file: \"%d.jsonl\" }
  b: { from: lines, file: \"%Y-%Q\" }
  c: { from: lines, http: http://localhost/, headers: { \"A B\": x, Host: y, Authorization: \"${{ secrets.X }}\" } }
  d: { from: lines, http: http://localhost/, headers: { Authorization: \"${{ lines }}\" } }
  e: { from: lines, file: x, table: t, headers: { A: b } }
  f: { from: lines, file: y-%Y }
  g: { from: lines, file: ./y-%Y }
  h: { from: lines, file: y-1970 }
  i: { from: lines, file: y-197x }
  j: { from: lines, file: ./y-197x }
",
    );
    let said = bed.run(&["check", "stream.yaml"]).ends(4).stderr;
    for (code, line, why) in [
        (
            "OF0165",
            4,
            "`%d.jsonl` cannot be the name of files: the same name would come again later: it lacks %Y and %m",
        ),
        ("OF0165", 5, "`%Q` is no part of a date"),
        ("OF0108", 6, "`A B` cannot be the name of a header"),
        ("OF0108", 6, "the header `Host` is set by the sink itself"),
        ("OF0126", 6, "the secret `X` is not declared"),
        ("OF0116", 7, "`lines` is no secret"),
        ("OF0113", 8, "sink `e` has `table`, which goes with `sqlite`, `postgres`"),
        ("OF0113", 8, "sink `e` has `headers`, which goes with `http`"),
        ("OF0113", 10, "sinks `f` and `g` write to the same file"),
        ("OF0113", 11, "sinks `f` and `h` write to the same file"),
        ("OF0113", 13, "sinks `i` and `j` write to the same file"),
    ] {
        let place = said.find(why).unwrap_or_else(|| panic!("{why}: {said}"));
        let before = &said[..place];
        assert!(before.rfind(code) > before.rfind("hint:").or(Some(0)), "{code} {why}: {said}");
        assert!(said[place..].contains(&format!("stream.yaml:{line}:")), "{line} {why}: {said}");
    }
}
