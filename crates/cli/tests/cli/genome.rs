//! The genome flow of the README with the real tools, on generated reads: killed again and again and resumed, then run
//! again with one sample changed, and with a parameter changed. The steps that run are those that `explain` predicted.

use crate::chaos;

use chaos::{Told, leaves_to_run, run_once, run_until_done};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The number of times that the process is killed before it may finish.
const KILLS: usize = 12;

/// Samples: one has a name that breaks careless quoting in a shell.
const SAMPLES: [&str; 4] = ["a.fq", "b it's \"quoted\" $(touch never).fq", "c.fq", "d.fq"];

struct Laboratory {
    directory: tempfile::TempDir,
}

impl Laboratory {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let lab = Laboratory { directory };
        fs::create_dir(lab.path("reads")).expect("a directory for the reads");
        fs::write(lab.path("ref.fa"), reference(20_000)).expect("the reference");
        for (seed, sample) in (1..).zip(SAMPLES) {
            lab.sequence(sample, seed);
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
        fs::copy(root.join("examples/variants/flow.yaml"), lab.path("flow.yaml")).expect("the example");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Generates the reads of a sample.
    fn sequence(&self, sample: &str, seed: u32) {
        let mut wgsim = Command::new("wgsim");
        wgsim.args(["-N", "600", "-1", "100", "-2", "100", "-r", "0.01", "-S", &seed.to_string(), "ref.fa"]);
        wgsim.arg(Path::new("reads").join(sample)).arg("/dev/null").current_dir(self.directory.path());
        let made = wgsim.output().expect("wgsim is installed by ./test");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn arguments(&self, ploidy: u32) -> Vec<String> {
        let ploidy = format!("ploidy={ploidy}");
        let words = ["flow.yaml", "-i", "reference=ref.fa", "-i", "samples=reads/*.fq", "-i", &ploidy, "--keep", "1d"];
        words.map(String::from).to_vec()
    }

    fn explain(&self, ploidy: u32) -> BTreeSet<String> {
        let arguments = [vec!["explain".into(), "--json".into()], self.arguments(ploidy)].concat();
        leaves_to_run(&chaos::json(self.directory.path(), &arguments))
    }

    fn run(&self, ploidy: u32) -> Told {
        run_once(self.directory.path(), &self.arguments(ploidy))
    }

    fn variants(&self) -> String {
        fs::read_to_string(self.path("results/calls.vcf")).expect("the result")
    }
}

/// Returns bases generated from a fixed seed.
fn reference(len: usize) -> String {
    let mut random = chaos::Random(11);
    let bases: String = (0..len).map(|_| ['A', 'C', 'G', 'T'][random.below(4)]).collect();
    format!(">chr1\n{bases}\n")
}

fn set(steps: &[&str]) -> BTreeSet<String> {
    steps.iter().map(|step| (*step).to_owned()).collect()
}

#[test]
fn the_genome_flow_is_killed_resumed_changed_and_does_no_more_than_explain_said() {
    let lab = Laboratory::new();
    let all = lab.explain(2);
    let told = run_until_done(lab.directory.path(), &lab.arguments(2), KILLS, 7);
    let is_of = |done: &String| all.iter().any(|step| done.starts_with(step.as_str()));
    assert!(told.ran.iter().all(is_of), "{all:?} {told:?}");
    // A commit in the moment of a kill was not printed; that none happened twice is checked as events are printed.
    assert_eq!(told.ran.len(), SAMPLES.len() + 2, "every step ran: {:?}", told.ran);
    assert_eq!(lab.explain(2), BTreeSet::new(), "every step took effect");
    let calls = lab.variants().lines().filter(|line| !line.starts_with('#')).count();
    assert!(calls > 20, "only {calls} variants were called");

    let again = lab.run(2);
    assert_eq!(again.ran, BTreeSet::new(), "nothing is redone");
    assert_eq!(again.output, told.output);

    // One sample is sequenced again: only its alignment runs, and the steps that read it.
    lab.sequence(SAMPLES[2], 99);
    let predicted = lab.explain(2);
    let told = lab.run(2);
    assert_eq!(told.ran, predicted);
    assert_eq!(told.ran, set(&["align[2]", "variants"]));

    let before = lab.variants();
    let predicted = lab.explain(1);
    let told = lab.run(1);
    assert_eq!(told.ran, predicted);
    assert_eq!(told.ran, set(&["variants"]));
    assert_ne!(lab.variants(), before, "another ploidy, other calls");

    assert!(!lab.path("never").exists(), "a file's name was executed");
    chaos::nothing_is_left(lab.directory.path());
    let shown: Value = chaos::json(lab.directory.path(), &["ls".into(), "--json".into()]);
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown}");
}
