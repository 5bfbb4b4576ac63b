//! State that all executors of a process share.

use crate::{guard::Guard, home::Home, log::LogBudget, program};
use onceflow_engine::task::Failure;
use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// Settings of the executors.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// The store's directory.
    pub home: Home,
    /// The program and arguments that run [`crate::guard::main`]. Without it, commands outlive a worker that is killed.
    pub guard: Option<(PathBuf, Vec<OsString>)>,
    /// The classes of workers that take the steps of flows that scopes call.
    pub called_class: CalledClass,
}

/// Chooses the class of workers for steps of a flow that a scope calls: from the class of the scope's step, and the class
/// that the called step asks for. By default it is the latter.
#[derive(Clone)]
pub struct CalledClass(pub Arc<dyn Fn(&str, &str) -> String + Send + Sync>);

impl CalledClass {
    pub(crate) fn of(&self, scope: &str, asked: &str) -> String {
        (self.0)(scope, asked)
    }
}

impl Default for CalledClass {
    fn default() -> Self {
        CalledClass(Arc::new(|_, asked| asked.to_owned()))
    }
}

impl std::fmt::Debug for CalledClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CalledClass")
    }
}

/// State that all executors share.
pub(crate) struct ExecutorContext {
    pub(crate) home: Home,
    pub(crate) budget: LogBudget,
    /// Work directories.
    pub(crate) pool: crate::work::pool::Pool,
    /// The few variables of this process's environment that every command gets.
    pub(crate) base_env: Vec<(OsString, OsString)>,
    pub(crate) called_class: CalledClass,
    guard_program: Option<(PathBuf, Vec<OsString>)>,
    guard: OnceLock<Option<Arc<Guard>>>,
    bash: OnceLock<PathBuf>,
    sh: OnceLock<PathBuf>,
}

impl ExecutorContext {
    pub(crate) fn new(options: ExecutorOptions) -> Self {
        let ExecutorOptions { home, guard, called_class } = options;
        // Commands run in another directory, where a relative path would not lead to the store.
        let home = Home { root: std::path::absolute(&home.root).unwrap_or(home.root), own: home.own };
        ExecutorContext {
            home,
            budget: LogBudget::default(),
            pool: crate::work::pool::Pool::default(),
            base_env: base_env(),
            called_class,
            guard_program: guard,
            guard: OnceLock::new(),
            bash: OnceLock::new(),
            sh: OnceLock::new(),
        }
    }

    /// Returns the guard; the first call starts it.
    pub(crate) fn guard(&self) -> Option<Arc<Guard>> {
        let start = || {
            let (program, args) = self.guard_program.as_ref()?;
            match Guard::start(program, args, &self.home.root) {
                Ok(guard) => Some(Arc::new(guard)),
                Err(error) => {
                    tracing::warn!(%error, "the guard could not be started: commands may outlive this process");
                    None
                }
            }
        };
        self.guard.get_or_init(start).clone()
    }

    /// Finds a shell. The result is cached if the PATH is this process's own.
    pub(crate) fn shell(&self, name: &str, env: &[(OsString, OsString)]) -> Result<PathBuf, Failure> {
        let known = if name == "bash" { &self.bash } else { &self.sh };
        if env.iter().filter(|(name, _)| name == "PATH").count() > 1 {
            return program::find(name, env);
        }
        match known.get() {
            Some(path) => Ok(path.clone()),
            None => program::find(name, env).map(|path| known.get_or_init(|| path).clone()),
        }
    }
}

fn base_env() -> Vec<(OsString, OsString)> {
    let is_kept = |name: &str| matches!(name, "PATH" | "HOME" | "USER" | "LANG") || name.starts_with("LC_");
    let mut env: Vec<_> = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_kept)).collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), program::DEFAULT_PATH.into()));
    }
    env
}
