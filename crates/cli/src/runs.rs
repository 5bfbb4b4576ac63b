//! The runs of a store, and the lookup of the run that a word on the command line names.

use crate::{
    codes,
    exit::Exit,
    fault::Fault,
    pending::{self, PendingStep},
    printer::name,
    verbs::ls::shell_word,
    words,
};
use onceflow_engine::{Engine, Error, Handle, RunStatus, Summary};

/// Runs fetched at a time.
const PAGE: usize = 500;

/// All runs, the latest first.
///
/// # Errors
/// If the store does not answer, or is damaged.
pub(crate) async fn all(engine: &Engine) -> Result<Vec<Summary>, Fault> {
    let mut found: Vec<Summary> = Vec::new();
    loop {
        let page = engine.runs(found.last().map(|run| run.key.as_str()), PAGE).await?;
        let is_last = page.len() < PAGE;
        found.extend(page);
        if is_last {
            break;
        }
    }
    found.sort_by(|a, b| b.started.cmp(&a.started).then_with(|| a.key.cmp(&b.key)));
    Ok(found)
}

/// Returns the run of a key, if there is one.
///
/// # Errors
/// If the store does not answer, or is damaged.
pub(crate) async fn of_key(engine: &Engine, key: &str) -> Result<Option<Summary>, Fault> {
    let found = match engine.find(key).await {
        Ok(handle) => handle.summary().await,
        Err(error) => Err(error),
    };
    match found {
        Ok(summary) => Ok(Some(summary)),
        Err(Error::NoRun(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The steps of a run that wait for an operator or an event.
///
/// # Errors
/// If the store does not answer.
pub(crate) async fn pending(engine: &Engine, run: &Summary) -> Result<Vec<PendingStep>, Fault> {
    if run.status.has_ended() {
        return Ok(vec![]);
    }
    match found(engine, &run.key).await? {
        Some(handle) => pending::all(engine, &handle).await,
        None => Ok(vec![]),
    }
}

/// Returns the run of a key, unless it was removed meanwhile.
async fn found(engine: &Engine, key: &str) -> Result<Option<Handle>, Fault> {
    match engine.find(key).await {
        Ok(handle) => Ok(Some(handle)),
        Err(Error::NoRun(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the next command for a run.
pub(crate) fn next(run: &Summary, waits: &[PendingStep], again: Option<&str>) -> String {
    let key = shell_word(&run.key);
    let again =
        again.map_or_else(|| String::from("the `onceflow run` it was started with"), |again| format!("`{again}`"));
    match run.status {
        RunStatus::Done => format!("{again} does nothing unless something changed"),
        RunStatus::Cancelled | RunStatus::Undone if !run.not_undone.is_empty() => {
            format!("what was not undone was given up; {again} begins anew")
        }
        RunStatus::NotUndone => {
            let first = run.not_undone.first().map_or("STEP", |failed| &failed.address);
            crate::fault::undo_hint(&key, &shell_word(&crate::words::step(first)))
        }
        RunStatus::Cancelled | RunStatus::Undone => format!("{again} begins anew"),
        RunStatus::UndoInterrupted => {
            format!("onceflow cancel {key} goes on undoing it; nothing else of it runs any more")
        }
        RunStatus::Failed => format!("onceflow logs {key}; then {again} goes on where it stopped"),
        RunStatus::Waiting => pending::next(&run.key, waits).unwrap_or_else(|| format!("onceflow show {key}")),
        RunStatus::Interrupted => match pending::resolve(&run.key, waits) {
            // Any process that resumes the run stops at this step.
            Some(resolve) => resolve,
            None if run.failed > 0 => format!("{again} goes on, until it has failed"),
            None => format!("{again} goes on where it stopped"),
        },
        _ => format!("onceflow watch {key}"),
    }
}

/// Returns the run that a word names: a key, the beginning of one key or id, or `-` for the latest.
///
/// # Errors
/// If the word names none, or several.
pub(crate) fn named(runs: Vec<Summary>, word: &str) -> Result<Summary, Fault> {
    if word == "-" {
        let latest = runs.into_iter().next();
        return latest.ok_or_else(|| {
            Fault::new(Exit::No, codes::NO_RUN, "there is no run yet").hint("`onceflow run FLOW.yaml` starts one")
        });
    }
    if let Some(at) = runs.iter().position(|run| run.key == word) {
        return Ok(runs.into_iter().nth(at).expect("it was just found"));
    }
    let begins =
        |run: &&Summary| !word.is_empty() && (run.key.starts_with(word) || run.id.to_string().starts_with(word));
    let like: Vec<_> = runs.iter().filter(begins).collect();
    match &like[..] {
        [one] => Ok((*one).clone()),
        [] => {
            let hint = match words::nearest(word, runs.iter().map(|run| run.key.as_str())) {
                Some(near) => format!("did you mean `{near}`? `onceflow ls` lists all"),
                None => String::from("`onceflow ls` lists the runs of this store"),
            };
            Err(Fault::new(Exit::Usage, codes::NO_RUN, format!("there is no run `{word}`")).hint(hint))
        }
        several => {
            let keys: Vec<_> = several.iter().map(|run| name(&run.key)).take(10).collect();
            let message = format!("`{word}` stands for {} runs: {}", several.len(), keys.join(", "));
            Err(Fault::new(Exit::Usage, codes::AMBIGUOUS, message).hint("write more of the name"))
        }
    }
}
