//! Flow files. Whatever one holds, loading it ends, says all that is wrong with codes that are listed and places that are
//! there, and what loads is a flow that the kernel takes, too.

use super::Target;
use onceflow_core::model;
use onceflow_spec::{LoadOptions, LoadedFlow, Problems, SourceLocation, codes::CODES, load};
use std::{cell::OnceCell, collections::BTreeSet, fs, path::Path};
use tempfile::TempDir;

pub(super) const TARGET: Target = Target { name: "flow", run, seeds: examples, words: WORDS };

const WORDS: &[&[u8]] = &[
    b"${{ ",
    b" }}",
    b"${{",
    b"'",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b": ",
    b"\n",
    b"  ",
    b"\n  - ",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"inputs.",
    b"inputs:\n",
    b"outputs: ",
    b"out: ",
    b"out.",
    b"steps:\n",
    b"each: x in ",
    b"when: ",
    b"else: ",
    b"loop: { max: 2 }",
    b"until: ",
    b"run: |\n",
    b"script: ",
    b"http: ",
    b"expr: ",
    b"flow: other.yaml\n",
    b"flow: flow.yaml\n",
    b"flow: /dev/zero\n",
    b"in: ",
    b"undo: ",
    b"after: ",
    b"retry: ",
    b"timeout: 5s",
    b"effect: pure",
    b"secrets: ",
    b"keep: 1h",
    b"list<",
    b"file",
    b"enum<a, b>",
    b">",
    b"?",
    b"zip(",
    b")",
    b"\xef\xbb\xbf",
    b"\0",
    b"\r\n",
    b"%YAML 9.9\n",
    b"---\n",
    b"...\n",
    b"!!int ",
    b"\\",
    b"\t",
    b"#",
    b"|",
    b"null",
    b"-1",
    b"1e309",
    b"9223372036854775808",
    b"\xc3\xa9",
    b"\xff",
    b"\xe2\x80\xa8",
    b"\xf0\x9f\x90\x98",
    b"\"\\u0000\"",
    b"\"\\ud800\"",
];

/// A flow that others can call.
const OTHER: &str = "flow: other\ninputs: { kind: text }\nsteps:\n  say: { run: \"echo ${{ inputs.kind }}\", out: { said: text } }\noutputs: { said: say.said }\n";

thread_local! {
    static DIRECTORY: OnceCell<TempDir> = const { OnceCell::new() };
}

fn run(input: &[u8]) -> String {
    DIRECTORY.with(|directory| {
        let directory = directory.get_or_init(|| {
            let directory = tempfile::tempdir().expect("a place for a file");
            fs::write(directory.path().join("other.yaml"), OTHER).expect("a place for a file");
            directory
        });
        let path = directory.path().join("flow.yaml");
        fs::write(&path, input).expect("a place for a file");
        check(&path, input)
    })
}

fn check(path: &Path, input: &[u8]) -> String {
    match load(path, &LoadOptions::default()) {
        Ok(flow) => {
            loaded(&flow, path);
            format!("ok {} {}", flow.checked.library().flows.len().min(9), flow.inputs.len().min(9))
        }
        Err(problems) => {
            let again = load(path, &LoadOptions::default()).expect_err("it was wrong a moment ago");
            assert_eq!(problems, again, "the same file is wrong in another way");
            refused(&problems, path, input)
        }
    }
}

/// A flow that was loaded is one for the kernel, as a whole and for each of its outputs, and is remembered as it is.
fn loaded(flow: &LoadedFlow, path: &Path) {
    let outputs: Vec<_> = flow.outputs.iter().map(|port| vec![port.name.clone()]).collect();
    for requested in std::iter::once(None).chain(outputs.iter().map(|one| Some(&one[..]))) {
        if let Err(errors) = model::check(flow.checked.library(), flow.name(), requested) {
            panic!("it loads, and the kernel refuses {requested:?}: {errors:?}");
        }
    }
    let bytes = flow.to_bytes();
    let remembered = LoadedFlow::remembered(&bytes).expect("nothing has changed, and it is forgotten");
    assert_eq!(format!("{remembered:?}"), format!("{flow:?}"), "it is remembered otherwise");
    assert_eq!(remembered.to_bytes(), bytes, "it is remembered otherwise");
    let again = load(path, &LoadOptions::default()).expect("it loaded a moment ago");
    assert_eq!(again.to_bytes(), bytes, "the same file is another flow");
}

/// Answers the codes, which is how an input came out.
fn refused(problems: &Problems, path: &Path, input: &[u8]) -> String {
    assert!(!problems.0.is_empty(), "refused without a reason");
    let text = String::from_utf8(input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input).to_vec());
    let mut codes = BTreeSet::new();
    for problem in &problems.0 {
        let is_listed = problem.code < "OF0100" || CODES.iter().any(|(code, _)| *code == problem.code);
        assert!(is_listed, "{} is not listed", problem.code);
        assert!(problem.to_string().contains(problem.code) && !problem.message.is_empty(), "{problem}");
        match (&problem.place, &text) {
            (Some(place), Ok(text)) if Path::new(&place.file) == path => inside(place, text, problem.code),
            (Some(place), _) if place.file.ends_with("other.yaml") => inside(place, OTHER, problem.code),
            (Some(place), _) => {
                panic!("{}: its place is in {}, which is not a file of the flow", problem.code, place.file)
            }
            (None, _) => assert_eq!(problem.code, "OF0102", "it has no place: {problem}"),
        }
        codes.insert(problem.code);
    }
    codes.into_iter().collect::<Vec<_>>().join(" ")
}

fn inside(place: &SourceLocation, text: &str, code: &str) {
    let line = text.split('\n').nth(place.line as usize - 1);
    let Some(line) = line else { panic!("{code}: there is no line {}", place.line) };
    let line = line.trim_end_matches('\r');
    let letters = line.chars().count() as u32;
    // Behind the end of a line something is missing, not wrong.
    assert!((1..=letters + 2).contains(&place.column), "{code}: {line:?} has no column {}", place.column);
    assert!(place.len >= 1 && place.column + place.len <= (letters + 3).max(place.column + 1), "{code}: {place:?}");
    assert!(line.starts_with(&place.source_line), "{code}: {:?} is shown for {line:?}", place.source_line);
}

/// The flows people are shown.
fn examples() -> Vec<Vec<u8>> {
    let home = crate::corpus::home().join("../examples");
    let mut found: Vec<_> =
        fs::read_dir(home).expect("examples/").map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    let flows = found.iter().map(|path| path.join("flow.yaml")).filter(|flow| flow.exists());
    flows.map(|flow| fs::read(flow).expect("an example")).collect()
}
