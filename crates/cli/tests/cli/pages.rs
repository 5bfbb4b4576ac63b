//! Every error code of any crate has a page, and every page has a code that is used.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

fn sources(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the quoted words like OF0012 in a text: codes, not examples in comments.
fn codes(text: &str) -> BTreeSet<String> {
    let quoted = text.split("\"OF").skip(1).filter_map(|rest| rest.get(..5));
    quoted.filter(|rest| rest.ends_with('"')).map(|rest| format!("OF{}", &rest[..4])).collect()
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates").flatten() {
        sources(&entry.path().join("src"), &mut files);
    }
    let used: BTreeSet<_> = files.iter().flat_map(|path| codes(&fs::read_to_string(path).expect("a file"))).collect();
    let pages = fs::read_dir(root().join("docs/errors")).expect("docs/errors").flatten();
    let pages: BTreeSet<_> = pages
        .filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name.starts_with("OF"))
        .collect();
    let lacking: Vec<_> = used.difference(&pages).collect();
    let idle: Vec<_> = pages.difference(&used).collect();
    assert!(lacking.is_empty() && idle.is_empty(), "codes without a page: {lacking:?}\npages without a code: {idle:?}");
}

#[test]
fn a_page_begins_with_its_code_and_title() {
    for entry in fs::read_dir(root().join("docs/errors")).expect("docs/errors").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        if let Some(code) = name.strip_suffix(".md").filter(|name| name.starts_with("OF")) {
            let text = fs::read_to_string(entry.path()).expect("a page");
            assert!(text.starts_with(&format!("# {code}: ")), "{name} begins with {:?}", text.lines().next());
        }
    }
}
