//! Verbs that need no run.

use crate::support;

use expect_test::expect;
use support::Bed;

#[test]
fn unknown_words_on_the_command_line_are_bad_usage_with_a_hint() {
    let bed = Bed::new();
    for args in [
        &["nosuch"][..],
        &["run"],
        &["run", "f.yaml", "-j", "0"],
        &["run", "f.yaml", "-i", "x"],
        &["ls", "--nosuch"],
        &[],
    ] {
        let said = bed.run(args).ends(2);
        assert!(said.stdout.is_empty() && said.stderr.contains("--help"), "{args:?}\n{}", said.stderr);
    }
    bed.run(&["run", "f.yaml", "--keep", "soon"]).expect(expect![[r#"
        -- stderr
        error[OF0419]: invalid value 'soon' for '--keep <TIME>': a time is a number and ms, s, m, h, d or w: 30m, 12h, 7d

        For more information, try '--help'.
        -- exit 2
    "#]]);
}

#[test]
fn help_ends_with_the_exit_codes_and_is_data() {
    let bed = Bed::new();
    let said = bed.run(&["--help"]).ends(0);
    assert!(said.stdout.contains("  75  ") && said.stderr.is_empty());
    let docs = include_str!("../../../../docs/book/src/cli.md");
    for line in said.stdout.lines().skip_while(|line| !line.starts_with("Exit codes")).skip(1) {
        let (code, what) = line.trim().split_once("  ").expect("a code and what it means");
        assert!(docs.contains(&format!("| {code} | {what} |")), "docs/book/src/cli.md does not say: {line}");
    }
}

#[test]
fn the_version_says_what_it_reads() {
    let bed = Bed::new();
    bed.run(&["version", "--json"]).expect(expect![[r#"
        -- stdout
        {"version":"0.1.0","store_format":1,"flow_schema":1}
        -- exit 0
    "#]]);
    assert!(bed.run(&["version"]).ends(0).stdout.starts_with("onceflow "));
}

#[test]
fn pages_of_codes_are_in_the_binary() {
    let bed = Bed::new();
    for code in ["OF0404", "of404", "404"] {
        assert!(bed.run(&["error", code]).ends(0).stdout.starts_with("# OF0404: "), "{code}");
    }
    let all = bed.run(&["error", "--json"]).ends(0).json();
    assert!(all.as_array().is_some_and(|all| all.iter().any(|one| one["code"] == "OF0404")));
    bed.run(&["error", "OF9999"]).expect(expect![[r#"
        -- stderr
        error[OF0410]: there is no error code `OF9999`
        hint: `onceflow error` lists all codes
        -- exit 2
    "#]]);
}

#[test]
fn commands_that_need_a_store_say_that_there_is_none_and_make_none() {
    let bed = Bed::new();
    bed.run(&["ls"]).expect(expect![[r#"
        -- stderr
        no runs here yet
        next: `onceflow init` writes a small flow, `onceflow run FLOW.yaml` runs it
        -- exit 0
    "#]]);
    assert_eq!(bed.run(&["ls", "--json"]).ends(0).json(), serde_json::json!([]));
    for verb in [&["show"][..], &["watch"], &["logs"], &["cancel", "x"], &["reclaim"], &["fsck"]] {
        let said = bed.run(verb).ends(1);
        assert!(said.stderr.starts_with("error[OF0401]"), "{verb:?}: {}", said.stderr);
    }
    let fault = bed.run(&["fsck", "--json"]).ends(1).json();
    assert_eq!((&fault["error"]["code"], &fault["error"]["exit"]), (&"OF0401".into(), &1.into()));
    assert!(!bed.path(".onceflow").exists());
}

#[test]
fn init_writes_a_flow_that_checks_and_overwrites_nothing() {
    let bed = Bed::new();
    bed.run(&["init", "try"]).expect(expect![[r#"
        -- stderr
        wrote try/flow.yaml, try/data/north.csv, try/data/south.csv, try/data/far east.csv
        next: cd try && onceflow run flow.yaml
        -- exit 0
    "#]]);
    bed.run(&["check", "try/flow.yaml"]).expect(expect![[r#"
        -- stderr
        try/flow.yaml: flow `rain` is sound
        next: onceflow run try/flow.yaml
        -- exit 0
    "#]]);
    bed.write("try/flow.yaml", "mine");
    bed.run(&["init", "try"]).expect(expect![[r#"
        -- stderr
        error[OF0412]: try/flow.yaml is there already, and is left as it is
        hint: `onceflow init DIR` writes into another directory
        -- exit 1
    "#]]);
    assert_eq!(bed.read("try/flow.yaml"), "mine");
}

#[test]
fn check_says_all_that_is_wrong_in_all_files() {
    let bed = Bed::new();
    bed.write("good.yaml", "flow: good\nsteps:\n  a: { run: echo hi, out: { x: text } }\noutputs: { x: a.x }\n");
    bed.write("bad.yaml", "flow: bad\nsteps:\n  a: { run: echo hi, out: { x: txt } }\noutputs: { x: b.x }\n");
    bed.run(&["check", "good.yaml", "bad.yaml", "none.yaml"]).expect(expect![[r#"
        -- stderr
        good.yaml: flow `good` is sound
        error[OF0110]: `txt` is not a type
          --> bad.yaml:3:32
           |  a: { run: echo hi, out: { x: txt } }
           |                               ^^^
        hint: did you mean `text`?

        error[OF0116]: nothing is called `b` here
          --> bad.yaml:4:15
           |  outputs: { x: b.x }
           |                ^^^
        hint: did you mean `a`?
        error[OF0102]: there is no file none.yaml
        hint: `onceflow init` makes a first flow
        next: 3 problems; `onceflow error CODE` explains one
        -- exit 2
    "#]]);
    let data = bed.run(&["check", "--json", "good.yaml", "bad.yaml"]).ends(4).json();
    assert_eq!((&data["ok"], &data["checked"]), (&false.into(), &2.into()));
    assert_eq!(data["wrong"][0]["problems"][0]["line"], 3);
}

#[test]
fn explain_without_a_store_says_that_all_runs_and_makes_none() {
    let bed = Bed::new();
    bed.run(&["init"]).ends(0);
    bed.run(&["explain", "flow.yaml"]).expect(expect![[r#"
        -- stdout
        run    sum  (has no result yet)
        run    report  (has no result yet)
        2 or more to run, 0 reused, 0 skipped
        -- stderr
        next: onceflow run flow.yaml
        -- exit 0
    "#]]);
    assert!(!bed.path(".onceflow").exists());
}

#[test]
fn wrong_inputs_are_bad_usage() {
    let bed = Bed::new();
    bed.run(&["init"]).ends(0);
    bed.run(&["run", "flow.yaml", "-i", "station=x"]).expect(expect![[r#"
        -- stderr
        error[OF0201]: the flow has no input `station`
        hint: did you mean `stations`?
        -- exit 2
    "#]]);
    bed.run(&["run", "flow.yaml", "-i", "stations=none/*.csv"]).expect(expect![[r#"
        -- stderr
        error[OF0205]: input `stations`: no file matches `none/*.csv`
        -- exit 2
    "#]]);
    bed.run(&["run", "flow.yaml", "-o", "reprot"]).expect(expect![[r#"
        -- stderr
        error[OF0016]: flow `rain` has no output `reprot`
        hint: did you mean `report`?
        -- exit 2
    "#]]);
    bed.run(&["run", "nosuch.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0102]: there is no file nosuch.yaml
        hint: `onceflow init` makes a first flow
        -- exit 2
    "#]]);
    assert!(!bed.path(".onceflow").exists());
}

#[test]
fn data_that_cannot_be_written_is_an_error_and_a_reader_that_is_gone_is_none() {
    let bed = Bed::new();
    bed.run(&["init"]).ends(0);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device that is always full");
    let said = bed.said(bed.command(&["run", "flow.yaml"]).stdout(full).output().expect("the command starts"));
    assert!(said.code == 1 && said.stderr.contains("error[OF0440]: cannot write to standard output"), "{}", said.all());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    bed.said(bed.command(&["ls"]).stdout(writer).output().expect("the command starts")).ends(0);
}
