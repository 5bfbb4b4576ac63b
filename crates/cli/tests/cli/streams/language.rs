//! The language of stream files: side outputs, folds, tables, directories, fields without `record`.

use super::{lines, sorted};
use crate::support::{Bed, signal, until_line};
use serde_json::json;

#[test]
fn rejects_errors_and_late_records_have_files_of_their_own_and_none_is_lost() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: sides
bundle: 1
sources:
  lines: { file: in.jsonl, record: { at: int, n: int }, time: at, on_error: divert }
steps:
  small:  { from: lines, filter: at < 1000000 }
  halves: { from: small, map: { at: at, half: 100 / n }, on_error: divert }
  counts: { from: halves, window: { tumbling: 100ms }, count: {} }
  failed: { from: [lines.errors, halves.errors], map: error }
sinks:
  counts:  { from: counts, file: counts.jsonl }
  late:    { from: counts.late, file: late.jsonl }
  rejects: { from: small.rejects, file: rejects.jsonl }
  errors:  { from: halves.errors, file: errors.jsonl }
",
    );
    let mut log = String::new();
    for n in 0..50 {
        log += &json!({"at": n * 20, "n": n % 10}).to_string();
        log += "\n";
    }
    log += "no json\n{\"at\": \"x\"}\n";
    // So many, each a commit, that no rest of the windows lasts from the first of them to the late ones.
    log += &"{\"at\": 3000000, \"n\": 1}\n".repeat(1000);
    log += "{\"at\": 5, \"n\": 1}\n{\"at\": 990, \"n\": 2}\n";
    bed.write("in.jsonl", &log);
    let warned = bed.run(&["run", "stream.yaml"]).ends(0);
    assert!(warned.stderr.contains("nothing reads `failed`"), "{}", warned.stderr);
    let rejects = lines(&bed, "rejects.jsonl");
    assert_eq!(rejects, vec![json!({"at": 3_000_000, "n": 1}); 1000]);
    let errors = lines(&bed, "errors.jsonl");
    assert_eq!(errors.len(), 5, "every tenth record divides by zero: {errors:?}");
    assert!(errors.iter().all(|error| error["error"].as_str().is_some_and(|why| why.contains("division by zero"))));
    assert!(errors.iter().all(|error| error["record"]["n"] == json!(0)), "{errors:?}");
    let late = lines(&bed, "late.jsonl");
    assert_eq!(
        late,
        sorted([json!({"at": 5, "half": 100}), json!({"at": 990, "half": 50})]),
        "after 3000000 all are late"
    );
    let counted: i64 = lines(&bed, "counts.jsonl").iter().map(|count| count["count"].as_i64().expect("a count")).sum();
    assert_eq!(counted, 45);
}

#[test]
fn side_outputs_that_are_not_there_or_not_read_are_reported() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: wrong
sources: { lines: { file: in.jsonl } }
steps:
  a: { from: lines.errors, filter: \"true\" }
  b: { from: lines, map: record, on_error: divert }
  c: { from: b.late, map: record }
  d: { from: b.rejects, map: record }
  e: { from: b.lte, map: record }
  f: { from: lines, call: flow.yaml, on_error: divert }
sinks: { out: { from: b, file: out.jsonl } }
",
    );
    let said = bed.run(&["check", "stream.yaml"]).ends(4).stderr;
    for why in [
        "`lines` has no output `errors`",
        "it has one with `on_error: divert`",
        "`b` has no output `late`",
        "`b` has no output `rejects`",
        "a step with a `filter` has one",
        "`b` has no output `lte`",
        "`b` diverts what fails, and nothing reads `b.errors`",
        "step `f` calls a flow, so it cannot divert",
    ] {
        assert!(said.contains(why), "{why}: {said}");
    }
}

#[test]
fn folds_with_laws_are_lifted_and_give_the_same_as_without() {
    let bed = Bed::new();
    let stream = |name: &str, laws: &str| {
        format!(
            "stream: {name}
bundle: 20
sources: {{ n: {{ generate: \"{{'k': n % 5, 'n': n}}\", count: 300 }} }}
steps:
  folded:
    from: n
    key: k
    combine:
      product: {{ fold: {{ start: 1, add: acc * (1 + n % 3) % 1000003, merge: acc * other % 1000003{laws} }} }}
      longest: {{ fold: {{ start: \"''\", add: \"size(string(n)) > size(acc) ? string(n) : acc\" }} }}
      hits: count
sinks: {{ out: {{ from: folded, file: {name}.jsonl }} }}
"
        )
    };
    let lifted = stream("lifted", ", laws: [associative, commutative]").replace(
        "      longest: { fold: { start: \"''\", add: \"size(string(n)) > size(acc) ? string(n) : acc\" } }\n",
        "",
    );
    bed.write("plain.yaml", &stream("plain", ""));
    bed.write("lifted.yaml", &lifted);
    assert!(bed.run(&["explain", "lifted.yaml"]).ends(0).stdout.contains("folded: lifted"));
    assert!(
        bed.run(&["explain", "plain.yaml"]).ends(0).stdout.contains("folded: not lifted: its combine is not declared")
    );
    bed.run(&["run", "plain.yaml"]).ends(0);
    bed.run(&["run", "lifted.yaml"]).ends(0);
    let expected = (0..5).map(|k| {
        let of = (0..300i64).filter(|n| n % 5 == k);
        let product = of.clone().fold(1i64, |acc, n| acc * (1 + n % 3) % 1_000_003);
        json!({"hits": 60, "k": k, "product": product})
    });
    let expected: Vec<_> = sorted(expected);
    assert_eq!(lines(&bed, "lifted.jsonl"), expected);
    let plain: Vec<_> = lines(&bed, "plain.jsonl");
    let without = plain.iter().map(|line| json!({"hits": line["hits"], "k": line["k"], "product": line["product"]}));
    assert_eq!(sorted(without), expected);
    assert!(plain.iter().all(|line| line["longest"].as_str().is_some_and(|longest| longest.len() == 3)), "{plain:?}");
}

#[test]
fn a_fold_that_fails_stops_the_stream_with_its_name_or_is_diverted() {
    let bed = Bed::new();
    let stream = |more: &str, sink: &str| {
        format!(
            "stream: folds
sources: {{ n: {{ generate: n, count: 3 }} }}
steps:
  folded: {{ from: n, fold: {{ start: 1, add: acc / record }}{more} }}
sinks: {{ out: {{ from: folded, file: out.jsonl }}{sink} }}
"
        )
    };
    bed.write("stream.yaml", &stream("", ""));
    let said = bed.run(&["run", "stream.yaml"]).ends(1);
    assert!(
        said.stderr.contains("step `folded record`: `fold`: ") && said.stderr.contains("division by zero"),
        "{}",
        said.stderr
    );
    bed.write("stream.yaml", &stream(", on_error: divert", ", bad: { from: folded.errors, file: bad.jsonl }"));
    bed.run(&["run", "stream.yaml", "--new"]).ends(0);
    assert_eq!((lines(&bed, "out.jsonl").len(), lines(&bed, "bad.jsonl").len()), (0, 1));
    bed.write("stream.yaml", &stream(", window: { session: 1m }", ""));
    let said = bed.run(&["check", "stream.yaml"]).ends(4);
    assert!(said.stderr.contains("sessions merge, and the fold `fold` has no `merge`"), "{}", said.stderr);
}

#[test]
fn records_have_the_rows_of_a_file_and_of_a_stream_of_changes() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: shop
bundle: 5
sources:
  orders: { file: orders.jsonl, record: { at: int, user: int, good: text }, time: at }
  prices: { file: prices.jsonl, time: record.at }
steps:
  named:  { from: orders, key: user, enrich: { file: users.csv, key: id, record: { id: int, name: text, rate: float? } } }
  orders2: { from: named, map: { good: record.record.good, name: \"row == null ? '?' : row.name\", at: record.record.at } }
  priced: { from: orders2, key: good, enrich: { from: prices, key: record.good } }
  billed: { from: priced, map: { name: record.record.name, price: \"row == null ? -1 : int(row.price)\" } }
sinks: { out: { from: billed, file: out.jsonl } }
",
    );
    bed.write("users.csv", "id,name,rate\n1,ada,0.5\n2,bob,\n1,ada II,0.7\n");
    let order = |at, user, good: &str| json!({"at": at, "user": user, "good": good}).to_string() + "\n";
    bed.write(
        "orders.jsonl",
        &(order(10, 1, "tea") + &order(20, 2, "tea") + &order(30, 3, "ink") + &order(40, 1, "tea")),
    );
    let price = |at, good: &str, price| json!({"at": at, "good": good, "price": price}).to_string() + "\n";
    bed.write(
        "prices.jsonl",
        &(price(0, "tea", 3) + &price(15, "tea", 4) + &price(39, "tea", 5) + &price(90, "tea", 6)),
    );
    bed.run(&["run", "stream.yaml"]).ends(0);
    let expected = [("ada II", 3), ("bob", 4), ("?", -1), ("ada II", 5)];
    assert_eq!(lines(&bed, "out.jsonl"), sorted(expected.map(|(name, price)| json!({"name": name, "price": price}))));
    // The table is state of the stream: changed later, it changes nothing that was read.
    bed.write("users.csv", "id,name,rate\n1,eve,0\n");
    bed.run(&["run", "stream.yaml"]).ends(0);
    bed.run(&["run", "stream.yaml", "--new"]).ends(0);
    assert_eq!(lines(&bed, "out.jsonl").iter().filter(|line| line["name"] == "eve").count(), 2);
    std::fs::remove_file(bed.path("users.csv")).expect("a table");
    let gone = bed.run(&["run", "stream.yaml", "--new"]).ends(1);
    assert!(gone.stderr.contains("users.csv"), "{}", gone.stderr);
}

#[test]
fn files_of_a_directory_are_read_as_they_come_also_below_it() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        "stream: inbox
sources: { lines: { directory: inbox, subdirectories: true, follow: true, format: text } }
sinks:
  out:  { from: lines, file: out.txt, format: text }
  seen: { from: lines, stdout: true, format: text }
",
    );
    bed.write("inbox/one.txt", "1\n");
    bed.write("inbox/.hidden", "no\n");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "1");
    bed.write("inbox/a/b/two", "2\n");
    until_line(child.stdout.as_mut().expect("a pipe"), "2");
    child.kill().expect("it is at work");
    child.wait().expect("it was killed");
    bed.write("inbox/three", "3\n");
    std::fs::rename(bed.path("inbox/one.txt"), bed.path("inbox/one.old")).expect("a rotation");
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_line(child.stdout.as_mut().expect("a pipe"), "3");
    signal(&child, "INT");
    bed.end(child);
    let mut found: Vec<String> = bed.read("out.txt").lines().map(str::to_owned).collect();
    found.sort_unstable();
    assert_eq!(found, ["1", "2", "3"]);
    bed.write(
        "once.yaml",
        "stream: once\nsources: { lines: { directory: nothing } }\nsinks: { out: { from: lines, file: x } }\n",
    );
    assert!(bed.run(&["run", "once.yaml"]).ends(1).stderr.contains("there is no directory"));
    bed.write("once.yaml", "stream: once\nsources: { lines: { directory: inbox, format: text } }\nsinks: { out: { from: lines, file: x, format: text } }\n");
    bed.run(&["run", "once.yaml"]).ends(0);
    assert_eq!(bed.read("x").lines().count(), 2, "without `subdirectories`, only its own files");
}

#[test]
fn short_combines_and_fields_without_record_mean_the_long_ones() {
    let bed = Bed::new();
    let source =
        "sources: { n: { generate: \"{'k': n % 3, 'n': n, 'at': n}\", count: 60, time: at, out_of_order: 1s } }";
    for (name, short, long) in [
        ("count", "count: {}", "combine: { count: count }"),
        ("sum", "sum: n", "combine: { sum: { sum: record.n } }"),
        ("min", "min: n * 2", "combine: { min: { min: record.n * 2 } }"),
        ("max", "max: n", "combine: { max: { max: record.n } }"),
        ("mean", "mean: n", "combine: { mean: { mean: record.n } }"),
        ("distinct", "distinct: n % 4", "combine: { distinct: { distinct: record.n % 4 } }"),
        ("top", "top: { n: 2, by: n }", "combine: { top: { top: 2, by: record.n } }"),
        ("fold", "fold: { start: 0, add: acc + n }", "combine: { fold: { fold: { start: 0, add: acc + record.n } } }"),
    ] {
        let mut results = Vec::new();
        for (file, work) in [("short", short), ("long", long)] {
            let step = format!("s: {{ from: n, key: record.k, window: {{ tumbling: 30ms }}, {work} }}");
            let sink = format!("sinks: {{ out: {{ from: s, file: {name}-{file}.jsonl }} }}");
            bed.write("stream.yaml", &format!("stream: {name}-{file}\n{source}\nsteps:\n  {step}\n{sink}\n"));
            let said = bed.run(&["run", "stream.yaml"]).ends(0);
            assert!(said.stderr.contains("`out_of_order` is called `lateness` now"), "{}", said.stderr);
            results.push(lines(&bed, &format!("{name}-{file}.jsonl")));
        }
        assert!(!results[0].is_empty() && results[0] == results[1], "{name}: {results:?}");
    }
}
