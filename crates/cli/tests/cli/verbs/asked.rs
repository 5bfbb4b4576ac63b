//! Verbs that are asked for something that does not exist, has no output, or is not allowed: their answers and exit
//! codes.

use super::{support::Bed, three};
use expect_test::expect;

/// A flow with a step that prints, one that does not, one that does not run, and one that is tried twice.
fn quiet() -> Bed {
    let bed = Bed::new();
    bed.write(
        "quiet.yaml",
        "flow: quiet\nkeep: 1h\ninputs: { deep: { type: bool, default: false }, n: { type: int, default: 1 } }\nsteps:\n  \
         loud: { run: 'echo hello >&2; echo 1', out: { x: int } }\n  \
         mute: { run: 'test ${{ inputs.n }} -gt 0; echo 1 > ${{ out.x }}', out: { x: { file: x } } }\n  \
         dig: { when: inputs.deep, run: 'echo 1', out: { x: int } }\n  \
         twice: { run: 'test ${{ attempt }} = 2; echo 1 > ${{ out.x }}', out: { x: { file: x } }, retry: { attempts: 2, backoff: 1ms } }\n  \
         many: { each: 's in [\"a\", \"b\"]', run: 'true ${{ s }}' }\n\
         outputs: { l: loud.x, m: mute.x, d: dig.x, t: twice.x }\n",
    );
    bed.run(&["run", "quiet.yaml", "-q"]).ends(0);
    bed
}

#[test]
fn logs_of_what_wrote_nothing_say_so_and_are_no_error() {
    let bed = quiet();
    for (step, told) in [
        ("mute", "step `mute` of run `quiet` wrote nothing"),
        ("/mute", "step `/mute` of run `quiet` wrote nothing"),
        ("many[1]", "step `many[1]` of run `quiet` wrote nothing"),
        ("many", "step `many` of run `quiet` wrote nothing"),
        ("dig", "step `dig` of run `quiet` has not run, so it wrote nothing"),
    ] {
        let said = bed.run(&["logs", "quiet", step]).ends(0);
        assert_eq!((said.stdout.as_str(), said.stderr.lines().next()), ("", Some(told)), "{step}");
        assert_eq!(bed.run(&["logs", "quiet", step, "--json"]).ends(0).all(), "-- exit 0\n", "{step}");
    }
    bed.run(&["run", "quiet.yaml", "-q", "-i", "n=2"]).ends(0);
    assert_eq!(bed.run(&["logs", "quiet", "loud"]).ends(0).stdout, "hello\n");
    bed.run(&["logs", "quiet", "twice", "--attempt", "2"]).ends(0);
    bed.run(&["logs", "quiet", "twice", "--attempt", "1"]).expect(expect![[r#"
        -- stderr
        error[OF0411]: there are no logs of attempt 1 of step `twice` of run `quiet`
        hint: only what the last attempt at a step wrote is kept
        -- exit 1
    "#]]);
    bed.run(&["logs", "quiet", "mut"]).expect(expect![[r#"
        -- stderr
        error[OF0450]: run `quiet` has no step `mut`
        hint: did you mean `mute`?
        -- exit 2
    "#]]);
    for verb in ["logs", "why"] {
        let said = bed.run(&[verb, "quiet", "many[7]"]).ends(2);
        assert!(said.stderr.contains("hint: `many` has 2 elements: `many[0]` to `many[1]`"), "{}", said.all());
    }
    bed.write("none.yaml", "flow: none\nsteps:\n  a: { run: 'true' }\n");
    bed.run(&["run", "none.yaml", "-q"]).ends(0);
    assert!(bed.run(&["logs", "none"]).ends(0).stderr.starts_with("run `none` wrote nothing\n"));
}

#[test]
fn a_run_or_a_step_that_is_not_there_is_bad_usage_for_every_verb() {
    let bed = quiet();
    for verb in ["show", "watch", "logs", "cancel", "retry", "du", "graph", "timeline", "report"] {
        let said = bed.run(&[verb, "nosuch"]).ends(2);
        assert!(said.stderr.starts_with("error[OF0402]: there is no run `nosuch`"), "{verb}: {}", said.stderr);
    }
    for args in [
        &["why", "nosuch", "mute"][..],
        &["resolve", "nosuch", "mute", "--redo"],
        &["send", "nosuch", "event"],
        &["fork", "nosuch", "--key", "k"],
        &["diff", "quiet", "nosuch"],
        &["export", "nosuch", "f.run"],
    ] {
        assert!(bed.run(args).ends(2).stderr.starts_with("error[OF0402]"), "{args:?}");
    }
    for args in [
        &["why", "quiet", "nosuch"][..],
        &["logs", "quiet", "nosuch"],
        &["resolve", "quiet", "nosuch", "--redo"],
        &["send", "quiet", "event", "--step", "nosuch"],
    ] {
        assert!(bed.run(args).ends(2).stderr.starts_with("error[OF0450]"), "{args:?}");
    }
    // The name is right, but the step does not allow what is asked: the answer is no.
    bed.run(&["resolve", "quiet", "mute", "--redo"]).ends(1);
    bed.run(&["send", "quiet", "event", "--step", "mute"]).ends(1);
    bed.run(&["run", "quiet.yaml", "-q", "--key", "quieter"]).ends(0);
    assert!(bed.run(&["show", "quie"]).ends(2).stderr.starts_with("error[OF0403]"));
    assert!(bed.run(&["error", "OF9999"]).ends(2).stderr.starts_with("error[OF0410]"));
}

#[test]
fn a_file_that_is_not_there_is_bad_usage_for_every_verb() {
    let bed = quiet();
    for (args, code) in [
        (&["run", "nosuch.yaml"][..], "OF0102"),
        (&["run", "quiet.yaml", "--inputs", "nosuch.yaml"], "OF0207"),
        (&["explain", "nosuch.yaml"], "OF0102"),
        (&["check", "quiet.yaml", "nosuch.yaml"], "OF0102"),
        (&["check", "nosuch.yaml", "--against-runs"], "OF0102"),
        (&["graph", "nosuch.yaml"], "OF0102"),
        (&["import", "nosuch"], "OF0416"),
        (&["lineage", "nosuch"], "OF0419"),
        (&["export", "quiet", "no/such/quiet.run"], "OF0440"),
        (&["graph", "quiet", "-o", "no/such/quiet.svg"], "OF0440"),
        (&["timeline", "quiet", "-o", "no/such/quiet.svg"], "OF0440"),
        (&["report", "quiet", "-o", "no/such/quiet.html"], "OF0440"),
        (&["man", "quiet.yaml"], "OF0440"),
        (&["init", "quiet.yaml"], "OF0440"),
    ] {
        let said = bed.run(args).ends(2);
        assert!(said.stderr.contains(&format!("error[{code}]: ")), "{args:?}: {}", said.stderr);
    }
    // A problem inside an existing file has another exit code.
    bed.write("empty.yaml", "");
    bed.run(&["check", "empty.yaml"]).ends(4);
    bed.run(&["check", "empty.yaml", "nosuch.yaml"]).ends(2);
    bed.run(&["import", "quiet.yaml"]).ends(1);
}

#[test]
fn contradictory_options_have_an_error_code() {
    let bed = quiet();
    for (args, code) in [
        (&["run", "quiet.yaml", "--jobs", "0"][..], "OF0419"),
        (&["retry", "quiet", "--josb", "0"], "OF0419"),
        (&["rnu"], "OF0419"),
        (
            &["worker", "--label", "a", "--label", "b", "--label", "c", "--label", "d", "--label", "e", "--label", "f"],
            "OF0419",
        ),
        (&["graph", "quiet", "-o", "quiet.png"], "OF0419"),
        (&["run", "quiet.yaml", "-o", "nosuch"], "OF0016"),
    ] {
        let said = bed.run(&[args, &["--json"]].concat()).ends(2);
        assert!(said.stderr.starts_with(&format!("error[{code}]: ")), "{args:?}: {}", said.stderr);
        let error = said.json()["error"].take();
        assert_eq!((&error["code"], &error["exit"]), (&code.into(), &2.into()), "{args:?}: {error}");
    }
}

#[test]
fn a_run_whose_outputs_a_changed_flow_does_not_have_is_told_so_once() {
    let bed = Bed::new();
    three(&bed, "");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2", "-o", "x", "-o", "z"]).ends(1);
    bed.write("sum.yaml", &bed.read("sum.yaml").replace(", x: x.said", ""));
    let checked = bed.run(&["check", "sum.yaml", "--against-runs", "--json"]).ends(1).json();
    let refused = &checked["runs"][0]["refused"];
    assert_eq!(refused["code"], "OF0016", "{checked}");
    assert_eq!(refused["message"], "the flow has no output `x` to ask for", "{checked}");
}

#[test]
fn problems_of_a_flow_carry_their_code_in_json() {
    let bed = Bed::new();
    let error = bed.run(&["run", "nosuch.yaml", "--json"]).ends(2).json()["error"].take();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&"OF0102".into(), &"there is no file nosuch.yaml".into()),
        "{error}"
    );
    assert!(error["hint"].is_string() && error["problems"].as_array().is_some_and(|all| all.len() == 1), "{error}");
    three(&bed, "");
    let error = bed.run(&["run", "sum.yaml", "--json"]).ends(2).json()["error"].take();
    assert_eq!(error["code"], "OF0202", "{error}");
    assert!(error["message"].as_str().is_some_and(|it| it.contains("`a` is missing") && it.contains("1 more problem")));
    assert_eq!(error["problems"].as_array().map(Vec::len), Some(2), "{error}");
}

#[test]
fn a_run_that_has_ended_is_not_cancelled_and_says_how_it_ended() {
    let bed = quiet();
    let said = bed.run(&["cancel", "quiet", "--json"]).ends(1).json();
    assert_eq!((&said["key"], &said["status"], &said["ended_before"]), (&"quiet".into(), &"done".into(), &true.into()));
    bed.run(&["cancel", "quiet"]).expect(expect![[r#"
        -- stderr
        run `quiet` has ended already: it is done, and stays so
        next: onceflow show quiet
        -- exit 1
    "#]]);
}

#[test]
fn pictures_are_refused_that_would_not_be_what_they_are_called() {
    let bed = quiet();
    bed.run(&["timeline", "quiet", "-o", "t.png"]).expect(expect![[r#"
        -- stderr
        error[OF0419]: a timeline cannot be written as .png
        hint: FILE ends with .svg
        -- exit 2
    "#]]);
    bed.run(&["report", "quiet", "-o", "r.pdf"]).ends(2);
    assert!(!bed.path("t.png").exists() && !bed.path("r.pdf").exists());
    bed.run(&["timeline", "quiet", "-o", "t.svg"]).ends(0);
    bed.run(&["timeline", "quiet", "-o", "-"]).ends(0);
}

#[test]
fn nothing_is_kept_longer_than_it_may_be_and_that_is_said() {
    let bed = quiet();
    bed.run(&["export", "quiet", "quiet.run"]).ends(0);
    bed.write("onceflow.toml", "[retention]\nkeep_max = \"10m\"\nhistory_max = \"1d\"\n");
    let warning = "warning: keep is 10m 0s here, not 1h 0m: retention.keep_max\n";
    for args in [
        &["fork", "quiet", "--key", "said", "-i", "n=3", "--keep", "1h"][..],
        &["fork", "quiet", "--key", "inherited", "-i", "n=3"],
        &["import", "quiet.run", "--key", "imported"],
    ] {
        let said = bed.run(args).ends(0);
        assert!(said.stderr.contains(warning), "{args:?}: {}", said.stderr);
    }
    for key in ["said", "inherited", "imported"] {
        assert_eq!(bed.run(&["show", key, "--json"]).ends(0).json()["keep_ms"], 600_000, "{key}");
    }
    assert_eq!(bed.run(&["show", "imported", "--json"]).ends(0).json()["history_ms"], 86_400_000);
    assert!(
        !bed.run(&["fork", "quiet", "--key", "short", "-i", "n=4", "--keep", "5m"]).ends(0).stderr.contains("warning")
    );
}
