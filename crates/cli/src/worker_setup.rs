//! The setup of a worker: which steps it takes, how many at a time, and how it is registered. One worker takes the
//! steps of a single run, another those of any run on the store.

use crate::{
    args, event_log, executors,
    fault::Fault,
    housekeeping,
    session::{ANY, Session, own_class},
};
use onceflow_engine::{About, Engine, Options};
use onceflow_exec::action::EXECUTORS;
use std::collections::BTreeMap;

/// The most labels of one worker: it polls a queue for every set of them.
const LABELS_MAX: usize = 5;

/// The setup of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerSetup {
    /// Steps that run at a time.
    pub(crate) jobs: usize,
    labels: Vec<String>,
    /// The most concurrent steps, by the label that they ask for.
    limits: BTreeMap<String, usize>,
    cpu_milli: Option<u32>,
    memory_bytes: Option<u64>,
    lease_ms: Option<u64>,
    /// The worker takes no steps of tasks: it only ends, undoes and removes runs.
    only_ends_runs: bool,
    run: Option<RunSetup>,
}

/// A run that a worker is for.
#[derive(Clone, Debug)]
struct RunSetup {
    key: String,
    /// The worker also takes steps of other runs, and other workers take steps of this one.
    is_shared: bool,
}

impl WorkerSetup {
    /// A worker that takes so many steps at a time, and none that ask for labels.
    pub(crate) fn of(jobs: Option<u16>, lease_ms: Option<u64>) -> Self {
        WorkerSetup { jobs: jobs.map_or_else(cpus, usize::from), lease_ms, ..WorkerSetup::default() }
    }

    /// The same for the run of a key: limited to it, unless other workers may take its steps too.
    pub(crate) fn for_run(self, key: &str, is_shared: bool) -> Self {
        WorkerSetup { run: Some(RunSetup { key: key.to_owned(), is_shared }), ..self }
    }

    /// A worker that takes no steps of tasks: it ends, undoes and removes runs.
    pub(crate) fn only_to_end_runs() -> Self {
        WorkerSetup { only_ends_runs: true, ..WorkerSetup::of(None, None) }
    }

    /// Makes the setup from the arguments of `onceflow worker`.
    ///
    /// # Errors
    /// If there are too many labels.
    pub(crate) fn of_worker(args: &args::Worker) -> Result<Self, Fault> {
        let limits: BTreeMap<_, _> = args.class.iter().cloned().collect();
        let mut labels: Vec<_> = args.label.iter().chain(limits.keys()).cloned().collect();
        labels.sort();
        labels.dedup();
        if labels.len() > LABELS_MAX {
            let message = format!("a worker has at most {LABELS_MAX} labels, not {}", labels.len());
            return Err(Fault::usage(message).hint("start several workers"));
        }
        let cpu_milli = args.cpus.map(|cpus| (cpus * 1000.0).round() as u32);
        Ok(WorkerSetup {
            labels,
            limits,
            cpu_milli,
            memory_bytes: args.memory,
            ..WorkerSetup::of(args.jobs, args.lease)
        })
    }

    /// The key of the only run whose steps it takes.
    fn limited_to(&self) -> Option<&str> {
        self.run.as_ref().filter(|run| !run.is_shared).map(|run| run.key.as_str())
    }

    /// The classes whose steps it takes, with how many at a time: that of its run, and one for every set of its labels.
    fn classes(&self) -> BTreeMap<String, usize> {
        if let Some(key) = self.limited_to() {
            return BTreeMap::from([(own_class(key), ahead(self.jobs))]);
        }
        let sets = 0..1_usize << self.labels.len();
        let class = |set: usize| {
            let labels: Vec<_> =
                (0..self.labels.len()).filter(|at| set >> at & 1 == 1).map(|at| &self.labels[at]).collect();
            let most = labels.iter().filter_map(|label| self.limits.get(*label)).copied().min();
            let name = labels.iter().fold(ANY.to_owned(), |name, label| format!("{name}+{label}"));
            (name, if self.only_ends_runs { 0 } else { most.map_or(self.jobs, |most| most.min(self.jobs)) })
        };
        let own = self.run.iter().map(|run| (own_class(&run.key), self.jobs));
        sets.map(class).chain(own).collect()
    }

    /// The worker takes steps of this class that run these tasks.
    pub(crate) fn takes(&self, class: &str, tasks: &[(String, String)]) -> bool {
        let offers = tasks.iter().all(|(name, _)| EXECUTORS.contains(&name.as_str()));
        offers && (class.is_empty() || self.classes().contains_key(class))
    }

    /// Opens the engine of such a worker; it takes its first step when it is told to. `verb` is the command of this
    /// process.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn engine(&self, session: &Session, verb: &str) -> Result<Engine, Fault> {
        let mut about = About::this_process(format!("onceflow {} {verb}", env!("CARGO_PKG_VERSION")));
        about.labels.clone_from(&self.labels);
        about.run = self.limited_to().map(str::to_owned);
        let (is_limited, location) = (about.run.is_some(), &session.location);
        let options = Options {
            classes: self.classes(),
            // A step that is claimed and does not run yet could run on an idle worker, if there are others.
            classes_max: if is_limited { usize::MAX } else { self.jobs },
            running_max: self.jobs,
            cpu_milli: self.cpu_milli.unwrap_or_else(|| milli(cpus().max(self.jobs))),
            memory_bytes: self.memory_bytes.unwrap_or(u64::MAX),
            lease_ms: self.lease_ms.unwrap_or(Options::default().lease_ms),
            other_classes: false,
            waits: true,
            scratch: executors::home(location).scratch(),
            locks: true,
            about: Some(about),
            event_log: Some(event_log::OPTIONS),
            ..Options::default()
        };
        let engine = Engine::open(&session.store, options).await?;
        engine.add_tasks(&match is_limited {
            true => executors::tasks(location),
            false => {
                let run = self.run.as_ref().filter(|_| self.only_ends_runs);
                executors::shared_tasks(location, engine.incarnation(), run.map(|run| own_class(&run.key)))
            }
        })?;
        housekeeping::release_ended(&engine, location).await?;
        executors::home(location).tidy_after_the_dead();
        tokio::spawn(housekeeping::keep_releasing(engine.clone(), location.clone()));
        Ok(engine)
    }
}

/// Returns how many steps a worker without others claims at a time, if `jobs` commands may run: while some run, the
/// inputs of others are prepared, and the outputs of others committed.
fn ahead(jobs: usize) -> usize {
    jobs.saturating_mul(4).saturating_add(4)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn milli(cpus: usize) -> u32 {
    u32::try_from(cpus.saturating_mul(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_steps_that_ask_for_any_of_its_labels_together_and_for_none() {
        let setup = WorkerSetup {
            jobs: 4,
            labels: ["gpu", "large"].map(String::from).to_vec(),
            limits: [(String::from("gpu"), 1)].into(),
            ..WorkerSetup::default()
        };
        let classes: Vec<_> = setup.classes().into_iter().collect();
        let named = |name: &str, max| (String::from(name), max);
        assert_eq!(
            classes,
            [named("flow", 4), named("flow+gpu", 1), named("flow+gpu+large", 1), named("flow+large", 4)]
        );
        assert!(setup.takes("", &[]) && setup.takes("flow+gpu", &[]) && !setup.takes("flow+tpu", &[]));
        assert!(!setup.takes("flow", &[(String::from("sum"), String::from("1"))]));
    }
}
