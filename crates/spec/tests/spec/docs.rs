//! What the documents say is true: every flow in the reference loads, every code has a page, and what a page calls wrong
//! is wrong in that way.

use onceflow_spec::{Options, codes::CODES, load};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The fenced blocks of a text: what stands behind the fence, the line before it, and the block.
fn blocks(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((info.to_owned(), before.to_owned(), format!("{}\n", block.join("\n"))));
        }
        before = line;
    }
    found
}

#[test]
fn every_flow_in_the_reference_loads() {
    let text = fs::read_to_string(docs().join("book/src/flow-file.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut loaded = 0;
    for (at, (info, before, block)) in blocks(&text).iter().enumerate() {
        assert_eq!(info, "yaml");
        let name = before.strip_prefix("<!-- flow-file: ").and_then(|rest| rest.strip_suffix(" -->"));
        let path = dir.path().join(name.map_or(format!("{at}.yaml"), str::to_owned));
        fs::write(&path, block).unwrap();
        if let Err(problems) = load(&path, &Options::default()) {
            panic!("{problems}\n\n{block}");
        }
        loaded += 1;
    }
    assert!(loaded >= 7, "{loaded}");
}

/// The codes of the kernel's own check.
fn kernel_codes() -> impl Iterator<Item = String> {
    (10..=40).map(|number| format!("OF{number:04}"))
}

#[test]
fn every_code_has_a_page_with_its_title() {
    let page = |code: &str| fs::read_to_string(docs().join(format!("errors/{code}.md"))).unwrap_or_default();
    for (code, title) in CODES {
        assert!(page(code).starts_with(&format!("# {code}: {title}\n\n")), "docs/errors/{code}.md");
    }
    for code in kernel_codes() {
        assert!(page(&code).starts_with(&format!("# {code}: ")), "docs/errors/{code}.md");
    }
}

#[test]
fn what_a_page_calls_wrong_is_wrong_in_that_way_and_what_it_calls_right_loads() {
    let codes = CODES.iter().map(|(code, _)| (*code).to_owned()).filter(|code| code.as_str() < "OF0200");
    let mut shown = 0;
    for code in codes.chain(kernel_codes()) {
        let text = fs::read_to_string(docs().join(format!("errors/{code}.md"))).unwrap();
        for (info, _, block) in blocks(&text) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("flow.yaml");
            fs::write(&path, &block).unwrap();
            let found = load(&path, &Options::default());
            match info.as_str() {
                "yaml wrong" => {
                    let problems = found.expect_err(&block).0;
                    assert!(problems.iter().any(|problem| problem.code == code), "{code}: {problems:?}\n{block}");
                    shown += 1;
                }
                "yaml right" => assert!(found.is_ok(), "{code}: {}\n{block}", found.unwrap_err()),
                _ => {}
            }
        }
    }
    assert!(shown >= 40, "{shown}");
}
