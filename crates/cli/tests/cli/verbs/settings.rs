//! A run that has begun takes up changed settings of its steps, and does nothing again for them.

use super::{ran, support::Bed};

/// A flow of a list of three elements, and a step after it. `each` and `last` are further lines of these steps.
fn flow(bed: &Bed, top: &str, each: &str, last: &str) {
    let (ran, ok) = (bed.path("ran"), bed.path("ok"));
    let (ran, ok) = (ran.display(), ok.display());
    bed.write(
        "f.yaml",
        &format!(
            "flow: f\n{top}steps:\n  first:\n    run: echo first >> {ran}; echo '[1, 2, 3]'\n    out: {{ xs: \"list<int>\" }}\n  \
             each:\n    each: x in first.xs\n    run: echo each${{{{ x }}}} >> {ran}; test ${{{{ x }}}} != 2 || test -e {ok}; \
             echo ${{{{ x }}}}\n    out: {{ y: int }}\n{each}  last:\n    run: echo last >> {ran}; echo ${{{{ each.y }}}}\n    \
             out: {{ z: text }}\n{last}outputs: {{ z: last.z }}\n"
        ),
    );
}

#[test]
fn a_changed_retry_is_taken_up_by_the_elements_of_a_list_under_way() {
    let bed = Bed::new();
    flow(&bed, "on_failure: finish_independent\n", "", "");
    bed.run(&["run", "f.yaml"]).ends(1);
    assert_eq!(ran(&bed), "each1 each2 each3 first");
    flow(&bed, "on_failure: finish_independent\n", "    retry: { attempts: 3, backoff: 1ms }\n", "    timeout: 7m\n");
    let note = "each, last: the run takes up changed `retry`, `timeout`, `resources` or `labels`";
    let explained = bed.run(&["explain", "f.yaml"]).ends(0);
    assert!(explained.stderr.contains(note), "{}", explained.all());
    assert_eq!(ran(&bed), "", "explaining it changes nothing");
    let said = bed.run(&["run", "f.yaml"]).ends(1);
    assert!(said.stderr.contains(note), "{}", said.all());
    assert_eq!(ran(&bed), "each2 each2 each2", "the failed element has three attempts now, and no other runs again");
    let again = bed.run(&["run", "f.yaml"]).ends(1);
    assert!(!again.stderr.contains("takes up"), "they are taken up once: {}", again.all());
    assert_eq!(ran(&bed), "each2 each2 each2");
    bed.write("ok", "");
    bed.run(&["run", "f.yaml"]).ends(0);
    assert_eq!(ran(&bed), "each2 last");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_changed_timeout_is_taken_up_by_a_run_that_was_killed() {
    let bed = Bed::new();
    let gate = bed.gate("slow");
    let write = |more: &str| {
        let (ran, shell) = (bed.path("ran"), gate.shell());
        let ran = ran.display();
        bed.write(
            "t.yaml",
            &format!(
                "flow: t\nsteps:\n  a:\n    run: echo a >> {ran}; echo a\n    out: {{ x: text }}\n  b:\n    \
                 run: echo b ${{{{ a.x }}}} >> {ran}; {shell}; echo b\n    out: {{ y: text }}\n{more}outputs: {{ y: b.y }}\n"
            ),
        );
    };
    write("");
    let mut child = bed.start(&["run", "t.yaml"]);
    gate.until_there();
    child.kill().expect("it runs");
    bed.end(child);
    assert_eq!(ran(&bed), "a b a");
    write("    timeout: 1s\n    resources: { cpus: 1 }\n");
    // The gate stays closed this time.
    let child = bed.start(&["run", "t.yaml"]);
    gate.until_there();
    let said = bed.end(child).ends(1);
    assert!(said.stderr.contains("b: the run takes up changed"), "{}", said.all());
    assert!(said.stderr.contains("failed"), "{}", said.all());
    assert_eq!(ran(&bed), "b a", "the step that was done did not run again");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn changed_resources_let_the_steps_of_a_begun_run_work_at_once() {
    let bed = Bed::new();
    let (first, one, two) = (bed.gate("first"), bed.gate("one"), bed.gate("two"));
    let write = |cpus: &str| {
        let (ran, first, one, two) = (bed.path("ran"), first.shell(), one.shell(), two.shell());
        let ran = ran.display();
        bed.write(
            "r.yaml",
            &format!(
                "flow: r\nsteps:\n  first:\n    run: echo first >> {ran}; {first}; echo '[1, 2]'\n    out: {{ xs: \"list<int>\" }}\n  \
                 each:\n    each: x in first.xs\n    run: echo each >> {ran}; if test ${{{{ x }}}} = 1; then {one}; else {two}; fi; \
                 echo ${{{{ x }}}}\n    out: {{ y: int }}\n    resources: {{ cpus: {cpus} }}\noutputs: {{ y: each.y }}\n"
            ),
        );
    };
    // Elements that take all processors come to their gates one after the other.
    write("64");
    let mut child = bed.start(&["run", "r.yaml", "--jobs", "2"]);
    first.until_there();
    child.kill().expect("it runs");
    bed.end(child);
    write("0.1");
    let child = bed.start(&["run", "r.yaml", "--jobs", "2"]);
    first.until_there();
    first.open();
    one.until_there();
    two.until_there();
    one.open();
    two.open();
    let said = bed.end(child).ends(0);
    assert!(said.stderr.contains("each: the run takes up changed"), "{}", said.all());
    assert_eq!(ran(&bed), "each each first first", "only the step that was killed ran again");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_changed_on_failure_is_taken_up() {
    let bed = Bed::new();
    let write = |on_failure: &str| {
        let ran = bed.path("ran");
        let ran = ran.display();
        bed.write(
            "o.yaml",
            &format!(
                "flow: o\n{on_failure}steps:\n  a:\n    run: echo a >> {ran}; exit 1\n    out: {{ x: text }}\n  b:\n    \
                 run: echo b >> {ran}; echo b\n    out: {{ x: text }}\n  c:\n    run: echo c ${{{{ b.x }}}} >> {ran}\n    \
                 out: {{ x: text }}\noutputs: {{ a: a.x, c: c.x }}\n"
            ),
        );
    };
    write("");
    bed.run(&["run", "o.yaml", "--jobs", "1"]).ends(1);
    let before = ran(&bed);
    assert!(!before.contains('c'), "the run stopped: {before}");
    write("on_failure: finish_independent\n");
    let said = bed.run(&["run", "o.yaml", "--jobs", "1"]).ends(1);
    assert!(said.stderr.contains("takes up `on_failure: finish_independent`"), "{}", said.all());
    assert!(ran(&bed).contains("c b"), "what does not depend on the failure went on");
}

#[test]
fn every_step_that_failed_beside_the_first_is_listed() {
    let bed = Bed::new();
    let gate = bed.gate("others");
    let shell = gate.shell();
    bed.write(
        "s.yaml",
        &format!(
            "flow: s\nsteps:\n  a: {{ run: \"{shell}; exit 1\", out: {{ x: text }} }}\n  \
             b: {{ run: exit 1, retry: {{ attempts: 3, backoff: 1s }}, out: {{ x: text }} }}\noutputs: {{ a: a.x, b: b.x }}\n"
        ),
    );
    let mut child = bed.start(&["run", "s.yaml", "--jobs", "2"]);
    gate.until_there();
    // `b` failed, and waits for its second attempt; then `a` fails the run.
    let mut before = super::support::until_line(child.stderr.as_mut().expect("it is piped"), "failed");
    gate.open();
    let said = bed.end(child).ends(1);
    before.push_str(&said.stderr);
    assert!(before.contains("the run failed: a, b"), "{before}");
    let shown = bed.run(&["show", "s", "--json"]).json();
    let failures = shown["failures"].as_array().expect("a list");
    let steps: Vec<_> = failures.iter().filter_map(|failed| failed["step"].as_str()).collect();
    assert_eq!((steps, shown["failed"].as_u64()), (vec!["a", "b"], Some(2)));
}
