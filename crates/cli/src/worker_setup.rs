//! One of several processes that take the steps of any run: which steps, how many at a time, and under which name.

use crate::{
    args, codes,
    exit::Exit,
    fault::Fault,
    presence::{self, Attending, Notice, Presence},
    session::{ANY, Session, own_class},
    work,
};
use onceflow_engine::{About, Engine, Options};
use onceflow_exec::action::EXECUTORS;
use std::collections::BTreeMap;

/// Labels of one worker: it looks at a queue for every set of them.
const LABELS_MAX: usize = 5;

/// What a worker takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerSetup {
    /// Steps at a time: so many are taken, and all of them run.
    pub(crate) jobs: usize,
    labels: Vec<String>,
    /// Steps at a time of those that ask for a label.
    limits: BTreeMap<String, usize>,
    cpu_milli: Option<u32>,
    memory_bytes: Option<u64>,
    lease_ms: Option<u64>,
    is_for_the_end: bool,
    /// A run whose own steps it takes, if it was started to be attended.
    attends: Option<String>,
}

impl WorkerSetup {
    /// One that takes so many steps at a time, and none that ask for labels.
    pub(crate) fn of(jobs: Option<u16>, lease_ms: Option<u64>) -> Self {
        WorkerSetup { jobs: jobs.map_or_else(cpus, usize::from), lease_ms, ..WorkerSetup::default() }
    }

    /// The same, taking the steps of this run also if they are for whoever attends it.
    pub(crate) fn attending(self, key: &str) -> Self {
        WorkerSetup { attends: Some(key.to_owned()), ..self }
    }

    /// One that takes no steps of tasks: it puts aside, undoes and removes.
    pub(crate) fn for_the_end() -> Self {
        WorkerSetup { is_for_the_end: true, ..WorkerSetup::of(None, None) }
    }

    /// As it is said on the command line.
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

    /// The classes whose steps it takes, with how many at a time: one for every set of its labels.
    fn classes(&self) -> BTreeMap<String, usize> {
        let sets = 0..1_usize << self.labels.len();
        let class = |set: usize| {
            let labels: Vec<_> =
                (0..self.labels.len()).filter(|at| set >> at & 1 == 1).map(|at| &self.labels[at]).collect();
            let most = labels.iter().filter_map(|label| self.limits.get(*label)).copied().min();
            let name = labels.iter().fold(ANY.to_owned(), |name, label| format!("{name}+{label}"));
            (name, if self.is_for_the_end { 0 } else { most.map_or(self.jobs, |most| most.min(self.jobs)) })
        };
        let own = self.attends.iter().map(|key| (own_class(key), self.jobs));
        sets.map(class).chain(own).collect()
    }

    /// Whether it takes steps of this class that are these tasks.
    pub(crate) fn takes(&self, class: &str, tasks: &[(String, String)]) -> bool {
        let offers = tasks.iter().all(|(name, _)| EXECUTORS.contains(&name.as_str()));
        offers && (class.is_empty() || self.classes().contains_key(class))
    }

    /// An engine that takes such steps, once it is told to go; and the place it has among the processes here.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn engine(&self, session: &Session, what: &str) -> Result<(Engine, Attending), Fault> {
        let mut about = About::this_process(format!("onceflow {} {what}", env!("CARGO_PKG_VERSION")));
        about.labels.clone_from(&self.labels);
        let options = Options {
            classes: self.classes(),
            // What it has taken and does not run, another one could, who is idle.
            classes_max: self.jobs,
            running_max: self.jobs,
            cpu_milli: self.cpu_milli.unwrap_or_else(|| milli(cpus().max(self.jobs))),
            memory_bytes: self.memory_bytes.unwrap_or(u64::MAX),
            lease_ms: self.lease_ms.unwrap_or(Options::default().lease_ms),
            other_classes: false,
            waits: true,
            scratch: crate::executors::home(&session.location).scratch(),
            about: Some(about),
            ..Options::default()
        };
        let engine = Engine::open(&session.store, options).await?;
        let attending = here(session, &engine)?;
        engine.add_tasks(&crate::executors::shared_tasks(&session.location, engine.incarnation()))?;
        work::release(&engine, &session.location, None).await?;
        tokio::spawn(work::keep_releasing(engine.clone(), session.location.clone()));
        Ok((engine, attending))
    }
}

/// Says to other processes on this machine that we are there: when we are gone, they let go of what we had at once.
fn here(session: &Session, engine: &Engine) -> Result<Attending, Fault> {
    let key = format!("worker {}", std::process::id());
    let notice = Notice { pid: std::process::id(), key, ..Notice::default() };
    match presence::attend(&session.location.directory, notice)? {
        Presence::Mine(mut attending, _) => {
            attending.claims_as(engine.incarnation())?;
            Ok(attending)
        }
        Presence::Other(_) => {
            let what = format!("another process at this store has our number, {}", std::process::id());
            Err(Fault::new(Exit::Busy, codes::SYSTEM, what)
                .hint("containers that share a directory must share the numbers of processes, or use a server"))
        }
    }
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
