//! What is left in the store: first with all histories, then when the last of them is over. Then there must be nothing.

use onceflow_engine::{Engine, Options};
use onceflow_store::{
    Store, World,
    backend::journal::{self, Journal, files::StoreDirectory},
    testing::world::SkewedWorld,
    values::{Values, fsck::Mode},
    world::RealWorld,
};
use std::{fs, io, path::Path, sync::Arc};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    pub(crate) wrong: Vec<String>,
    /// Values while all runs can be asked about.
    pub(crate) values: usize,
    /// Rows and files of content when none can.
    pub(crate) rows: usize,
    pub(crate) objects: usize,
    pub(crate) problems: usize,
    pub(crate) leaks: usize,
}

/// Deadlines that are waited for, one after the other: who comes late is forgiven, and its deadlines are moved.
const DEADLINES_MAX: usize = 1_000_000;

/// Longer than any history, and what was forgiven.
const HISTORY_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// Ten milliseconds each, for a worker to remove the rest of what was cancelled.
const PAUSES_MAX: usize = 1000;

/// Looks at the store when all processes have ended.
pub(crate) async fn look(directory: &Path) -> anyhow::Result<Remains> {
    let mut remains = Remains::default();
    let world = SkewedWorld::new(RealWorld::here(), 0);
    let place = directory.join("store");
    let store = Store::open_with(&place, journal::Options::default(), world.clone()).await?;
    let values = store.values().await?;
    let options = Options { scratch: directory.join("scratch"), ..Options::default() };
    let engine = Engine::new(store.records(), values.clone(), world.clone() as Arc<dyn World>, options);
    // What a run did may be told as undone before the last of its rows is gone.
    for _ in 0..PAUSES_MAX {
        if unfinished(&engine).await?.is_empty() {
            break;
        }
        crate::pause(10).await;
    }
    let unfinished = unfinished(&engine).await?;
    if !unfinished.is_empty() {
        remains.wrong.push(format!("runs that have not ended: {}", unfinished.join(", ")));
    }
    engine.close().await?;
    remains.values = fsck(&values, &mut remains).await?;
    let options = Options { works: false, ..Options::default() };
    let engine = Engine::new(store.records(), values.clone(), world.clone() as Arc<dyn World>, options);
    for _ in 0..DEADLINES_MAX {
        engine.remove_due().await?;
        let Some(next) = values.reclaim(usize::MAX).await?.next_deadline else { break };
        let ahead_ms = next.ms_since(RealWorld::here().clock()).max(1);
        world.set_passed_ms(ahead_ms);
    }
    world.set_passed_ms(HISTORY_MS_MAX);
    engine.remove_due().await?;
    fsck(&values, &mut remains).await?;
    engine.close().await?;
    store.close().await?;
    nothing(&place, &mut remains)?;
    Ok(remains)
}

/// Runs that are still at something.
async fn unfinished(engine: &Engine) -> anyhow::Result<Vec<String>> {
    let (mut found, mut after) = (vec![], None::<String>);
    loop {
        let runs = engine.runs(after.as_deref(), 1000).await?;
        let Some(last) = runs.last() else { return Ok(found) };
        after = Some(last.key.clone());
        let open = runs.iter().filter(|run| !run.status.has_ended());
        found.extend(open.map(|run| format!("{} {:?}", run.key, run.status)));
    }
}

/// Answers how many values there are.
async fn fsck(values: &Values, remains: &mut Remains) -> anyhow::Result<usize> {
    while values.reclaim(usize::MAX).await?.more {}
    let report = values.fsck(Mode::Check).await?;
    remains.problems += report.problems.len();
    remains.leaks += report.leaks.len();
    if !report.is_clean() || !report.lost.is_empty() {
        remains.wrong.push(format!("fsck: {report}"));
    }
    Ok(report.values)
}

/// Counts what is left.
fn nothing(place: &Path, remains: &mut Remains) -> anyhow::Result<()> {
    let (journal, _) =
        Journal::open(Arc::new(StoreDirectory::at(place)?), journal::Options::default(), RealWorld::here())?;
    let (rows, _) = journal.state().durable_after(None, usize::MAX);
    let rows: Vec<_> = rows.into_iter().filter(|(_, key, _)| key.group.id() != b"values.sweeper").collect();
    remains.rows = rows.len();
    if !rows.is_empty() {
        let shown = rows.iter().take(12).map(|(_, key, row)| {
            let group = String::from_utf8_lossy(key.group.id());
            format!("{group} {}: {} bytes", key.name.as_bytes().escape_ascii(), row.len())
        });
        remains.wrong.push(format!("{} rows are left: {}", rows.len(), shown.collect::<Vec<_>>().join(", ")));
    }
    let mut objects = files(&place.join("blobs"))?;
    // Beside them lie the store's id, locks, and hints.
    objects.retain(|path| ["/objects/", "/unfinished/"].iter().any(|content| path.contains(content)));
    remains.objects = objects.len();
    if let Some(object) = objects.first() {
        remains.wrong.push(format!("{} files of content are left, {object} for one", objects.len()));
    }
    Ok(())
}

fn files(below: &Path) -> io::Result<Vec<String>> {
    let mut found = vec![];
    let mut todo = vec![below.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            match path.is_dir() {
                true => todo.push(path),
                false => found.push(path.display().to_string()),
            }
        }
    }
    found.sort();
    Ok(found)
}
