//! The executor of commands.

use crate::{
    ExecutorContext,
    action::{Action, Command, Shell, TemplatePart},
    codes,
    job::{ProcessStep, Secrets, masked},
    process::ProcessStart,
    program,
    shell::{self, Dialect},
    value::PortValue,
    work::TEMPORARY,
};
use onceflow_core::model::TaskSpec;
use onceflow_engine::task::{Attempt, Body, Data, Failure, Step};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The executor that starts commands.
pub(crate) struct Commands(pub(crate) Arc<ExecutorContext>);

impl Body for Commands {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let shared = self.0.clone();
        Attempt::Async(Box::pin(async move { run(&shared, &step, inputs).await }))
    }
}

pub(crate) async fn run(shared: &Arc<ExecutorContext>, step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    let (spec, action) = crate::action(step)?;
    let Action::Command(command) = action else { return Err(crate::not_for("command")) };
    let secrets = Secrets::read(&command.secrets)?;
    let given = attempt(shared, (step, spec), inputs, &command, &secrets).await;
    given.map_err(|failure| masked(failure, &secrets.mask()))
}

async fn attempt(
    shared: &Arc<ExecutorContext>,
    (step, spec): (&Step, &TaskSpec),
    inputs: Vec<Data>,
    command: &Command,
    secrets: &Secrets,
) -> Result<Vec<Data>, Failure> {
    let job = ProcessStep::new(shared, (step, spec), inputs, &command.outputs, secrets).await?;
    let mut env = job.env(&command.env)?;
    let (program, args) = invocation(&job, command, &mut env)?;
    let directory = job.work.path.clone();
    job.run(ProcessStart { program, args, env, directory: &directory, stdin: None, stdout: None }).await
}

type Env = Vec<(OsString, OsString)>;

/// Returns the program to start and its arguments: the command itself, or a shell that reads it.
fn invocation(job: &ProcessStep<'_>, command: &Command, env: &mut Env) -> Result<(PathBuf, Vec<OsString>), Failure> {
    let values = values(job, command)?;
    let value_of = |part: usize| values.get(&part).cloned().unwrap_or(PortValue::Null);
    let unfit = |(part, unfit): (usize, shell::Unfit)| match &command.run.0[part] {
        TemplatePart::Hole(source) | TemplatePart::Text(source) => ProcessStep::unfit(source, &unfit),
    };
    let base = &job.work.path;
    if let Some(direct) = shell::direct(&command.run)
        && !matches!(command.shell, Shell::Custom(_))
    {
        let mut words = direct.words(&value_of, base).map_err(unfit)?.into_iter();
        let program = program::find(&words.next().unwrap_or_default(), env)?;
        return Ok((program, words.map(OsString::from).collect()));
    }
    let dialect = command.shell.dialect();
    let scanned = shell::scan(&command.run, dialect).map_err(|refused| refuse(command, &refused))?;
    let assembled = shell::assemble(&scanned, &value_of, dialect, (base, TEMPORARY)).map_err(unfit)?;
    for (name, content) in &assembled.files {
        job.write(name, content)?;
    }
    env.extend(assembled.env.into_iter().map(|(name, value)| (name.into(), value.into())));
    shell_of(job, command, dialect, assembled.text, env)
}

/// Evaluates every hole of the command, by its index among the template's parts.
fn values(job: &ProcessStep<'_>, command: &Command) -> Result<BTreeMap<usize, PortValue>, Failure> {
    let mut values = BTreeMap::new();
    let mut scope = None;
    for (at, part) in command.run.0.iter().enumerate() {
        if let TemplatePart::Hole(source) = part {
            let scope = scope.get_or_insert_with(|| job.scope_with_secrets());
            values.insert(at, job.eval(source, scope)?);
        }
    }
    Ok(values)
}

fn refuse(command: &Command, refused: &[shell::RefusedHole]) -> Failure {
    let mut failed = Failure { is_final: true, not_done: true, causes: vec![] };
    for refused in refused {
        let hole = match &command.run.0[refused.part] {
            TemplatePart::Hole(source) | TemplatePart::Text(source) => source,
        };
        failed.causes.push(format!("{}: `${{{{ {hole} }}}}`: {}; {}", codes::QUOTED, refused.message, refused.hint));
    }
    failed
}

/// The longest text that is handed to a shell as an argument: the system bounds one at 128 KiB.
const TEXT_BYTES_MAX: usize = 100 * 1024;

/// Returns the shell's program and its arguments.
fn shell_of(
    job: &ProcessStep<'_>,
    command: &Command,
    dialect: Dialect,
    text: String,
    env: &Env,
) -> Result<(PathBuf, Vec<OsString>), Failure> {
    let (name, mut args): (&str, Vec<OsString>) = match &command.shell {
        Shell::Bash => ("bash", vec!["-euo".into(), "pipefail".into()]),
        Shell::Sh => ("sh", vec!["-eu".into()]),
        Shell::Custom(words) => match words.split_first() {
            Some((name, args)) => (name, args.iter().map(OsString::from).collect()),
            None => return Err(codes::failure(codes::START, "the shell has no name").finally()),
        },
    };
    let is_custom = matches!(command.shell, Shell::Custom(_));
    if is_custom || text.len() > TEXT_BYTES_MAX {
        let name = if dialect == Dialect::Bash { "command.bash" } else { "command.sh" };
        job.write(name, text.as_bytes())?;
        args.push(Path::new(TEMPORARY).join(name).into());
    } else {
        args.extend(["-c".into(), text.into()]);
    }
    let program = match is_custom {
        true => program::find(name, env)?,
        false => job.shared.shell(name, env)?,
    };
    Ok((program, args))
}
