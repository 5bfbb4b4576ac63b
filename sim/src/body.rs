//! The user code of every simulated task: writes down that it runs, takes its time, fails as it should, and gives what
//! follows from its inputs.

use crate::{
    behaviour::Behaviour,
    executor::{NodeId, Sim, lock},
    oracle::{fails, outputs_of},
    store::SimStore,
    truth::{Ran, Truth},
    value::Value,
};
use onceflow_core::model::{Effect, TaskSpec};
use onceflow_engine::task::{Attempt, Body, Data, Failure, Step, Suspension, Tx, Verdict};
use onceflow_store::BoxFuture;
use std::sync::{Arc, Mutex};

/// A task's code on one node.
pub struct SimBody {
    /// The room.
    pub sim: Arc<Sim>,
    /// What is written down.
    pub truth: Arc<Mutex<Truth>>,
    /// The store, to see whether what must be durable is.
    pub store: Arc<SimStore>,
    /// Where it runs.
    pub node: NodeId,
    /// What it is.
    pub spec: TaskSpec,
    /// How long a claim stands.
    pub lease_ms: u64,
}

/// The row that transactional tasks count in.
pub const COUNT: &str = "count";

/// A body at work, until it ends or is dropped.
struct Working(Arc<Mutex<Truth>>);

impl Drop for Working {
    fn drop(&mut self) {
        lock(&self.0).working -= 1;
    }
}

impl Body for SimBody {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let inputs: Vec<Value> = match inputs.iter().map(Value::of_data).collect() {
            Ok(inputs) => inputs,
            Err(why) => {
                lock(&self.truth).violate("inputs are complete", format!("{}: {why}", step.address()));
                return Attempt::Done(Err(Failure::new(why)));
            }
        };
        let behaviour = Behaviour::of(&self.spec);
        self.sim.tell(|| {
            let what = if behaviour.undoes { "undoes" } else { "runs" };
            format!(
                "node {} {what} {} ({}) of run {}, attempt {}",
                self.node,
                step.address(),
                self.spec.name,
                step.run(),
                step.attempt()
            )
        });
        if behaviour.undoes {
            return self.undo(&step, behaviour);
        }
        if behaviour.suspends && step.resumed().is_none() {
            lock(&self.truth).suspended.insert((step.run(), step.address()));
            let timeout_ms = Some(self.sim.below(self.lease_ms));
            return Attempt::Suspended(Suspension { handle: step.key(), timeout_ms });
        }
        if let Some(resumed) = step.resumed().filter(|resumed| resumed.handle != step.key()) {
            let seen = format!("{} goes on with the handle {}", step.address(), resumed.handle);
            lock(&self.truth).violate("a suspended attempt is found again", seen);
        }
        let at = self.log(&step, &inputs);
        let failure = self.failure(&step, behaviour, &inputs);
        let salt = if behaviour.random { self.sim.random(|random| random.bits()) } else { 0 };
        let outputs = outputs_of(&self.spec, &inputs, salt);
        if behaviour.slow == 0 && self.spec.effect != Effect::Transactional {
            let given = self.end(&step, at, failure, &outputs);
            return Attempt::Done(given);
        }
        let ms = self.lease_ms * u64::from(behaviour.slow) / 100;
        let body = SimBody {
            sim: self.sim.clone(),
            truth: self.truth.clone(),
            store: self.store.clone(),
            spec: self.spec.clone(),
            ..*self
        };
        lock(&self.truth).working += 1;
        let working = Working(self.truth.clone());
        Attempt::Async(Box::pin(async move {
            let _working = working;
            body.sim.sleep(body.sim.below(ms + 1)).await;
            if let Some(tx) = step.tx() {
                count(tx).await?;
            }
            body.end(&step, at, failure, &outputs)
        }))
    }

    fn verify(&self, step: Step, inputs: Vec<Data>) -> Option<BoxFuture<'static, Verdict>> {
        // Half of the tasks have no way to find out.
        if crate::value::number_of(&self.spec.name).is_multiple_of(2) {
            return None;
        }
        let _ = inputs;
        let mut truth = lock(&self.truth);
        let place = (step.run(), step.address());
        let done = truth.ran.get(&place).and_then(|ran| ran.iter().find_map(|ran| ran.done.clone()));
        let verdict = match done {
            Some(outputs) => Verdict::Done(outputs.iter().map(Value::data).collect()),
            None if truth.working > 0 => Verdict::Unknown,
            None => {
                *truth.verdicts.entry(place).or_default() += 1;
                Verdict::NotDone
            }
        };
        self.sim.tell(|| format!("node {} verifies {}: {verdict:?}", self.node, step.address()));
        Some(Box::pin(std::future::ready(verdict)))
    }
}

/// One more in the row that all transactional steps of a flow count in.
async fn count(tx: &Tx) -> Result<(), Failure> {
    let row = tx.get(COUNT).await.map_err(|error| Failure::new(error.to_string()))?;
    let n = row.map_or(0, |row| u64::from_be_bytes(row[..].try_into().expect("a count")));
    tx.put(COUNT, (n + 1).to_be_bytes());
    Ok(())
}

impl SimBody {
    fn log(&self, step: &Step, inputs: &[Value]) -> usize {
        let ran = Ran {
            node: self.node,
            inputs: inputs.to_vec(),
            task: (self.spec.name.clone(), self.spec.version.clone()),
            at_ms: self.sim.now_ms(),
            writes: self.spec.effect == Effect::Transactional,
            late: false,
            kept: false,
            undoable: self.spec.compensation.is_some(),
            settled: None,
            done: None,
        };
        let place = (step.run(), step.address());
        self.store.watch.body_starts(&self.store, self.node, &place, self.spec.effect);
        let mut truth = lock(&self.truth);
        let key = truth.known_runs.get(&place.0).cloned();
        let mut ran = ran;
        ran.kept = key.as_ref().is_some_and(|key| truth.keepers.contains(key));
        truth.start(place, (self.spec.effect, step.attempt()), ran, key)
    }

    fn failure(&self, step: &Step, behaviour: Behaviour, inputs: &[Value]) -> Option<Failure> {
        let mut failure = Failure::new("it fails");
        if fails(&self.spec, inputs, lock(&self.truth).repaired) {
            if behaviour.panics {
                failure.causes = vec![String::from("panic")];
            }
            return Some(failure.finally());
        }
        (step.attempt() <= u32::from(behaviour.flaky)).then_some(failure)
    }

    fn end(&self, step: &Step, at: usize, failure: Option<Failure>, outputs: &[Value]) -> Result<Vec<Data>, Failure> {
        if let Some(failure) = failure {
            if failure.causes == ["panic"] {
                // Not a panic of ours: it unwinds without a word.
                std::panic::resume_unwind(Box::new("it panics"));
            }
            return Err(failure);
        }
        let mut truth = lock(&self.truth);
        if let Some(ran) = truth.ran.get_mut(&(step.run(), step.address())).and_then(|ran| ran.get_mut(at)) {
            ran.done = Some(outputs.to_vec());
        }
        Ok(outputs.iter().map(Value::data).collect())
    }

    fn undo(&self, step: &Step, behaviour: Behaviour) -> Attempt {
        let well = step.attempt() > u32::from(behaviour.flaky);
        // Who was too slow may come when it is undone already; nothing follows from what it does then.
        let mut truth = lock(&self.truth);
        if !truth.is_undone(step.run(), &step.address()) {
            truth.undone.push((step.run(), step.address(), well));
        }
        Attempt::Done(if well { Ok(vec![]) } else { Err(Failure::new("not yet")) })
    }
}
