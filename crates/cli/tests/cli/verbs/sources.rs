//! Input files are not copied: steps read them at their own paths, the store only refers to them, and no output is
//! committed that was made while one of them changed.

use super::support::{Bed, copy_flow, team::stores};
use std::{fs, path::Path};

/// The size of a file that would be an object of its own.
const LARGE: u64 = 50 << 20;

/// Makes a large file that takes no disk space.
fn sparse(bed: &Bed, name: &str) -> std::path::PathBuf {
    let path = bed.path(name);
    fs::File::create(&path).expect("a file").set_len(LARGE).expect("room for a hole");
    path
}

/// Returns the bytes of all objects of a store.
fn objects(store: &Path) -> u64 {
    let (mut bytes, mut look) = (0, vec![store.join("blobs")]);
    while let Some(directory) = look.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let metadata = entry.metadata().expect("a file");
            if metadata.is_dir() { look.push(entry.path()) } else { bytes += metadata.len() }
        }
    }
    bytes
}

/// A flow whose step prints the path of its input, waits at a gate, and fails if the file `fail` exists.
fn counting(bed: &Bed, gate: &str) -> String {
    let fail = bed.path("fail");
    let flow = format!(
        "flow: count\ninputs: {{ reads: file }}\nsteps:\n  count:\n    run: |\n      echo ${{{{ inputs.reads }}}}\n      \
         ls -A in 2>/dev/null >&2 || true\n      wc -c < ${{{{ inputs.reads }}}} > ${{{{ out.n }}}}\n      {gate}\n      \
         test ! -e {}\n    out: {{ n: {{ file: n.txt }}, at: {{ text: stdout }} }}\noutputs: {{ n: count.n, at: count.at }}\n",
        fail.display()
    );
    bed.write("count.yaml", &flow);
    flow
}

#[test]
fn an_input_file_is_read_at_its_own_path_and_is_not_in_the_store() {
    let bed = Bed::new();
    let reads = sparse(&bed, "reads.fq");
    counting(&bed, "true");
    bed.write("fail", "");
    // A run that failed still holds its inputs.
    bed.run(&["run", "count.yaml", "-i", "reads=reads.fq"]).ends(1);
    assert!(objects(&bed.path(".onceflow")) < LARGE / 10, "the input was copied");
    let du = bed.run(&["du", "--json"]).ends(0).json();
    assert_eq!(du["total"]["referenced_bytes"], LARGE, "{du}");
    assert!(du["total"]["bytes"].as_u64().is_some_and(|bytes| bytes < LARGE / 10), "{du}");
    let du = bed.run(&["du"]).ends(0);
    assert!(du.stdout.contains("by reference: input files that are not in the store"), "{}", du.all());
    let fsck = bed.run(&["fsck", "--json"]).ends(0).json();
    assert_eq!((&fsck["referenced"], &fsck["clean"]), (&1.into(), &true.into()), "{fsck}");
    fs::remove_file(bed.path("fail")).unwrap();
    let said = bed.run(&["run", "count.yaml", "-i", "reads=reads.fq"]).ends(0);
    let real = reads.canonicalize().unwrap();
    let at = said.json()["at"].as_str().unwrap_or_default().trim().to_owned();
    assert_eq!((Path::new(&at), bed.read("results/n.txt").trim()), (&*real, &*LARGE.to_string()), "{}", said.all());
    assert!(objects(&bed.path(".onceflow")) < LARGE / 10);
    assert_eq!(fs::metadata(&reads).unwrap().len(), LARGE, "it is as it was");
}

#[test]
fn an_input_that_changes_while_a_step_reads_it_commits_nothing_and_a_new_run_plans_with_it() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("reads.fq", "one\n");
    counting(&bed, &gate.shell());
    let run = bed.start(&["run", "count.yaml", "-i", "reads=reads.fq"]);
    gate.until_there();
    bed.write("reads.fq", "other\n");
    gate.open();
    let said = bed.end(run).ends(1);
    assert!(
        said.stderr.contains("[OF0330]") && said.stderr.contains("input changed") && said.stderr.contains("reads.fq"),
        "{}",
        said.all()
    );
    assert!(!bed.path("results").exists(), "{}", said.all());
    let shown = bed.run(&["show", "count", "--json"]).ends(0).json();
    assert_eq!(shown["status"], "failed", "{shown}");
    // Retrying does not help: the run is for the earlier content of the file.
    let retried = bed.run(&["retry", "count"]).ends(1);
    assert!(retried.stderr.contains("[OF0330]") && retried.stderr.contains("input changed"), "{}", retried.all());
    let run = bed.start(&["run", "count.yaml", "-i", "reads=reads.fq"]);
    gate.until_there();
    gate.open();
    bed.end(run).ends(0);
    assert_eq!(bed.read("results/n.txt").trim(), "6");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn an_input_that_is_touched_or_replaced_by_the_same_is_the_same() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("reads.fq", "one\n");
    counting(&bed, &gate.shell());
    let run = bed.start(&["run", "count.yaml", "-i", "reads=reads.fq"]);
    gate.until_there();
    bed.write("again", "one\n");
    fs::rename(bed.path("again"), bed.path("reads.fq")).unwrap();
    gate.open();
    bed.end(run).ends(0);
    assert_eq!(bed.read("results/n.txt").trim(), "4");
    let said = bed.run(&["run", "count.yaml", "-i", "reads=reads.fq"]).ends(0);
    assert!(said.stderr.contains("nothing to do"), "{}", said.all());
}

#[test]
fn a_directory_is_read_at_its_own_path_and_a_new_file_in_it_is_a_change() {
    let bed = Bed::new();
    let gate = bed.gate("gate");
    bed.write("all/a.txt", "a");
    bed.write("all/sub/b.txt", "b");
    bed.write(
        "list.yaml",
        &format!(
            "flow: list\ninputs: {{ all: dir }}\nsteps:\n  tell:\n    run: |\n      (cd ${{{{ inputs.all }}}} && pwd && find . -type f | \
             sort)\n      {}\n    out: {{ said: {{ text: stdout }} }}\noutputs: {{ said: tell.said }}\n",
            gate.shell()
        ),
    );
    let run = bed.start(&["run", "list.yaml", "-i", "all=all"]);
    gate.until_there();
    bed.write("all/new.txt", "new");
    gate.open();
    let said = bed.end(run).ends(1);
    assert!(
        said.stderr.contains("[OF0330]") && said.stderr.contains("input changed") && said.stderr.contains("`new.txt`"),
        "{}",
        said.all()
    );
    let run = bed.start(&["run", "list.yaml", "-i", "all=all"]);
    gate.until_there();
    gate.open();
    let said = bed.end(run).ends(0).json()["said"].as_str().unwrap_or_default().to_owned();
    let at = bed.path("all").canonicalize().unwrap().display().to_string();
    assert_eq!(said.lines().collect::<Vec<_>>(), [&*at, "./a.txt", "./new.txt", "./sub/b.txt"]);
}

#[test]
fn explain_says_what_cannot_be_recomputed_when_an_input_is_gone() {
    let bed = Bed::new();
    bed.write("reads.fq", "one\n");
    counting(&bed, "true");
    bed.run(&["run", "count.yaml", "-i", "reads=reads.fq"]).ends(0);
    fs::remove_file(bed.path("reads.fq")).unwrap();
    let said = bed.run(&["explain", "count.yaml", "-i", "reads=reads.fq"]).ends(0);
    assert!(
        said.stderr.contains("input `reads` is gone") && said.stderr.contains("recomputed: count"),
        "{}",
        said.all()
    );
    let data = bed.run(&["explain", "count.yaml", "-i", "reads=reads.fq", "--json"]).ends(0).json();
    assert_eq!(data["gone"][0]["cannot_be_recomputed"], serde_json::json!(["count"]), "{data}");
    assert_eq!(data["run"], 0, "{data}");
    // Without the file nothing runs, and a run that never existed is not explained.
    bed.run(&["run", "count.yaml", "-i", "reads=reads.fq"]).ends(2);
    bed.run(&["explain", "count.yaml", "-i", "reads=reads.fq", "--key", "other"]).ends(2);
    // A failed run that needs the file reports that too, and `fsck` does not call it damage.
    bed.write("reads.fq", "two\n");
    bed.write("fail", "");
    bed.run(&["run", "count.yaml", "-i", "reads=reads.fq"]).ends(1);
    fs::remove_file(bed.path("reads.fq")).unwrap();
    let fsck = bed.run(&["fsck"]).ends(0);
    assert!(fsck.stdout.contains("not damage: input file") && fsck.stdout.contains("is gone"), "{}", fsck.all());
    let retried = bed.run(&["retry", "count"]).ends(1);
    assert!(retried.stderr.contains("[OF0330]") && retried.stderr.contains("is gone"), "{}", retried.all());
}

#[test]
fn a_project_that_was_moved_goes_on_with_its_files_where_they_are_now() {
    let bed = Bed::new();
    bed.write("before/reads.fq", "one\n");
    counting(&bed, "true");
    bed.write("fail", "");
    bed.run(&["run", "count.yaml", "-i", "reads=before/reads.fq"]).ends(1);
    fs::rename(bed.path("before"), bed.path("after")).unwrap();
    fs::remove_file(bed.path("fail")).unwrap();
    let said = bed.run(&["run", "count.yaml", "-i", "reads=after/reads.fq"]).ends(0);
    assert!(said.json()["at"].as_str().is_some_and(|at| at.trim().ends_with("after/reads.fq")), "{}", said.all());
}

#[test]
fn store_inputs_copies_inputs_into_the_store() {
    for way in ["option", "flow", "setting"] {
        let bed = Bed::new();
        sparse(&bed, "reads.fq");
        let flow = counting(&bed, "true");
        bed.write("fail", "");
        let mut args = vec!["run", "count.yaml", "-i", "reads=reads.fq"];
        match way {
            "option" => args.push("--store-inputs"),
            "flow" => drop(bed.write("count.yaml", &flow.replace("inputs:", "store_inputs: true\ninputs:"))),
            _ => drop(bed.write("onceflow.toml", "store_inputs = true\n")),
        }
        bed.run(&args).ends(1);
        assert!(objects(&bed.path(".onceflow")) >= LARGE, "{way}");
        let du = bed.run(&["du", "--json"]).ends(0).json();
        assert_eq!(du["total"]["referenced_bytes"], 0, "{way}: {du}");
        fs::remove_file(bed.path("fail")).unwrap();
        // The store has a copy: the file itself is not needed any more.
        fs::remove_file(bed.path("reads.fq")).unwrap();
        bed.run(&["retry", "count"]).ends(0);
        assert_eq!(bed.read("results/n.txt").trim(), LARGE.to_string(), "{way}");
    }
}

#[test]
fn stores_of_several_machines_copy_inputs_unless_their_path_is_shared() {
    for team in stores().into_iter().filter(|team| team.is_server()) {
        let bed = &team.bed;
        bed.write("own/reads.fq", "own\n");
        bed.write("shared/reads.fq", "shared\n");
        counting(bed, "true");
        bed.write("fail", "");
        let shared = bed.path("shared").canonicalize().unwrap();
        bed.write("onceflow.toml", &format!("shared_paths = [\"{}\"]\n", shared.display()));
        for (place, by_reference) in [("own", 0), ("shared", 7)] {
            let input = format!("reads={place}/reads.fq");
            team.run(&["run", "count.yaml", "-i", &input, "--key", place]).ends(1);
            let du = team.run(&["du", place, "--json"]).ends(0).json();
            assert_eq!(du["runs"][0]["referenced_bytes"], by_reference, "{place}: {du}");
        }
    }
}

/// A run with a large and a small file as outputs.
fn giving(bed: &Bed, more: &str) {
    bed.write(
        "give.yaml",
        &format!(
            "flow: give\n{more}steps:\n  give:\n    run: truncate -s {LARGE} big.bin; echo small > small.txt\n    \
             out: {{ big: {{ file: big.bin }}, small: {{ file: small.txt }} }}\noutputs: {{ big: give.big, small: give.small }}\n"
        ),
    );
}

fn links(path: &Path) -> (u64, bool) {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).expect("a result");
    (metadata.nlink(), metadata.permissions().readonly())
}

#[test]
fn results_are_copied_linked_or_moved() {
    let bed = Bed::new();
    giving(&bed, "");
    let (big, small) = (bed.path("results/big.bin"), bed.path("results/small.txt"));
    bed.run(&["run", "give.yaml", "--key", "copied"]).ends(0);
    assert_eq!((links(&big), links(&small)), ((1, false), (1, false)));

    bed.run(&["run", "give.yaml", "--key", "linked", "--results-mode", "link", "--out", "linked"]).ends(0);
    assert_eq!((links(&bed.path("linked/big.bin")), links(&bed.path("linked/small.txt"))), ((2, true), (1, false)));
    let du = bed.run(&["du", "linked", "--json"]).ends(0).json();
    assert_eq!(du["runs"][0]["linked_bytes"], LARGE, "{du}");
    bed.run(&["fsck"]).ends(0);
    bed.run(&["run", "give.yaml", "--key", "never", "--results-mode", "symlink"]).ends(2);
}

#[test]
fn a_result_that_was_moved_is_the_users_own_and_the_store_refers_to_it() {
    let bed = Bed::new();
    giving(&bed, "results_mode: move\n");
    bed.run(&["run", "give.yaml"]).ends(0);
    bed.run(&["reclaim"]).ends(0);
    let big = bed.path("results/big.bin");
    assert_eq!((links(&big), fs::metadata(&big).unwrap().len()), ((1, false), LARGE));
    assert!(objects(&bed.path(".onceflow")) < LARGE / 10);
    let du = bed.run(&["du", "--json"]).ends(0).json();
    assert_eq!(du["total"]["referenced_bytes"], LARGE, "{du}");
    bed.run(&["fsck"]).ends(0);
    let again = bed.run(&["run", "give.yaml"]).ends(0);
    assert!(again.stderr.contains("nothing to do"), "{}", again.all());
    // Another directory of results is filled from the first.
    bed.run(&["run", "give.yaml", "--out", "other", "--results-mode", "copy"]).ends(0);
    assert_eq!(fs::metadata(bed.path("other/big.bin")).unwrap().len(), LARGE);
    // The store can hold the same content again.
    bed.run(&["run", "give.yaml", "--key", "again", "--results-mode", "copy"]).ends(0);
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn a_moved_result_that_the_user_changed_is_computed_again_and_never_given_out() {
    let bed = Bed::new();
    giving(&bed, "results_mode: move\n");
    bed.run(&["run", "give.yaml"]).ends(0);
    bed.write("results/big.bin", "mine now");
    bed.run(&["fsck"]).ends(0);
    // The first command may only find out that the file is gone.
    let said = bed.run(&["run", "give.yaml", "--out", "other"]);
    let again = bed.run(&["run", "give.yaml", "--out", "other"]).ends(0);
    let len = fs::metadata(bed.path("other/big.bin")).unwrap().len();
    assert_eq!(len, LARGE, "{}{}", said.all(), again.all());
    assert_eq!(bed.read("results/big.bin"), "mine now");
    bed.run(&["fsck"]).ends(0);
}

#[test]
fn an_input_that_is_a_result_is_delivered_from_its_path_and_never_moved() {
    let bed = Bed::new();
    sparse(&bed, "reads.fq");
    bed.write("pass.yaml", "flow: pass\ninputs: { reads: file }\noutputs: { same: inputs.reads }\n");
    for mode in ["copy", "link", "move"] {
        bed.run(&["run", "pass.yaml", "-i", "reads=reads.fq", "--out", mode, "--results-mode", mode]).ends(0);
        assert_eq!(links(&bed.path("reads.fq")), (1, false), "{mode}");
        assert_eq!((links(&bed.path(&format!("{mode}/reads.fq")))), (1, false), "{mode}");
    }
    assert!(objects(&bed.path(".onceflow")) < LARGE / 10);
    bed.write("reads.fq", "other");
    let pass = bed.run(&["export", "pass", "pass.run"]);
    assert!(pass.code != 0 && pass.stderr.contains("OF0330"), "{}", pass.all());
}

#[test]
fn an_export_carries_the_bytes_of_files_by_reference() {
    let bed = Bed::new();
    bed.write("reads.fq", &"reads\n".repeat(2000));
    bed.write("pass.yaml", "flow: pass\ninputs: { reads: file }\noutputs: { same: inputs.reads }\n");
    bed.run(&["run", "pass.yaml", "-i", "reads=reads.fq"]).ends(0);
    bed.run(&["export", "pass", "pass.run"]).ends(0);
    let other = Bed::new();
    fs::copy(bed.path("pass.run"), other.path("pass.run")).unwrap();
    fs::remove_file(bed.path("reads.fq")).unwrap();
    other.run(&["import", "pass.run"]).ends(0);
    let du = other.run(&["du", "--json"]).ends(0).json();
    assert_eq!((&du["total"]["referenced_bytes"], other.run(&["fsck"]).code), (&0.into(), 0), "{du}");
    assert!(objects(&other.path(".onceflow")) >= 12_000);
}

#[test]
fn a_fork_refers_to_the_files_of_the_run_it_begins_from() {
    let bed = Bed::new();
    sparse(&bed, "reads.fq");
    bed.write("n.txt", "n");
    let flow = copy_flow("two", "wc -c < ${{ inputs.text }}\ntest ! -e fail")
        .replace("{ text: file }", "{ text: file, reads: file }");
    let fail = bed.path("fail").display().to_string();
    let flow = flow.replace("! -e fail", &format!("! -e {fail} -a -s ${{{{ inputs.reads }}}}"));
    bed.write("two.yaml", &flow);
    bed.write("fail", "");
    bed.run(&["run", "two.yaml", "-i", "text=n.txt", "-i", "reads=reads.fq"]).ends(1);
    fs::remove_file(bed.path("fail")).unwrap();
    bed.write("m.txt", "m");
    bed.run(&["fork", "two", "--key", "other", "-i", "text=m.txt"]).ends(0);
    assert_eq!(bed.read("results/copy.txt"), "m");
    assert!(objects(&bed.path(".onceflow")) < LARGE / 10, "the fork has copied it");
}
