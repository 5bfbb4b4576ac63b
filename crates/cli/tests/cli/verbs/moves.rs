//! Unfinished runs and changed flows: the effect of moving a run to the new flow, refusals, and how both are predicted.

use super::{
    ran,
    support::{Bed, until_line},
    three,
};

fn failed() -> Bed {
    let bed = Bed::new();
    three(&bed, "");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(1);
    assert_eq!(ran(&bed), "x y z");
    bed
}

fn change(bed: &Bed, from: &str, to: &str) {
    let text = bed.read("sum.yaml");
    assert!(text.contains(from), "{text}");
    bed.write("sum.yaml", &text.replace(from, to));
}

#[test]
fn an_unfinished_run_moves_to_a_changed_flow_and_redoes_only_what_the_change_concerns() {
    let bed = failed();
    bed.write("ok", "");
    change(&bed, "echo ${{ x.said }}", "echo sum ${{ x.said }}");
    let explained = bed.run(&["explain", "sum.yaml", "-i", "a=1", "-i", "b=2", "--json"]).ends(0).json();
    assert_eq!((&explained["run"], &explained["refused"]), (&1.into(), &serde_json::Value::Null), "{explained}");
    let checked = bed.run(&["check", "sum.yaml", "--against-runs", "--json"]).ends(0).json();
    let verdict = &checked["runs"][0];
    assert_eq!((&verdict["same"], &verdict["plan"]["run"]), (&false.into(), &1.into()), "{checked}");
    let said = bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(0);
    assert!(said.stderr.contains("1 of 3 steps will run: z (its code changed)"), "{}", said.all());
    assert_eq!((ran(&bed), bed.read("results/z.txt")), (String::from("z"), String::from("sum x 1 y 2\n")));
    let why = bed.run(&["why", "sum", "z", "--json"]).ends(0).json();
    assert_eq!((&why["plans"][0]["plan"], &why["plans"][0]["reason"]), (&1.into(), &"code-changed".into()), "{why}");
    assert_eq!(
        bed.run(&["check", "sum.yaml", "--against-runs", "--json"]).ends(0).json()["runs"],
        serde_json::json!([])
    );
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn an_unchanged_flow_is_the_same_for_its_runs() {
    let bed = failed();
    let checked = bed.run(&["check", "sum.yaml", "--against-runs", "--json"]).ends(0).json();
    assert_eq!(checked["runs"][0]["same"], true, "{checked}");
    let said = bed.run(&["check", "sum.yaml", "--against-runs"]).ends(0);
    assert!(said.stdout.contains("nothing changes"), "{}", said.all());
}

#[test]
fn a_flow_that_needs_what_the_run_does_not_have_is_refused() {
    let bed = failed();
    change(&bed, "b: text }", "b: text, c: text }");
    change(&bed, "echo x ${{ inputs.a }}", "echo x ${{ inputs.a }} ${{ inputs.c }}");
    let checked = bed.run(&["check", "sum.yaml", "--against-runs", "--json"]).ends(1).json();
    let message = checked["runs"][0]["refused"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("`c`"), "{checked}");
    assert_eq!(checked["runs"][0]["refused"]["code"], "OF0420", "{checked}");
    change(&bed, "c: text }", "c: { type: text, default: d } }");
    bed.run(&["check", "sum.yaml", "--against-runs"]).ends(0);
}

#[test]
fn lists_of_one_name_that_are_made_together_are_told_apart() {
    let bed = Bed::new();
    let flow = |end: &str, more: &str| {
        format!(
            "flow: same\ninputs: {{ words: list<text> }}\nsteps:\n  one:\n    each: word in inputs.words\n    run: echo one ${{{{ word }}}}\n    out: {{ x: text }}\n  \
             two:\n    each: word in one.x\n    run: echo two ${{{{ word }}}}\n    out: {{ x: text }}\n  \
             c: {{ run: 'echo ${{{{ one.x }}}}', out: {{ x: text }} }}\n  \
             e: {{ run: 'echo ${{{{ c.x }}}}{end}', out: {{ x: text }} }}\n  \
             a: {{ run: 'echo ${{{{ two.x }}}}{end}', out: {{ x: text }} }}\n{more}\
             outputs: {{ a: a.x, e: e.x }}\n"
        )
    };
    // Both lists are held when the run fails: that of `two` by `a`, that of `one` by `z`.
    bed.write("same.yaml", &flow("; exit 1", "  z: { run: 'echo ${{ one.x }}; exit 1' }\n"));
    bed.run(&["run", "same.yaml", "-i", "words=p", "-i", "words=q"]).ends(1);
    bed.write("same.yaml", &flow("", ""));
    let said = bed.run(&["run", "same.yaml", "-i", "words=p", "-i", "words=q"]).ends(0);
    assert_eq!(said.stdout.trim(), r#"{"a":"two one p two one q","e":"one p one q"}"#);
}

/// A run that has paid, and failed after that.
fn paid() -> Bed {
    let bed = Bed::new();
    bed.write(
        "sum.yaml",
        &format!(
            "flow: pay\nsteps:\n  charge:\n    run: echo charge >> {}; echo 5\n    effect: at_most_once\n    out: {{ amount: int }}\n  \
             ship:\n    run: echo shipped for ${{{{ charge.amount }}}}; exit 1\n    out: {{ note: text }}\noutputs: {{ note: ship.note }}\n",
            bed.path("ran").display(),
        ),
    );
    bed.run(&["run", "sum.yaml"]).ends(1);
    assert_eq!(ran(&bed), "charge");
    bed
}

#[test]
fn explain_check_and_run_refuse_to_repeat_an_at_most_once_step() {
    let bed = paid();
    change(&bed, "echo 5", "echo 6");
    let explained = bed.run(&["explain", "sum.yaml", "--json"]).ends(0).json();
    assert_eq!(explained["refused"]["code"], "OF0413", "{explained}");
    let checked = bed.run(&["check", "sum.yaml", "--against-runs", "--json"]).ends(1).json();
    assert_eq!(
        (&checked["ok"], &checked["runs"][0]["refused"]["code"]),
        (&false.into(), &"OF0413".into()),
        "{checked}"
    );
    // A refusal comes alone: no step is announced to run.
    let said = bed.run(&["run", "sum.yaml"]).ends(1);
    assert!(said.stderr.starts_with("error[OF0413]") && !said.stderr.contains("will run"), "{}", said.all());
    assert_eq!(ran(&bed), "");
    // Steps that it does not depend on may change, and the refused plan has left the run as it was.
    change(&bed, "echo 6", "echo 5");
    change(&bed, "; exit 1", "");
    bed.run(&["check", "sum.yaml", "--against-runs"]).ends(0);
    let said = bed.run(&["run", "sum.yaml"]).ends(0);
    assert_eq!((ran(&bed).as_str(), said.stdout.trim()), ("", r#"{"note":"shipped for 5"}"#));
}

#[test]
fn an_at_most_once_step_runs_again_by_consent() {
    let bed = paid();
    change(&bed, "echo 5", "echo 6");
    change(&bed, "; exit 1", "");
    let said = bed.run(&["run", "sum.yaml", "--accept-code-change"]).ends(0);
    assert_eq!((ran(&bed).as_str(), said.stdout.trim()), ("charge", r#"{"note":"shipped for 6"}"#));
}

#[test]
fn a_run_at_work_is_not_moved_under_its_worker() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("sum.yaml", &format!("flow: wait\nsteps:\n  w:\n    run: |\n      {}\n      echo w\n    out: {{ x: text }}\noutputs: {{ x: w.x }}\n", gate.shell()));
    let mut run = bed.start(&["run", "sum.yaml"]);
    gate.until_there();
    until_line(run.stderr.as_mut().expect("it is read"), "run");
    change(&bed, "echo w", "echo v");
    bed.run(&["check", "sum.yaml", "--against-runs"]).ends(0);
    bed.run(&["run", "sum.yaml"]).ends(75);
    gate.open();
    assert_eq!(bed.end(run).ends(0).stdout.trim(), r#"{"x":"w"}"#);
}

#[test]
fn check_against_runs_refuses_a_broken_flow_without_a_store_and_a_store_that_is_not_there() {
    let bed = Bed::new();
    bed.write("bad.yaml", "flow: bad\nsteps:\n  a: { rum: echo }\n");
    bed.run(&["check", "bad.yaml", "--against-runs"]).ends(4);
    bed.run(&["check", "nosuch.yaml", "--against-runs", "--json"]).ends(2);
    bed.write("good.yaml", "flow: good\nsteps:\n  a: { run: echo }\n");
    bed.run(&["check", "good.yaml", "--against-runs"]).ends(0);
    bed.run(&["check", "good.yaml", "--against-runs", "--store", "nowhere"]).ends(2);
}

#[test]
fn explain_and_run_say_which_changed_settings_a_begun_run_takes_up() {
    let bed = Bed::new();
    let flow = |more: &str| format!("flow: f\nsteps:\n  a: {{ run: 'test -e {}'{more} }}\n", bed.path("ok").display());
    bed.write("f.yaml", &flow(""));
    bed.run(&["run", "f.yaml"]).ends(1);
    let taken_up =
        |text: &str| text.contains("note: a: the run takes up changed `retry`, `timeout`, `resources` or `labels`");
    let said = bed.run(&["explain", "f.yaml"]).ends(0);
    assert!(!taken_up(&said.stderr), "{}", said.all());
    bed.write("f.yaml", &flow(", timeout: 1m"));
    let said = bed.run(&["explain", "f.yaml"]).ends(0);
    assert!(taken_up(&said.stderr), "{}", said.all());
    bed.write("ok", "");
    let said = bed.run(&["run", "f.yaml"]).ends(0);
    assert!(taken_up(&said.stderr), "{}", said.all());
}

#[test]
fn a_list_that_begins_again_with_a_changed_flow_is_said_to() {
    let bed = Bed::new();
    let flow = |text: &str| {
        let ok = bed.path("ok");
        format!(
            "flow: f\nsteps:\n  lst:\n    each: n in [1, 2, 3]\n    at_most: 1\n    \
             run: if test ${{{{ n }}}} = 3; then test -e {}; fi && echo ${{{{ n }}}}\n    out: {{ n: int }}\n  \
             join: {{ run: 'echo {text} ${{{{ lst.n }}}}', out: {{ t: text }} }}\noutputs: {{ t: join.t }}\n",
            ok.display()
        )
    };
    bed.write("f.yaml", &flow("one"));
    bed.run(&["run", "f.yaml"]).ends(1);
    bed.write("f.yaml", &flow("two"));
    let note = "note: lst begins again with all elements: 2 of 3 elements were done";
    let said = bed.run(&["explain", "f.yaml"]).ends(0);
    assert!(said.stderr.contains(note), "{}", said.all());
    bed.write("ok", "");
    let said = bed.run(&["run", "f.yaml"]).ends(0);
    assert!(said.stderr.contains(note), "{}", said.all());
    assert!(said.stdout.contains("two 1 2 3"), "{}", said.all());
}
