//! Event logs are written and read back as the run happened.

use super::*;
use crate::progress::Progress;
use onceflow_core::protocol::rows::Failed;
use onceflow_engine::RunStatus;

fn run(address: &str) -> EventKind {
    EventKind::WillRun { address: address.into(), attempt: 1 }
}

fn commit(address: &str) -> EventKind {
    EventKind::DidCommit { address: address.into() }
}

fn failed(address: &str) -> EventKind {
    EventKind::DidFail(Failed {
        address: address.into(),
        attempt: 2,
        causes: vec!["a line\nand another".into()],
        started: false,
    })
}

#[test]
fn what_is_written_is_read_also_while_it_grows() {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, mut reader) = (Writer::open(directory.path()), Reader::open(directory.path()));
    let all =
        [EventKind::DidStart { generation: 3 }, run("/a"), failed("/b"), EventKind::DidEnd { how: RunStatus::Undone }];
    for what in &all {
        writer.write(7, [what]);
        let found: Vec<_> = reader.more().into_iter().filter_map(|line| line.what).collect();
        assert_eq!(found, std::slice::from_ref(what));
    }
    let mut file = File::options().append(true).open(directory.path().join(NAME)).unwrap();
    file.write_all(b"{\"event\":").unwrap();
    assert!(reader.more().is_empty(), "the line is not whole");
    file.write_all(b"\"did-start\"}\nnonsense\n").unwrap();
    assert_eq!(reader.more().len(), 1);
}

/// Totals of the each `b`: done, attempts, failed, and running or interrupted.
fn told(progress: &Progress) -> (usize, usize, usize, usize) {
    let group = &progress.groups.iter().find(|(name, _)| name == "b").expect("it is told of").1;
    (group.done, group.attempts, group.failed.len(), group.running.len() + group.interrupted.len())
}

#[test]
fn a_trail_that_is_full_goes_on_counting() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(directory.path());
    writer.write(
        1,
        [&EventKind::DidStart { generation: 0 }, &EventKind::DidOpen { address: "/b".into(), elements: 5000 }],
    );
    writer.write(1, [&run("/b[0]"), &run("/b[1]")]);
    writer.written = BYTES_MAX;
    for index in 2..5000 {
        let address = format!("/b[{index}]");
        writer.write(1 + index, [&run(&address), &commit(&address)]);
    }
    writer.write(6000, [&commit("/b[0]"), &failed("/b[7]")]);
    let len = std::fs::metadata(directory.path().join(NAME)).unwrap().len();
    assert!(len < 20_000, "{len} bytes");
    drop(writer);
    let progress = super::progress(directory.path());
    assert_eq!(told(&progress), (4999, 5000, 1, 1), "of one it is not known how it ended");
    assert_eq!((progress.unlisted, steps(directory.path())), (4998, 4999));
    Writer::open(directory.path()).write(7000, [&EventKind::DidEnd { how: RunStatus::Done }]);
    assert!(directory.path().join(sum::SUM).exists(), "what it comes to is remembered");
    assert_eq!(told(&super::progress(directory.path())), (5000, 5000, 0, 0));
}

#[test]
fn a_trail_that_is_made_shorter_comes_to_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(directory.path());
    writer.write(
        1,
        [&EventKind::DidStart { generation: 0 }, &EventKind::DidOpen { address: "/b".into(), elements: 5000 }],
    );
    for index in 0..5000 {
        let address = format!("/b[{index}]");
        writer.write(1 + index, [&run(&address)]);
        match index % 10 {
            3 => writer.write(2 + index, [&failed(&address)]),
            4 if index < 100 => {}
            _ => writer.write(2 + index, [&commit(&address)]),
        }
    }
    drop(writer);
    let path = directory.path().join(NAME);
    let (before, long) = (super::progress(directory.path()), std::fs::metadata(&path).unwrap().len());
    shorten(&path, 10_000).unwrap();
    let short = std::fs::metadata(&path).unwrap().len();
    assert!(short < long / 2, "{short} of {long} bytes");
    let after = super::progress(directory.path());
    assert_eq!(told(&after), told(&before));
    assert_eq!(after.groups[0].1.spent_ms, before.groups[0].1.spent_ms);
    drop(Writer::attend(directory.path()));
    let resumed = super::progress(directory.path());
    assert_eq!(told(&resumed), told(&before));
    assert_eq!(resumed.running(), [], "whoever ran them is gone");
}

#[test]
fn a_link_in_place_of_the_event_log_is_not_written_through() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let canary = outside.path().join("canary");
    std::fs::write(&canary, "alive").unwrap();
    std::os::unix::fs::symlink(&canary, directory.path().join(NAME)).unwrap();
    append_line(directory.path(), &serde_json::json!({"event": "did-start"}));
    Writer::open(directory.path()).put(&[serde_json::json!({"event": "did-start"})]);
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "alive");
}
