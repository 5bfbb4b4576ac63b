//! Runs from start to end: results, resuming, replanning.

use crate::support;

use expect_test::expect;
use std::{fs, os::unix::fs::MetadataExt};
use support::{Bed, copy_flow};

fn started() -> Bed {
    let bed = Bed::new();
    bed.run(&["init"]).ends(0);
    bed
}

#[test]
fn a_first_run_writes_its_results_and_a_second_one_does_nothing() {
    let bed = started();
    let said = bed.run(&["run", "flow.yaml", "-j", "1"]);
    said.expect(expect![[r#"
        -- stdout
        {"report":"results/rain.txt"}
        -- stderr
        run     report
        done    report ([time])
        run     sum[0]
        done    sum[0] ([time])
        run     sum[1]
        done    sum[1] ([time])
        run     sum[2]
        done    sum[2] ([time])
        done: 4 steps ran in [time]
        next: results are in results/; `onceflow show rain` shows what happened
        -- exit 0
    "#]]);
    assert_eq!(bed.read("results/rain.txt"), "north: 10 mm\nsouth: 8 mm\nfar east: 12 mm\n");
    assert_eq!(bed.read(".onceflow/.gitignore"), "*\n");
    let (inode, store) = (fs::metadata(bed.path("results/rain.txt")).expect("a result").ino(), bed.store());
    bed.run(&["run", "flow.yaml"]).expect(expect![[r#"
        -- stdout
        {"report":"results/rain.txt"}
        -- stderr
        done: nothing to do: nothing has changed
        next: results are in results/; `onceflow show rain` shows what happened
        -- exit 0
    "#]]);
    assert_eq!(fs::metadata(bed.path("results/rain.txt")).expect("a result").ino(), inode, "the same file");
    let changed = bed.store().into_iter().filter(|file| !store.contains(file)).map(|file| file.0);
    // `LOCK` names the process that has the store, for people.
    let changed: Vec<_> = changed.filter(|path| !path.ends_with("LOCK")).collect();
    assert!(changed.is_empty(), "a run that does nothing writes nothing: {changed:?}");
    bed.run(&["explain", "flow.yaml"]).expect(expect![[r#"
        -- stdout
        reuse  sum  (kept)
        reuse  report  (kept)
        0 to run, 2 reused, 0 skipped
        -- stderr
        next: nothing would run; `onceflow run` shows the results
        -- exit 0
    "#]]);
}

#[test]
fn a_changed_input_reruns_only_what_depends_on_it_as_was_explained() {
    let bed = started();
    bed.run(&["run", "flow.yaml"]).ends(0);
    bed.write("data/south.csv", "day,rain\nmon,100\n");
    bed.run(&["explain", "flow.yaml"]).expect(expect![[r#"
        -- stdout
        run    sum  (input station changed)
        reuse    sum[0]  (kept)
        run      sum[1]  (input station changed)
        reuse    sum[2]  (kept)
        run    report  (reads from sum)
        2 to run, 2 reused, 0 skipped
        -- stderr
        next: onceflow run flow.yaml
        -- exit 0
    "#]]);
    bed.run(&["run", "flow.yaml", "-j", "1"]).expect(expect![[r#"
        -- stdout
        {"report":"results/rain.txt"}
        -- stderr
        2 of 4 steps will run: sum[1] (input station changed), report (reads from sum)
        run     report
        done    report ([time])
        reused  sum[0]
        run     sum[1]
        done    sum[1] ([time])
        reused  sum[2]
        done: 2 steps ran in [time], 2 reused
        next: results are in results/; `onceflow show rain` shows what happened
        -- exit 0
    "#]]);
    assert_eq!(bed.read("results/rain.txt"), "north: 10 mm\nsouth: 100 mm\nfar east: 12 mm\n");
}

#[test]
fn a_failed_run_goes_on_where_it_failed() {
    let bed = Bed::new();
    let flow = "flow: two\nsteps:\n  a: { run: echo once >> DIR/ran; echo hi, out: { x: text } }\n  b:\n    run: |\n      echo ${{ a.x }} to you >&2\n      cat DIR/there\n    out: { y: text }\noutputs: { y: b.y }\n";
    bed.write("two.yaml", &flow.replace("DIR", &bed.dir.path().display().to_string()));
    bed.run(&["run", "two.yaml"]).expect(expect![[r#"
        -- stderr
        run     a
        done    a ([time])
        run     b
        failed[OF0301] b: it ended with exit status 1
          its last lines:
          hi to you
          cat: [dir]/there: No such file or directory
          its work directory: [dir]/.onceflow/runs/[id]/work/b.1
        the run failed: b
        next: onceflow logs two b; then the same command goes on where it stopped
        -- exit 1
    "#]]);
    bed.run(&["ls"]).expect(expect![[r#"
        -- stdout
        KEY  FLOW  STATUS           STEPS  AGE
        two  two   failed               1  [ago]
        -- stderr
        next: onceflow logs two; then `onceflow run two.yaml` goes on where it stopped
        -- exit 0
    "#]]);
    bed.run(&["logs", "two", "b"]).expect(expect![[r#"
        -- stdout
        hi to you
        cat: [dir]/there: No such file or directory
        -- stderr
        == b
        next: onceflow show two
        -- exit 0
    "#]]);
    bed.run(&["show", "two"]).expect(expect![[r#"
        -- stdout
        two failed
        flow     two
        id       [id]
        started [ago]
        step     a: 1 done, [time]
        step     b: 1 failed, [time]
        failed[OF0301] b: it ended with exit status 1
          its last lines:
          hi to you
          cat: [dir]/there: No such file or directory
          its work directory: [dir]/.onceflow/runs/[id]/work/b.1
        -- stderr
        next: onceflow logs two; then `onceflow run two.yaml` goes on where it stopped
        -- exit 0
    "#]]);
    bed.write("there", "found");
    bed.run(&["run", "two.yaml"]).expect(expect![[r#"
        -- stdout
        {"y":"found"}
        -- stderr
        1 of 2 steps will run: b (has no result yet)
        run     b
        done    b ([time])
        done: 1 step ran in [time]
        next: onceflow show two
        -- exit 0
    "#]]);
    assert_eq!(bed.read("ran"), "once\n");
    bed.run(&["show"]).expect(expect![[r#"
        -- stdout
        two done
        flow     two
        id       [id]
        started [ago]
        ended [ago]
        step     a: 1 done, [time]
        step     b: 1 done, 2 attempts, [time]
        output   y: "found"
        -- stderr
        next: `onceflow run two.yaml` does nothing unless something changed
        -- exit 0
    "#]]);
    bed.run(&["logs", "two", "nosuch"]).expect(expect![[r#"
        -- stderr
        error[OF0450]: run `two` has no step `nosuch`
        hint: it has `a`, `b`
        -- exit 2
    "#]]);
}

#[test]
fn data_is_on_stdout_and_events_are_lines_of_json() {
    let bed = started();
    let said = bed.run(&["run", "flow.yaml", "--json"]).ends(0);
    let data = said.json();
    assert_eq!((&data["status"], &data["ran"], &data["key"]), (&"done".into(), &4.into(), &"rain".into()));
    assert_eq!(data["outputs"]["report"], "results/rain.txt");
    let events: Vec<serde_json::Value> =
        said.stderr.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let ended = events.last().expect("an event");
    assert_eq!((&ended["event"], &ended["how"]), (&"did-end".into(), &"done".into()));
    assert!(events.iter().any(|event| event["event"] == "did-open" && event["elements"] == 3));
    let quiet = bed.run(&["run", "flow.yaml", "--key", "other", "-q"]).ends(0);
    assert_eq!((quiet.stderr.as_str(), quiet.stdout.as_str()), ("", "{\"report\":\"results/rain.txt\"}\n"));
    for verb in [&["ls"][..], &["show", "rain"], &["explain", "flow.yaml"], &["fsck"], &["reclaim"]] {
        let said = bed.run(&[verb, &["--json"]].concat()).ends(0);
        assert!(said.json().is_object() || said.json().is_array());
    }
}

#[test]
fn a_new_run_does_everything_again() {
    let bed = Bed::new();
    bed.write("in.txt", "text");
    bed.write("copy.yaml", &copy_flow("copy", &format!("echo ran >> '{}'", bed.path("ran").display())));
    let args = ["run", "copy.yaml", "-i", "text=in.txt"];
    bed.run(&args).ends(0);
    bed.run(&args).ends(0);
    assert_eq!(bed.read("ran"), "ran\n");
    bed.run(&[&args[..], &["--new"]].concat()).expect(expect![[r#"
        -- stdout
        {"copy":"results/copy.txt"}
        -- stderr
        run     copy
        done    copy ([time])
        done: 1 step ran in [time]
        next: results are in results/; `onceflow show copy` shows what happened
        -- exit 0
    "#]]);
    assert_eq!(bed.read("ran"), "ran\nran\n");
    assert!(bed.run(&["fsck"]).ends(0).stdout.starts_with("0 problems, 0 leaks in "));
}

#[test]
fn runs_are_found_by_the_beginning_of_their_names() {
    let bed = Bed::new();
    bed.write("in.txt", "text");
    bed.write("copy.yaml", &copy_flow("copy", ":"));
    for key in ["day-1", "day-2"] {
        bed.run(&["run", "copy.yaml", "-i", "text=in.txt", "--key", key]).ends(0);
    }
    bed.run(&["show", "day"]).expect(expect![[r#"
        -- stderr
        error[OF0403]: `day` stands for 2 runs: day-2, day-1
        hint: write more of the name
        -- exit 2
    "#]]);
    bed.run(&["show", "dya-1"]).expect(expect![[r#"
        -- stderr
        error[OF0402]: there is no run `dya-1`
        hint: did you mean `day-1`? `onceflow ls` lists all
        -- exit 2
    "#]]);
    assert_eq!(bed.run(&["show", "-", "--json"]).ends(0).json()["key"], "day-2");
    assert_eq!(bed.run(&["show", "day-1", "--json"]).ends(0).json()["status"], "done");
    let id = bed.run(&["show", "day-2", "--json"]).json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(bed.run(&["show", &id[..10], "--json"]).ends(0).json()["key"], "day-2");
}

#[test]
fn results_go_where_they_are_wanted_and_only_those_that_are() {
    let bed = Bed::new();
    bed.write("two.yaml", "flow: two\nsteps:\n  a: { run: 'echo A > ${{ out.x }}', out: { x: { file: a.txt } } }\n  b: { run: exit 7, out: { y: text } }\noutputs: { x: a.x, y: b.y }\n");
    bed.run(&["run", "two.yaml", "-o", "x", "--out", "there/deep"]).ends(0);
    assert_eq!(bed.read("there/deep/a.txt"), "A\n");
    let left: Vec<_> = fs::read_dir(bed.path("there/deep")).expect("results").flatten().collect();
    assert_eq!(left.len(), 1, "nothing else is left there: {left:?}");
}

#[test]
fn a_forgotten_run_leaves_nothing_behind() {
    let bed = Bed::new();
    bed.write("in.txt", "text");
    bed.write("copy.yaml", &copy_flow("copy", "echo said >&2"));
    let args = ["run", "copy.yaml", "-i", "text=in.txt"];
    bed.run(&args).ends(0);
    bed.run(&[&args[..], &["--new"]].concat()).ends(0);
    let data = bed.run(&["gc", "--json"]).ends(0).json();
    assert_eq!(data["run_directories"], 0, "whoever worked last has swept: {data}");
    let runs: Vec<_> = fs::read_dir(bed.path(".onceflow/runs")).expect("runs").flatten().collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    for name in ["trail.jsonl", "counts.json"] {
        assert!(!runs[0].path().join(name).exists(), "the store has the event log");
        fs::write(runs[0].path().join(name), "{}").expect("a file of an earlier version");
    }
    bed.run(&["gc"]).ends(0);
    let left: Vec<_> = fs::read_dir(runs[0].path()).expect("a run").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name == "trail.jsonl" || name == "counts.json"), "{left:?}");
    let scratch: Vec<_> = fs::read_dir(bed.path(".onceflow/scratch")).expect("scratch").flatten().collect();
    assert!(scratch.is_empty(), "lock files go with their processes: {scratch:?}");
    assert!(!bed.path(".onceflow/workers").exists(), "the store alone knows its workers");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_choice_is_one_step_with_its_guard_and_its_arms() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        "flow: choice
keep: 1d
inputs: { n: list<int>, k: { type: int, default: 1 } }
steps:
  a:
    each: n in inputs.n
    choose:
      - { when: n > 2, run: 'echo big ${{ n }}', out: { x: text } }
      - { run: 'echo small ${{ n }}', out: { x: text } }
  w: { when: inputs.k > 0, run: 'echo ${{ inputs.k }}', out: { x: text } }
outputs: { x: a.x, w: w.x, n: size(a.x) }
",
    );
    bed.run(&["run", "flow.yaml", "-i", "n=[1, 2, 3]"]).ends(0);
    bed.run(&["explain", "flow.yaml", "-i", "n=[1, 5, 3]"]).expect(expect![[r#"
        -- stdout
        run    a  (input n changed)
        reuse    a[0]  (kept)
        run      a[1]  (input n changed)
        reuse    a[2]  (kept)
        reuse  w  (kept)
        1 to run, 3 reused, 0 skipped
        -- stderr
        next: onceflow run flow.yaml -i 'n=[1, 5, 3]'
        -- exit 0
    "#]]);
    bed.run(&["run", "flow.yaml", "-i", "n=[1, 5, 3]", "-j", "1"]).expect(expect![[r#"
        -- stdout
        {"x":["small 1","big 5","big 3"],"w":"1","n":3}
        -- stderr
        1 of 4 steps will run: a[1] (input n changed)
        reused  a[0]
        run     a[1]
        done    a[1] ([time])
        reused  a[2]
        done: 1 step ran in [time], 2 reused
        next: onceflow show choice
        -- exit 0
    "#]]);
    bed.run(&["run", "flow.yaml", "-i", "n=[1, 5, 3]", "-i", "k=2", "-j", "1"]).expect(expect![[r#"
        -- stdout
        {"x":["small 1","big 5","big 3"],"w":"2","n":3}
        -- stderr
        1 of 2 steps will run: w (input inputs.k changed)
        run     w
        done    w ([time])
        done: 1 step ran in [time]
        next: onceflow show choice
        -- exit 0
    "#]]);
    assert_eq!(bed.run(&["ls", "--json"]).json()[0]["steps"], 4);
}
