//! The runs of a store, as rows tell them; and which of them a word on the command line means.

use crate::{codes, exit::Exit, fault::Fault, words};
use onceflow_core::{
    Shard,
    limits::SCAN_ROWS_MAX,
    protocol::{
        ids::{Generation, RunId},
        keys::{self, Keys},
        rows::{self, Head, Header, Phase, State, Status},
    },
};
use onceflow_store::{Records, records::Scan};

/// A run as its rows tell it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) header: Header,
    pub(crate) now: Now,
    pub(crate) ended_ms: Option<u64>,
}

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// It is not finished.
    Active(Phase),
    /// It has ended.
    Ended(Status),
}

impl Run {
    pub(crate) fn key(&self) -> &str {
        &self.header.key
    }

    pub(crate) fn started_ms(&self) -> u64 {
        self.header.started.as_ms()
    }

    /// In one word. A run that is to be worked on and that nobody attends is interrupted.
    pub(crate) fn status(&self, is_attended: bool) -> &'static str {
        match &self.now {
            Now::Active(Phase::Failed) => "failed",
            Now::Active(Phase::Waiting) => "waiting",
            Now::Active(phase) if is_attended => match phase {
                Phase::Cancelling | Phase::UndoingCancelled | Phase::RemovingCancelled => "cancelling",
                Phase::Failing | Phase::UndoingFailed | Phase::RemovingFailed => "failing",
                _ => "running",
            },
            Now::Active(_) => "interrupted",
            Now::Ended(Status::Done) => "done",
            Now::Ended(Status::Failed { undone, .. }) if undone.is_empty() => "undone",
            Now::Ended(Status::Cancelled { undone }) if undone.is_empty() => "cancelled",
            Now::Ended(_) => "not cleaned up",
        }
    }
}

/// All runs, the latest first.
///
/// # Errors
/// If the store does not answer, or is damaged.
pub(crate) async fn all(records: &dyn Records) -> Result<Vec<Run>, Fault> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let scan = Scan::of(keys::heads(), SCAN_ROWS_MAX).after(after);
        let page = records.scan(Shard::default(), scan).await?;
        for (name, row) in &page.rows {
            let key = String::from_utf8_lossy(name.as_bytes());
            let head = rows::read::<Head>(row).ok_or_else(|| damaged(&key))?;
            found.extend(of(records, head).await?);
        }
        after = page.rows.last().map(|(name, _)| name.clone());
        if !page.more {
            break;
        }
    }
    found.sort_by(|a: &Run, b: &Run| b.started_ms().cmp(&a.started_ms()).then_with(|| a.key().cmp(b.key())));
    Ok(found)
}

/// The run of a key, if there is one.
///
/// # Errors
/// If the store does not answer, or is damaged.
pub(crate) async fn of_key(records: &dyn Records, key: &str) -> Result<Option<Run>, Fault> {
    let row = onceflow_store::records::get_one(records, Shard::default(), keys::heads().key(key)).await?;
    let Some(row) = row else { return Ok(None) };
    of(records, rows::read::<Head>(&row).ok_or_else(|| damaged(key))?).await
}

async fn of(records: &dyn Records, head: Head) -> Result<Option<Run>, Fault> {
    let id = match head {
        Head::Finished(ended) => {
            let ended_ms = Some(ended.ended.as_ms());
            return Ok(Some(Run { id: ended.run, header: ended.header, now: Now::Ended(ended.status), ended_ms }));
        }
        Head::Active(id) => id,
    };
    let home = Keys::new(id, Generation(0));
    let found = records.get(Shard::default(), &[home.state(), home.header()]).await?;
    // It ended between the two looks.
    let [Some(state), Some(header)] = &found[..] else { return Ok(None) };
    let state: State = rows::read(state).ok_or_else(|| damaged(&id.to_string()))?;
    let header: Header = rows::read(header).ok_or_else(|| damaged(&id.to_string()))?;
    Ok(Some(Run { id, header, now: Now::Active(state.phase), ended_ms: None }))
}

fn damaged(run: &str) -> Fault {
    Fault::new(Exit::Damaged, codes::STORE_DAMAGED, format!("the store is damaged: the row of run `{run}`"))
}

/// The run that a word means: a key, the beginning of one key or id, or `-` for the latest.
///
/// # Errors
/// If it is none, or several.
pub(crate) fn named(runs: Vec<Run>, word: &str) -> Result<Run, Fault> {
    let none = |hint: String| Fault::new(Exit::No, codes::NO_RUN, format!("there is no run `{word}`")).hint(hint);
    if word == "-" {
        let latest = runs.into_iter().next();
        return latest.ok_or_else(|| {
            Fault::new(Exit::No, codes::NO_RUN, "there is no run yet").hint("`onceflow run FLOW.yaml` starts one")
        });
    }
    if let Some(at) = runs.iter().position(|run| run.key() == word) {
        return Ok(runs.into_iter().nth(at).expect("it was just found"));
    }
    let begins = |run: &&Run| !word.is_empty() && (run.key().starts_with(word) || run.id.to_string().starts_with(word));
    let mut like: Vec<&Run> = runs.iter().filter(begins).collect();
    match like.len() {
        1 => Ok(like.remove(0).clone()),
        0 => Err(none(match words::nearest(word, runs.iter().map(Run::key)) {
            Some(near) => format!("did you mean `{near}`? `onceflow ls` lists all"),
            None => String::from("`onceflow ls` lists the runs of this store"),
        })),
        _ => {
            let keys: Vec<_> = like.iter().map(|run| run.key()).take(10).collect();
            let message = format!("`{word}` stands for {} runs: {}", like.len(), keys.join(", "));
            Err(Fault::new(Exit::No, codes::AMBIGUOUS, message).hint("write more of the name"))
        }
    }
}
