//! Stores that earlier versions wrote are opened, read and resumed. `fixtures/make` makes the one of this version.

use crate::support;

use std::{path::PathBuf, process::Command};
use support::{Bed, Said};

fn fixtures() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries = std::fs::read_dir(directory).expect("fixtures").flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "tgz")).collect();
    found.sort();
    found
}

/// A fixture, unpacked.
struct Old {
    bed: Bed,
    version: String,
}

impl Old {
    fn open(fixture: &PathBuf) -> Self {
        let bed = Bed::new();
        let unpacked = Command::new("tar").arg("-xzf").arg(fixture).arg("-C").arg(bed.dir.path()).status();
        assert!(unpacked.is_ok_and(|status| status.success()), "{}", fixture.display());
        let version = fixture.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Old { bed, version }
    }

    fn run(&self, args: &[&str]) -> Said {
        let home = self.bed.path("fixture");
        let mut command = self.bed.command(args);
        self.bed.said(command.current_dir(&home).env("HOME", &home).output().expect("the command starts"))
    }

    /// Runs the flow again, under a key.
    fn again(&self, key: &str) -> serde_json::Value {
        let args = ["run", "flow.yaml", "-i", r#"words=["one","three"]"#, "-i", "text=text.txt", "--json"];
        let said = self.run(&[&args[..], &["--history", "5000w", "--out", key, "--key", key]].concat());
        assert_eq!(said.code, 0, "{}: {}", self.version, said.all());
        said.json()
    }

    fn ran(&self) -> String {
        std::fs::read_to_string(self.bed.path("fixture/ran")).unwrap_or_default()
    }
}

#[test]
fn this_version_has_a_fixture() {
    let (major, rest) = env!("CARGO_PKG_VERSION").split_once('.').expect("a version");
    let minor = rest.split('.').next().unwrap_or_default();
    let wanted = format!("store-{major}.{minor}.tgz");
    let is_there = fixtures().iter().any(|path| path.ends_with(&wanted));
    assert!(is_there, "crates/cli/tests/fixtures/{wanted} is missing: crates/cli/tests/fixtures/make BINARY makes it");
}

#[test]
fn a_store_of_every_version_is_whole_and_tells_its_runs() {
    for fixture in fixtures() {
        let old = Old::open(&fixture);
        old.run(&["fsck"]).ends(0);
        let all = old.run(&["ls", "--json"]).ends(0).json();
        let mut told: Vec<_> = all
            .as_array()
            .expect("runs")
            .iter()
            .map(|run| {
                format!("{} {}", run["key"].as_str().unwrap_or_default(), run["status"].as_str().unwrap_or_default())
            })
            .collect();
        told.sort();
        assert_eq!(told, ["failed failed", "finished done", "interrupted interrupted"], "{}", old.version);
    }
}

#[test]
fn a_finished_run_of_every_version_gives_its_results_and_runs_nothing() {
    for fixture in fixtures() {
        let old = Old::open(&fixture);
        std::fs::remove_dir_all(old.bed.path("fixture/finished")).expect("the results");
        let again = old.again("finished");
        assert_eq!((&again["ran"], &again["outputs"]["sum"]), (&0.into(), &300_002.into()), "{}", old.version);
        assert_eq!(old.bed.read("fixture/finished/copy.txt").len(), 300_000);
        assert_eq!(old.ran(), "", "{}: nothing runs again", old.version);
    }
}

#[test]
fn an_interrupted_and_a_failed_run_of_every_version_go_on_where_they_stopped() {
    for fixture in fixtures() {
        for key in ["interrupted", "failed"] {
            let old = Old::open(&fixture);
            old.bed.write("fixture/go", "");
            let again = old.again(key);
            assert_eq!(again["outputs"]["letters"], serde_json::json!([3, 5]), "{} {key}", old.version);
            assert_eq!(again["outputs"]["sum"], 300_002, "{} {key}", old.version);
            let ran = old.ran();
            assert!(!ran.contains("first"), "{} {key}: what was done is not done again: {ran}", old.version);
            assert_eq!(ran.matches("gate").count(), 1, "{} {key}: {ran}", old.version);
            old.run(&["fsck"]).ends(0);
        }
    }
}
