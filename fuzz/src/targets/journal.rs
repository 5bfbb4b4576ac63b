//! Journals with damage. Whatever is done to the files of a small real journal, it is refused with its place and untouched, or
//! it opens with the rows of a moment that was, goes on from there, and shows the same after a power cut.
//!
//! An input is a list of choices: which journal, and what is done to which of its files. Where it goes as far as to write
//! checksums of its own, the truth cannot be known any more; then opening only has to end, and without a panic.

mod damage;
mod made;

use super::Target;
use made::{Made, Rows, open, rows};
use onceflow_core::{Batch, Group, Row, Shard};
use onceflow_store::{
    backend::journal::{OnDamage, OpenError, Options},
    records::commit_durably,
    testing::{disk::Disk, random::Random},
};
use tokio::runtime::Runtime;

pub(super) const TARGET: Target = Target { name: "journal", run, seeds, words: &[] };

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    static MADE: Vec<Made> = RUNTIME.with(|runtime| runtime.block_on(made::all()));
}

fn run(input: &[u8]) -> String {
    MADE.with(|made| {
        let mut random = Random::of_bytes(input);
        let made = random.pick(made);
        let (disk, is_forged) = damage::apply(&mut random, made);
        RUNTIME.with(|runtime| {
            let _inside = runtime.enter();
            let given_up = given_up(&disk.after_kill(), made, is_forged);
            let opened = check(runtime, &disk, made, is_forged);
            // What was opened and dropped ends.
            runtime.block_on(tokio::task::yield_now());
            format!("{} {is_forged} {opened} {given_up}", made.name)
        })
    })
}

/// Opens the disk as everyone does.
fn check(runtime: &Runtime, disk: &Disk, made: &Made, is_forged: bool) -> String {
    let before = contents(disk);
    match open(disk, Options::default()) {
        Err(error) => {
            assert!(contents(disk) == before, "refused, but changed: {error}");
            refused(&error)
        }
        Ok((journal, recovered)) => {
            let found = rows(&journal.state());
            let at = made.moment(&found);
            assert!(is_forged || at.is_some(), "it opens with rows that never were together");
            if !is_forged {
                runtime.block_on(goes_on(disk, &journal, &found));
            }
            let share = at.map_or(9, |at| at * 4 / made.after.len());
            format!("opens {share} {} {}", recovered.is_new, recovered.torn.is_some())
        }
    }
}

fn refused(error: &OpenError) -> String {
    let told = error.to_string();
    assert!(told.contains("disk/") && told.contains("hint:"), "refused without a place or help: {told}");
    match error {
        OpenError::Damaged { what, .. } => what.chars().filter(|letter| !letter.is_ascii_digit()).collect(),
        OpenError::TooNew { .. } => String::from("too new"),
        OpenError::NotThisStore { .. } => panic!("no caller said which store it is: {told}"),
        OpenError::Io { .. } => panic!("this disk does not fail: {told}"),
    }
}

/// What was shown is relied on: it outlives a power cut, and so does what is added to it.
async fn goes_on(disk: &Disk, journal: &onceflow_store::backend::journal::Journal, found: &Rows) {
    let shown = open(&disk.after_power_cut(1), Options::default());
    let shown = shown.unwrap_or_else(|error| panic!("what opened does not open after a power cut: {error}")).0;
    assert!(&rows(&shown.state()) == found, "what was shown was lost with the power");
    let mut batch = Batch::new(Shard(3));
    batch.put(Group::rows("afterwards").key("a"), Row::new("1"));
    let outcome = commit_durably(journal, batch).await.expect("a journal that opened takes batches");
    assert!(outcome.is_applied(), "nothing can refuse it: {outcome:?}");
    let again = open(&disk.after_power_cut(2), Options::default());
    let again = again.unwrap_or_else(|error| panic!("it does not open a second time: {error}")).0;
    assert!(rows(&again.state()) == rows(&journal.state()), "what was added was lost with the power");
}

/// Opens the disk, a copy, giving up what is behind the damage.
fn given_up(disk: &Disk, made: &Made, is_forged: bool) -> bool {
    let options = Options { on_damage: OnDamage::LoseTheRest, ..Options::default() };
    let Ok((journal, _)) = open(disk, options) else { return false };
    let is_moment = made.moment(&rows(&journal.state())).is_some();
    assert!(is_forged || is_moment, "what was not given up never was together");
    true
}

fn contents(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.read(&name))).collect()
}

/// One of every kind of damage to every journal.
fn seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(2);
    let kinds = (0..damage::KINDS as u8).flat_map(|kind| (0..made::COUNT as u8).map(move |which| (which, kind)));
    kinds.map(|(which, kind)| [which, kind].into_iter().chain((0..8).map(|_| random.bits() as u8)).collect()).collect()
}
