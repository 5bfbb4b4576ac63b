//! The book is true: the commands on its pages are run, in order, in an empty home, and their output is the output that
//! the pages show. A block that is not run says why. `UPDATE_EXPECT=1` brings pages up to date.

use crate::support;

use expect_test::expect;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};
use support::snippets::{Block, Reader};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

fn book() -> PathBuf {
    root().join("docs/book/src")
}

fn page(name: &str) -> String {
    fs::read_to_string(book().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// Compares a page with the text it should have, or rewrites it.
fn is_up_to_date(name: &str, told: &str, wanted: &str, wrong: &str) {
    if told == wanted {
        return;
    }
    assert!(updates(), "docs/book/src/{name} is not up to date (UPDATE_EXPECT=1 makes it so)\n{wrong}");
    fs::write(book().join(name), wanted).expect("a page");
}

/// Defines a test for each page with many commands, so that they run in parallel.
macro_rules! pages {
    ($($test:ident => $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                follow($page);
            }
        )*
    };
}

pages! {
    the_introduction_is_true => "introduction.md",
    the_tutorial_is_true => "tutorial.md",
    the_flow_file_is_true => "flow-file.md",
    the_reference_is_true => "cli-reference.md",
    the_command_is_true => "cli.md",
    the_rust_guide_is_true => "rust.md",
    the_guarantees_are_true => "guarantees.md",
    how_resume_decides_is_true => "resume.md",
    retention_is_true => "retention.md",
    operations_are_true => "operations.md",
    redis_is_true => "redis.md",
    coming_from_elsewhere_is_true => "coming-from.md",
    schedules_are_true => "schedules.md",
    troubleshooting_is_true => "troubleshooting.md",
    the_list_of_codes_is_true => "codes.md",
    the_design_is_true => "design.md",
}

fn follow(name: &str) {
    let (mut reader, told) = (Reader::new(), page(name));
    let now = reader.read(name, &told);
    let mut wrong = reader.wrong.join("\n\n");
    is_up_to_date(name, &told, &now, &wrong);
    for picture in links(&told).iter().filter(|link| link.starts_with("pictures/")) {
        wrong.push_str(&is_drawn(&reader, picture));
    }
    assert!(wrong.is_empty() || updates(), "docs/book/src/{name}\n{wrong}");
}

/// Checks that a picture is one that the commands of the page made. That of a flow is always the same; that of a run
/// has times in it.
fn is_drawn(reader: &Reader, picture: &str) -> String {
    let (path, made) = (book().join(picture), reader.made(picture.trim_start_matches("pictures/")));
    let Some(made) = made else { return format!("{picture} is not made by what the page says\n") };
    let there = fs::read_to_string(&path).unwrap_or_default();
    let is_of_a_run = |svg: &str| {
        svg.split("<title>").nth(1).is_some_and(|title| title[..title.find('<').unwrap_or(0)].contains(": "))
    };
    if there == made || (is_of_a_run(&there) && is_of_a_run(&made)) {
        return String::new();
    }
    if updates() {
        fs::create_dir_all(book().join("pictures")).expect("a directory");
        fs::write(path, made).expect("a picture");
    }
    format!("{picture} is not what the tool draws (UPDATE_EXPECT=1 makes it so)\n")
}

/// Returns all pages in the summary.
fn all_pages() -> Vec<String> {
    links(&page("SUMMARY.md"))
}

#[test]
fn pages_without_a_test_of_their_own_are_true() {
    all_pages().iter().filter(|name| !PAGES.contains(&name.as_str())).for_each(|name| follow(name));
}

#[test]
fn the_summary_has_every_page() {
    let mut listed = all_pages();
    listed.sort();
    let there =
        fs::read_dir(book()).expect("the book").flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let there: BTreeSet<_> = there.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(listed, there.iter().cloned().collect::<Vec<_>>(), "SUMMARY.md lists what is there, once");
    assert!(PAGES.iter().all(|name| there.contains(*name)), "`pages!` names what is there");
}

#[test]
fn the_reference_is_what_the_tool_says_of_itself() {
    let said = support::Bed::new().run(&["reference"]).ends(0).stdout;
    is_up_to_date("cli-reference.md", &page("cli-reference.md"), &said, "the command has changed");
}

#[test]
fn commands_of_the_book_that_are_not_run_say_why() {
    let told = all_pages().into_iter().flat_map(|name| {
        let blocks = Block::all(&page(&name));
        let not_run = blocks.into_iter().filter_map(|block| Some((block.attribute("norun")?.to_owned(), block)));
        not_run.map(move |(why, block)| format!("{name}: {why}: {}\n", block.text.lines().next().unwrap_or_default()))
    });
    expect![[r#"
        tutorial.md: the-tests-have-the-tool-already: cargo install --path crates/cli      # puts `onceflow` on your PATH
        coming-from.md: needs-snakemake: rule all:
        coming-from.md: needs-nextflow: process count {
        coming-from.md: needs-airflow: from airflow.decorators import dag, task
        coming-from.md: needs-temporal: @activity.defn
        streams.md: needs-a-stream-at-work: onceflow pause clicks                              # nothing is on its way
        streams.md: a-part-of-a-file: product: { from: orders, key: user, fold: { start: 1, add: acc * n, merge: acc * other, laws: [associative, commutative] } }
        streams.md: needs-a-database: secrets: [PGPASSWORD]
        streams.md: listens-on-a-port: stream: orders
        operations.md: a-unit-for-systemd: [Service]
        redis.md: needs-several-machines: export ONCEFLOW_STORE=redis://store.example:6379
        design.md: builds-the-workspace: sim/run --seeds 10000
    "#]]
    .assert_eq(&told.collect::<String>());
}

#[test]
fn rust_on_a_page_is_compiled_with_the_crate() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a crate");
    let crate_pages = read("crates/onceflow/src/lib.rs") + &read("crates/stream/src/lib.rs");
    for name in all_pages() {
        let has_rust = Block::all(&page(&name)).iter().any(|block| block.language() == "rust");
        let is_compiled = crate_pages.contains(&format!("docs/book/src/{name}\""));
        assert_eq!(has_rust, is_compiled, "crates/onceflow and crates/stream include the pages that have Rust: {name}");
    }
}

/// Returns the targets of the links in a text.
fn links(text: &str) -> Vec<String> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn links_lead_to_pages_and_to_headings_that_are_there() {
    let mut wrong = Vec::new();
    for name in all_pages() {
        for link in links(&page(&name)).iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = book().join(if file.is_empty() { &name } else { file });
            let text = if heading.is_empty() { String::new() } else { fs::read_to_string(&path).unwrap_or_default() };
            let mut headings =
                text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches(['#', ' ']));
            if !path.is_file() || !(heading.is_empty() || headings.any(|one| anchor(one) == heading)) {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere, or to what is no file:\n{}", wrong.join("\n"));
}

/// The subjects of error codes, by their first digits.
const KINDS: &[(&str, &str)] = &[
    ("OF00", "The flow does not fit together"),
    ("OF01", "The flow file is wrong"),
    ("OF02", "The inputs are wrong"),
    ("OF03", "A step failed"),
    ("OF04", "The tool and its store"),
];

#[test]
fn the_list_of_codes_has_every_page_of_errors() {
    let entries = fs::read_dir(root().join("docs/errors")).expect("docs/errors").flatten();
    let mut pages: Vec<_> = entries.map(|entry| fs::read_to_string(entry.path()).expect("a page")).collect();
    pages.sort();
    let titles: Vec<_> =
        pages.iter().filter_map(|page| page.lines().next()?.strip_prefix("# ")?.split_once(": ")).collect();
    let mut index = String::new();
    for (beginning, kind) in KINDS {
        index.push_str(&format!("\n## {kind}\n\n| code | |\n|---|---|\n"));
        let these = titles.iter().filter(|(code, _)| code.starts_with(beginning));
        these.for_each(|(code, title)| index.push_str(&format!("| [{code}](../../errors/{code}.md) | {title} |\n")));
    }
    let listed = titles.iter().filter(|(code, _)| KINDS.iter().any(|(beginning, _)| code.starts_with(beginning)));
    assert_eq!(listed.count(), titles.len(), "a kind of codes is not in `KINDS`");
    let about =
        "# All codes\n\nWritten by the tests from the pages in `docs/errors`. `onceflow error CODE` prints one.\n";
    is_up_to_date("codes.md", &page("codes.md"), &format!("{about}{index}"), "codes came or went");
}
