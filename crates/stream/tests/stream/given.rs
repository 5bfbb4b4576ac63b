//! Files that are given: the contract of sources, and paths that change.

use onceflow_stream::{
    EventTime, GivenFile, GivenFiles, LineDecoder, NextRecord, SplitReader, StreamSource,
    testing::source::{self, Lateness},
};
use std::{path::Path, sync::Arc};

fn given(directory: &Path, decoder: LineDecoder<String>) -> GivenFiles<String> {
    let file = |name: &str| GivenFile { name: name.to_owned(), path: directory.join(name) };
    GivenFiles::new(vec![file("a"), file("b")], decoder, Arc::new(|| 0))
}

fn decoder() -> LineDecoder<String> {
    Arc::new(|line| Ok((line.to_owned(), EventTime(line.len() as i64))))
}

fn lines(reader: &mut dyn SplitReader<String>) -> Vec<String> {
    let mut lines = Vec::new();
    while let NextRecord::Record(line, _) = reader.next().expect("a line") {
        lines.push(line);
    }
    lines
}

#[test]
fn given_files_keep_the_contract_of_sources() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["a", "b"] {
        std::fs::write(directory.path().join(name), "1\n22\n333\n4444").expect("a file");
    }
    source::check(|| given(directory.path(), decoder()), Lateness::OnTime).expect("the contract holds");
}

#[test]
fn given_files_are_read_on_at_other_paths_and_others_are_refused() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for directory in [&one, &two] {
        std::fs::write(directory.path().join("a"), "1\n22\n333\n").expect("a file");
        std::fs::write(directory.path().join("b"), "55555\n").expect("a file");
    }
    let mut reader = given(one.path(), decoder()).open(0, None).expect("a reader");
    let NextRecord::Record(first, _) = reader.next().expect("a line") else { panic!("a line") };
    let position = reader.position();
    let mut rest = given(two.path(), decoder()).open(0, Some(&position)).expect("a reader");
    let mut all = lines(&mut *rest);
    all.push(first);
    all.sort();
    assert_eq!(all, ["1", "22", "333", "55555"]);
    std::fs::write(two.path().join("a"), "2\n").expect("a file");
    std::fs::write(two.path().join("b"), "2\n").expect("a file");
    let refused = given(two.path(), decoder()).open(0, Some(&position)).err().expect("a refusal").to_string();
    assert!(refused.contains("not the file that was read before"), "{refused}");
}
