//! Steps that wait for an event from outside.

use super::support::Bed;
use expect_test::expect;

/// A run that waits for `approved` after its first step.
fn waiting() -> Bed {
    let bed = Bed::new();
    bed.write(
        "order.yaml",
        &format!(
            "flow: order\nsteps:\n  pack:\n    run: echo pack >> {ran}; echo packed\n    out: {{ box: text }}\n  approval:\n    wait: approved\n    \
             after: [pack]\n    out: {{ by: text, limit: int }}\n  ship:\n    run: echo ship >> {ran}; echo shipped by ${{{{ approval.by }}}} \
             below ${{{{ approval.limit }}}}\n    out: {{ note: text }}\noutputs: {{ note: ship.note }}\n",
            ran = bed.path("ran").display()
        ),
    );
    bed.run(&["run", "order.yaml"]).expect(expect![[r#"
        -- stderr
        run     approval
        run     pack
        done    pack ([time])
        waits   approval
        waiting: approval waits for `approved`
        next: onceflow send order approved
        -- exit 3
    "#]]);
    bed
}

#[test]
fn an_event_is_brought_to_the_step_that_waits_and_the_run_goes_on() {
    let bed = waiting();
    bed.run(&["retry", "order"]).expect(expect![[r#"
        -- stderr
        error[OF0415]: run `order` waits for approved
        hint: `onceflow send order approved` brings it
        -- exit 3
    "#]]);
    let shown = bed.run(&["show", "order"]).ends(0);
    assert!(shown.stdout.contains("waiting  approval for `approved`"), "{}", shown.all());
    assert!(shown.stdout.contains("step     approval: 1 waiting"), "{}", shown.all());
    bed.run(&["send", "order", "aproved"]).expect(expect![[r#"
        -- stderr
        error[OF0451]: no step of run `order` waits for `aproved` now
        hint: it waits for `approved`
        -- exit 3
    "#]]);
    bed.run(&["send", "order", "approved", "-o", "by=ann"]).expect(expect![[r#"
        -- stderr
        error[OF0202]: the value `limit` is missing: it is int
        hint: -o by=text -o limit=int
        -- exit 2
    "#]]);
    let value = r#"{"by": "ann", "limit": 5}"#;
    let said = bed.run(&["send", "-", "approved", value, "--id", "mail-17", "--json"]).ends(0).json();
    assert_eq!((&said["step"], &said["delivered"]), (&"approval".into(), &true.into()), "{said}");
    // Sent again under the same id it is not taken twice, now and when the run has ended; without one it is refused.
    let again = bed.run(&["send", "order", "approved", value, "--id", "mail-17", "--json"]).ends(0).json();
    assert_eq!(again["delivered"], false, "{again}");
    bed.run(&["send", "order", "approved", value]).ends(3);
    let shown = bed.run(&["show", "order"]).ends(0);
    assert!(shown.stdout.contains("step     approval: 1 done"), "{}", shown.all());
    let said = bed.run(&["retry", "order"]).ends(0);
    assert_eq!(said.stdout.trim(), r#"{"note":"shipped by ann below 5"}"#);
    assert_eq!(bed.read("ran"), "pack\nship\n");
    bed.run(&["send", "order", "approved", value, "--id", "mail-17"]).ends(0);
    bed.run(&["send", "order", "approved", value]).ends(1);
    let why = bed.run(&["why", "order", "approval", "--json"]).ends(0).json();
    assert_eq!((&why["fate"], &why["tries"][0]["end"]), (&"ran".into(), &"waits".into()), "{why}");
    assert_eq!(why["tries"][0]["said"]["outputs"]["by"], "ann", "{why}");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_run_that_waits_can_be_started_again_and_cancelled() {
    let bed = waiting();
    bed.run(&["run", "order.yaml"]).ends(3);
    assert_eq!(bed.read("ran"), "pack\n");
    bed.run(&["cancel", "order"]).ends(5);
    bed.run(&["send", "order", "approved", "{}"]).ends(1);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn of_several_steps_that_wait_for_the_same_one_is_named() {
    let bed = Bed::new();
    bed.write(
        "each.yaml",
        "flow: each\ninputs: { names: list<text> }\nsteps:\n  ok:\n    each: name in inputs.names\n    wait: ok\n    out: { said: text }\n\
         outputs: { all: ok.said }\n",
    );
    bed.run(&["run", "each.yaml", "-i", "names=p", "-i", "names=q"]).ends(3);
    let said = bed.run(&["send", "each", "ok", "yes"]).ends(1);
    assert!(said.stderr.contains("--step says which: ok[0], ok[1]"), "{}", said.all());
    bed.run(&["send", "each", "ok", "no", "--step", "ok[1]"]).ends(0);
    bed.run(&["send", "each", "ok", "yes"]).ends(0);
    assert_eq!(bed.run(&["retry", "each"]).ends(0).stdout.trim(), r#"{"all":["yes","no"]}"#);
}

#[test]
fn what_a_step_that_waits_cannot_have_is_said() {
    let bed = Bed::new();
    bed.write(
        "bad.yaml",
        "flow: bad\nsteps:\n  a:\n    wait: ok\n    timeout: 5s\n    out: { x: { text: stdout } }\noutputs: { x: a.x }\n",
    );
    let said = bed.run(&["check", "bad.yaml"]).ends(4);
    assert!(said.stderr.contains("does nothing itself") && said.stderr.contains("as it is sent"), "{}", said.all());
}

#[test]
fn a_step_that_only_waits_has_done_nothing_and_a_changed_flow_goes_on_waiting() {
    let bed = waiting();
    let flow = bed.read("order.yaml");
    bed.write("order.yaml", &flow.replace("echo shipped", "echo sent"));
    bed.run(&["explain", "order.yaml"]).expect(expect![[r#"
        -- stdout
        reuse  pack  (kept)
        run    approval  (has no result yet)
        run    ship  (its code changed)
        2 to run, 1 reused, 0 skipped
        -- stderr
        next: onceflow run order.yaml
        -- exit 0
    "#]]);
    bed.run(&["run", "order.yaml"]).expect(expect![[r#"
        -- stderr
        2 of 3 steps will run: approval (has no result yet), ship (its code changed)
        run     approval
        waits   approval
        waiting: approval waits for `approved`
        next: onceflow send order approved
        -- exit 3
    "#]]);
    bed.run(&["show", "order"]).expect(expect![[r#"
        -- stdout
        order waiting
        flow     order
        id       [id]
        started [ago]
        step     pack: as before
        step     approval: 1 waiting
        waiting  approval for `approved`
        -- stderr
        next: onceflow send order approved
        -- exit 0
    "#]]);
    bed.run(&["send", "order", "approved", r#"{"by": "bob", "limit": 1}"#]).ends(0);
    assert_eq!(bed.run(&["retry", "order"]).ends(0).stdout.trim(), r#"{"note":"sent by bob below 1"}"#);
    // What was waited for and came is not asked for again.
    bed.write("order.yaml", &bed.read("order.yaml").replace("wait: approved", "wait: allowed"));
    bed.run(&["run", "order.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0413]: run `order` has done approval, which would run again: accept that, or ask for it under another key
        hint: `--accept-code-change` lets them run again; `--key NAME` starts another run beside it
        -- exit 1
    "#]]);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn when_the_last_that_was_waited_for_came_nothing_is_left_to_run() {
    let bed = Bed::new();
    bed.write("ask.yaml", "flow: ask\nsteps:\n  ok: { wait: ok, out: { said: text } }\noutputs: { said: ok.said }\n");
    bed.run(&["run", "ask.yaml"]).ends(3);
    bed.run(&["send", "ask", "ok", "yes"]).ends(0);
    bed.run(&["retry", "ask"]).expect(expect![[r#"
        -- stdout
        {"said":"yes"}
        -- stderr
        done: nothing was left to run
        next: onceflow show ask
        -- exit 0
    "#]]);
}
