//! Users: each has one run, starts it, asks for it again, changes its mind, repairs what is broken, decides what no machine
//! can, and compares what it is told with what must be so.

use crate::{
    executor::lock,
    oracle::{Meaning, meaning},
    room::Room,
    truth::Truth,
    value::Value,
};
use onceflow_core::{
    model::{CheckedFlow, Library},
    protocol::ids::RunId,
};
use onceflow_engine::{Error, Handle, Resolution, RunStatus, Start};
use std::{collections::BTreeMap, sync::Arc};

/// One thing to ask for.
#[derive(Clone)]
pub struct Ask {
    /// The flow, for some or all of its outputs.
    pub flow: CheckedFlow,
    /// Its inputs, by name.
    pub inputs: Vec<(String, Value)>,
    /// How long inner values are kept.
    pub keep_ms: Option<u64>,
    /// How long its result can be asked for, and tried again what failed.
    pub history_ms: u64,
    /// Go on after failures with what does not depend on them.
    pub finish_independent: bool,
    /// What it means, while the world is broken and when it is repaired.
    pub meaning: [Arc<Meaning>; 2],
}

/// How long the result of most runs can be asked for.
pub const HISTORY_MS: u64 = 3_600_000;

impl Ask {
    /// What is asked for, if it can be simulated.
    pub fn new(library: Library, inputs: Vec<(String, Value)>, outputs: Option<Vec<String>>) -> Option<Self> {
        let whole = CheckedFlow::check(library, "main");
        let flow = whole.and_then(|flow| outputs.map_or_else(|| Ok(flow.clone()), |outputs| flow.only(&outputs)));
        let flow = flow.unwrap_or_else(|errors| panic!("{errors}"));
        let program = flow.program();
        let by_name: BTreeMap<_, _> = inputs.iter().cloned().collect();
        let wanted = program.blocks[0].inputs.iter().map(|input| by_name[&input.port.name].clone());
        let values: Vec<_> = wanted.collect();
        let meaning = [meaning(program, &values, false)?.into(), meaning(program, &values, true)?.into()];
        let wanted = |name: &String| program.blocks[0].inputs.iter().any(|input| input.port.name == *name);
        let inputs = inputs.into_iter().filter(|(name, _)| wanted(name)).collect();
        let history_ms = HISTORY_MS;
        Some(Ask { inputs, keep_ms: None, history_ms, finish_independent: false, meaning, flow })
    }

    /// Whether it means something else once the world is repaired; repaired half-way, it may mean something in between.
    fn is_fragile(&self) -> bool {
        let [broken, repaired] = &self.meaning;
        let text = |meaning: &Meaning| format!("{:?}{:?}", meaning.outputs, meaning.steps);
        text(broken) != text(repaired)
    }

    /// Whether it may be gone before a user looks.
    fn is_soon_forgotten(&self) -> bool {
        self.history_ms < HISTORY_MS
    }

    fn start(&self, key: &str) -> Start {
        let mut start = Start::new(key, self.flow.clone());
        for (name, value) in &self.inputs {
            start = start.input(name.clone(), value.data());
        }
        start.keep_ms = self.keep_ms;
        start.history_ms = self.history_ms;
        start.finish_independent = self.finish_independent;
        start
    }
}

/// A user.
pub struct User {
    /// The machines.
    pub room: Arc<Room>,
    /// What the run is called.
    pub key: String,
    /// What it asks for, one after the other.
    pub asks: Vec<Ask>,
    /// Whether it may stop its run.
    pub may_cancel: bool,
}

/// What a run has come to, with what it gave.
#[derive(Clone, Debug)]
enum Came {
    Done(Vec<(String, Value)>),
    Failed,
    Waiting(Vec<String>),
    Undone,
    Cancelled,
    Running,
    Gone,
}

impl User {
    /// Does all of it. Ends when the run has come to its last end.
    pub async fn live(self) {
        let sim = self.room.sim.clone();
        sim.sleep(sim.below(self.room.faults.until_ms / 2)).await;
        let mut current = None;
        for at in 0..self.asks.len() {
            let ask = &self.asks[at];
            self.expect(ask);
            if at > 0 {
                lock(&self.room.truth).changed.insert(self.key.clone());
            }
            if self.begin(ask).await {
                current = Some(at);
            } else if let Some(before) = current {
                // A start that died while it planned leaves the run frozen, until a user asks for it again.
                self.begin(&self.asks[before]).await;
            }
            if at + 1 < self.asks.len() && sim.per_mille(400) {
                // Changes its mind before the run is done.
                sim.sleep(sim.below(self.room.faults.lease_ms)).await;
                continue;
            }
            if let Some(current) = current.take() {
                self.see_through(&self.asks[current]).await;
            }
        }
        if let Some(current) = current {
            self.see_through(&self.asks[current]).await;
        }
    }

    /// Stays until the run has come to an end.
    async fn see_through(&self, ask: &Ask) {
        let sim = &self.room.sim;
        let mut cancelled = self.may_cancel && sim.per_mille(250);
        if cancelled {
            sim.sleep(sim.below(500)).await;
            self.cancel().await;
        }
        let mut tries = 0;
        let came = loop {
            let came = self.wait().await;
            match &came {
                Came::Running => {}
                Came::Waiting(steps) => self.decide(steps).await,
                Came::Failed => {
                    self.judge_failed(ask);
                    if sim.per_mille(200) {
                        // It is not retried: it goes when its history ends.
                        lock(&self.room.truth).left.insert(self.key.clone());
                        break came;
                    }
                    tries += 1;
                    if sim.per_mille(700) {
                        let mut truth = lock(&self.room.truth);
                        truth.repaired = true;
                        let fragile = truth.fragile.clone();
                        truth.inexact.extend(fragile);
                    }
                    if tries > 2 || !self.begin(ask).await {
                        cancelled = true;
                        self.cancel().await;
                    }
                }
                _ => break came,
            }
        };
        self.judge(ask, &came, cancelled);
        self.was_told();
        if let Came::Done(outputs) = &came {
            self.remember(ask, outputs);
        }
        if matches!(came, Came::Done(_)) && !ask.is_soon_forgotten() && sim.per_mille(300) {
            self.ask_again(ask, &came).await;
        }
    }

    /// Writes down what steps may be given from now on.
    fn expect(&self, ask: &Ask) {
        let mut truth = lock(&self.room.truth);
        if ask.is_fragile() {
            truth.fragile.insert(self.key.clone());
            if truth.repaired {
                truth.inexact.insert(self.key.clone());
            }
        }
        if ask.keep_ms.is_some() {
            truth.keepers.insert(self.key.clone());
        }
        for meaning in &ask.meaning {
            if !meaning.exact {
                truth.inexact.insert(self.key.clone());
            }
            for (address, step) in &meaning.steps {
                let known = truth.may_be_given.entry((self.key.clone(), address.clone())).or_default();
                let given = (step.task.clone(), step.version.clone(), step.inputs.clone());
                if !known.contains(&given) {
                    known.push(given);
                }
            }
        }
    }

    /// Starts until an engine answers. True if it was accepted: the run may be in no state for it.
    async fn begin(&self, ask: &Ask) -> bool {
        {
            let mut truth = lock(&self.room.truth);
            let Truth { told, known_runs, .. } = &mut *truth;
            told.retain(|run| known_runs.get(run) != Some(&self.key));
        }
        let sim = &self.room.sim;
        loop {
            let start = ask.start(&self.key);
            let twice = sim.per_mille(150);
            let answer = async |start: Start| {
                self.room
                    .on_some_node(|engine| async move { engine.start(start).await.map(|handle| handle.id()) })
                    .await
            };
            let answered = if twice {
                let both = futures_util::future::join(answer(start.clone()), answer(start)).await;
                match both {
                    (Some(Ok(one)), Some(Ok(two)))
                        if one != two
                            && !ask.is_soon_forgotten()
                            && !self.is_given_up(one)
                            && !self.is_given_up(two) =>
                    {
                        let seen = format!("{}: two starts gave runs {one} and {two}", self.key);
                        lock(&self.room.truth).violate("one result", seen);
                        return true;
                    }
                    (one, two) => one.filter(Result::is_ok).or(two),
                }
            } else {
                answer(start).await
            };
            match answered {
                Some(Ok(id)) => {
                    sim.tell(|| format!("{} is started: run {id}", self.key));
                    lock(&self.room.truth).known_runs.insert(id, self.key.clone());
                    return true;
                }
                Some(Err(error)) if !is_of_the_store(&error) => {
                    sim.tell(|| format!("{} is refused: {error}", self.key));
                    return false;
                }
                Some(Err(error)) => sim.tell(|| format!("{} could not be started: {error}", self.key)),
                None => sim.tell(|| format!("{}: who started it died", self.key)),
            }
            sim.sleep(50 + sim.below(200)).await;
        }
    }

    /// Whether a run failed or was cancelled, and is gone: asking for it again is another run.
    fn is_given_up(&self, run: RunId) -> bool {
        lock(&self.room.truth).given_up.contains_key(&run)
    }

    /// Looks until the run is at rest, or for a while.
    async fn wait(&self) -> Came {
        let sim = &self.room.sim;
        loop {
            let key = self.key.clone();
            let came = self.room.on_some_node(|engine| async move { look(engine, &key).await }).await;
            match came {
                Some(Ok(came)) => return came,
                Some(Err(Error::NoRun(_))) => return Came::Gone,
                Some(Err(error @ Error::Damaged(_))) => {
                    lock(&self.room.truth).violate("nothing live is missing", format!("{}: {error}", self.key));
                    return Came::Gone;
                }
                Some(Err(error)) => sim.tell(|| format!("{} could not be looked at: {error}", self.key)),
                None => {}
            }
            sim.sleep(50 + sim.below(200)).await;
        }
    }

    async fn cancel(&self) {
        let sim = &self.room.sim;
        loop {
            let key = self.key.clone();
            let cancel = |engine: onceflow_engine::Engine| async move { engine.find(&key).await?.cancel().await };
            match self.room.on_some_node(cancel).await {
                Some(Ok(())) => return,
                Some(Err(error)) if !is_of_the_store(&error) => return,
                Some(Err(error)) => sim.tell(|| format!("{} could not be cancelled: {error}", self.key)),
                None => {}
            }
            sim.sleep(50 + sim.below(200)).await;
        }
    }

    /// Reports the outcomes of steps that are unknown to the engine: the truth, as an operator would find it.
    async fn decide(&self, steps: &[String]) {
        let sim = &self.room.sim;
        let key = self.key.clone();
        let find = |engine: onceflow_engine::Engine| async move { Ok::<_, Error>(engine.find(&key).await?.id()) };
        // What another run of this key did is another story.
        let Some(Ok(run)) = self.room.on_some_node(find).await else { return sim.sleep(20).await };
        for address in steps {
            let Some(resolution) = self.resolution(run, address) else {
                sim.sleep(100).await;
                continue;
            };
            let (key, address) = (self.key.clone(), address.clone());
            sim.tell(|| format!("{key}: {address} is decided: {resolution:?}"));
            let resolve = |engine: onceflow_engine::Engine| async move {
                engine.find(&key).await?.resolve(&address, resolution).await
            };
            let _again_if_not = self.room.on_some_node(resolve).await;
        }
        sim.sleep(20).await;
    }

    /// The outcome of a step; `None` if a worker may still be at it.
    fn resolution(&self, run: RunId, address: &str) -> Option<Resolution> {
        let mut truth = lock(&self.room.truth);
        if truth.suspended.contains(&(run, address.to_owned())) {
            // Its timer wakes it; some are woken sooner.
            return crate::value::number_of(address).is_multiple_of(2).then_some(Resolution::Redo);
        }
        let done = truth.ran.get(&(run, address.to_owned())).into_iter().flatten();
        let done = done.filter_map(|ran| ran.done.clone()).next_back();
        if let Some(outputs) = done {
            return Some(Resolution::Done(outputs.iter().map(Value::data).collect()));
        }
        if truth.working > 0 {
            return None;
        }
        *truth.permits.entry((self.key.clone(), address.to_owned())).or_default() += 1;
        Some(Resolution::Redo)
    }

    /// The same again is the same result, and runs nothing.
    async fn ask_again(&self, ask: &Ask, came: &Came) {
        let before = self.starts();
        self.begin(ask).await;
        let again = self.wait().await;
        let after = self.starts();
        let same = match (came, &again) {
            (Came::Done(one), Came::Done(two)) => one == two,
            _ => false,
        };
        if !same {
            let seen = format!("{}: first {came:?}, then {again:?}", self.key);
            lock(&self.room.truth).violate("one result", seen);
        }
        if before != after {
            let seen = format!("{} is done, and asking for it again ran {} bodies", self.key, after - before);
            lock(&self.room.truth).violate("nothing is redone that need not be", seen);
        }
    }

    fn starts(&self) -> usize {
        let truth = lock(&self.room.truth);
        let mine = |(run, _): &&(_, String)| truth.known_runs.get(run) == Some(&self.key);
        truth.ran.keys().filter(mine).map(|place| truth.ran[place].iter().filter(|ran| !ran.late).count()).sum()
    }

    /// What a run that is done has kept need not run again.
    fn remember(&self, ask: &Ask, outputs: &[(String, Value)]) {
        let meant = ask.meaning.first().filter(|meaning| meaning.exact && meaning.outputs.as_deref() == Some(outputs));
        // Which steps ran before the world was repaired, and which after, is not known.
        let meant = meant.filter(|_| !ask.is_fragile());
        let Some(meaning) = meant.filter(|_| ask.keep_ms.is_some()) else { return };
        let mut truth = lock(&self.room.truth);
        let is_it = |run: &RunId, truth: &Truth| truth.lives.contains_key(run) && !truth.given_up.contains_key(run);
        let runs = truth.known_runs.iter().filter(|(run, key)| **key == self.key && is_it(run, &truth));
        let runs: Vec<_> = runs.map(|(run, _)| *run).collect();
        for run in runs {
            for (address, step) in meaning.steps.iter().filter(|(_, step)| !step.fails) {
                let task = (step.task.clone(), step.version.clone());
                truth.memos.insert((run, address.clone(), task, step.inputs.clone()));
            }
        }
    }

    /// The user knows now how the run ended, so it must stay so.
    fn was_told(&self) {
        let mut truth = lock(&self.room.truth);
        let runs: Vec<_> = truth.known_runs.iter().filter(|(_, key)| **key == self.key).map(|(run, _)| *run).collect();
        truth.told.extend(runs);
    }

    /// The run says that it failed: one of its tasks must.
    fn judge_failed(&self, ask: &Ask) {
        let broken = &ask.meaning[0];
        if broken.exact && broken.outputs.is_some() {
            lock(&self.room.truth).violate("every run ends well if its tasks do", format!("{} failed", self.key));
        }
    }

    /// Compares how the run ended with what must be so.
    fn judge(&self, ask: &Ask, came: &Came, cancelled: bool) {
        self.room.sim.tell(|| format!("{} came to {came:?}", self.key));
        let mut truth = lock(&self.room.truth);
        let [broken, repaired] = &ask.meaning;
        match came {
            Came::Done(outputs) => {
                let exact = broken.exact && repaired.exact && !truth.inexact.contains(&self.key);
                let right = |meaning: &Meaning| meaning.outputs.as_ref() == Some(outputs);
                if exact && !right(broken) && !right(repaired) {
                    let seen = format!("{} gave {outputs:?}, and must give {:?}", self.key, repaired.outputs);
                    truth.violate("outputs are those of the flow", seen);
                }
            }
            Came::Undone if broken.exact && broken.outputs.is_some() => {
                truth.violate("every run ends well if its tasks do", format!("{} failed and was undone", self.key));
            }
            Came::Cancelled if !cancelled => {
                truth.violate("every run ends well if its tasks do", format!("{}: no user cancelled it", self.key));
            }
            Came::Gone if !ask.is_soon_forgotten() => {
                truth.violate("every run ends", format!("{} is not there any more", self.key));
            }
            _ => {}
        }
    }
}

/// Whether it is worth trying again.
fn is_of_the_store(error: &Error) -> bool {
    matches!(error, Error::Store(_) | Error::Values(_) | Error::Blobs(_))
}

async fn look(engine: onceflow_engine::Engine, key: &str) -> Result<Came, Error> {
    let handle = engine.find(key).await?;
    let summary = handle.wait().await?;
    Ok(match summary.status {
        RunStatus::Done => {
            let mut values = Vec::new();
            for (name, _) in summary.outputs {
                values.push((name.clone(), value(&handle, &name).await?));
            }
            Came::Done(values)
        }
        RunStatus::Failed => Came::Failed,
        RunStatus::Waiting => Came::Waiting(summary.undecided),
        RunStatus::Undone | RunStatus::NotUndone => Came::Undone,
        RunStatus::Cancelled => Came::Cancelled,
        _ => Came::Running,
    })
}

async fn value(handle: &Handle, name: &str) -> Result<Value, Error> {
    let data = handle.output(name).await?;
    Value::of_data(&data).map_err(|why| Error::Damaged(format!("output {name}: {why}")))
}
