//! Inputs of a step from the store are ordinary files, through which the step cannot harm other steps.

use crate::support::Bed;
use std::{
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
};

/// A flow with two large values and a small one; and a step that looks at its inputs.
fn flow(look: &str, beside: &str) -> String {
    format!(
        "
flow: given
steps:
  make:
    run: seq 1 300000 > large; seq 1 5000 > middle; echo small > small
    out: {{ large: {{ file: large }}, middle: {{ file: middle }}, small: {{ file: small }} }}
  look:
    run: |
      f=\"${{{{ make.large }}}} ${{{{ make.middle }}}} ${{{{ make.small }}}}\"
      {look}
    out: {{ t: {{ file: seen.txt }} }}
{beside}outputs: {{ t: look.t }}
"
    )
}

#[test]
fn inputs_are_ordinary_files_whatever_their_size() {
    let bed = Bed::new();
    let look = "(find in -type f | sort; stat -c '%F %a' $f; tar cf - in | tar tvf - | grep -c ^-r) > seen.txt";
    bed.write("given.yaml", &flow(look, ""));
    bed.run(&["run", "given.yaml"]).ends(0);
    let files = "in/large\nin/middle\nin/small\n";
    let looks = "regular file 444\n".repeat(3);
    assert_eq!(bed.read("results/seen.txt"), format!("{files}{looks}3\n"));
}

#[test]
fn a_step_that_writes_to_its_inputs_harms_neither_the_store_nor_its_siblings() {
    let bed = Bed::new();
    bed.write("canary", "untouched");
    let beside = "  spoil:
    run: |
      for f in ${{ make.large }} ${{ make.middle }} ${{ make.small }}; do chmod u+w $f; echo spoilt >> $f; done
";
    bed.write("given.yaml", &flow("sha256sum in/* > seen.txt", beside));
    let said = bed.run(&["run", "given.yaml"]).ends(1);
    assert!(said.stderr.contains("OF0309") && said.stderr.contains("spoil"), "{}", said.all());
    assert!(!said.stderr.contains("failed  look") && !said.stderr.contains("store is damaged"), "{}", said.all());
    // With the culprit fixed, the outputs of the other steps are intact.
    bed.write("given.yaml", &flow("sha256sum in/* > seen.txt", ""));
    bed.run(&["run", "given.yaml"]).ends(0);
    let sums = bed.read("results/seen.txt");
    let expected = std::process::Command::new("sh")
        .args([
            "-c",
            "mkdir in; seq 1 300000 > in/large; seq 1 5000 > in/middle; echo small > in/small; sha256sum in/*",
        ])
        .current_dir(bed.dir.path())
        .output()
        .expect("sh");
    assert_eq!(sums, String::from_utf8_lossy(&expected.stdout));
    assert_eq!(bed.run(&["fsck", "--deep", "--json"]).ends(0).json()["clean"], true);
    assert_eq!(bed.read("canary"), "untouched");
}

#[test]
fn steps_of_an_ordinary_user_get_links_to_objects_and_harm_nothing_through_them() {
    const NOBODY: u32 = 65_534;
    let bed = Bed::new();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        std::os::unix::fs::chown(bed.dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let run = |name: &str| {
        let mut command = bed.command(&["run", name]);
        command.env("HOME", bed.dir.path()).env("TMPDIR", bed.dir.path());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        bed.said(command.output().unwrap())
    };
    let spoil = "  spoil:
    run: |
      chmod u+w ${{ make.large }}; echo spoilt >> ${{ make.large }}
";
    bed.write("given.yaml", &flow("stat -c %h in/large > seen.txt", spoil));
    let said = run("given.yaml").ends(1);
    assert!(said.stderr.contains("OF0309") && said.stderr.contains("spoil"), "{}", said.all());
    // With the culprit gone, the spoilt object is computed again.
    bed.write("given.yaml", &flow("stat -c %h in/large > seen.txt; tail -n 1 in/large >> seen.txt", ""));
    run("given.yaml").ends(0);
    let clone = std::process::Command::new("cp")
        .args(["--reflink=always", "given.yaml", "clone"])
        .current_dir(bed.dir.path())
        .output();
    let links = if clone.unwrap().status.success() { 1 } else { 2 };
    assert_eq!(bed.read("results/seen.txt"), format!("{links}\n300000\n"));
}
