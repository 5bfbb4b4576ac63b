//! Reports on a run, whatever its outcome: reported by hand, undone, interrupted, or not finished yet.

use super::support::{Bed, Gate, until_line};
use expect_test::expect;

/// A flow that charges, notes and ships. The first two can be undone, the second by the shell code `undo` if a file
/// exists; the third runs the shell code `ship`, and fails unless another file exists.
fn shop(bed: &Bed, undo: &str, ship: &str) {
    let (can_undo, can_ship) = (bed.path("can-undo"), bed.path("can-ship"));
    bed.write(
        "shop.yaml",
        &format!(
            "flow: shop\nsteps:\n  charge: {{ run: echo 1, out: {{ x: text }}, undo: {{ run: true }} }}\n  \
             note:\n    run: echo ${{{{ charge.x }}}}\n    out: {{ x: text }}\n    undo:\n      run: |\n        {undo}\n        \
             test -e {}\n  ship:\n    run: |\n      {ship}\n      echo ${{{{ note.x }}}}; test -e {}\n    out: {{ x: text }}\n\
             outputs: {{ x: ship.x }}\n",
            can_undo.display(),
            can_ship.display()
        ),
    );
}

/// A flow over a list of numbers: 3 waits at the gate, and those above it until a file exists.
fn each(bed: &Bed, gate: &Gate) {
    let (open, never) = (bed.path("open"), bed.gate("never"));
    bed.write(
        "many.yaml",
        &format!(
            "flow: many\ninputs: {{ n: list<int> }}\nsteps:\n  s:\n    each: i in inputs.n\n    run: |\n      \
             if test ${{{{ i }}}} = 3; then {}; fi\n      if test ${{{{ i }}}} -gt 3 && ! test -e {}; then {}; fi\n      \
             echo ${{{{ i }}}}\n    out: {{ x: int }}\n  t: {{ run: 'echo ${{{{ size(s.x) }}}}', out: {{ x: int }} }}\noutputs: {{ x: t.x }}\n",
            gate.shell(),
            open.display(),
            never.shell()
        ),
    );
}

/// Runs a command until one of its steps is at the gate and these lines were printed, then kills it.
fn kill_at(bed: &Bed, gate: &Gate, args: &[&str], lines: &[&str]) {
    let mut run = bed.start(args);
    gate.until_there();
    let (stderr, mut said) = (run.stderr.as_mut().expect("it is read"), String::new());
    for line in lines {
        if !said.contains(line) {
            said.push_str(&until_line(stderr, line));
        }
    }
    lines.iter().for_each(|line| until_logged(bed, line));
    run.kill().expect("it is there");
    run.wait().expect("it ends");
}

/// Waits until the event log of the last run has the event of such a line: it is written a moment later.
fn until_logged(bed: &Bed, line: &str) {
    let (what, step) = (&line[..4], line.rsplit(' ').next().expect("a step"));
    let is_it =
        |one: &serde_json::Value| one["step"] == step && (what == "run " || one["how"].as_str() == Some(how(what)));
    loop {
        let told = bed.run(&["timeline", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap_or_default();
        if told["attempts"].as_array().is_some_and(|attempts| attempts.iter().any(is_it)) {
            return;
        }
    }
}

fn how(line: &str) -> &str {
    if line == "fail" { "failed" } else { line }
}

#[test]
fn a_step_that_was_undone_says_so_and_one_that_could_not_be_says_why() {
    let bed = Bed::new();
    shop(&bed, "true", "true");
    bed.run(&["run", "shop.yaml"]).ends(6);
    bed.run(&["why", "shop", "charge"]).expect(expect![[r#"
        -- stdout
        charge  ran, then undone (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: done ([time])
        undo    done
        -- stderr
        next: onceflow show shop
        -- exit 0
    "#]]);
    bed.run(&["why", "shop", "note"]).expect(expect![[r#"
        -- stdout
        note  ran, and could not be undone (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: done ([time])
        undo    failed after 5 attempts: OF0301: it ended with exit status 1
        -- stderr
        next: onceflow show shop
        -- exit 0
    "#]]);
    let why = bed.run(&["why", "shop", "note", "--json"]).ends(0).json();
    assert_eq!((&why["fate"], &why["undo"]["end"]), (&"not-undone".into(), &"failed".into()), "{why}");
    bed.write("can-undo", "");
    let retried = bed.run(&["retry", "shop"]).ends(1);
    assert!(retried.stderr.contains("undone  note"), "{}", retried.all());
    let why = bed.run(&["why", "shop", "note", "--json"]).ends(0).json();
    assert_eq!((&why["fate"], &why["undo"]["end"]), (&"undone".into(), &"done".into()), "{why}");
}

/// Checks that every verb that prints the status of a run prints this one.
#[track_caller]
fn is_said_by_all_verbs(bed: &Bed, run: &str, status: &str) {
    let of = |args: &[&str]| bed.run(&[args, &["--json"]].concat()).ends(0).json();
    assert_eq!(of(&["ls"])[0]["status"], status);
    assert_eq!(of(&["show", run])["status"], status);
    assert_eq!(of(&["du"])["runs"][0]["status"], status);
    assert_eq!(of(&["timeline", run])["status"], status);
    let graph = of(&["graph", run]);
    assert_eq!(graph["title"], format!("{run}: {status}"));
    assert!(!graph.to_string().contains("\"state\":\"running\""), "{graph}");
    bed.run(&["report", run, "-o", "r.html"]).ends(0);
    let report = bed.read("r.html");
    assert!(report.contains(&format!(">{status}</span>")) && !report.contains(">running<"), "{report}");
}

#[test]
fn a_step_that_has_not_run_is_not_said_to_have_run() {
    let bed = Bed::new();
    bed.write(
        "f.yaml",
        "flow: f\nsteps:\n  a: { run: 'exit 3', out: { x: text } }\n  \
         b: { run: 'echo ${{ a.x }}', out: { y: text } }\noutputs: { y: b.y }\n",
    );
    bed.run(&["run", "f.yaml"]).ends(1);
    bed.run(&["why", "f", "b"]).expect(expect![[r#"
        -- stdout
        b  not started (plan 0)
        why     it has not run: the run failed first, at a
        -- stderr
        next: onceflow show f
        -- exit 0
    "#]]);
    bed.run(&["cancel", "f", "--yes"]).ends(5);
    assert_eq!(bed.run(&["why", "f", "b", "--json"]).ends(0).json()["why"], "it has not run: the run was cancelled");
    bed.write(
        "g.yaml",
        "flow: g\nsteps:\n  w: { wait: go, out: { x: text } }\n  b: { run: 'echo ${{ w.x }}', out: { y: text } }\noutputs: { y: b.y }\n",
    );
    bed.run(&["run", "g.yaml"]).ends(3);
    for (step, why) in [("b", "it has not run: the run waits for go"), ("w", "it waits for `go`")] {
        assert_eq!(bed.run(&["why", "g", step, "--json"]).ends(0).json()["why"], why);
    }
    for args in [&["ls"][..], &["show", "g"], &["graph", "g"]] {
        let said = bed.run(args).ends(0);
        assert!(said.stderr.contains("next: onceflow send g go\n"), "{}", said.all());
    }
}

#[test]
fn an_element_that_is_not_there_is_no_step() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    each(&bed, &gate);
    bed.run(&["run", "many.yaml", "-i", "n=1", "-i", "n=2"]).ends(0);
    bed.run(&["why", "many", "s[99999]"]).expect(expect![[r#"
        -- stderr
        error[OF0450]: run `many` has no step `s[99999]`
        hint: `s` has 2 elements: `s[0]` to `s[1]`
        -- exit 2
    "#]]);
    bed.run(&["why", "many", "s[1]"]).ends(0);
    bed.run(&["why", "many", "s[2]"]).ends(2);
    bed.run(&["why", "many", "s[two]"]).ends(2);
}

#[test]
fn an_interrupted_each_says_how_many_elements_are_left() {
    for keep in ["", "keep: 1h\n"] {
        let bed = Bed::new();
        let gate = bed.gate("gate");
        each(&bed, &gate);
        bed.write("many.yaml", &bed.read("many.yaml").replace("flow: many\n", &format!("flow: many\n{keep}")));
        let all: Vec<String> = (1..=9).flat_map(|n| [String::from("-i"), format!("n={n}")]).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let with = |verb: &[&'static str]| [verb, &["many.yaml"], &all[..]].concat();
        kill_at(&bed, &gate, &with(&["run", "--jobs", "9"]), &["done    s[0]", "done    s[1]", "run     s[2]"]);
        let explained = bed.run(&with(&["explain"])).ends(0);
        let told = if keep.is_empty() { "s: 7 of 9 elements" } else { "s[8]" };
        assert!(
            explained.stdout.contains(told) && explained.stdout.contains("8 to run, 2 reused"),
            "{}",
            explained.all()
        );
        let json = bed.run(&with(&["explain", "--json"])).ends(0).json();
        assert_eq!((&json["run"], &json["reuse"]), (&8.into(), &2.into()), "{json}");
        let shown = bed.run(&["show", "many"]).ends(0);
        assert!(
            shown.stdout.contains("step     s: 2 done, ") && shown.stdout.contains(" interrupted"),
            "{}",
            shown.all()
        );
        assert!(shown.stdout.contains("at work when the last process ended"), "{}", shown.all());
        assert!(!shown.stdout.contains("running"), "{}", shown.all());
        let why = bed.run(&["why", "many", "s[2]"]).ends(0);
        assert!(why.stdout.contains("s[2]  interrupted (plan 0)"), "{}", why.all());
        assert!(why.stdout.contains("why     it runs again when the run goes on: "), "{}", why.all());
        let why = bed.run(&["why", "many", "t"]).ends(0);
        let told = "t  not started (plan 0)\nwhy     it runs when the run goes on: nothing was known of it\n";
        assert_eq!(why.stdout, told, "{}", why.all());
        let logs = bed.run(&["logs", "many", "t"]).ends(0);
        assert!(logs.stderr.starts_with("step `t` of run `many` has not run, so it wrote nothing\n"), "{}", logs.all());
        for verb in ["logs", "why"] {
            bed.run(&[verb, "many", "s[8]"]).ends(0);
            bed.run(&[verb, "many", "s[9]"]).ends(2);
        }
        is_said_by_all_verbs(&bed, "many", "interrupted");
        let graph = bed.run(&["graph", "many", "--json"]).ends(0).json();
        assert_eq!(graph["boxes"][1]["state"]["state"], "interrupted", "{graph}");
        bed.write("open", "");
        let why = bed.run(&["why", "many", "s", "--json"]).ends(0).json();
        assert_eq!((&why["fate"], &why["left"], &why["elements"]), (&"started".into(), &7.into(), &9.into()), "{why}");
        let mut run = bed.start(&with(&["run"]));
        gate.until_there();
        let said = until_line(run.stderr.as_mut().expect("it is read"), "will run");
        assert!(said.contains("8 of 10 steps will run: s: 7 of 9 elements"), "{said}");
        gate.open();
        bed.end(run).ends(0);
        let reused = bed.run(&with(&["explain", "--all"])).ends(0);
        assert!(reused.stdout.contains("s[0]  (kept)") && reused.stdout.contains("s[8]  (kept)"), "{}", reused.all());
    }
}

#[test]
fn a_run_that_is_being_undone_will_not_run() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    shop(&bed, &gate.shell(), "true");
    kill_at(&bed, &gate, &["run", "shop.yaml"], &["failed[OF0301] ship"]);
    bed.run(&["explain", "shop.yaml"]).expect(expect![[r#"
        -- stdout
        run `shop` is being undone: none of its steps will run
        undo   note
        undo   charge
        -- stderr
        next: `onceflow cancel shop` goes on undoing it; then `onceflow run` begins anew
        -- exit 0
    "#]]);
    let shown = bed.run(&["show", "shop"]).ends(0);
    assert!(shown.stdout.starts_with("shop interrupted while it was undone\n"), "{}", shown.all());
    bed.write("shop.yaml", &bed.read("shop.yaml").replace("echo 1", "echo 2"));
    bed.run(&["explain", "shop.yaml"]).expect(expect![[r#"
        -- stdout
        run `shop` is being undone: none of its steps will run
        undo   note
        undo   charge
        -- stderr
        `run` would refuse this: error[OF0414]: run `shop` was interrupted while it was undone, and nothing else of it runs
        hint: `onceflow cancel shop` finishes undoing it; then `onceflow run` of its flow begins anew
        next: onceflow error OF0414
        -- exit 0
    "#]]);
    bed.run(&["run", "shop.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0414]: run `shop` was interrupted while it was undone, and nothing else of it runs
        hint: `onceflow cancel shop` finishes undoing it; then `onceflow run` of its flow begins anew
        -- exit 1
    "#]]);
    bed.run(&["retry", "shop"]).expect(expect![[r#"
        -- stderr
        error[OF0414]: run `shop` was interrupted while it was undone, and nothing else of it runs
        hint: `onceflow cancel shop` finishes undoing it; then `onceflow run` of its flow begins anew
        -- exit 1
    "#]]);
    let workers = bed.run(&["workers"]).ends(0);
    assert!(workers.stderr.ends_with("next: `onceflow cancel shop` finishes undoing it\n"), "{}", workers.all());
    bed.run(&["why", "shop", "charge"]).expect(expect![[r#"
        -- stdout
        charge  ran, and will be undone (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: done ([time])
        undo    to come: the run is being undone
        -- stderr
        next: onceflow show shop
        -- exit 0
    "#]]);
    // A worker that takes no steps of this run leaves the compensation to one that does.
    let worker = bed.run(&["worker", "--once"]).ends(0);
    assert!(worker.stderr.ends_with("left: 0 steps done, 0 failed, 0 lost to others\n"), "{}", worker.all());
    let shown = bed.run(&["show", "shop"]).ends(0);
    assert!(shown.stdout.starts_with("shop interrupted while it was undone\n"), "{}", shown.all());
    bed.write("can-undo", "");
    let cancel = bed.start(&["cancel", "shop", "--yes"]);
    gate.until_there();
    gate.open();
    bed.end(cancel).ends(1);
}

#[test]
fn explain_says_that_run_would_refuse_while_another_process_works() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    shop(&bed, "true", &gate.shell());
    bed.write("can-ship", "");
    let run = bed.start(&["run", "shop.yaml"]);
    gate.until_there();
    let same = bed.run(&["explain", "shop.yaml"]).ends(0);
    assert!(same.stderr.contains("`run` would follow it"), "{}", same.all());
    let flow = bed.read("shop.yaml");
    bed.write("shop.yaml", &flow.replace("echo 1", "echo 2"));
    let other = bed.run(&["explain", "shop.yaml"]).ends(0);
    assert!(other.stderr.contains("`run` would refuse this: error[OF0404]"), "{}", other.all());
    let new = bed.run(&["explain", "shop.yaml", "--new", "--json"]).ends(0).json();
    assert_eq!(new["refused"]["code"], "OF0404", "{new}");
    gate.open();
    bed.end(run).ends(0);
}

#[test]
fn workers_after_a_kill_names_the_command_that_resumes_the_run() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    shop(&bed, "true", &gate.shell());
    bed.write("can-ship", "");
    kill_at(&bed, &gate, &["run", "shop.yaml"], &[]);
    let workers = bed.run(&["workers"]).ends(0);
    assert!(workers.stdout.contains("1 step for a worker that attends run shop;"), "{}", workers.all());
    assert!(workers.stderr.ends_with("next: `onceflow retry shop` resumes it\n"), "{}", workers.all());
    let retry = bed.start(&["retry", "shop"]);
    gate.until_there();
    gate.open();
    bed.end(retry).ends(0);
}

#[test]
fn commands_that_are_proposed_name_the_store_that_was_named() {
    let bed = Bed::new();
    bed.write("one.yaml", "flow: one\nsteps:\n  s: { run: \"false\", out: { x: text } }\noutputs: { x: s.x }\n");
    let run = bed.run(&["run", "one.yaml", "--store", "my store"]).ends(1);
    assert!(run.stderr.contains("next: onceflow logs --store 'my store' one s"), "{}", run.all());
    let show = bed.run(&["show", "--store", "my store"]).ends(0);
    let again = "next: onceflow logs --store 'my store' one; then `onceflow run --store 'my store' one.yaml` goes on";
    assert!(show.stderr.contains(again), "{}", show.all());
    let show = bed.run(&["show", "--store", "my store", "--json"]).ends(0).json();
    assert!(show["next"].as_str().is_some_and(|next| next.starts_with(&again[6..])), "{show}");
    let none = bed.run(&["show", "two", "--store", "my store"]).ends(2);
    assert!(none.stderr.contains("onceflow ls --store 'my store'"), "{}", none.all());
    let mut from_environment = bed.command(&["show"]);
    let shown = bed.said(from_environment.env("ONCEFLOW_STORE", "my store").output().expect("it starts")).ends(0);
    assert!(
        shown.stderr.contains("next: onceflow logs one;"),
        "the environment holds for the next command: {}",
        shown.all()
    );
}
