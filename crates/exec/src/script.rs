//! The executor of scripts: code for an interpreter, inputs as one JSON object on stdin, outputs as one on stdout.

use crate::{
    ExecutorContext,
    action::{Action, Script},
    codes,
    job::{ProcessStep, Secrets, masked},
    process::ProcessStart,
    program,
    work::TEMPORARY,
};
use onceflow_core::model::TaskSpec;
use onceflow_engine::task::{Attempt, Body, Data, Failure, Step};
use std::{ffi::OsString, sync::Arc};

/// The executor that runs scripts.
pub(crate) struct Scripts(pub(crate) Arc<ExecutorContext>);

impl Body for Scripts {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let shared = self.0.clone();
        Attempt::Async(Box::pin(async move { run(&shared, &step, inputs).await }))
    }
}

pub(crate) async fn run(shared: &Arc<ExecutorContext>, step: &Step, inputs: Vec<Data>) -> Result<Vec<Data>, Failure> {
    let (spec, action) = crate::action(step)?;
    let Action::Script(script) = action else { return Err(crate::not_for("script")) };
    let secrets = Secrets::read(&script.secrets)?;
    let given = attempt(shared, (step, spec), inputs, &script, &secrets).await;
    given.map_err(|failure| masked(failure, &secrets.mask()))
}

async fn attempt(
    shared: &Arc<ExecutorContext>,
    (step, spec): (&Step, &TaskSpec),
    inputs: Vec<Data>,
    script: &Script,
    secrets: &Secrets,
) -> Result<Vec<Data>, Failure> {
    let job = ProcessStep::new(shared, (step, spec), inputs, &script.outputs, secrets).await?;
    let env = job.env(&script.env)?;
    let Some((name, args)) = script.interpreter.split_first() else {
        return Err(codes::failure(codes::START, "the script names no interpreter").finally());
    };
    let program = program::find(name, &env)?;
    let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
    args.push(job.write("script", script.code.as_bytes())?.into());
    job.write("stdin", &json(&job))?;
    let stdin = job.work.dir.child(TEMPORARY).and_then(|dir| dir.open_file("stdin"));
    let stdin = stdin.map_err(|error| codes::work("stdin could not be read", &error))?;
    let directory = job.work.path.clone();
    job.run(ProcessStart { program, args, env, directory: &directory, stdin: Some(stdin), stdout: None }).await
}

/// Returns all names that expressions can use, as JSON: `{"inputs": {…}, "sample": …, "out": {…}, "cpus": 1, …}`.
/// Files are paths relative to the work directory.
fn json(job: &ProcessStep<'_>) -> Vec<u8> {
    let names = job.scope.names().iter().map(|(name, value)| (name, value.as_json_in(&job.work.path)));
    let mut written = serde_json::Serializer::new(Vec::new());
    serde::Serializer::collect_map(&mut written, names).expect("every value can be written as JSON");
    written.into_inner()
}
