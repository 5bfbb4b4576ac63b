//! Loading a file neither panics nor hangs, tried on valid flows with parts changed, dropped, doubled, swapped.

use onceflow_spec::{GivenInputs, LoadOptions, load};
use proptest::prelude::*;
use std::{fs, path::Path};

fn seeds() -> Vec<String> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut names: Vec<_> = fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let flows = names.iter().map(|path| path.join("flow.yaml")).filter(|flow| flow.exists());
    flows.map(|flow| fs::read_to_string(flow).unwrap()).collect()
}

/// Pieces of text with a meaning in flow files.
const PIECES: &[&str] = &[
    "${{",
    "}}",
    "'",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "\n",
    "  ",
    "- ",
    "&a ",
    "*a",
    "inputs.",
    "out.",
    "é",
    "\t",
    "#",
    "each: x in ",
    "when: ",
    "loop: { max: 2 }",
    "steps:",
    "|",
    ">",
    "null",
    "-1",
    "1e309",
    "9223372036854775808",
    "list<",
    ">",
    "?",
    "zip(",
    ")",
    "\u{feff}",
    "\0",
    "%YAML 9.9\n",
    "---",
    "...",
    "!!int ",
    "\\",
    "${{ inputs.samples[0].r1 }}",
];

fn mutate(text: &str, edits: &[(usize, usize, usize, usize)]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (what, at, len, piece) in edits {
        let at = at % (letters.len() + 1);
        let to = (at + len % 40).min(letters.len());
        match what % 5 {
            0 => drop(letters.drain(at..to)),
            1 => drop(letters.splice(at..at, PIECES[piece % PIECES.len()].chars())),
            2 => {
                let part = letters[at..to].to_vec();
                drop(letters.splice(at..at, part));
            }
            3 => drop(letters.splice(at..to, PIECES[piece % PIECES.len()].chars())),
            _ => letters[at..to].reverse(),
        }
    }
    letters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loading_what_was_a_flow_never_panics(
        seed in 0..5_usize,
        edits in prop::collection::vec((0..5_usize, 0..4000_usize, 0..40_usize, 0..64_usize), 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flow.yaml");
        fs::write(&path, mutate(&seeds()[seed], &edits)).unwrap();
        match load(&path, &LoadOptions::default()) {
            Ok(flow) => {
                let words = flow.inputs.iter().map(|input| (input.name.clone(), String::from("x"))).collect();
                let _ = flow.bind(&GivenInputs { words, file: Some(path) });
            }
            Err(problems) => {
                prop_assert!(!problems.0.is_empty());
                for problem in &problems.0 {
                    prop_assert!(onceflow_spec::codes::CODES.iter().any(|(code, _)| *code == problem.code)
                        || problem.code < "OF0100", "{} is not listed", problem.code);
                }
            }
        }
    }

    #[test]
    fn loading_any_text_never_panics(text in "[ -~\\n]{0,200}") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flow.yaml");
        fs::write(&path, text).unwrap();
        let _ = load(&path, &LoadOptions::default());
    }
}
