//! The tasks that an engine can run, by name and version.

use super::Body;
use crate::resources::{Need, Resources};
use onceflow_core::model::TaskSpec;
use std::{collections::BTreeMap, sync::Arc};

/// A task with its code.
type Offered = (TaskSpec, Arc<dyn Body>);

/// The tasks a worker can run, by name and version.
#[derive(Clone, Default)]
pub struct Tasks {
    /// Several versions of one name may be present, for runs that were planned with them.
    tasks: BTreeMap<String, Vec<Offered>>,
    /// Bodies that run any task of their name, whatever its version and ports.
    executors: BTreeMap<String, Arc<dyn Body>>,
}

/// Two different tasks have one name and version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "two different tasks are called `{name}`, version {version}: one would silently stand in for the other; give one \
     another name, or another version"
)]
pub struct Conflict {
    /// The name of both.
    pub name: String,
    /// The version of both.
    pub version: String,
}

impl Tasks {
    /// An empty set.
    pub fn new() -> Self {
        Tasks::default()
    }

    /// Adds a task. Replaces a task of the same name and version.
    pub fn add(&mut self, spec: TaskSpec, body: Arc<dyn Body>) {
        let versions = self.tasks.entry(spec.name.clone()).or_default();
        versions.retain(|(known, _)| known.version != spec.version);
        versions.push((spec, body));
    }

    /// Adds a body that runs any task of this name as the flow describes it: see [`Step::spec`](super::Step::spec). Replaces an executor
    /// of the same name.
    pub fn add_executor(&mut self, name: impl Into<String>, body: Arc<dyn Body>) {
        self.executors.insert(name.into(), body);
    }

    /// The executor of this name.
    pub fn executor(&self, name: &str) -> Option<&Arc<dyn Body>> {
        self.executors.get(name)
    }

    /// The first task that takes a resource which is not among these, and that resource.
    pub(crate) fn missing_resource(&self, resources: &Resources) -> Option<(String, Need)> {
        self.tasks.values().flatten().find_map(|(spec, body)| {
            let need = body.needs().into_iter().find(|need| !resources.has(need))?;
            Some((spec.name.clone(), need))
        })
    }

    /// The classes of all tasks.
    pub fn classes(&self) -> impl Iterator<Item = String> {
        self.tasks.values().flatten().map(|(spec, _)| spec.class.clone())
    }

    /// The names of the tasks present, each with its version; an executor, which runs any version, has none.
    pub(crate) fn offers(&self) -> Vec<(String, Option<String>)> {
        let tasks = self.tasks.values().flatten().map(|(spec, _)| (spec.name.clone(), Some(spec.version.clone())));
        self.executors.keys().map(|name| (name.clone(), None)).chain(tasks).collect()
    }

    /// Code for this task and version is present.
    pub(crate) fn offer(&self, name: &str, version: &str) -> bool {
        self.executors.contains_key(name) || self.version(name, version).is_some()
    }

    /// The task of this name; of several versions, the one that was added last.
    pub fn get(&self, name: &str) -> Option<&(TaskSpec, Arc<dyn Body>)> {
        self.tasks.get(name)?.last()
    }

    /// The task of this name and version.
    pub fn version(&self, name: &str, version: &str) -> Option<&(TaskSpec, Arc<dyn Body>)> {
        self.tasks.get(name)?.iter().find(|(spec, _)| spec.version == version)
    }

    /// The code of a task as a run was planned with it; else why no step of it can run here.
    pub(crate) fn body_of(&self, wanted: &TaskSpec) -> Result<&Arc<dyn Body>, String> {
        if let Some(body) = self.executor(&wanted.name) {
            return Ok(body);
        }
        match self.version(&wanted.name, &wanted.version).or_else(|| self.get(&wanted.name)) {
            None => Err(format!("no worker here offers task `{}`; add the flow to the engine", wanted.name)),
            Some((spec, _)) if spec.version != wanted.version => Err(format!(
                "task `{}` is version {} here, and the run was planned for {}; start the run again to plan it anew",
                wanted.name, spec.version, wanted.version
            )),
            Some((_, body)) => Ok(body),
        }
    }

    /// Adds all tasks of another set, or none.
    ///
    /// # Errors
    /// If a different task of the same name and version is present already.
    pub fn extend(&mut self, other: &Tasks) -> Result<(), Conflict> {
        let others = || other.tasks.values().flatten();
        for (spec, body) in others() {
            let known = self.version(&spec.name, &spec.version);
            if known.is_some_and(|(known, code)| known != spec || !is_same(code, body)) {
                return Err(Conflict { name: spec.name.clone(), version: spec.version.clone() });
            }
        }
        self.executors.extend(other.executors.clone());
        for (spec, body) in others() {
            if self.version(&spec.name, &spec.version).is_none() {
                self.add(spec.clone(), body.clone());
            }
        }
        Ok(())
    }
}

/// Two bodies are the same: one object, or of one type that has only one value.
fn is_same(a: &Arc<dyn Body>, b: &Arc<dyn Body>) -> bool {
    let only_value = size_of_val(&**a) == 0 && (**a).type_id() == (**b).type_id();
    Arc::ptr_eq(a, b) || only_value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Attempt, Data, Failure, Step};

    struct Known<const N: usize>;
    impl<const N: usize> Body for Known<N> {
        fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
            Attempt::Done(Ok(vec![]))
        }
    }

    struct Told(u8);
    impl Body for Told {
        fn start(&self, _: Step, _: Vec<Data>) -> Attempt {
            Attempt::Done(Err(Failure::new(self.0.to_string())))
        }
    }

    fn set(version: &str, body: Arc<dyn Body>) -> Tasks {
        let mut tasks = Tasks::new();
        let mut spec = TaskSpec::new("t", vec![], vec![]);
        spec.version = version.into();
        tasks.add(spec, body);
        tasks
    }

    #[test]
    fn two_bodies_under_one_name_and_version_are_refused() {
        let conflict = Err(Conflict { name: "t".into(), version: "1".into() });
        let told: Arc<dyn Body> = Arc::new(Told(1));
        let cases: [(Arc<dyn Body>, &str, Arc<dyn Body>, Result<(), Conflict>); 6] = [
            (Arc::new(Known::<1>), "1", Arc::new(Known::<1>), Ok(())),
            (Arc::new(Known::<1>), "1", Arc::new(Known::<2>), conflict.clone()),
            (Arc::new(Known::<1>), "2", Arc::new(Known::<2>), Ok(())),
            (told.clone(), "1", told.clone(), Ok(())),
            (told.clone(), "1", Arc::new(Told(1)), conflict.clone()),
            (Arc::new(Known::<1>), "1", told, conflict),
        ];
        for (at, (known, version, more, expected)) in cases.into_iter().enumerate() {
            let mut tasks = set("1", known);
            assert_eq!(tasks.extend(&set(version, more)), expected, "case {at}");
            let kept = tasks.version("t", "1").is_some();
            assert!(kept && tasks.get("t").is_some_and(|(spec, _)| expected.is_err() || spec.version == version));
        }
    }
}
