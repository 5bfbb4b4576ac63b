//! Runs a script on a backend and on the model, and says where they part.

use super::{
    generate::{SHARDS, groups},
    model::{Expected, Model},
};
use crate::{
    records::{CommitResult, Error, Records, Scan, commit_kept, get_one},
    testing::{contract::Make, random::Random, world::TestWorld},
};
use onceflow_core::{Batch, Name, Row, Shard, Timestamp};

/// Where a backend and the model part.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// After which batch, counted from 0.
    pub at: usize,
    /// The backend's answer, and the right one.
    pub what: String,
}

/// Runs a script on a new store and looks at all rows after every so many batches, and at the end.
pub(super) async fn play(make: Make<'_>, script: &[Batch], look_every: usize) -> Result<(), Mismatch> {
    let world = TestWorld::new(1);
    let records = make(world.clone()).await;
    let mut model = Model::default();
    for (at, batch) in script.iter().enumerate() {
        world.advance(at as u64 % 3);
        let step = async {
            one(&*records, &mut model, batch).await?;
            if at % look_every == 0 || at + 1 == script.len() { all_rows(&*records, &model, at).await } else { Ok(()) }
        };
        step.await.map_err(|what| Mismatch { at, what })?;
    }
    Ok(())
}

/// One batch, on both.
async fn one(records: &dyn Records, model: &mut Model, batch: &Batch) -> Result<(), String> {
    let before = answered(records.now().await)?;
    let stood = records.position();
    // A store in this process is asked in both of its ways.
    let found = match stood.0 % 2 {
        0 => commit_kept(records, batch).await,
        _ => records.commit(batch.clone()).await,
    };
    let after = answered(records.now().await)?;
    let now = claimed_at(batch, &found).unwrap_or(before);
    if now < before || now > after {
        return Err(format!("a claim between {before} and {after} was given the deadline of one at {now}"));
    }
    let expected = model.commit(batch, now);
    let (position, found) = match found {
        Err(Error::Invalid(_)) => (stood, Expected::Invalid),
        Err(error) => return Err(format!("the store failed: {error}")),
        Ok(CommitResult::Refused(refused)) => {
            (refused.position, Expected::Refused { which: refused.which, found: refused.found })
        }
        Ok(CommitResult::Applied(done)) => {
            (done.position, Expected::Applied { fired: done.fired, claimed: done.claimed })
        }
    };
    if position < stood {
        return Err(format!("the position went back from {stood:?} to {position:?}"));
    }
    same("the batch should have answered", &expected, &found)
}

/// When the store made a claim, from the deadline it gave.
fn claimed_at(batch: &Batch, found: &Result<CommitResult, Error>) -> Option<Timestamp> {
    let Ok(CommitResult::Applied(done)) = found else { return None };
    let (claim, claimed) = (batch.claim.as_ref()?, done.claimed.as_ref()?);
    Some(Timestamp::from_ms(claimed.deadline.as_ms().saturating_sub(claim.ttl_ms)))
}

/// All rows, by pages of some size; some of them again by prefix, and by key.
async fn all_rows(records: &dyn Records, model: &Model, at: usize) -> Result<(), String> {
    let mut random = Random::new(at as u64);
    for shard in SHARDS {
        for group in groups() {
            let expected = model.group(shard, &group);
            let limit = *random.pick(&[1, 2, 3, 100]);
            let found = pages(records, shard, Scan::of(group.clone(), limit)).await?;
            same(&format!("shard {} should hold in {group:?}", shard.0), &expected, &found)?;
            let keys: Vec<_> = expected.iter().map(|(name, _)| group.key(name)).collect();
            for (key, (_, row)) in keys.iter().zip(&expected) {
                let found = answered(get_one(records, shard, key.clone()).await)?;
                same("one row should be", &Some(row), &found.as_ref())?;
            }
            let rows = answered(records.get(shard, &keys).await)?;
            same(
                "get should have found",
                &expected.iter().map(|(_, row)| Some(row.clone())).collect::<Vec<_>>(),
                &rows,
            )?;
            let Some(prefix) = expected.first().map(|(name, _)| &name.as_bytes()[..name.as_bytes().len().min(1)])
            else {
                continue;
            };
            let under: Vec<_> =
                expected.iter().filter(|(name, _)| name.as_bytes().starts_with(prefix)).cloned().collect();
            let found = pages(records, shard, Scan::of(group.clone(), limit).prefix(prefix)).await?;
            same(&format!("{group:?} should hold under {}", prefix.escape_ascii()), &under, &found)?;
        }
    }
    Ok(())
}

async fn pages(records: &dyn Records, shard: Shard, mut scan: Scan) -> Result<Vec<(Name, Row)>, String> {
    let mut rows = Vec::new();
    loop {
        let page = answered(records.scan(shard, scan.clone()).await)?;
        let last = page.rows.last().map(|(name, _)| name.clone());
        rows.extend(page.rows);
        if !page.more {
            return Ok(rows);
        }
        if last <= scan.after {
            return Err(format!("{scan:?} says that there is more and does not go on"));
        }
        scan = scan.after(last);
    }
}

fn answered<T>(answer: Result<T, Error>) -> Result<T, String> {
    answer.map_err(|error| format!("the store failed: {error}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}\n  {expected:?}\nbut this was found:\n  {found:?}")) }
}
