//! Steps and environments that misbehave: what is durable, what is reported, and that nothing is left behind.

use crate::support;

use expect_test::expect;
use std::{fs, path::Path, process::Command};
use support::{Bed, copy_flow, until_line};

/// Returns a flow of one step.
fn one(name: &str, step: &str) -> String {
    let step: String = step.lines().map(|line| format!("    {line}\n")).collect();
    format!("flow: {name}\nsteps:\n  a:\n{step}")
}

/// The process exists, and is not a zombie.
fn is_there(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    state.is_ok_and(|state| !state.contains(") Z "))
}

/// Returns the content of all files below a directory.
fn all_below(directory: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => all.extend(all_below(&entry.path())),
            kind if kind.is_file() => all.extend(fs::read(entry.path()).expect("a file")),
            _ => {}
        }
    }
    all
}

fn contains(all: &[u8], text: &str) -> bool {
    all.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_step_that_says_very_much_has_a_log_with_a_bound() {
    let bed = Bed::new();
    bed.write("flow.yaml", &(one("loud", "run: |\n  echo first\n  head -c 100000000 /dev/zero | tr '\\0' x | fold -w 99\n  echo last\n  touch ${{ out.x }}\nout: { x: file }") + "outputs: { x: a.x }\n"));
    bed.run(&["run", "flow.yaml"]).ends(0);
    let log = bed.run(&["logs", "loud"]).ends(0).stdout;
    assert!(log.len() < 1 << 20, "{} bytes", log.len());
    assert!(log.starts_with("first\nxxx") && log.ends_with("last\n"), "{}", &log[log.len() - 200..]);
    let store: u64 = bed.store().iter().map(|(_, content, _)| content.len() as u64).sum();
    assert!(store < 4 << 20, "{store} bytes in the store");
}

#[test]
fn a_step_that_takes_too_long_is_ended_and_told() {
    let bed = Bed::new();
    let pid = bed.path("pid");
    bed.write(
        "flow.yaml",
        &(one(
            "slow",
            &format!(
                "run: |\n  echo $$ > '{}'; echo so far >&2\n  sl\\eep 1000\nout: {{ x: text }}\ntimeout: 500ms",
                pid.display()
            ),
        ) + "outputs: { x: a.x }\n"),
    );
    bed.run(&["run", "flow.yaml"]).expect(expect![[r#"
        -- stderr
        run     a
        failed[OF0321] a: it took longer than its timeout, 500 ms
          its last lines:
          so far
          its work directory: [dir]/.onceflow/runs/[id]/work/a.1
        the run failed: a
        next: onceflow logs slow a; then the same command goes on where it stopped
        -- exit 1
    "#]]);
    assert!(!is_there(&bed.read("pid")));
}

#[test]
fn background_processes_of_a_step_end_with_it() {
    let bed = Bed::new();
    bed.write(
        "flow.yaml",
        &format!(
            "{}outputs: {{ pid: a.pid }}\n",
            one("child", "run: sl\\eep 1000 & echo $! > ${{ out.pid }}\nout: { pid: file }")
        ),
    );
    bed.run(&["run", "flow.yaml"]).ends(0);
    assert!(!is_there(&bed.read("results/pid")));
}

#[test]
fn commands_end_with_their_process_however_it_ends() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("in.txt", "text");
    let shell = format!("setsid sl\\eep 1000 & echo $! $$ > '{}'\n{}", bed.path("pids").display(), gate.shell());
    bed.write("copy.yaml", &copy_flow("copy", &shell));
    let mut run = bed.start(&["run", "copy.yaml", "-i", "text=in.txt"]);
    gate.until_there();
    run.kill().expect("it is there");
    run.wait().expect("it ends");
    // The guard ends them; the next command sees that, and waits for nothing else of theirs.
    for pid in bed.read("pids").split_whitespace() {
        while is_there(pid) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_killed_at_most_once_step_waits_for_resolve() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write(
        "pay.yaml",
        &(one("pay", &format!("run: |\n  {}\neffect: at_most_once\nout: {{ x: text }}", gate.shell()))
            + "outputs: { x: a.x }\n"),
    );
    let mut run = bed.start(&["run", "pay.yaml"]);
    gate.until_there();
    until_line(run.stderr.as_mut().expect("it is read"), "run");
    run.kill().expect("it is there");
    run.wait().expect("it ends");
    bed.run(&["run", "pay.yaml"]).expect(expect![[r#"
        -- stderr
        a must be resolved first: it was started, and whether it took effect is not known
        unknown a
        waiting[OF0415]: whether a took effect is not known
        next: onceflow resolve pay a --done | --redo | --fail WHY
        -- exit 3
    "#]]);
    bed.run(&["ls"]).expect(expect![[r#"
        -- stdout
        KEY  FLOW  STATUS           STEPS  AGE
        pay  pay   waiting              0  [ago]
        -- stderr
        next: onceflow resolve pay a --done | --redo | --fail WHY
        -- exit 0
    "#]]);
    bed.run(&["show"]).expect(expect![[r#"
        -- stdout
        pay waiting
        flow     pay
        id       [id]
        started [ago]
        step     a: 1 unknown
        unknown  a
        -- stderr
        next: onceflow resolve pay a --done | --redo | --fail WHY
        -- exit 0
    "#]]);
    bed.run(&["cancel", "pay"]).expect(expect![[r#"
        -- stderr
        cancelled; nothing of it is left
        next: `onceflow run` of the same flow begins anew
        -- exit 5
    "#]]);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_failed_undo_is_reported_and_remembered() {
    let bed = Bed::new();
    bed.write(
        "undo.yaml",
        "flow: undo
steps:
  first: { run: echo 1, out: { x: text }, undo: { run: true } }
  second: { run: 'echo ${{ first.x }}', out: { x: text }, undo: { run: 'echo stuck >&2; exit 9' } }
  third: { run: 'echo ${{ second.x }} >&2; exit 3', out: { x: text } }
outputs: { x: third.x }
",
    );
    bed.run(&["run", "undo.yaml"]).expect(expect![[r#"
        -- stderr
        run     first
        done    first ([time])
        run     second
        done    second ([time])
        run     third
        failed[OF0301] third: it ended with exit status 3
          its last lines:
          1
          its work directory: [dir]/.onceflow/runs/[id]/work/third.1
        undone  first
        the run failed: third
        1 step undone
        not undone[OF0301] second (attempt 5): it ended with exit status 9
          its last lines:
          stuck
          its work directory: [dir]/.onceflow/runs/[id]/work/second.5
        next: `onceflow retry undo` tries the undos that failed again; `onceflow resolve undo second --done` says that one was done by hand; `onceflow cancel --abandon undo` gives them up
        -- exit 6
    "#]]);
    bed.run(&["ls"]).expect(expect![[r#"
        -- stdout
        KEY   FLOW  STATUS           STEPS  AGE
        undo  undo  not cleaned up       2  [ago]
        -- stderr
        next: `onceflow retry undo` tries the undos that failed again; `onceflow resolve undo second --done` says that one was done by hand; `onceflow cancel --abandon undo` gives them up
        -- exit 0
    "#]]);
    assert_eq!(bed.run(&["show", "--json"]).json()["not_undone"][0]["step"], "second");
    bed.run(&["fsck"]).ends(0);
    for command in [&["run", "undo.yaml"][..], &["run", "undo.yaml", "--new"], &["cancel", "undo", "--yes"]] {
        let refused = bed.run(command).ends(6);
        assert!(refused.stderr.contains("OF0455") && refused.stderr.contains("second"), "{}", refused.all());
        assert!(!refused.stderr.contains("run     "), "nothing runs again: {}", refused.all());
    }
    bed.run(&["retry", "undo"]).ends(6);
    bed.run(&["cancel", "undo", "--abandon", "--yes"]).ends(6);
    let again = bed.run(&["run", "undo.yaml"]).ends(6);
    assert!(again.stderr.contains("run     first"), "{}", again.all());
    bed.run(&["resolve", "undo", "second", "--done", "--yes"]).ends(1);
    assert_eq!(bed.run(&["show", "--json"]).json()["status"], "undone");
}

#[test]
fn a_step_that_must_not_run_twice_runs_again_only_if_that_is_accepted() {
    let bed = Bed::new();
    let ran = bed.path("ran");
    let flow = |text: &str| {
        one(
            "pay",
            &format!(
                "run: |\n  echo {text} >> '{}'\n  echo {text}\neffect: at_most_once\nout: {{ x: text }}",
                ran.display()
            ),
        ) + "outputs: { x: a.x }\n"
    };
    bed.write("pay.yaml", &flow("ten"));
    bed.run(&["run", "pay.yaml"]).ends(0);
    bed.write("pay.yaml", &flow("eleven"));
    bed.run(&["run", "pay.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0413]: run `pay` has done a, which would run again: accept that, or ask for it under another key
        hint: `--accept-code-change` lets them run again; `--key NAME` starts another run beside it
        -- exit 1
    "#]]);
    assert_eq!(bed.read("ran"), "ten\n");
    bed.run(&["run", "pay.yaml", "--accept-code-change"]).expect(expect![[r#"
        -- stdout
        {"x":"eleven"}
        -- stderr
        1 of 1 step will run: a (its code changed)
        run     a
        done    a ([time])
        done: 1 step ran in [time]
        next: onceflow show pay
        -- exit 0
    "#]]);
    assert_eq!(bed.read("ran"), "ten\neleven\n");
}

#[test]
fn a_secret_is_needed_and_lands_nowhere() {
    const VALUE: &str = "hush-4711-hush";
    let bed = Bed::new();
    let step = "run: |\n  echo \"said $TOKEN\" >&2\n  printf %s ${{ secrets.TOKEN }} | wc -c > ${{ out.len }}\n  false\nsecrets: [TOKEN]\nout: { len: { file: len } }";
    let failing = format!("secrets: [TOKEN]\n{}outputs: {{ len: a.len }}\n", one("secret", step));
    bed.write("secret.yaml", &failing);
    bed.run(&["run", "secret.yaml"]).expect(expect![[r#"
        -- stderr
        error[OF0310]: the flow takes secrets from the environment that are not there: `TOKEN`
        hint: export them, then run the same command
        -- exit 2
    "#]]);
    let with = |args: &[&str]| bed.said(bed.command(args).env("TOKEN", VALUE).output().expect("the command starts"));
    let said = with(&["run", "secret.yaml"]).ends(1);
    assert!(said.stderr.contains("said ***"), "{}", said.stderr);
    bed.write("secret.yaml", &failing.replace("  false\n", "  true\n"));
    let done = with(&["run", "secret.yaml"]).ends(0);
    assert_eq!(bed.read("results/len").trim(), VALUE.len().to_string());
    let (logs, shown) = (with(&["logs", "secret"]), with(&["show", "--json"]));
    for said in [said, done, logs, shown] {
        assert!(!said.stdout.contains(VALUE) && !said.stderr.contains(VALUE), "{}", said.all());
    }
    assert!(!contains(&all_below(&bed.path(".onceflow")), VALUE) && !contains(&all_below(&bed.path("results")), VALUE));
}

/// Runs a script as root in its own mount namespace; returns its output. It needs user namespaces, or root.
fn among_mounts(bed: &Bed, script: &str) -> support::Said {
    let tried = Command::new("unshare").args(["-rm", "true"]).output().expect("util-linux has `unshare`");
    assert!(tried.status.success(), "a mount namespace is needed: {}", String::from_utf8_lossy(&tried.stderr));
    let mut command = Command::new("unshare");
    command.args(["-rm", "bash", "-c", script]).current_dir(bed.dir.path()).env("T", env!("CARGO_BIN_EXE_onceflow"));
    command.env_remove("RUST_BACKTRACE").env_remove("ONCEFLOW_STORE");
    bed.said(command.output().expect("a shell"))
}

#[test]
fn a_store_that_cannot_be_written_is_said_to_be_and_left_alone() {
    let bed = Bed::new();
    bed.write("in.txt", "text");
    bed.write("copy.yaml", &copy_flow("copy", ":"));
    bed.run(&["run", "copy.yaml", "-i", "text=in.txt"]).ends(0);
    let before = bed.store();
    let script = "mount --bind .onceflow .onceflow && mount -o remount,bind,ro .onceflow
        $T run copy.yaml -i text=in.txt --key other; echo exit $? >&2; $T ls; echo exit $? >&2";
    let said = among_mounts(&bed, script);
    said.expect(expect![[r#"
        -- stderr
        error[OF0408]: cannot lock [dir]/.onceflow: Read-only file system (os error 30)
        hint: every command writes to its store; ask its owner for the right to, or give another with `--store DIR`
        exit 75
        error[OF0408]: cannot lock [dir]/.onceflow: Read-only file system (os error 30)
        hint: every command writes to its store; ask its owner for the right to, or give another with `--store DIR`
        exit 75
        -- exit 0
    "#]]);
    assert_eq!(bed.store(), before);
}

#[test]
fn a_disk_that_a_step_fills_fails_the_step_and_the_rest_is_kept() {
    let bed = Bed::new();
    fs::create_dir(bed.path("disk")).expect("a directory");
    bed.write(
        "fill.yaml",
        &"flow: fill
steps:
  a: { run: 'echo a >> DIR/ran; seq 10000', out: { x: text } }
  b: { run: 'echo b >> DIR/ran; cat /dev/zero > DIR/disk/ballast || true; echo ${{ a.x }} | wc -l', out: { y: text } }
outputs: { y: b.y }
"
        .replace("DIR", &bed.dir.path().display().to_string()),
    );
    let script = "mount -t tmpfs -o size=1m none disk; export ONCEFLOW_STORE=disk/store
        $T run fill.yaml; echo exit $? >&2; $T fsck -q > fsck; echo exit $? >&2; rm disk/ballast; ln -s /dev/full disk/ballast
        $T run fill.yaml; echo exit $? >&2; $T fsck -q > fsck";
    let said = among_mounts(&bed, script);
    said.expect(expect![[r#"
        -- stdout
        {"y":"10000"}
        -- stderr
        run     a
        done    a ([time])
        run     b
        failed[OF0319] b: standard output could not be kept: No space left on device (os error 28)
          its last lines:
          cat: write error: No space left on device
          its work directory: [dir]/disk/store/runs/[id]/work/b.1
        the run failed: b
        next: onceflow logs fill b; then the same command goes on where it stopped
        exit 1
        exit 0
        1 of 2 steps will run: b (has no result yet)
        run     b
        done    b ([time])
        done: 1 step ran in [time]
        next: onceflow show fill
        exit 0
        -- exit 0
    "#]]);
    assert_eq!(bed.read("ran"), "a\nb\nb\n");
}

#[test]
fn a_disk_that_is_full_for_the_store_stops_the_run_and_it_goes_on_when_there_is_room() {
    let bed = Bed::new();
    fs::create_dir(bed.path("disk")).expect("a directory");
    bed.write(
        "many.yaml",
        "flow: many
inputs: { n: list<int> }
steps:
  a: { each: n in inputs.n, expr: \"string(n) + inputs.n.map(m, string(m)).join('-')\", out: { x: text } }
outputs: { n: size(a.x) }
",
    );
    bed.write("n.json", &format!("{:?}", (0..200).collect::<Vec<_>>()));
    let script = "mount -t tmpfs -o size=150k none disk; export ONCEFLOW_STORE=disk/store
        $T run many.yaml -q -i n=@n.json; echo exit $? >&2; $T fsck -q > fsck; echo exit $? >&2
        mount -o remount,size=50m disk
        $T run many.yaml -q -i n=@n.json; echo exit $? >&2; $T fsck -q > fsck";
    let said = among_mounts(&bed, script);
    said.expect(expect![[r#"
        -- stdout
        {"n":200}
        -- stderr
        error[OF0408]: the store has no room for this: No space left on device (os error 28)
        hint: make room on the disk, then run the same command again: what was done is kept
        exit 75
        exit 0
        exit 0
        -- exit 0
    "#]]);
}

#[test]
fn a_disk_without_room_for_a_store_is_said_to_be() {
    let bed = Bed::new();
    fs::create_dir(bed.path("disk")).expect("a directory");
    bed.write("in.txt", "text");
    bed.write("copy.yaml", &copy_flow("copy", ":"));
    let script = "mount -t tmpfs -o size=40k none disk; export ONCEFLOW_STORE=disk/store
        $T run copy.yaml -i text=in.txt; echo exit $? >&2; mount -o remount,size=50m disk
        $T run copy.yaml -i text=in.txt; echo exit $? >&2; $T fsck -q > fsck";
    let said = among_mounts(&bed, script);
    said.expect(expect![[r#"
        -- stdout
        {"copy":"results/copy.txt"}
        -- stderr
        error[OF0408]: cannot begin a log in [dir]/disk/store/: No space left on device (os error 28)
        hint: make room on the disk, then run the same command again: what was done is kept
        exit 75
        run     copy
        done    copy ([time])
        done: 1 step ran in [time]
        next: results are in results/; `onceflow show copy` shows what happened
        exit 0
        -- exit 0
    "#]]);
}

#[test]
fn files_of_the_user_among_results_stay() {
    let bed = Bed::new();
    let step = "each: n in inputs.ns\nrun: echo ${{ n }} > ${{ out.f }}\nout: { f: { file: \"${{ n }}.txt\" } }";
    bed.write("f.yaml", &format!("inputs: {{ ns: list<int> }}\n{}outputs: {{ fs: a.f }}\n", one("f", step)));
    bed.run(&["run", "f.yaml", "-i", "ns=[1, 2]"]).ends(0);
    bed.write("results/fs/notes.md", "mine");
    bed.run(&["run", "f.yaml", "-i", "ns=[1, 2]"]).ends(0);
    bed.run(&["run", "f.yaml", "-i", "ns=[2, 3]"]).ends(0);
    assert_eq!((bed.read("results/fs/notes.md"), bed.read("results/fs/3.txt")), ("mine".into(), "3\n".into()));
    assert!(!bed.path("results/fs/1.txt").exists(), "what was a result and is none any more goes");
    std::fs::create_dir(bed.path("other")).expect("a directory");
    bed.write("other/fs", "a file of mine");
    bed.run(&["run", "f.yaml", "-i", "ns=[2, 3]", "--out", "other"]).ends(1);
    assert_eq!(bed.read("other/fs"), "a file of mine");
}

#[test]
fn a_link_in_place_of_a_work_directory_is_not_followed_and_is_reported() {
    let bed = Bed::new();
    // Links lead to this directory of the test, and nowhere else.
    fs::create_dir(bed.path("canary")).expect("a directory");
    bed.write("canary/bird", "sings");
    let script = format!("run: |\n  echo 1 > o; d=$PWD; cd /; mv $d $d.x; ln -s {} $d", bed.path("canary").display());
    bed.write(
        "flow.yaml",
        &(one("moved", &format!("{script}\nout: {{ o: file }}"))
            + "  b: { run: 'cat ${{ a.o }}', out: { x: text } }\noutputs: { o: a.o, x: b.x }\n"),
    );
    let said = bed.run(&["run", "flow.yaml"]).ends(0);
    assert!(said.stdout.contains(r#""x":"1""#), "{}", said.stdout);
    assert!(said.stderr.contains("left alone") && said.stderr.contains("put a link in place"), "{}", said.stderr);
    let log = bed.run(&["logs", "moved", "a"]).ends(0).stdout;
    assert!(log.contains("onceflow: left alone: "), "{log}");
    for verb in [&["run", "flow.yaml", "--new"][..], &["reclaim"], &["fsck"]] {
        bed.run(verb).ends(0);
    }
    // The directory of runs is replaced by a link: entries there without a run are not onceflow's to remove.
    fs::rename(bed.path(".onceflow/runs"), bed.path("runs")).expect("moved");
    std::os::unix::fs::symlink(bed.path("canary"), bed.path(".onceflow/runs")).expect("a link");
    bed.run(&["reclaim"]);
    assert_eq!(bed.read("canary/bird"), "sings");
    assert_eq!(fs::read_dir(bed.path("canary")).expect("a directory").count(), 1);
}
