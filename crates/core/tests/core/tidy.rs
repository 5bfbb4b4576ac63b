//! Checks the repository's own rules: which crate may depend on which, how long a file may be, and which words it may
//! not contain.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The most lines of a file. A longer one mixes two ideas.
const FILE_LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

/// Returns all files below a directory with one of these endings, without cargo's build output.
fn files(below: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![below.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                todo.push(path);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Panics with all complaints at once, if there are any.
fn no_complaints(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Reads the table in ARCHITECTURE.md: each crate, and the crates it may depend on.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(&root().join("ARCHITECTURE.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `crates/"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let (name, may) = (cells[0].trim_end_matches('`'), cells[2]);
        (
            name.into(),
            may.split(',').map(|other| other.trim().into()).filter(|other: &String| !other.is_empty()).collect(),
        )
    })
    .collect()
}

/// Returns the name and the line of each dependency in a manifest (not those for tests only, nor those of one platform).
fn dependencies(manifest: &str) -> BTreeMap<&str, &str> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    let lines = section.lines().skip(1).filter(|line| line.starts_with(|first: char| first.is_ascii_alphabetic()));
    lines.filter_map(|line| Some((line.split([' ', '.', '=']).next()?, line))).collect()
}

/// Returns the crates of this workspace that a manifest names as dependencies.
fn depends_on(manifest: &str) -> BTreeSet<String> {
    dependencies(manifest).into_keys().filter_map(|name| name.strip_prefix("onceflow-")).map(String::from).collect()
}

#[test]
fn crates_depend_only_on_those_the_architecture_lets_them() {
    let allowed = allowed();
    let mut complaints = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        let path = entry.expect("a crate").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = read(&path.join("Cargo.toml"));
        match allowed.get(&name) {
            None => complaints.push(format!("crates/{name} is not in the table of ARCHITECTURE.md")),
            Some(may) => {
                let more = depends_on(&manifest);
                complaints.extend(more.difference(may).map(|other| format!("crates/{name} may not depend on {other}")));
            }
        }
        if !manifest.contains("[lints]\nworkspace = true") {
            complaints.push(format!("crates/{name} does not take the workspace's lints"));
        }
    }
    no_complaints(&complaints);
}

/// `bench/run` builds with `--locked`, and nothing else of `./test` looks at its workspace.
#[test]
fn lock_file_of_the_benchmarks_knows_every_dependency() {
    let lock = read(&root().join("bench/Cargo.lock"));
    let mut complaints = Vec::new();
    for package in lock.split("[[package]]").filter(|package| !package.contains("\nsource = ")) {
        let name = package.lines().find_map(|line| line.strip_prefix("name = \"onceflow"));
        let Some(name) = name.map(|rest| rest.trim_start_matches('-').trim_end_matches('"')) else { continue };
        let manifest = match name {
            "bench" => root().join("bench/Cargo.toml"),
            "" => root().join("crates/onceflow/Cargo.toml"),
            name => root().join("crates").join(name).join("Cargo.toml"),
        };
        // Of the optional ones the lock file knows those that the benchmarks switch on.
        let text = read(&manifest);
        let certain = dependencies(&text).into_iter().filter(|(_, line)| !line.contains("optional = true"));
        for (dependency, _) in certain {
            if ![format!("\"{dependency}\""), format!("\"{dependency} ")].iter().any(|entry| package.contains(entry)) {
                complaints.push(format!(
                    "{}: `{dependency}` is not in bench/Cargo.lock; run `cargo check` in bench/",
                    manifest.display()
                ));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn files_say_what_they_are_about_and_fit_the_head() {
    let mut complaints = Vec::new();
    for path in files(&root().join("crates"), &[".rs"]) {
        let text = read(&path);
        if !text.starts_with("//!") {
            complaints.push(format!("{} does not open by saying what it owns", path.display()));
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            complaints.push(format!("{} has {lines} lines; what second idea is in there?", path.display()));
        }
    }
    no_complaints(&complaints);
}

#[test]
fn nothing_unfinished_switched_off_or_timed_is_left_in_the_code() {
    // The words are assembled at run time, so that this file does not match itself.
    let unwanted = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let unwanted =
        unwanted.into_iter().chain([["#[ign", "ore"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()]);
    let unwanted: Vec<_> = unwanted.collect();
    let mut complaints = Vec::new();
    for path in files(&root().join("crates"), &[".rs"]) {
        for (line, text) in read(&path).lines().enumerate() {
            let found = unwanted.iter().filter(|word| text.contains(word.as_str()));
            complaints.extend(found.map(|word| format!("{}:{}: {word}", path.display(), line + 1)));
            let in_tests = path.components().any(|part| part.as_os_str() == "tests");
            if in_tests
                && text.contains(&["sle", "ep("].concat())
                && !text.contains("fn sleep")
                && !text.contains(".0.sleep")
            {
                complaints.push(format!("{}:{}: waits by the clock; wait for the event", path.display(), line + 1));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut complaints = Vec::new();
    for path in files(&root(), &[".md"]) {
        let here = path.parent().expect("a page is somewhere");
        let text = read(&path);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let target = link.split('#').next().unwrap_or_default();
            if !here.join(target).exists() {
                complaints.push(format!("{}: {link} leads nowhere", path.display()));
            }
        }
    }
    no_complaints(&complaints);
}

/// Returns the names of the types that a file exports from its crate.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (visibility, rest) = line.trim_start().split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        let is_public = visibility == "pub";
        let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
        (is_public && is_type).then(|| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())
    })
}

#[test]
fn a_public_type_name_stands_for_one_idea() {
    let page = read(&root().join("docs/glossary.md"));
    let (_, table) = page.split_once("## Names that stand in several places").expect("the table of shared names");
    let shared: BTreeSet<_> = table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        for path in files(&entry.expect("a crate").path().join("src"), &[".rs"]) {
            let at = path.strip_prefix(root()).expect("below the root").display().to_string();
            for name in public_types(&read(&path)) {
                places.entry(name.to_owned()).or_default().push(at.clone());
            }
        }
    }
    let mut complaints = Vec::new();
    for (name, places) in &places {
        match (places.len() > 1, shared.contains(name.as_str())) {
            (true, false) => complaints.push(format!("`{name}` stands for several ideas: {}", places.join(", "))),
            (false, true) => complaints.push(format!("`{name}` is defined once: take it out of docs/glossary.md")),
            _ => {}
        }
    }
    no_complaints(&complaints);
}

#[test]
fn flows_are_checked_only_where_they_are_loaded() {
    // A scope carries the flows that it calls in the parameters of its step: reading them is loading them.
    let carried = "crates/exec/src/action/scope/call.rs";
    let loaders = ["crates/spec/src/check.rs", "crates/onceflow/src/flow.rs", carried];
    let checks = ["CheckedFlow::check", "model::check(", "model::check_within(", "model::{Program, check"];
    let mut complaints = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        let directory = entry.expect("a crate").path();
        if directory.ends_with("core") {
            continue;
        }
        for path in files(&directory.join("src"), &[".rs"]) {
            let at = path.strip_prefix(root()).expect("below the root").display().to_string();
            let calls = |line: &&str| checks.iter().any(|check| line.contains(check)) && !line.contains("///");
            if let Some(line) = read(&path).lines().find(calls).filter(|_| !loaders.contains(&at.as_str())) {
                complaints.push(format!("{at} checks a flow; take a `CheckedFlow` instead: {}", line.trim()));
            }
        }
    }
    no_complaints(&complaints);
}

#[test]
fn doc_comments_and_test_names_have_a_subject() {
    let unclear = ["What ", "Whoever ", "Who ", "Somebody ", "Nobody "];
    let unclear_names = unclear.map(|word| format!("fn {}_", word.trim().to_lowercase()));
    let mut complaints = Vec::new();
    for path in files(&root().join("crates"), &[".rs"]) {
        let (mut is_in_comment, mut is_test) = (false, false);
        for (line, text) in read(&path).lines().map(str::trim_start).enumerate() {
            is_test |= text.starts_with("#[test]") || text.starts_with("#[tokio::test");
            if let Some(name) = text.strip_prefix("async ").or(Some(text)).filter(|text| text.starts_with("fn ")) {
                if is_test && unclear_names.iter().any(|unclear| name.starts_with(unclear)) {
                    complaints.push(format!("{}:{}: name the thing: {text}", path.display(), line + 1));
                }
                is_test = false;
            }
            let comment = text.strip_prefix("/// ").or_else(|| text.strip_prefix("//! "));
            // A further line goes on with its sentence.
            let opens = !is_in_comment && comment.is_some_and(|said| unclear.iter().any(|word| said.starts_with(word)));
            if opens {
                complaints.push(format!("{}:{}: name the thing: {text}", path.display(), line + 1));
            }
            is_in_comment = text.starts_with("//");
        }
    }
    no_complaints(&complaints);
}

/// Phrases without a subject, and what to write in their place. In what users and readers see: sources, book, help.
const VAGUE: [(&str, &str); 9] = [
    ("became of", "the outcome of"),
    ("becomes of", "the outcome of"),
    ("become of", "the outcome of"),
    ("somebody", "the worker, the operator, the user"),
    ("whoever", "the worker that, the process that"),
    ("anybody", "a worker, a caller"),
    ("who is gone", "a dead worker"),
    ("nobody", "no worker, no caller, no process"),
    ("everybody", "all workers, all users"),
];

#[test]
fn sentences_name_their_subject() {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    pages.extend(files(&root().join("docs/book/src"), &[".md"]));
    pages.extend(files(&root().join("docs/errors"), &[".md"]));
    for below in ["crates", "sim/src", "soak/src"] {
        let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
        pages.extend(files(&root().join(below), &[".rs"]).into_iter().filter(|path| !is_test(path)));
    }
    let mut complaints = Vec::new();
    for path in pages {
        for (line, text) in read(&path).lines().map(str::to_lowercase).enumerate() {
            for (vague, better) in VAGUE {
                if text.contains(vague) {
                    let at = format!("{}:{}", path.display(), line + 1);
                    complaints.push(format!("{at}: `{vague}` has no subject: say `{better}` (language.md)"));
                }
            }
        }
    }
    no_complaints(&complaints);
}
