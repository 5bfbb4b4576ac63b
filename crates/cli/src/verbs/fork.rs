//! `onceflow fork RUN --key NEW -i NAME=VALUE`: a new run with the program of an old one, some inputs changed. Values
//! that do not depend on those are reused as far as the old run has them.

use crate::{
    args,
    asked::look_by,
    codes,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    plan,
    printer::Printer,
    resume::Resume,
    run_meta::{self, ShownInputs},
    session::{Session, own_class},
    verbs::ls::shell_word,
};
use onceflow_engine::{Engine, Fork, Intent, Signature, Summary, task::Data};
use onceflow_exec::value::PortValue;
use onceflow_spec::InputNoun;
use serde_json::{Map, Value as Json};

/// Forks a run.
pub(crate) async fn run(args: &args::Fork, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let run = session.run(&engine, &args.run).await?;
    // Files of inputs are needed only until they are stored in the new run.
    let scratch = Scratch::new(&session);
    let (fork, shown) = inputs_of_fork(args, &session, &engine, &run, &scratch).await?;
    args.retention.too_long(args.keep.or(run.keep_ms), None).iter().for_each(|line| printer.say(line));
    let preview = engine.preview(Intent::Fork(run.key.clone(), fork)).await?;
    let explanation = &preview.explanation;
    if args.dry_run {
        engine.stop();
        session.close().await?;
        match printer.json {
            true => printer.pretty(&plan::to_json(&args.key, explanation, &plan::Known::default())),
            false => printer.text(plan::tree(printer, explanation, &plan::Known::default(), false)),
        }
        printer.next("the same without --dry-run");
        return Ok(Exit::Done);
    }
    printer.say(plan::short(explanation, &plan::Known::default()));
    let handle = engine.start_previewed(preview).await?;
    drop(scratch);
    let old = run_meta::read(&session.location, run.id).unwrap_or_default();
    let out = args.go_on.out.as_ref().map(|out| out.display().to_string());
    let out = out.or_else(|| old["out"].as_str().map(str::to_owned)).unwrap_or_else(|| String::from("results"));
    let command = format!("onceflow retry {}", shell_word(&args.key));
    run_meta::put(
        &session.location,
        handle.id(),
        (&old["flow"], &command, &out, args.go_on.results_mode),
        &ShownInputs::from_json(shown),
    );
    engine.close().await?;
    Resume { session, key: args.key.clone(), printer, args: &args.go_on, only: None }.go().await
}

/// A directory for the files of inputs, removed on drop.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(session: &Session) -> Self {
        Scratch(crate::executors::home(&session.location).scratch_of_process("fork"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = onceflow_store::tree::remove(&self.0) {
            onceflow_exec::home::log_left(&error);
        }
    }
}

/// Returns all inputs of the new run, and their values for display.
async fn inputs_of_fork(
    args: &args::Fork,
    session: &Session,
    engine: &Engine,
    run: &Summary,
    scratch: &Scratch,
) -> Result<(Fork, Map<String, Json>), Fault> {
    let handle = engine.find(&run.key).await?;
    let gone = || Fault::new(Exit::No, codes::ENDED, format!("run `{}` does not keep its program any more", run.key));
    let signature = handle.request().signature().await?.ok_or_else(gone)?;
    let is_new = |name: &str| args.input.iter().any(|(input, _)| input == name);
    let mut digests = Digests::open(&session.location.directory, false);
    let by_reference = args.sources.by_reference(&session.location, false);
    let mut shown = Map::new();
    let mut inputs: Vec<(String, Data)> = Vec::new();
    let mut add = |name: &str, value: PortValue, signature: &Signature, inputs: &mut Vec<(String, Data)>| {
        let port = signature.inputs.iter().find(|port| port.name == name).expect("only inputs of the run are bound");
        shown.insert(name.to_owned(), value.to_json());
        let mut data = value.into_data(&port.ty).map_err(Fault::misfit(format!("input `{name}`")))?;
        look_by(&mut data, &mut digests, &by_reference)?;
        inputs.push((name.to_owned(), data));
        Ok::<_, Fault>(())
    };
    let (new, old): (Vec<_>, Vec<_>) = signature.inputs.iter().cloned().partition(|port| is_new(&port.name));
    let unknown = args.input.iter().any(|(name, _)| !new.iter().any(|port| port.name == *name));
    let ports = if unknown { &signature.inputs } else { &new };
    let given = onceflow_spec::bind(ports, &args.input, InputNoun::INPUTS);
    let wrong = |mut problems: onceflow_spec::Problems| {
        // Other inputs are not missing: they are taken from the old run.
        problems.0.retain(|problem| !unknown || problem.code == "OF0201");
        Fault::problems(Exit::Usage, problems)
    };
    for (name, value) in given.map_err(wrong)? {
        add(&name, value, &signature, &mut inputs)?;
    }
    let remembered = run_meta::inputs(&session.location, run.id);
    let held = handle.request().inputs(&scratch.0).await?;
    for port in old {
        if let Some(held) = &held {
            let data = held.iter().find(|(name, _)| *name == port.name).map_or(Data::None, |(_, data)| data.clone());
            inputs.push((port.name.clone(), data));
            continue;
        }
        let lost = || {
            let what = format!("what input `{}` of run `{}` was is not known here", port.name, run.key);
            Fault::new(Exit::Usage, codes::INPUTS, what).hint(format!("say it: -i {}=…", port.name))
        };
        let json = remembered.as_ref().and_then(|all| all.get(&port.name)).cloned().ok_or_else(lost)?;
        let value = PortValue::from_json(json, &port.ty).map_err(Fault::misfit(format!("input `{}`", port.name)))?;
        add(&port.name, value, &signature, &mut inputs)?;
    }
    digests.save();
    for (name, value) in remembered.unwrap_or_default() {
        shown.entry(name).or_insert(value);
    }
    let fork = Fork {
        key: args.key.clone(),
        inputs,
        changed: args.input.iter().map(|(name, _)| name.clone()).collect(),
        classes: vec![(own_class(&run.key), own_class(&args.key))],
        // The default is the old run's, but never longer than the limit here.
        keep_ms: args.keep.or(run.keep_ms).map(|keep| args.retention.keep(Some(keep)).unwrap_or(0)),
    };
    Ok((fork, shown))
}
