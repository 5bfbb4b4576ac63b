//! Nothing is left behind: replaced values are deleted, removed runs are deleted, and the cost of that does not grow.

use super::{
    support::{Bed, on_terminal, until_line},
    three,
};
use expect_test::expect;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::{fs, io::Write, mem::MaybeUninit, process::Stdio};

/// The size of a large file.
const LARGE: u64 = 2_000_000;

/// A flow `large` whose result is its input and two million bytes.
fn large(bed: &Bed) {
    bed.write(
        "large.yaml",
        "flow: large\ninputs: { a: text }\nsteps:\n  make:\n    \
         run: echo ${{ inputs.a }} > ${{ out.file }}; head -c 2000000 /dev/zero >> ${{ out.file }}\n    \
         out: { file: { file: large.bin } }\noutputs: { large: make.file }\n",
    );
}

/// Returns the bytes of the objects in the store.
fn objects(bed: &Bed) -> u64 {
    let files = fs::read_dir(bed.path(".onceflow/blobs/0/objects")).into_iter().flatten().flatten();
    files.map(|file| file.metadata().map_or(0, |file| file.len())).sum()
}

#[test]
fn a_run_leaves_what_it_gave_and_nothing_that_was_replaced() {
    let bed = Bed::new();
    large(&bed);
    for a in 0..5 {
        bed.run(&["run", "large.yaml", "-i", &format!("a={a}")]).ends(0);
        assert!((LARGE..2 * LARGE).contains(&objects(&bed)), "{} bytes after {} runs", objects(&bed), a + 1);
    }
    bed.run(&["run", "large.yaml", "-i", "a=5", "--new"]).ends(0);
    assert!((LARGE..2 * LARGE).contains(&objects(&bed)), "{} bytes", objects(&bed));
    let reclaimed = bed.run(&["reclaim", "--json"]).ends(0).json();
    assert_eq!((&reclaimed["values"], &reclaimed["objects"]), (&0.into(), &0.into()), "{reclaimed}");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn a_run_that_is_removed_leaves_nothing_and_its_key_is_free() {
    let bed = Bed::new();
    large(&bed);
    bed.run(&["run", "large.yaml", "-i", "a=0", "--keep", "1h"]).ends(0);
    bed.run(&["rm", "large", "-n"]).expect(expect![[r#"
        -- stdout
        run `large`, which is done, would be removed
        -- stderr
        next: the same without --dry-run
        -- exit 0
    "#]]);
    bed.run(&["rm", "large"]).expect(expect![[r#"
        -- stderr
        run `large` is removed; results that were written stay
        -- exit 0
    "#]]);
    assert_eq!((objects(&bed), fs::read_dir(bed.path(".onceflow/runs")).unwrap().count()), (0, 0));
    assert_eq!(fs::metadata(bed.path("results/large.bin")).unwrap().len(), LARGE + 2);
    let usage = bed.run(&["du", "--json"]).ends(0).json();
    assert_eq!((&usage["total"]["values"], &usage["runs"]), (&0.into(), &serde_json::json!([])), "{usage}");
    bed.run(&["rm", "large"]).ends(2);
    bed.run(&["run", "large.yaml", "-i", "a=0"]).ends(0);
    let gone = bed.run(&["rm", "large", "--json"]).ends(0).json();
    assert_eq!((&gone["key"], &gone["removed"]), (&"large".into(), &true.into()));
}

#[test]
fn a_run_that_has_not_ended_is_removed_by_force_only() {
    let bed = Bed::new();
    three(&bed, "");
    bed.run(&["run", "sum.yaml", "-i", "a=1", "-i", "b=2"]).ends(1);
    bed.run(&["rm", "sum"]).expect(expect![[r#"
        -- stderr
        error[OF0454]: run `sum` has not ended: it is failed
        hint: `onceflow cancel sum` stops and undoes it; `onceflow rm --force sum` does both
        -- exit 75
    "#]]);
    let said = bed.run(&["rm", "sum", "--force", "--json"]).ends(0);
    assert_eq!(said.json()["removed"], true, "{}", said.all());
    assert_eq!(bed.run(&["ls", "--json"]).ends(0).json(), serde_json::json!([]));
}

/// A person reads the question and answers it minutes later; by then the key may be another run's.
#[test]
fn rm_refuses_to_remove_another_run_than_the_one_it_asked_about() {
    let bed = Bed::new();
    large(&bed);
    bed.run(&["run", "large.yaml", "-i", "a=0"]).ends(0);
    let mut asked =
        on_terminal(&bed, 80, "rm large").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let told = asked.stdout.as_mut().expect("it is read");
    until_line(told, "Type `yes` to go on");
    bed.run(&["run", "large.yaml", "-i", "a=1"]).ends(0);
    asked.stdin.as_mut().expect("it is written").write_all(b"yes\n").expect("an answer");
    let said = bed.end(asked);
    let refusal = "error[OF0414]: run `large` has changed since it was looked at";
    assert!(said.code == 1 && said.stdout.contains(refusal), "{}", said.all());
    let runs = bed.run(&["ls", "--json"]).ends(0).json();
    assert_eq!((&runs[0]["key"], &runs[0]["status"]), (&"large".into(), &"done".into()), "{runs}");
    bed.run(&["fsck", "--at-rest"]).ends(0);
}

#[test]
fn a_store_with_a_limit_has_no_room_beyond_it() {
    let bed = Bed::new();
    large(&bed);
    let limited = bed.command(&["run", "large.yaml", "-i", "a=0"]).env("ONCEFLOW_RETENTION_BYTES_MAX", "1MB").output();
    let said = bed.said(limited.expect("it starts")).ends(75);
    assert!(said.stderr.contains("a store may have 1000000 bytes here (`bytes_max`)"), "{}", said.all());
    bed.run(&["run", "large.yaml", "-i", "a=0"]).ends(0);
}

#[test]
fn du_counts_every_file_of_the_store_and_names_unknown_ones() {
    let bed = Bed::new();
    large(&bed);
    bed.run(&["run", "large.yaml", "-i", "a=0"]).ends(0);
    bed.write(".onceflow/stray.txt", "somebody else's");
    let files = bed.run(&["du", "--json"]).ends(0).json()["files"].clone();
    assert_eq!(files["others"], serde_json::json!([{"path": "stray.txt", "bytes": 15}]), "{files}");
    let all: u64 = bed.store().iter().map(|(_, content, _)| content.len() as u64).sum();
    // The process that has the store writes that into it for a moment, and a small cache.
    let counted = files["total"].as_u64().expect("a number");
    assert!(counted.abs_diff(all) < 300, "{all} bytes are there: {files}");
    let said = bed.run(&["fsck", "--at-rest"]).ends(0);
    assert!(said.stdout.contains("not known to be onceflow's: stray.txt"), "{}", said.all());
}

#[test]
fn a_run_opens_no_directory_of_a_run_that_is_done() {
    let bed = Bed::new();
    large(&bed);
    for key in ["one", "two", "three"] {
        bed.run(&["run", "large.yaml", "-i", "a=0", "--key", key]).ends(0);
    }
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a watch");
    let mut watched = 0;
    for run in fs::read_dir(bed.path(".onceflow/runs")).expect("runs").flatten() {
        let directories = fs::read_dir(run.path()).expect("a run").flatten().map(|entry| entry.path());
        for directory in directories.filter(|path| path.is_dir()).chain([run.path()]) {
            inotify::add_watch(&watch, directory, WatchFlags::OPEN | WatchFlags::ACCESS).expect("it is there");
            watched += 1;
        }
    }
    assert_eq!(watched, 3, "a run that is done leaves no work directories");
    bed.run(&["run", "large.yaml", "-i", "a=0", "--key", "four"]).ends(0);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let next = Reader::new(&watch, &mut buffer).next().map(|event| format!("{:?}", event.file_name()));
    assert_eq!(next.err(), Some(rustix::io::Errno::AGAIN), "no process opened any of them");
}
