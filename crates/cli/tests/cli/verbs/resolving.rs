//! Steps that must not start twice, and confirmation before changes that cannot be undone.

use super::support::{Bed, Gate, until_line};
use expect_test::expect;

/// A flow that pays, and ships after that.
fn shop() -> (Bed, Gate) {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let paid = bed.path("paid");
    bed.write(
        "pay.yaml",
        &format!(
            "flow: pay\nsteps:\n  charge:\n    run: |\n      echo charge >> {}\n      {}\n      echo 5\n    effect: at_most_once\n    \
             out: {{ amount: int }}\n  ship:\n    run: echo shipped for ${{{{ charge.amount }}}}\n    out: {{ note: text }}\n\
             outputs: {{ note: ship.note }}\n",
            paid.display(),
            gate.shell()
        ),
    );
    (bed, gate)
}

/// A run that was killed inside a step that must not start twice.
fn killed() -> Bed {
    let (bed, gate) = shop();
    let mut run = bed.start(&["run", "pay.yaml"]);
    gate.until_there();
    until_line(run.stderr.as_mut().expect("it is read"), "run");
    run.kill().expect("it is there");
    run.wait().expect("it ends");
    bed
}

/// The same run, after a following command has found and parked the step.
fn unknown() -> Bed {
    let bed = killed();
    bed.run(&["run", "pay.yaml"]).ends(3);
    bed
}

#[test]
fn a_step_that_was_killed_and_must_not_start_twice_is_not_said_to_run() {
    let bed = killed();
    bed.run(&["explain", "pay.yaml"]).expect(expect![[r#"
        -- stdout
        unknown  charge  (it was started, and whether it took effect is not known)
        run      ship  (has no result yet)
        1 to run, 0 reused, 0 skipped, 1 to resolve
        -- stderr
        next: onceflow resolve pay charge --done | --redo | --fail WHY
        -- exit 0
    "#]]);
    let explained = bed.run(&["explain", "pay.yaml", "--json"]).ends(0).json();
    assert_eq!((&explained["run"], &explained["unknown"]), (&1.into(), &1.into()), "{explained}");
    assert_eq!((&explained["steps"][0]["step"], &explained["steps"][0]["fate"]), (&"charge".into(), &"unknown".into()));
    assert_eq!(explained["next"], "onceflow resolve pay charge --done | --redo | --fail WHY");
    let shown = bed.run(&["show", "pay"]).ends(0);
    assert!(
        shown.stdout.contains("step     charge: 1 unknown") && shown.stdout.contains("unknown  charge"),
        "{}",
        shown.all()
    );
    for verb in ["ls", "show", "why"] {
        let args = if verb == "ls" { vec![verb] } else { vec![verb, "pay", "charge"] };
        let said = bed.run(if verb == "show" { &args[..2] } else { &args }).ends(0);
        assert!(said.stderr.contains("next: onceflow resolve pay charge --done"), "{}", said.all());
    }
    assert_eq!(bed.run(&["why", "pay", "charge", "--json"]).ends(0).json()["fate"], "unknown");
    let graph = bed.run(&["graph", "pay", "--json"]).ends(0).json();
    assert_eq!(graph["boxes"][0]["state"]["state"], "unknown", "{graph}");
    bed.run(&["run", "pay.yaml"]).expect(expect![[r#"
        -- stderr
        charge must be resolved first: it was started, and whether it took effect is not known; 1 of 2 steps will run: ship (has no result yet)
        unknown charge
        waiting[OF0415]: whether charge took effect is not known
        next: onceflow resolve pay charge --done | --redo | --fail WHY
        -- exit 3
    "#]]);
    // After a command has found the step, `explain` reports the same.
    let explained = bed.run(&["explain", "pay.yaml", "--json"]).ends(0).json();
    assert_eq!((&explained["run"], &explained["unknown"]), (&1.into(), &1.into()), "{explained}");
    assert_eq!(bed.read("paid"), "charge\n");
}

#[test]
fn resolve_works_right_after_the_process_was_killed() {
    let bed = killed();
    bed.run(&["resolve", "pay", "charge", "--done", "-o", "amount=7", "--dry-run"]).ends(0);
    assert_eq!(bed.run(&["ls", "--json"]).ends(0).json()[0]["status"], "interrupted");
    bed.run(&["resolve", "pay", "charge", "--done", "-o", "amount=7"]).expect(expect![[r#"
        -- stderr
        charge: decided: was done
        next: onceflow retry pay
        -- exit 0
    "#]]);
    bed.run(&["resolve", "pay", "charge", "--redo"]).ends(1);
    bed.run(&["why", "pay", "charge"]).expect(expect![[r#"
        -- stdout
        charge  resolved by hand, as done (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: whether it took effect is not known ([time])
        said    by hand: it was done, with amount: 7
        -- stderr
        next: onceflow show pay
        -- exit 0
    "#]]);
    let said = bed.run(&["retry", "pay"]).ends(0);
    assert_eq!(said.stdout.trim(), r#"{"note":"shipped for 7"}"#);
    assert_eq!(bed.read("paid"), "charge\n");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn right_after_its_process_was_killed_a_step_can_be_said_to_have_failed() {
    let bed = killed();
    bed.run(&["resolve", "pay", "--fail", "the bank says no"]).ends(0);
    let said = bed.run(&["retry", "pay"]).ends(1);
    assert!(said.stderr.contains("the bank says no"), "{}", said.all());
    assert_eq!(bed.read("paid"), "charge\n");
}

#[test]
fn a_step_that_failed_and_must_not_start_twice_is_not_said_to_run() {
    let bed = Bed::new();
    bed.write("pay.yaml", "flow: pay\nsteps:\n  charge: { run: exit 3, effect: at_most_once }\n");
    bed.run(&["run", "pay.yaml"]).ends(1);
    bed.run(&["explain", "pay.yaml"]).expect(expect![[r#"
        -- stdout
        unknown  charge  (it was started, and whether it took effect is not known)
        0 to run, 0 reused, 0 skipped, 1 to resolve
        -- stderr
        next: onceflow run pay.yaml
        -- exit 0
    "#]]);
    bed.run(&["run", "pay.yaml"]).expect(expect![[r#"
        -- stderr
        charge must be resolved first: it was started, and whether it took effect is not known
        unknown charge
        waiting[OF0415]: whether charge took effect is not known
        next: onceflow resolve pay charge --done | --redo | --fail WHY
        -- exit 3
    "#]]);
}

#[test]
fn only_the_killed_elements_of_a_list_must_be_resolved() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    let flow = format!(
        "flow: pay\nsteps:\n  charge:\n    each: 'i in [1, 2, 3]'\n    at_most: 1\n    run: |\n      \
         if test ${{{{ i }}}} = 2; then {}; fi\n    effect: at_most_once\n",
        gate.shell()
    );
    bed.write("pay.yaml", &flow);
    let mut run = bed.start(&["run", "pay.yaml"]);
    gate.until_there();
    until_line(run.stderr.as_mut().expect("it is read"), "run     charge[1]");
    run.kill().expect("it is there");
    run.wait().expect("it ends");
    bed.run(&["explain", "pay.yaml"]).expect(expect![[r#"
        -- stdout
        run      charge: 1 of 3 elements  (has no result yet)
        unknown    charge[1]  (it was started, and whether it took effect is not known)
        1 to run, 1 reused, 0 skipped, 1 to resolve
        -- stderr
        next: onceflow resolve pay 'charge[1]' --done | --redo | --fail WHY
        -- exit 0
    "#]]);
    bed.run(&["resolve", "pay", "charge[1]", "--done"]).ends(0);
    bed.run(&["retry", "pay"]).ends(0);
}

#[test]
fn a_step_that_is_at_work_is_not_resolved() {
    let (bed, gate) = shop();
    let mut run = bed.start(&["run", "pay.yaml"]);
    gate.until_there();
    until_line(run.stderr.as_mut().expect("it is read"), "run");
    bed.run(&["resolve", "pay", "charge", "--redo"]).expect(expect![[r#"
        -- stderr
        error[OF0451]: no step of run `pay` waits for its outcome to be reported
        hint: charge was started by a process that may still be at work on it; once they are gone, and their lease has run out, it can be resolved
        -- exit 1
    "#]]);
    gate.open();
    assert_eq!(bed.end(run).ends(0).stdout.trim(), r#"{"note":"shipped for 5"}"#);
}

#[test]
fn resolve_done_with_outputs_lets_the_run_go_on() {
    let bed = unknown();
    bed.run(&["retry", "pay"]).expect(expect![[r#"
        -- stderr
        error[OF0415]: run `pay` waits for the outcome of charge
        hint: `onceflow resolve pay charge --done | --redo | --fail WHY` says it
        -- exit 3
    "#]]);
    bed.run(&["resolve", "pay", "chrge", "--redo"]).expect(expect![[r#"
        -- stderr
        error[OF0450]: run `pay` has no step `chrge`
        hint: did you mean `charge`?
        -- exit 2
    "#]]);
    bed.run(&["resolve", "pay", "--done", "-o", "amunt=5"]).expect(expect![[r#"
        -- stderr
        error[OF0201]: the step has no output `amunt`
        hint: --done -o amount=int

        error[OF0202]: the output `amount` is missing: it is int
        hint: --done -o amount=int
        -- exit 2
    "#]]);
    let said = bed.run(&["resolve", "pay", "--done", "-o", "amount=some"]).ends(2);
    assert!(said.stderr.starts_with("error[OF0203]: output `amount` must be int"), "{}", said.stderr);
    bed.run(&["resolve", "pay", "charge", "--done", "-o", "amount=7", "--dry-run"]).expect(expect![[r#"
        -- stderr
        charge: would be decided: was done
        next: the same without --dry-run
        -- exit 0
    "#]]);
    let said = bed.run(&["resolve", "-", "charge", "--done", "-o", "amount=7", "--json"]).ends(0).json();
    assert_eq!((&said["outcome"], &said["decided"]), (&"done".into(), &true.into()), "{said}");
    bed.run(&["resolve", "pay", "charge", "--redo"]).ends(1);
    bed.run(&["why", "pay", "charge"]).expect(expect![[r#"
        -- stdout
        charge  resolved by hand, as done (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: whether it took effect is not known ([time])
        said    by hand: it was done, with amount: 7
        -- stderr
        next: onceflow show pay
        -- exit 0
    "#]]);
    let shown = bed.run(&["show", "pay"]).ends(0);
    assert!(shown.stdout.contains("step     charge: 1 done"), "{}", shown.all());
    let said = bed.run(&["retry", "pay"]).ends(0);
    assert_eq!(said.stdout.trim(), r#"{"note":"shipped for 7"}"#);
    assert_eq!(bed.read("paid"), "charge\n");
}

#[test]
fn a_failed_step_can_be_retried() {
    let bed = unknown();
    bed.run(&["why", "pay", "charge"]).expect(expect![[r#"
        -- stdout
        charge  unknown (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: whether it took effect is not known ([time])
        -- stderr
        next: onceflow resolve pay charge --done | --redo | --fail WHY
        -- exit 0
    "#]]);
    bed.run(&["resolve", "pay", "--fail", "the bank says no"]).ends(0);
    bed.run(&["why", "pay", "charge"]).expect(expect![[r#"
        -- stdout
        charge  failed (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: whether it took effect is not known ([time])
        said    by hand: it failed: the bank says no
        -- stderr
        next: onceflow show pay
        -- exit 0
    "#]]);
    let said = bed.run(&["retry", "pay", "--dry-run", "--json"]).ends(0).json();
    assert!(said["retry"] == serde_json::json!([]) || said["retry"] == serde_json::json!(["charge"]), "{said}");
    assert_eq!(bed.read("paid"), "charge\n");
}

#[test]
fn destructive_verbs_say_what_they_would_do_and_never_wait_for_an_answer_that_cannot_come() {
    let bed = unknown();
    bed.run(&["cancel", "-", "--dry-run"]).expect(expect![[r#"
        -- stdout
        run `pay` would be stopped; nothing of it is to be undone
        -- stderr
        next: the same without --dry-run
        -- exit 0
    "#]]);
    let said = bed.run(&["reclaim", "--dry-run", "--json"]).ends(0).json();
    assert_eq!(said["run_directories"], 0, "{said}");
    bed.run(&["fsck", "--repair", "--dry-run"]).ends(0);
    bed.run(&["ls", "--json"]).ends(0);
    // Without a terminal there is no confirmation.
    bed.run(&["cancel", "p"]).ends(5);
    bed.run(&["cancel", "pay", "--dry-run"]).expect(expect![[r#"
        -- stdout
        run `pay` has ended already: nothing would be done
        -- stderr
        next: the same without --dry-run
        -- exit 0
    "#]]);
    bed.run(&["reclaim", "--yes"]).ends(0);
}

#[test]
fn an_unresolved_outcome_stays_unknown_when_its_run_is_cancelled() {
    let bed = unknown();
    bed.run(&["cancel", "pay", "--yes"]);
    let why = bed.run(&["why", "pay", "charge", "--json"]).ends(0).json();
    assert_eq!(why["fate"], "unknown", "{why}");
}

#[test]
fn a_step_that_is_to_run_again_is_not_done() {
    let bed = unknown();
    bed.run(&["resolve", "pay", "charge", "--redo"]).ends(0);
    let shown = bed.run(&["show", "pay"]).ends(0).stdout;
    assert!(!shown.contains("1 done"), "{shown}");
}
