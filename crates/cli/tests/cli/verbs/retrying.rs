//! `why`, `retry` and `fork`.

use super::{ran, support::Bed, three};
use expect_test::expect;

fn failed(keep: &str) -> Bed {
    let bed = Bed::new();
    three(&bed, keep);
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(1);
    assert_eq!(ran(&bed), "x y z");
    bed
}

#[test]
fn a_failed_run_goes_on_without_its_flow_file_and_writes_its_results() {
    let bed = failed("");
    std::fs::remove_file(bed.path("sum.yaml")).expect("it was there");
    bed.run(&["retry", "sum", "--dry-run"]).expect(expect![[r#"
        -- stdout
        would try again: z
        -- stderr
        next: onceflow retry sum
        -- exit 0
    "#]]);
    bed.run(&["retry", "su", "nix"]).expect(expect![[r#"
        -- stderr
        error[OF0450]: run `sum` has no step `nix` that failed
        hint: it has `z`
        -- exit 2
    "#]]);
    assert_eq!(ran(&bed), "");
    bed.write("ok", "");
    bed.run(&["retry", "-", "z"]).expect(expect![[r#"
        -- stdout
        {"z":"results/z.txt","x":"x 1"}
        -- stderr
        run     z
        done    z ([time])
        done: 1 step ran in [time]
        next: results are in results/; `onceflow show sum` shows what happened
        -- exit 0
    "#]]);
    assert_eq!((ran(&bed), bed.read("results/z.txt")), (String::from("z"), String::from("x 1 y 2\n")));
    bed.run(&["retry", "sum"]).expect(expect![[r#"
        -- stderr
        error[OF0414]: run `sum` is done
        hint: `onceflow show sum` shows what it gave
        -- exit 1
    "#]]);
}

#[test]
fn a_retry_in_the_background_goes_on_too() {
    let bed = failed("");
    bed.write("ok", "");
    bed.run(&["retry", "sum", "--no-wait"]).ends(3);
    let said = bed.run(&["watch", "sum", "--json"]);
    assert_eq!((said.code, said.json()["status"].as_str()), (0, Some("done")), "{}", said.all());
}

#[test]
fn only_the_named_one_of_several_failures_is_tried_again() {
    let bed = Bed::new();
    let ran_file = bed.path("ran");
    let step = |name: &str| {
        let ok = bed.path(&format!("ok-{name}"));
        format!(
            "  {name}:\n    run: echo {name} >> {}; test -e {}\n    out: {{ said: text }}\n",
            ran_file.display(),
            ok.display()
        )
    };
    let flow = format!(
        "flow: two\non_failure: finish_independent\nsteps:\n{}{}outputs: {{ p: p.said, q: q.said }}\n",
        step("p"),
        step("q")
    );
    bed.write("two.yaml", &flow);
    bed.run(&["run", "two.yaml"]).ends(1);
    assert_eq!(ran(&bed), "p q");
    bed.run(&["retry", "two", "p"]).expect(expect![[r#"
        -- stderr
        run     p
        failed[OF0301] p: it ended with exit status 1
          its work directory: [dir]/.onceflow/runs/[id]/work/p.1
        not tried again: q
        the run failed: p, q
        next: onceflow logs two p; then the same command goes on where it stopped
        -- exit 1
    "#]]);
    bed.run(&["why", "two", "p"]).expect(expect![[r#"
        -- stdout
        p  failed (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: failed: OF0301: it ended with exit status 1 ([time])
        try 2   plan 0, attempt 1, by hand, after try 1 failed: failed: OF0301: it ended with exit status 1 ([time])
        -- stderr
        next: onceflow logs two p
        -- exit 0
    "#]]);
    assert_eq!(ran(&bed), "p");
    bed.write("ok-p", "");
    bed.run(&["retry", "two", "p"]).ends(1);
    assert_eq!(ran(&bed), "p");
    bed.write("ok-q", "");
    bed.run(&["retry", "two"]).ends(0);
    assert_eq!(ran(&bed), "q");
}

#[test]
fn why_names_what_differs_and_what_happened_at_each_try() {
    let bed = failed("");
    bed.run(&["why", "sum", "z"]).expect(expect![[r#"
        -- stdout
        z  failed (plan 0)
        why     it ran for the first time: nothing was known of it
        try 1   plan 0, attempt 1: failed: OF0301: it ended with exit status 1 ([time])
        -- stderr
        next: onceflow logs sum z
        -- exit 0
    "#]]);
    bed.write("ok", "");
    bed.run(&["retry", "sum"]).ends(0);
    ran(&bed);
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=3"]).ends(0);
    let said = bed.run(&["why", "sum", "y", "--json"]).ends(0).json();
    assert_eq!((&said["fate"], &said["plans"][0]["reason"]), (&"ran".into(), &"input-changed".into()), "{said}");
    assert_eq!((&said["plans"][0]["of"], &said["plans"][0]["plan"]), (&"inputs.b".into(), &1.into()), "{said}");
    let tries = said["tries"].as_array().expect("a list");
    assert_eq!(tries.iter().map(|one| one["plan"].as_u64().unwrap_or(9)).collect::<Vec<_>>(), [0, 1], "{said}");
    let said = bed.run(&["why", "sum", "z", "--json"]).ends(0).json();
    assert_eq!(said["plans"][0]["reason"], "source-reruns", "{said}");
    assert_eq!(said["tries"][1]["because"], "by hand, after try 1 failed", "{said}");
    let text = bed.read("sum.yaml").replace("echo x $", "echo X $");
    bed.write("sum.yaml", &text);
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=3"]).ends(0);
    let said = bed.run(&["why", "sum", "x", "--json"]).ends(0).json();
    assert_eq!(said["plans"][0]["reason"], "code-changed", "{said}");
    assert_ne!(said["plans"][0]["from"], said["plans"][0]["to"]);
    bed.run(&["why", "sum", "w"]).ends(2);
}

#[test]
fn a_step_that_is_reused_says_so_and_why() {
    let bed = Bed::new();
    three(&bed, "keep: 1h\n");
    bed.write("ok", "");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(0);
    ran(&bed);
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=3"]).ends(0);
    assert_eq!(ran(&bed), "y z");
    bed.run(&["why", "sum", "x"]).expect(expect![[r#"
        -- stdout
        x  reused (plan 1)
        why     its code and its inputs are what they were, and what it gave is kept
        try 1   plan 0, attempt 1: done ([time])
        before  plan 0: run, it ran for the first time: nothing was known of it
        -- stderr
        next: onceflow show sum
        -- exit 0
    "#]]);
}

#[test]
fn a_fork_runs_only_what_depends_on_the_changed_inputs_whatever_the_old_run_came_to() {
    // Forks of an unfinished run, of one that keeps values, and of one that is done and keeps nothing.
    for (keep, is_done, runs) in [("", false, "y z"), ("keep: 1h\n", true, "y z"), ("", true, "y z")] {
        let bed = failed(keep);
        bed.write("ok", "");
        if is_done {
            bed.run(&["retry", "sum"]).ends(0);
        }
        ran(&bed);
        std::fs::remove_file(bed.path("sum.yaml")).expect("it was there");
        let explained = bed.run(&["fork", "sum", "--key", "other", "-i", "b=3", "--dry-run", "--json"]).ends(0).json();
        assert_eq!((&explained["run"], &explained["reuse"]), (&2.into(), &1.into()), "{explained}");
        let said = bed.run(&["fork", "sum", "--key", "other", "-i", "b=3", "--out", "elsewhere"]).ends(0);
        assert_eq!((ran(&bed).as_str(), said.stdout.trim()), (runs, r#"{"z":"elsewhere/z.txt","x":"x 1"}"#));
        assert_eq!(bed.read("elsewhere/z.txt"), "x 1 y 3\n");
        let why = bed.run(&["why", "other", "x", "--json"]).ends(0).json();
        assert_eq!((&why["fate"], &why["plans"][0]["reason"]), (&"reused".into(), &"kept".into()), "{why}");
        // The fork is a run like any other, and the old one is as it was.
        let third = bed.run(&["fork", "other", "--key", "third", "-i", "a=9"]).ends(0);
        assert_eq!(third.json()["x"], "x 9");
        let ls = bed.run(&["ls", "--json"]).ends(0).json();
        assert_eq!(ls.as_array().map(Vec::len), Some(3), "{ls}");
        bed.run(&["fork", "sum", "--key", "other", "-i", "b=3"]).ends(1);
        bed.run(&["fsck"]).ends(0);
    }
}

#[test]
fn a_fork_reuses_elements_inside_lists_that_are_kept() {
    let bed = Bed::new();
    let ran_file = bed.path("ran");
    bed.write(
        "each.yaml",
        &format!(
            "flow: each\nkeep: 1h\ninputs: {{ words: list<text>, end: text }}\nsteps:\n  e:\n    each: word in inputs.words\n    \
             run: echo ${{{{ word }}}} >> {}; echo ${{{{ word }}}}\n    out: {{ said: text }}\noutputs: {{ all: e.said }}\n",
            ran_file.display()
        ),
    );
    bed.run(&["run", "each.yaml", "-i", "words=p", "-i", "words=q", "-i", "words=r", "-i", "end=1"]).ends(0);
    assert_eq!(ran(&bed), "p q r");
    bed.run(&["fork", "each", "--key", "b", "-i", "words=p", "-i", "words=Q", "-i", "words=r"]).ends(0);
    assert_eq!(ran(&bed), "Q");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn fork_says_which_steps_it_cannot_reuse() {
    let bed = failed("");
    bed.run(&["fork", "sum", "--key", "o", "-i", "c=3"]).expect(expect![[r#"
        -- stderr
        error[OF0201]: the flow has no input `c`
        hint: did you mean `a`?
        -- exit 2
    "#]]);
    bed.run(&["fork", "sum", "--key", "sum", "-i", "b=3"]).expect(expect![[r#"
        -- stderr
        error[OF0414]: run `sum` is there already
        hint: see `onceflow error OF0414`
        -- exit 1
    "#]]);
}
