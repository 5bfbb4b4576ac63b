//! An attempt at a step in a process, from its inputs to its outputs: the common part of commands and scripts.

use crate::{
    ExecutorContext,
    action::{Capture, Template},
    codes,
    expr::{self, Bindings},
    log::Log,
    mask::Mask,
    output::{self, ExpectedOutput},
    process::{self, ProcessStart},
    shell,
    value::PortValue,
    work::{MovedFiles, TEMPORARY, WorkDir},
};
use onceflow_core::model::{Port, TaskSpec};
use onceflow_engine::task::{Data, Failure, Step};
use onceflow_store::blocking::blocking;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io::Write,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
};

/// A step that a process executes.
pub(crate) struct ProcessStep<'a> {
    pub(crate) shared: Arc<ExecutorContext>,
    pub(crate) step: &'a Step,
    pub(crate) spec: &'a TaskSpec,
    pub(crate) work: WorkDir,
    pub(crate) scope: Bindings,
    planned: Vec<ExpectedOutput>,
    captures: &'a [Capture],
    secrets: &'a Secrets,
}

/// Secrets by name, from the worker's environment.
#[derive(Default)]
pub(crate) struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// Reads the secrets of these names from the environment.
    pub(crate) fn read(names: &[String]) -> Result<Self, Failure> {
        let mut found = BTreeMap::new();
        for name in names {
            let value = std::env::var(name).map_err(|_| {
                let failed = codes::failure(codes::SECRET, format!("secret `{name}` is not in the environment"));
                let mut failed = codes::because(failed.finally(), format!("hint: `export {name}=…`, then run again"));
                failed.not_done = true;
                failed
            })?;
            found.insert(name.clone(), value);
        }
        Ok(Secrets(found))
    }

    pub(crate) fn mask(&self) -> Mask {
        // In a URL a secret appears percent-encoded.
        let encoded = self.0.values().map(|secret| crate::http::encode(secret));
        Mask::new(self.0.values().cloned().chain(encoded))
    }

    /// The secrets as a record, for expressions.
    pub(crate) fn value(&self) -> PortValue {
        PortValue::Record(
            self.0.iter().map(|(name, secret)| (name.clone(), PortValue::text(secret.as_str()))).collect(),
        )
    }
}

/// Masks the secrets in a failure.
pub(crate) fn masked(mut failure: Failure, mask: &Mask) -> Failure {
    failure.causes = failure.causes.iter().map(|cause| mask.text(cause)).collect();
    failure
}

/// Returns the names that every expression of a step can use, except for outputs and secrets.
pub(crate) fn scope(step: &Step, spec: &TaskSpec) -> Bindings {
    let mut scope = Bindings::new();
    let cpus = spec.resources.cpu_milli.div_ceil(1000).max(1);
    scope.set("cpus", PortValue::Int(i64::from(cpus)));
    scope.set("memory", PortValue::Int(i64::try_from(spec.resources.memory_bytes).unwrap_or(i64::MAX)));
    scope.set("attempt", PortValue::Int(i64::from(step.attempt())));
    scope.set("key", PortValue::Text(step.key()));
    scope
}

/// Decodes an input.
pub(crate) fn input(spec: &TaskSpec, at: usize, data: Data) -> Result<PortValue, Failure> {
    let port = &spec.inputs[at];
    PortValue::from_data(data, &port.ty).map_err(|wrong| {
        let wrong = wrong.inside(&format!(".{}", port.name.replace('-', ".")));
        codes::failure(codes::INPUT_TYPE, format!("an input is not a value of its type: {wrong}")).finally()
    })
}

/// Makes the failure of an expression. A retry would fail the same way.
pub(crate) fn uncomputed(error: &expr::EvalError) -> Failure {
    codes::failure(codes::EXPRESSION, error).finally()
}

impl<'a> ProcessStep<'a> {
    /// Prepares a work directory with the inputs in it. Files are created and copied off the runtime's threads.
    pub(crate) async fn new(
        shared: &Arc<ExecutorContext>,
        (step, spec): (&'a Step, &'a TaskSpec),
        inputs: Vec<Data>,
        captures: &'a [Capture],
        secrets: &'a Secrets,
    ) -> Result<Self, Failure> {
        let (on, of, outputs) = (shared.clone(), step.clone(), captures.to_vec());
        let (work, scope, planned) = blocking(move || prepare(&on, &of, inputs, &outputs)).await?;
        Ok(ProcessStep { shared: shared.clone(), step, spec, work, scope, planned, captures, secrets })
    }

    /// Writes a file of the executor's own among the temporary files; returns its path relative to the work directory.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, Failure> {
        let path = Path::new(TEMPORARY).join(name);
        let written = self.work.create_temporary(name).and_then(|mut file| file.write_all(content));
        written.map_err(|error| codes::work(format!("{} could not be written", path.display()), &error))?;
        Ok(path)
    }

    /// Returns the environment of the process: the base variables, the declared ones, and secrets.
    pub(crate) fn env(&self, declared: &BTreeMap<String, Template>) -> Result<Vec<(OsString, OsString)>, Failure> {
        let mut env = self.shared.base_env.clone();
        // Without `SHELL`, bash looks the user up to find the login shell, which takes longer than a small command.
        let shell = self.shared.shell("bash", &env).ok();
        let mut add = |name: &str, value: OsString| env.push((name.into(), value));
        if let Some(shell) = shell {
            add("SHELL", shell.into());
        }
        add("PWD", self.work.path.clone().into());
        add("TMPDIR", self.work.path.join(TEMPORARY).into());
        add("ONCEFLOW_KEY", self.step.key().into());
        add("ONCEFLOW_ADDRESS", self.step.address().into());
        add("ONCEFLOW_ATTEMPT", self.step.attempt().to_string().into());
        if let Some(guard) = self.shared.guard() {
            add(crate::guard::MARK, guard.mark().into());
        }
        for (name, template) in declared {
            add(name, self.text(template)?.into());
        }
        for (name, secret) in &self.secrets.0 {
            add(name, secret.into());
        }
        Ok(env)
    }

    /// Renders a template as one text.
    pub(crate) fn text(&self, template: &Template) -> Result<String, Failure> {
        let mut scope = self.scope.clone();
        scope.set("secrets", self.secrets.value());
        crate::render::text(template, &scope, &self.work.path)
    }

    /// Evaluates the expression of a hole.
    pub(crate) fn eval(&self, source: &str, scope: &Bindings) -> Result<PortValue, Failure> {
        expr::eval(source, scope).map_err(|error| uncomputed(&error))
    }

    /// Returns the names of this step, with secrets.
    pub(crate) fn scope_with_secrets(&self) -> Bindings {
        let mut scope = self.scope.clone();
        scope.set("secrets", self.secrets.value());
        scope
    }

    /// Makes the failure for a value that cannot be part of a command.
    pub(crate) fn unfit(source: &str, unfit: &shell::Unfit) -> Failure {
        let what = format!("`{source}` cannot be part of the command: {}", unfit.0);
        codes::failure(codes::UNFIT, what).finally()
    }

    /// Standard output is one of the outputs.
    fn captures_stdout(&self) -> bool {
        self.captures.iter().any(|capture| matches!(capture, Capture::Stdout | Capture::Json(_)))
    }

    /// Starts the process, waits for it, and collects its outputs. If it fails, the work directory stays.
    pub(crate) async fn run(self, mut start: ProcessStart<'_>) -> Result<Vec<Data>, Failure> {
        let mut stdout = None;
        if self.captures_stdout() {
            let unkept = |error: std::io::Error| codes::work("standard output could not be kept", &error);
            let file = self.work.create_temporary(output::STDOUT).map_err(unkept)?;
            // Standard output is read through this handle, even if the process replaces the file.
            stdout = Some(file.try_clone().map_err(unkept)?);
            start.stdout = Some(file);
        }
        let address = self.step.address();
        let log =
            Log::new(&self.shared.home, self.step.run(), &address, self.secrets.mask(), self.shared.budget.clone());
        let mut heard = InterruptionReport { step: self.step, log, work: self.work.path.clone(), is_over: false };
        let ended = process::run(start, self.shared.guard().as_ref(), &mut heard.log).await?;
        heard.is_over = true;
        let log = &mut heard.log;
        self.step.set_usage(ended.used);
        self.step.release_resources().await;
        let path = self.work.path.clone();
        let done = match ended.trouble {
            Some(trouble) => Err(trouble),
            None if ended.status.success() => Ok(()),
            None => Err(failed(ended.status)),
        };
        let left = FinishedProcess { work: self.work, planned: self.planned, captures: self.captures.to_vec(), stdout };
        let (shared, outputs, is_alone) = (self.shared.clone(), self.spec.outputs.clone(), ended.is_alone);
        // Files are read, copied and removed off the runtime's threads: a caller that stops waiting is not blocked.
        let (given, said) = blocking(move || left.collect(done, &outputs, &shared, is_alone)).await;
        if let Some(said) = said {
            crate::home::log_left(&said);
            log.push(format!("onceflow: left alone: {said}\n").as_bytes());
        }
        let last = log.finish(given.is_err());
        if self.step.wants_log() && !log.is_empty() {
            self.step.set_log(log.end());
        }
        given.map_err(|mut failure| {
            failure.causes.extend(last_words(last, &path));
            failure
        })
    }
}

/// Prepares a work directory with the inputs in it, the names expressions can use, and the places of the outputs.
fn prepare(
    shared: &ExecutorContext,
    step: &Step,
    inputs: Vec<Data>,
    captures: &[Capture],
) -> Result<(WorkDir, Bindings, Vec<ExpectedOutput>), Failure> {
    let (spec, _) = crate::action(step)?;
    // A process left over from a killed worker may belong to this very step.
    crate::guard::end_left(&shared.home.root);
    let mut work = WorkDir::new(&shared.home, &shared.pool, step)?;
    let mut names = scope(step, spec);
    assert_eq!(inputs.len(), spec.inputs.len(), "{} gets one value for each input of its task", step.address());
    for (at, data) in inputs.into_iter().enumerate() {
        work.note_sources(&data);
        let mut value = input(spec, at, data)?;
        work.place(&spec.inputs[at].name, &mut value)?;
        names.bind(&spec.inputs[at].name, value);
    }
    let planned = output::plan(&work, &spec.outputs, captures, &names)?;
    let named = spec.outputs.iter().zip(&planned);
    let named = named.filter_map(|(port, planned)| Some((port.name.clone(), planned.name()?)));
    names.set("out", PortValue::Record(named.collect()));
    Ok((work, names, planned))
}

/// The work directory and standard output that a process leaves.
struct FinishedProcess {
    work: WorkDir,
    planned: Vec<ExpectedOutput>,
    captures: Vec<Capture>,
    stdout: Option<File>,
}

impl FinishedProcess {
    /// Collects the outputs, if the process succeeded; the second value names a file that had to be left alone. If it
    /// failed, the work directory stays.
    fn collect(
        mut self,
        done: Result<(), Failure>,
        ports: &[Port],
        shared: &ExecutorContext,
        is_alone: bool,
    ) -> (Result<Vec<Data>, Failure>, Option<String>) {
        let inputs = self.work.check_inputs();
        match inputs.and(done).and_then(|()| self.outputs(ports)) {
            Ok(given) => (Ok(given), self.work.done(&shared.pool, is_alone)),
            Err(failure) => (Err(failure), None),
        }
    }

    fn outputs(&mut self, ports: &[Port]) -> Result<Vec<Data>, Failure> {
        if self.planned.iter().any(ExpectedOutput::is_path) {
            self.work.check_there()?;
        }
        let mut values = output::collect(&self.work, ports, &self.captures, &self.planned, self.stdout.as_mut())?;
        let mut taken = MovedFiles::new();
        for value in &mut values {
            let moved = self.work.take(value, &mut taken);
            moved.map_err(|error| codes::work("an output could not be taken", &error))?;
        }
        assert_eq!(values.len(), ports.len(), "a command gives one value for each output of its task");
        values.into_iter().zip(ports).map(|(value, port)| give(value, port)).collect()
    }
}

/// Formats the last lines of an attempt and its work directory as causes of the failure.
fn last_words(last: Option<String>, work: &Path) -> Vec<String> {
    let last = last.map(|last| format!("its last lines:\n{last}"));
    last.into_iter().chain([format!("its work directory: {}", work.display())]).collect()
}

/// The log of a running process. If it is dropped before the process is over (a timeout, for example), it hands the
/// last lines and the work directory to the step, so that the failure can show them.
struct InterruptionReport<'a> {
    step: &'a Step,
    log: Log,
    work: PathBuf,
    is_over: bool,
}

impl Drop for InterruptionReport<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let last = self.log.finish(true);
        if self.step.wants_log() && !self.log.is_empty() {
            self.step.set_log(self.log.end());
        }
        self.step.set_timeout_causes(last_words(last, &self.work));
    }
}

/// Encodes an output for the engine.
pub(crate) fn give(value: PortValue, port: &Port) -> Result<Data, Failure> {
    value.into_data(&port.ty).map_err(|wrong| {
        let wrong = wrong.inside(&format!(".{}", port.name));
        codes::failure(codes::OUTPUT_VALUE, format!("an output is not a value of its type: {wrong}"))
    })
}

fn failed(status: ExitStatus) -> Failure {
    match (status.code(), status.signal()) {
        (Some(code), _) => {
            let hint = match code {
                126 => Some("hint: 126 means that a program was found but may not be started: `chmod +x`?"),
                127 => Some("hint: 127 means that a program was not found: is it installed, and on the PATH?"),
                _ => None,
            };
            let mut failed = codes::failure(codes::EXIT, format!("it ended with exit status {code}"));
            failed.causes.extend(hint.map(String::from));
            failed
        }
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            let name = match signal {
                2 => " (INT)",
                6 => " (ABRT)",
                9 => " (KILL)",
                11 => " (SEGV)",
                13 => " (PIPE)",
                15 => " (TERM)",
                _ => "",
            };
            let mut failed = codes::failure(codes::SIGNAL, format!("it was ended by signal {signal}{name}"));
            if signal == 9 {
                failed.causes.push(String::from("hint: the system does that when memory runs out"));
            }
            failed
        }
    }
}
