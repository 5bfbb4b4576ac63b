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
    // Sent again under the same id, the event is not delivered twice, neither now nor when the run has ended; without
    // an id it is refused.
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
fn send_names_a_step_when_several_wait_for_one_event() {
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
fn check_refuses_settings_that_a_waiting_step_cannot_have() {
    let bed = Bed::new();
    bed.write(
        "bad.yaml",
        "flow: bad\nsteps:\n  a:\n    wait: ok\n    effect: pure\n    out: { x: { text: stdout } }\noutputs: { x: a.x }\n",
    );
    let said = bed.run(&["check", "bad.yaml"]).ends(4);
    assert!(said.stderr.contains("does nothing itself") && said.stderr.contains("as it is sent"), "{}", said.all());
}

#[test]
fn a_wait_fails_when_no_event_came_within_its_timeout() {
    let bed = Bed::new();
    bed.write(
        "late.yaml",
        "flow: late\nsteps:\n  a:\n    wait: ok\n    timeout: 1ms\n    out: { x: text }\noutputs: { x: a.x }\n",
    );
    bed.run(&["check", "late.yaml"]).ends(0);
    // The first process may end before the millisecond has passed; the next one acts on the deadline in the store.
    let first = bed.run(&["run", "late.yaml"]);
    let last = if first.all().contains("waiting: a waits") { bed.run(&["run", "late.yaml"]) } else { first };
    assert!(last.stderr.contains("failed[OF0321] a: no event came within its timeout, 1 ms"), "{}", last.all());
    last.ends(1);
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
    // An event that was delivered is not asked for again.
    bed.write("order.yaml", &bed.read("order.yaml").replace("wait: approved", "wait: allowed"));
    bed.run(&["run", "order.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0413]: run `order` has done approval, which would run again: accept that, or ask for it under another key
        hint: `--accept-code-change` lets them run again; `--key NAME` starts another run beside it
        -- exit 1
    "#]]);
    bed.run(&["fsck"]).ends(0);
}

/// A run over two names that waits for an event for each of them, twice one after the other.
fn waiting_for_each() -> Bed {
    let bed = Bed::new();
    bed.write(
        "both.yaml",
        "flow: both\ninputs: { names: list<text> }\nsteps:\n  ask:\n    each: name in inputs.names\n    steps:\n      \
         first: { wait: first, out: { said: text } }\n      \
         second: { wait: second, after: [first], out: { said: text } }\n      \
         both: { run: 'echo ${{ name }} ${{ first.said }} ${{ second.said }}', out: { line: text } }\n    \
         out: { line: both.line }\noutputs: { lines: ask.line }\n",
    );
    bed.run(&["run", "both.yaml", "-i", "names=p", "-i", "names=q"]).ends(3);
    bed
}

fn change(bed: &Bed, from: &str, to: &str) {
    let text = bed.read("both.yaml");
    assert!(text.contains(from), "{text}");
    bed.write("both.yaml", &text.replace(from, to));
}

#[test]
fn elements_that_only_wait_have_done_nothing_and_a_changed_flow_goes_on_waiting_for_each() {
    let bed = waiting_for_each();
    change(&bed, "echo ${{ name }}", "echo dear ${{ name }}");
    bed.run(&["check", "both.yaml", "--against-runs"]).ends(0);
    let run: [&str; 6] = ["run", "both.yaml", "-i", "names=p", "-i", "names=q"];
    bed.run(&run).ends(3);
    for (event, step) in [("first", "ask[0]/first"), ("first", "ask[1]/first"), ("second", "ask[0]/second")] {
        bed.run(&["send", "both", event, event, "--step", step, "--id", step]).ends(0);
        bed.run(&["retry", "both"]).ends(3);
    }
    bed.run(&["send", "both", "second", "last", "--step", "ask[1]/second"]).ends(0);
    let said = bed.run(&["retry", "both"]).ends(0);
    assert_eq!(said.stdout.trim(), r#"{"lines":["dear p first second","dear q first last"]}"#);
    // Delivered events are remembered across plans: none is delivered twice.
    let again = bed.run(&["send", "both", "first", "no", "--step", "ask[0]/first", "--id", "ask[0]/first", "--json"]);
    assert_eq!(again.ends(0).json()["delivered"], false);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn an_event_that_was_sent_for_one_element_is_not_asked_for_again() {
    let bed = waiting_for_each();
    bed.run(&["send", "both", "first", "yes", "--step", "ask[1]/first"]).ends(0);
    change(&bed, "echo ${{ name }}", "echo dear ${{ name }}");
    let run: [&str; 6] = ["run", "both.yaml", "-i", "names=p", "-i", "names=q"];
    // The each would begin again, and with it the element whose event was delivered.
    let said = bed.run(&run).ends(1);
    assert!(
        said.stderr.contains("error[OF0413]: run `both` has done ask[*]/first, which would run again"),
        "{}",
        said.all()
    );
    let checked = bed.run(&["check", "both.yaml", "--against-runs", "--json"]).ends(1).json();
    assert_eq!(checked["runs"][0]["refused"]["code"], "OF0413", "{checked}");
    // The run is as it was, and the delivered events are still there.
    change(&bed, "echo dear ${{ name }}", "echo ${{ name }}");
    bed.run(&run).ends(3);
    for (event, step) in [("first", "ask[0]/first"), ("second", "ask[1]/second")] {
        bed.run(&["send", "both", event, "no", "--step", step]).ends(0);
    }
    bed.run(&["retry", "both"]).ends(3);
    bed.run(&["send", "both", "second", "no"]).ends(0);
    assert_eq!(bed.run(&["retry", "both"]).ends(0).stdout.trim(), r#"{"lines":["p no no","q yes no"]}"#);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_loop_and_a_choice_that_only_wait_have_done_nothing_and_what_was_sent_to_them_is_not_asked_for_again() {
    let bed = Bed::new();
    let flow = |say: &str| {
        format!(
            "flow: turns\nsteps:\n  ask:\n    loop: {{ carry: {{ n: '0' }}, while: out.n < 2, max: 5 }}\n    steps:\n      \
             ok: {{ wait: ok, out: {{ x: int }} }}\n      next: {{ expr: {{ n: n + ok.x }} }}\n    out: {{ n: next.n }}\n  \
             which:\n    choose:\n      - {{ when: ask.n > 2, wait: large, out: {{ word: text }} }}\n      \
             - {{ wait: small, out: {{ word: text }} }}\n  \
             say: {{ run: 'echo {say} ${{{{ which.word }}}}', out: {{ said: text }} }}\noutputs: {{ said: say.said }}\n"
        )
    };
    let change = |say: &str, ask: &str| bed.write("turns.yaml", &flow(say).replace("n + ok.x", ask));
    change("a", "n + ok.x");
    bed.run(&["run", "turns.yaml"]).ends(3);
    // No event was delivered to its first iteration yet, so all of it may change.
    change("b", "n + ok.x + 0");
    bed.run(&["run", "turns.yaml"]).ends(3);
    bed.run(&["send", "turns", "ok", "1"]).ends(0);
    bed.run(&["retry", "turns"]).ends(3);
    // The first iteration has ended, and the second waits.
    change("b", "n + ok.x");
    let said = bed.run(&["run", "turns.yaml"]).ends(1);
    assert!(said.stderr.contains("has done ask@*/ok, which would run again"), "{}", said.all());
    change("b", "n + ok.x + 0");
    bed.run(&["send", "turns", "ok", "1"]).ends(0);
    bed.run(&["retry", "turns"]).ends(3);
    // The loop is done, and its outputs are held; the choice waits in an arm.
    change("c", "n + ok.x + 0");
    bed.run(&["run", "turns.yaml"]).ends(3);
    bed.run(&["send", "turns", "small", "word"]).ends(0);
    assert_eq!(bed.run(&["retry", "turns"]).ends(0).stdout.trim(), r#"{"said":"c word"}"#);
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
