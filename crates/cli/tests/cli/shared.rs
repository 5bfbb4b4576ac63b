//! Several processes on one store: following, refusing, taking over, cancelling, killing.

use crate::support;

use expect_test::expect;
use support::{Bed, Gate, copy_flow, signal, until_line};

/// Makes a flow that waits at a gate.
fn gated() -> (Bed, Gate) {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("in.txt", "text");
    bed.write("other.txt", "other");
    bed.write("copy.yaml", &copy_flow("copy", &gate.shell()));
    (bed, gate)
}

const RUN: [&str; 4] = ["run", "copy.yaml", "-i", "text=in.txt"];

#[test]
fn a_run_at_work_is_followed_and_both_have_the_result() {
    let (bed, gate) = gated();
    let first = bed.start(&RUN);
    gate.until_there();
    let mut second = bed.start(&[&RUN[..], &["--out", "other"]].concat());
    until_line(second.stderr.as_mut().expect("talk"), "following it");
    gate.open();
    bed.end(first).ends(0);
    let said = bed.end(second).ends(0);
    assert_eq!(
        (said.stdout.as_str(), bed.read("other/copy.txt").as_str()),
        ("{\"copy\":\"other/copy.txt\"}\n", "text")
    );
}

#[test]
fn one_of_several_simultaneous_runs_works_and_all_have_the_result() {
    let bed = Bed::new();
    let starts = bed.path("starts");
    bed.write("in.txt", "text");
    bed.write("counted.yaml", &counted(&starts));
    let start = |n: usize| bed.start(&["run", "counted.yaml", "-i", "text=in.txt", "--out", &format!("out/{n}")]);
    let all: Vec<_> = (0..4).map(start).collect();
    for (n, run) in all.into_iter().enumerate() {
        bed.end(run).ends(0);
        assert_eq!(bed.read(&format!("out/{n}/c.txt")), "text");
    }
    assert_eq!(bed.read("starts"), "a\nb\nc\n");
    assert_eq!(bed.run(&["workers", "--json"]).ends(0).json()["workers"], serde_json::json!([]));
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_start_with_other_inputs_is_refused_while_the_run_works_and_another_key_is_not() {
    let (bed, gate) = gated();
    let first = bed.start(&RUN);
    gate.until_there();
    bed.run(&["run", "copy.yaml", "-i", "text=other.txt"]).expect(expect![[r#"
        -- stderr
        error[OF0404]: run `copy` is at work with other inputs or another flow in process [pid]
        hint: `--key NAME` starts another run beside it; `onceflow watch copy` follows it
        -- exit 75
    "#]]);
    bed.run(&[&RUN[..], &["--new"]].concat()).ends(75);
    let other = bed.gate("other");
    bed.write("other.yaml", &copy_flow("copy", &other.shell()));
    let second = bed.start(&["run", "other.yaml", "-i", "text=other.txt", "--key", "b", "--out", "b"]);
    other.until_there();
    bed.run(&["ls"]).expect(expect![[r#"
        -- stdout
        KEY   FLOW  STATUS           STEPS  AGE
        b     copy  running              0  [ago]
        copy  copy  running              0  [ago]
        -- stderr
        next: onceflow watch b
        -- exit 0
    "#]]);
    other.open();
    bed.end(second).ends(0);
    gate.open();
    bed.end(first).ends(0);
    assert_eq!((bed.read("results/copy.txt"), bed.read("b/copy.txt")), ("text".into(), "other".into()));
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_run_whose_process_is_killed_is_taken_over_by_a_follower() {
    let (bed, gate) = gated();
    let mut first = bed.start(&RUN);
    gate.until_there();
    let mut second = bed.start(&RUN);
    until_line(second.stderr.as_mut().expect("talk"), "following it");
    first.kill().expect("it is there");
    gate.until_there();
    gate.open();
    first.wait().expect("it ends");
    bed.end(second).ends(0);
    assert_eq!(bed.read("results/copy.txt"), "text");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_killed_run_is_interrupted_and_goes_on_when_it_is_run_again() {
    let (bed, gate) = gated();
    let mut first = bed.start(&RUN);
    gate.until_there();
    first.kill().expect("it is there");
    first.wait().expect("it ends");
    bed.run(&["ls"]).expect(expect![[r#"
        -- stdout
        KEY   FLOW  STATUS           STEPS  AGE
        copy  copy  interrupted          0  [ago]
        -- stderr
        next: `onceflow run copy.yaml -i text=in.txt` goes on where it stopped
        -- exit 0
    "#]]);
    bed.run(&["watch"]).expect(expect![[r#"
        -- stderr
        run `copy` is not finished, and no process works on it
        next: the `onceflow run` it was started with goes on where it stopped
        -- exit 3
    "#]]);
    let second = bed.start(&RUN);
    gate.until_there();
    gate.open();
    bed.end(second).ends(0);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn ctrl_c_stops_with_the_state_safe_and_says_how_to_go_on() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (bed, gate) = gated();
        let first = bed.start(&RUN);
        gate.until_there();
        signal(&first, name);
        let said = bed.end(first).ends(code);
        assert!(said.stderr.ends_with("next: the same command goes on where it stopped\n"), "{}", said.stderr);
        let second = bed.start(&RUN);
        gate.until_there();
        gate.open();
        bed.end(second).ends(0);
        bed.run(&["fsck"]).ends(0);
    }
}

#[test]
fn a_run_at_work_is_cancelled_from_elsewhere_and_nothing_is_left() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("long.yaml", &copy_flow("long", &format!("{}; sl\\eep 1000", gate.shell())));
    bed.write("in.txt", "text");
    let first = bed.start(&["run", "long.yaml", "-i", "text=in.txt"]);
    gate.until_there();
    bed.run(&["cancel", "long"]).expect(expect![[r#"
        -- stderr
        cancelled; nothing of it is left
        next: `onceflow run` of the same flow begins anew
        -- exit 5
    "#]]);
    bed.end(first).expect(expect![[r#"
        -- stderr
        run     copy
        cancelled; nothing of it is left
        next: `onceflow run` of the same flow begins anew
        -- exit 5
    "#]]);
    bed.run(&["cancel", "long"]).ends(5);
    bed.run(&["ls"]).expect(expect![[r#"
        -- stdout
        KEY   FLOW  STATUS           STEPS  AGE
        long  long  cancelled            0  [ago]
        -- stderr
        next: `onceflow run long.yaml -i text=in.txt` begins anew
        -- exit 0
    "#]]);
    bed.run(&["fsck"]).ends(0);
    for run in std::fs::read_dir(bed.path(".onceflow/runs")).unwrap() {
        let run = run.unwrap().path();
        assert!(!run.join("work").exists() && !run.join("out").exists());
    }
}

#[test]
fn an_unattended_run_can_be_cancelled() {
    let (bed, gate) = gated();
    let mut first = bed.start(&RUN);
    gate.until_there();
    first.kill().expect("it is there");
    first.wait().expect("it ends");
    bed.run(&["cancel", "copy"]).expect(expect![[r#"
        -- stderr
        cancelled; nothing of it is left
        next: `onceflow run` of the same flow begins anew
        -- exit 5
    "#]]);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_run_can_go_on_in_the_background_and_be_watched() {
    let (bed, gate) = gated();
    bed.run(&[&RUN[..], &["--no-wait"]].concat()).expect(expect![[r#"
        -- stderr
        run `copy` goes on in the background
        next: onceflow watch copy
        -- exit 3
    "#]]);
    gate.until_there();
    let watch = bed.start(&["watch", "copy"]);
    gate.open();
    bed.end(watch).ends(0);
    let said = bed.run(&RUN).ends(0);
    assert!(said.stderr.contains("nothing to do"), "{}", said.stderr);
    assert_eq!(bed.read("results/copy.txt"), "text");
}

#[test]
fn a_step_goes_on_when_the_process_that_had_the_store_ends_however_it_does() {
    for killed in [false, true] {
        let (bed, gate) = gated();
        let mut first = bed.start(&RUN);
        gate.until_there();
        let other = bed.gate("other");
        let ran = bed.path("ran");
        let shell = format!("echo ran >> '{}'; {}", ran.display(), other.shell());
        bed.write("other.yaml", &copy_flow("other", &shell));
        let second = bed.start(&["run", "other.yaml", "-i", "text=other.txt", "--out", "b", "-j", "1"]);
        other.until_there();
        match killed {
            true => first.kill().expect("it is there"),
            false => gate.open(),
        }
        first.wait().expect("it ends");
        // By the time that `ls` gets an answer, the second process owns the store.
        bed.run(&["ls"]).ends(0);
        other.open();
        bed.end(second).ends(0);
        assert_eq!((bed.read("b/copy.txt").as_str(), bed.read("ran").as_str()), ("other", "ran\n"), "killed: {killed}");
        bed.run(&["fsck"]).ends(0);
    }
}

/// Returns a flow of three steps in a row; each writes a line when it starts, and the last must not start twice.
fn counted(starts: &std::path::Path) -> String {
    let step = |name: &str, from: &str, more: &str| {
        let shell = format!("echo {name} >> '{}'; cat ${{{{ {from} }}}} > ${{{{ out.file }}}}", starts.display());
        format!("  {name}:\n    run: {shell}\n    out: {{ file: {{ file: {name}.txt }} }}\n{more}")
    };
    let steps =
        [step("a", "inputs.text", ""), step("b", "a.file", ""), step("c", "b.file", "    effect: at_most_once\n")];
    format!("flow: counted\ninputs: {{ text: file }}\nsteps:\n{}outputs: {{ c: c.file }}\n", steps.concat())
}

#[test]
fn runs_that_share_a_directory_start_every_step_once() {
    const AT_A_TIME: usize = 4;
    let runs = if std::env::var_os("ONCEFLOW_LONG").is_some() { 1000 } else { 60 };
    let bed = Bed::new();
    let starts = bed.path("starts");
    bed.write("in.txt", "text");
    bed.write("counted.yaml", &counted(&starts));
    // Each process is owner or guest, as it happens; one that ends leaves the directory to the others.
    std::thread::scope(|scope| {
        for lane in 0..AT_A_TIME {
            let bed = &bed;
            scope.spawn(move || {
                for run in (lane..runs).step_by(AT_A_TIME) {
                    let (key, out) = (format!("k{run}"), format!("out/{run}"));
                    bed.run(&["run", "counted.yaml", "-i", "text=in.txt", "--key", &key, "--out", &out]).ends(0);
                    assert_eq!(bed.read(&format!("{out}/c.txt")), "text");
                }
            });
        }
    });
    let starts = bed.read("starts");
    for step in ["a", "b", "c"] {
        let count = starts.lines().filter(|line| *line == step).count();
        assert_eq!(count, runs, "starts of step {step} in {runs} runs");
    }
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn steps_at_work_start_once_though_the_owner_is_killed_under_them() {
    let (bed, gate) = gated();
    let mut owner = bed.start(&RUN);
    gate.until_there();
    let mut guests = Vec::new();
    for (name, effect) in [("idempotent", ""), ("once", "    effect: at_most_once\n")] {
        let gate = bed.gate(name);
        let shell = format!("echo {name} >> '{}'; {}", bed.path("ran").display(), gate.shell());
        let flow = copy_flow(name, &shell).replace("outputs:", &format!("{effect}outputs:"));
        bed.write(&format!("{name}.yaml"), &flow);
        let run = bed.start(&["run", &format!("{name}.yaml"), "-i", "text=other.txt", "--out", name]);
        gate.until_there();
        guests.push((run, gate));
    }
    owner.kill().expect("it is there");
    owner.wait().expect("it ends");
    // By the time that `ls` gets an answer, one of the guests owns the store, and another guest comes and goes.
    bed.run(&["ls"]).ends(0);
    for (run, gate) in guests {
        gate.open();
        bed.end(run).ends(0);
    }
    let ran = bed.read("ran");
    assert_eq!(ran.lines().collect::<Vec<_>>(), ["idempotent", "once"]);
}

#[test]
fn other_users_cannot_read_or_lock_the_store_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let (bed, gate) = gated();
    let command = format!("umask 000; exec '{}' run copy.yaml -i text=in.txt", env!("CARGO_BIN_EXE_onceflow"));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &command]).current_dir(bed.dir.path()).stdin(std::process::Stdio::null());
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let run = shell.env("XDG_CONFIG_HOME", bed.path("config")).spawn().expect("a shell");
    gate.until_there();
    let mode = |path: &std::path::Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
    let store = bed.path(".onceflow");
    assert_eq!(mode(&store), 0o700);
    assert_eq!(mode(&store.join("members")), 0o700);
    for name in ["members", "scratch"] {
        let files: Vec<_> = std::fs::read_dir(store.join(name)).expect("a process is there").flatten().collect();
        let locks: Vec<_> = files.iter().filter(|entry| entry.path().is_file()).collect();
        assert!(!locks.is_empty(), "no lock file in {name}");
        for entry in locks {
            assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        }
    }
    for entry in std::fs::read_dir(&store).expect("a store").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("log-") || ["LOCK", "durable", "store.sock", "store-id"].contains(&&*name) {
            assert_eq!(mode(&entry.path()), 0o600, "{name}");
        }
    }
    gate.open();
    bed.end(run).ends(0);
}
