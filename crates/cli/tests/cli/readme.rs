//! The five minutes of the README: every command there is run, and does what the README says.

use crate::support;

use std::path::Path;
use support::{
    Bed,
    snippets::{Block, typed},
};

/// Returns the blocks of this language in the part of the README that a newcomer follows.
fn blocks(language: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let part = readme.split("## ").find(|part| part.starts_with("Five minutes")).expect("five minutes");
    Block::all(part).into_iter().filter(|block| block.language() == language).map(|block| block.text).collect()
}

#[test]
fn the_five_minutes_of_the_readme_are_as_they_are_told() {
    let bed = Bed::new();
    let [install, kill, end] = &blocks("sh")[..] else { panic!("three blocks of commands") };
    let start: String =
        install.lines().filter(|line| !line.starts_with("cargo install")).collect::<Vec<_>>().join("\n");
    let flow = typed(&bed, &start).ends(0).stdout;
    assert_eq!([flow], blocks("yaml")[..], "the flow is the one that is shown");
    let [told] = &blocks("console")[..] else { panic!("one block of commands and answers") };
    let commands: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let [first, again, change, explain, rerun] = commands[..] else { panic!("{commands:?}") };
    let inside = |command: &str| typed(&bed, &format!("cd rain && {command}")).ends(0);
    assert!(first.contains(inside(first).stdout.trim_end()), "what it prints is in its remark");
    assert!(inside(again).stderr.contains("nothing to do"));
    inside(change);
    let shown: String = told.lines().filter(|line| !line.starts_with("$ ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(inside(explain).stdout, shown);
    let said = inside(rerun);
    assert!(said.stderr.contains("done: 2 steps ran") && said.stderr.contains("2 reused"), "{}", said.stderr);
    assert!(
        bed.read("rain/results/rain.txt").starts_with("far east: 12 mm\n")
            || bed.read("rain/results/rain.txt").contains("north: 15 mm")
    );
    let said = typed(&bed, &format!("cd rain\n{kill}"));
    assert!(said.stdout.contains("interrupted"), "{}\n{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("done: ") && said.code == 0, "{}", said.stderr);
    let said = typed(&bed, &format!("cd rain\n{end}")).ends(0);
    assert!(said.stdout.starts_with("0 problems, 0 leaks"), "{}", said.stdout);
}
