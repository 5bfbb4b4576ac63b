//! Reports on a run are true: after kills, at any size, for steps that are one node for the engine, and whatever steps
//! write and keys contain.

use super::support::{Bed, on_terminal, until_line};
use expect_test::expect;
use std::{fs, os::unix::ffi::OsStrExt};

/// A flow over numbers; those from 5 on wait at a gate.
fn over_numbers(bed: &Bed, gate: &str) {
    bed.write(
        "many.yaml",
        &format!(
            "flow: many\ninputs: {{ n: list<int> }}\nsteps:\n  s:\n    each: i in inputs.n\n    at_most: 1\n    run: |\n      \
             if test ${{{{ i }}}} = 5; then {gate}; fi\n      echo ${{{{ i }}}}\n    out: {{ x: int }}\noutputs: {{ x: s.x }}\n"
        ),
    );
}

#[test]
fn commits_whose_events_were_lost_are_done_and_not_interrupted() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    over_numbers(&bed, &gate.shell());
    let mut run = bed.start(&["run", "many.yaml", "-i", "n=[1,2,3,4,5,6,7]"]);
    gate.until_there();
    until_line(run.stderr.as_mut().expect("it is read"), "run     s[4]");
    // Events are logged a moment after they happen, and commits that are not logged when the process is killed count.
    let is_logged =
        || bed.run(&["show", "many", "--json"]).ends(0).json()["steps"][0]["running"] == serde_json::json!(["s[4]"]);
    while !is_logged() {}
    run.kill().expect("it is there");
    run.wait().expect("it ends");
    let step = bed.run(&["show", "many", "--json"]).ends(0).json()["steps"][0].clone();
    assert_eq!((&step["done"], &step["interrupted"]), (&4.into(), &serde_json::json!(["s[4]"])), "{step}");
    assert_eq!(step["elements"], 7, "{step}");
    let graph = bed.run(&["graph", "many", "--json"]).ends(0).json().to_string();
    assert!(graph.contains("\"done\":4") && graph.contains("\"interrupted\":1"), "{graph}");
}

#[test]
fn failures_are_counted_once_however_often_they_were_tried_and_the_rest_is_told() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\non_failure: finish_independent\ninputs: { n: list<int> }\nsteps:\n  \
         a: { each: i in inputs.n, run: 'test ${{ i }} -gt 30; echo', out: { x: text } }\noutputs: { x: a.x }\n",
    );
    let numbers = (1..=32).map(|n: i32| n.to_string()).collect::<Vec<_>>().join(",");
    let numbers = format!("n=[{numbers}]");
    for _ in 0..2 {
        let said = bed.run(&["run", "f.yaml", "-i", &numbers]).ends(1).stderr;
        assert!(said.contains("a[8], a[9], and 20 more\n"), "{said}");
    }
    let shown = bed.run(&["show", "f"]).ends(0).stdout;
    assert!(shown.contains("2 done, 30 failed") && shown.contains("… and 20 more failed"), "{shown}");
    let shown = bed.run(&["show", "f", "--json"]).ends(0).json();
    assert_eq!((&shown["failed"], &shown["steps"][0]["failed"]), (&30.into(), &30.into()), "{shown}");
    assert_eq!(shown["inputs"]["n"].as_array().map(Vec::len), Some(32), "a list is given whole: {}", shown["inputs"]);
}

/// Two lists that are iterated together, so that they are one node, and a loop.
const JOINED: &str = "flow: joined\ninputs: { n: list<int>, add: int, mul: int }\nsteps:\n  \
    a: { each: i in inputs.n, run: 'echo $(( ${{ i }} + ${{ inputs.add }} ))', out: { x: int } }\n  \
    b: { each: y in a.x, run: 'echo $(( ${{ y }} * ${{ inputs.mul }} ))', out: { z: int } }\n  \
    c: { run: 'echo ${{ size(b.z) }}', out: { n: int } }\n  \
    r:\n    steps: { half: { expr: { x: x / 2.0 } } }\n    \
    loop: { carry: { x: \"100.0\" }, while: out.x > 1.0 }\n    out: { x: half.x }\n\
    outputs: { n: c.n, r: r.x }\n";

#[test]
fn eaches_that_are_one_node_have_a_reason_each() {
    let bed = Bed::new();
    bed.write("joined.yaml", JOINED);
    let with =
        |verb: &'static str, mul: &'static str| [verb, "joined.yaml", "-i", "n=[1,2,3]", "-i", "add=1", "-i", mul];
    bed.run(&with("run", "mul=2")).ends(0);
    bed.run(&with("explain", "mul=3")).expect(expect![[r#"
        -- stdout
        run    a  (has no result yet)
        run    b  (input inputs.mul changed)
        run    c  (reads from b)
        run    r  (has no result yet)
        4 or more to run, 0 reused, 0 skipped
        -- stderr
        next: onceflow run joined.yaml -i 'n=[1,2,3]' -i add=1 -i mul=3
        -- exit 0
    "#]]);
    let told = bed.run(&[&with("explain", "mul=3")[..], &["--json"]].concat()).ends(0).json();
    let steps: Vec<_> = told["steps"].as_array().into_iter().flatten().collect();
    let told: Vec<_> = steps.iter().map(|step| format!("{} {} {}", step["step"], step["reason"], step["of"])).collect();
    assert_eq!(
        told,
        [
            "\"a\" \"no-value\" null",
            "\"b\" \"input-changed\" \"inputs.mul\"",
            "\"c\" \"source-reruns\" \"b\"",
            "\"r\" \"no-value\" null"
        ]
    );
    bed.run(&with("run", "mul=3")).ends(0);
    for step in ["b", "/b", "b[1]"] {
        let why = bed.run(&["why", "joined", step]).ends(0).stdout;
        assert!(why.contains("(plan 1)") && why.contains("its input inputs.mul changed"), "{step}: {why}");
    }
}

#[test]
fn a_step_inside_another_waits_for_the_step_it_reads_from() {
    let bed = Bed::new();
    bed.write(
        "inner.yaml",
        "flow: inner\nkeep: 1d\ninputs: { n: list<int>, by: int }\nsteps:\n  s:\n    each: i in inputs.n\n    steps:\n      \
         x: { run: 'echo $(( ${{ i }} * ${{ inputs.by }} ))', out: { v: int } }\n      \
         y: { run: 'echo ${{ x.v }}', out: { v: int } }\n    out: { v: y.v }\noutputs: { v: s.v }\n",
    );
    bed.run(&["run", "inner.yaml", "-i", "n=[1,2]", "-i", "by=1"]).ends(0);
    let told = bed.run(&["explain", "inner.yaml", "-i", "n=[1,2]", "-i", "by=2"]).ends(0).stdout;
    assert!(told.contains("s[0]/y  (reads from s[0]/x)"), "{told}");
}

#[test]
fn output_of_a_step_and_keys_never_command_the_terminal() {
    let bed = Bed::new();
    bed.write(
        "rude.yaml",
        "flow: rude\nsteps:\n  a:\n    run: |\n      printf 'gone\\033[2J\\033[H\\n' >&2\n      exit 3\n",
    );
    let key = "two\nlines\u{1b}[2J";
    let said = bed.run(&["run", "rude.yaml", "--key", key]).ends(1);
    assert!(said.stderr.contains("gone\\x1b[2J\\x1b[H") && !said.stderr.contains('\u{1b}'), "{}", said.stderr);
    let listed = bed.run(&["ls"]).ends(0);
    assert_eq!(listed.stdout.lines().count(), 2, "{}", listed.stdout);
    assert!(listed.stdout.contains("two\\nlines\\x1b[2J  rude"), "{}", listed.stdout);
    for args in [vec!["show", key], vec!["why", key, "a"], vec!["ls"]] {
        let said = bed.run(&args).ends(0);
        assert!(!said.stdout.contains('\u{1b}') && !said.stderr.contains('\u{1b}'), "{args:?}: {}", said.all());
    }
    // Data is exact, and so are logs when stdout is not a terminal.
    let shown = bed.run(&["show", key, "--json"]).ends(0).json();
    assert_eq!(shown["key"], key);
    assert!(shown["failures"][0]["causes"].to_string().contains("gone\\u001b[2J"), "{shown}");
    assert!(bed.run(&["logs", key]).ends(0).stdout.contains("gone\u{1b}[2J"));
    // The suggested command can be pasted into a shell.
    let next = listed.stderr.trim().strip_prefix("next: onceflow logs ").expect("what to do next");
    assert!(next.starts_with("$'two\\x0alines\\x1b[2J'"), "{next}");
}

#[test]
fn paths_that_are_no_text_are_paths_all_the_same() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\nsteps:\n  a: { run: 'echo x > ${{ out.x }}', out: { x: file } }\noutputs: { x: a.x }\n",
    );
    let odd = |name: &[u8]| bed.dir.path().join(std::ffi::OsStr::from_bytes(name));
    fs::copy(bed.path("f.yaml"), odd(b"f\xff.yaml")).expect("a copy");
    let run = |args: &[&std::ffi::OsStr]| {
        let output = bed.command(&[]).args(args).output().expect("the command starts");
        bed.said(output).ends(0)
    };
    let (store, out, flow) = (odd(b"store\xff"), odd(b"out\xff"), odd(b"f\xff.yaml"));
    let at = ["--store".as_ref(), store.as_os_str()];
    run(&[&["run".as_ref(), flow.as_os_str(), "--out".as_ref(), out.as_os_str()], &at[..]].concat());
    assert!(out.join("x").exists());
    for verb in ["ls", "show", "fsck", "du", "config", "doctor"] {
        for json in [&[][..], &["--json".as_ref()]] {
            let run_of: &[&std::ffi::OsStr] = if verb == "show" { &["f".as_ref()] } else { &[] };
            run(&[&[verb.as_ref()], run_of, &at[..], json].concat());
        }
    }
}

#[test]
fn check_says_which_inputs_the_command_needs() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\ninputs: { n: int, m: { type: int, default: 1 } }\nsteps: { a: { run: 'echo ${{ inputs.n }}' } }\n",
    );
    bed.run(&["check", "f.yaml"]).expect(expect![[r#"
        -- stderr
        f.yaml: flow `f` is sound
        next: onceflow run f.yaml -i n=…
        -- exit 0
    "#]]);
}

/// Returns the rows that were drawn, without colours and other escape sequences.
fn rows(sent: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut letters = sent.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // An escape sequence ends with a letter.
            '\u{1b}' => drop(letters.by_ref().skip(1).find(char::is_ascii_alphabetic)),
            letter => plain.push(letter),
        }
    }
    plain.split(['\r', '\n']).map(str::to_owned).collect()
}

#[test]
fn rows_of_the_live_view_fit_the_terminal_and_count_elements() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\ninputs: { n: list<int> }\nsteps:\n  a_step_with_a_long_name:\n    each: i in inputs.n\n    steps:\n      \
         x: { run: 'echo ${{ i }}', out: { v: int } }\n      y: { run: 'echo ${{ x.v }}', out: { v: int } }\n    \
         out: { v: y.v }\noutputs: { v: a_step_with_a_long_name.v }\n",
    );
    for columns in [24, 44, 80] {
        let run = on_terminal(&bed, columns, "run f.yaml -i n='[1,2,3,4,5]' --new --color never").output();
        let sent = String::from_utf8_lossy(&run.expect("util-linux has `script`").stdout).into_owned();
        let drawn = rows(&sent);
        let bars: Vec<_> = drawn.iter().filter(|row| row.starts_with("a_step")).collect();
        assert!(bars.iter().any(|row| row.contains("5/5")), "five elements, of two steps each: {drawn:?}");
        assert!(!bars.iter().any(|row| row.contains("/10")), "{drawn:?}");
        // Rows are padded to the end of the line, where the next one begins.
        let fits = |row: &&String| row.chars().skip(columns - 3).take(3).all(|letter| letter == ' ');
        assert!(bars.iter().all(fits), "{columns}: {bars:?}");
    }
}
