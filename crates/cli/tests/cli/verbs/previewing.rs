//! One preview: everything a verb shows before it acts is read and planned once, and the plan that is shown is the plan
//! that is installed.

use super::{
    ran,
    support::{Bed, Said},
    three,
};

/// Runs a command, and counts the plans that it makes.
fn planned(bed: &Bed, args: &[&str]) -> (Said, usize) {
    counted(bed, args, "onceflow_engine::engine::replan=debug", "planning a run")
}

/// Runs a command, and counts the lines of its log that have these words.
fn counted(bed: &Bed, args: &[&str], log: &str, words: &str) -> (Said, usize) {
    let mut command = bed.command(args);
    command.env("ONCEFLOW_LOG", log);
    let said = bed.said(command.output().expect("the command starts"));
    let lines = said.stderr.lines().filter(|line| line.contains(words)).count();
    (said, lines)
}

#[test]
fn every_verb_checks_a_flow_once() {
    let bed = Bed::new();
    three(&bed, "");
    let run = ["run", "sum.yaml", "-i", "a=1", "-i", "b=2"];
    for (args, code, checks) in [
        (vec!["check", "sum.yaml"], 0, 1),
        (vec!["graph", "sum.yaml"], 0, 1),
        (vec!["explain", "sum.yaml", "-i", "a=1", "-i", "b=2"], 0, 1),
        (run.to_vec(), 1, 1),
        ([&run[..], &["--dry-run"]].concat(), 0, 1),
        (vec!["explain", "sum.yaml", "-i", "a=1", "-i", "b=3"], 0, 1),
        (vec!["check", "sum.yaml", "--against-runs"], 0, 1),
        (vec!["retry", "sum", "--dry-run"], 0, 0),
        (vec!["run", "sum.yaml", "-i", "a=1", "-i", "b=3"], 1, 1),
    ] {
        let (said, count) = counted(&bed, &args, "onceflow_spec=debug", "checking a flow");
        assert_eq!((said.code, count), (code, checks), "{args:?}: {}", said.all());
    }
}

#[test]
fn every_verb_plans_once() {
    for keep in ["", "keep: 1h\n"] {
        let bed = Bed::new();
        three(&bed, keep);
        let start = |b: &'static str| ["run", "sum.yaml", "-i", "a=1", "-i", b];
        let (said, plans) = planned(&bed, &start("b=2"));
        assert_eq!((said.code, plans, ran(&bed).as_str()), (1, 0, "x y z"), "a first run has nothing to plan over");

        // The run failed, and its input changed.
        for (args, ran_of) in [
            (vec!["explain", "sum.yaml", "-i", "a=1", "-i", "b=3"], ""),
            (vec!["run", "sum.yaml", "-i", "a=1", "-i", "b=3", "--dry-run"], ""),
            (vec!["check", "sum.yaml", "--against-runs"], ""),
            (vec!["retry", "sum", "--dry-run"], ""),
            (start("b=3").to_vec(), "y z"),
            (vec!["fork", "sum", "--key", "other", "-i", "b=4", "--dry-run"], ""),
            (vec!["fork", "sum", "--key", "other", "-i", "b=4"], "y z"),
        ] {
            let (said, plans) = planned(&bed, &args);
            assert_eq!((plans, ran(&bed).as_str()), (1, ran_of), "{args:?} {keep:?}: {}", said.all());
        }

        // The run is done, and its input changed.
        bed.write("ok", "");
        bed.run(&start("b=3")).ends(0);
        assert_eq!(ran(&bed), "z");
        let (said, plans) = planned(&bed, &start("b=5"));
        let ran_of = if keep.is_empty() { "x y z" } else { "y z" };
        assert_eq!((said.code, plans, ran(&bed).as_str()), (0, 1, ran_of), "{}", said.all());
        let (said, plans) = planned(&bed, &start("b=5"));
        assert_eq!((said.code, plans, ran(&bed).as_str()), (0, 0, ""), "nothing changed");
    }
}

#[test]
fn explain_as_json_names_steps_as_the_flow_does_and_shows_no_helper() {
    let bed = Bed::new();
    let flow = "flow: h\ninputs: { n: int }\nsteps:\n  \
        a: { run: 'echo ${{ inputs.n + 1 }}', out: { x: int } }\n  \
        b: { when: a.x > 3, run: 'echo ${{ a.x * 2 }}', out: { x: int } }\n  \
        c:\n    each: x in [a.x, a.x + 1]\n    run: echo ${{ x }}\n    out: { y: int }\n  \
        d: { expr: size(c.y), out: { z: int } }\noutputs: { b: b.x, d: d.z }\n";
    bed.write("h.yaml", flow);
    let names = |n: &str| {
        let json = bed.run(&["explain", "h.yaml", "-i", n, "--json"]).ends(0).json();
        let steps = json["steps"].as_array().expect("a list").iter();
        steps.map(|step| step["step"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let flow = ["a", "b", "c", "d"];
    assert_eq!(names("n=1"), flow, "without a run");
    bed.run(&["run", "h.yaml", "-i", "n=1"]).ends(0);
    assert_eq!(names("n=1"), flow, "of a run that is done");
    assert_eq!(names("n=7"), flow, "of a run with another input");
}
