//! Checks the pages of errors: every code has one, and its wrong examples fail with that code. The flows of the book
//! are checked by the tests of the command line.

use onceflow_exec::expr::{FUNCTIONS, MACROS, OPERATORS};
use onceflow_spec::{LoadOptions, codes::CODES, is_stream, load, load_stream};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns the fenced blocks of a text, each with its info string.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((info.to_owned(), format!("{}\n", block.join("\n"))));
        }
    }
    found
}

/// Returns the codes of the kernel's own check.
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
fn the_book_lists_every_name_that_is_reserved() {
    let book = fs::read_to_string(docs().join("book/src/flow-file.md")).unwrap();
    let listed = |begin: &str| -> Vec<String> {
        let line = book.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no line `{begin}`"));
        line[begin.len()..].split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let names = |is_member: bool| -> Vec<String> {
        let all = onceflow_spec::reserved_names().into_iter();
        all.filter(|(_, of)| *of == is_member).map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(listed("No name at all: "), names(true));
    assert_eq!(listed("No step or variable: "), names(false));
}

#[test]
fn the_book_and_the_page_of_the_error_list_every_function_and_operator() {
    let block = |path: &str, info: &str| -> String {
        let text = fs::read_to_string(docs().join(path)).unwrap();
        let found = blocks(&text).into_iter().find(|(found, _)| found == info);
        found.unwrap_or_else(|| panic!("{path} has no block `{info}`")).1
    };
    let book = "book/src/flow-file.md";
    assert_eq!(block(book, "text functions"), FUNCTIONS);
    assert_eq!(block(book, "text macros"), MACROS);
    assert_eq!(block(book, "text operators"), OPERATORS);
    assert_eq!(block("errors/OF0141.md", "text functions"), format!("{FUNCTIONS}{MACROS}"));
}

#[test]
fn wrong_examples_of_error_pages_fail_with_their_code_and_right_ones_load() {
    let codes = CODES.iter().map(|(code, _)| (*code).to_owned()).filter(|code| code.as_str() < "OF0200");
    let mut shown = 0;
    for code in codes.chain(kernel_codes()) {
        let text = fs::read_to_string(docs().join(format!("errors/{code}.md"))).unwrap();
        for (info, block) in blocks(&text) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("flow.yaml");
            fs::write(&path, &block).unwrap();
            let found = match is_stream(&path) {
                true => load_stream(&path).map(|_| ()),
                false => load(&path, &LoadOptions::default()).map(|_| ()),
            };
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
