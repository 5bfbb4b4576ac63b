//! Prepares a flow named on the command line for the engine: the flow is read and checked, its inputs are bound, and
//! the digests of large files are looked up instead of computed where they are known.

use crate::{
    args, codes,
    config::ByReference,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    flows::{self, Remember},
    location::StoreLocation,
    printer::Printer,
    run_meta::ShownInputs,
    session::Who,
};
use onceflow_core::model::{CheckedFlow, Port};
use onceflow_engine::{
    HISTORY_MS, Start,
    task::{Data, KnownContent},
};
use onceflow_spec::{GivenInputs, LoadedFlow};
use std::{io, path::PathBuf};

/// Lower bound of a run's history: its results have to be written after its end.
const HISTORY_MS_MIN: u64 = 60_000;

/// Caches that reading a flow filled, to be saved for the next command.
pub(crate) struct Hints {
    pub(crate) digests: Digests,
    flow: Remember,
}

impl Hints {
    /// Saves the digests and the loaded flow, as far as each is worth a write.
    pub(crate) fn save(&mut self) {
        self.digests.save();
        self.flow.save();
    }
}

/// A flow with its inputs bound.
pub(crate) struct Asked {
    pub(crate) flow: LoadedFlow,
    pub(crate) start: Start,
    /// The inputs, for display.
    pub(crate) shown: ShownInputs,
    /// Warnings about values and history that are kept for less time than the flow or an option asks for.
    too_long: Vec<String>,
}

impl Asked {
    /// Reads the flow and its inputs.
    ///
    /// # Errors
    /// All problems of the flow and its inputs.
    pub(crate) fn read(
        args: &args::Flow,
        location: &StoreLocation,
        who: Who,
        printer: &Printer,
    ) -> Result<(Asked, Hints), Fault> {
        let (asked, hints, gone) = Asked::read_as(args, location, (who, false), printer)?;
        match gone.first() {
            None => Ok((asked, hints)),
            Some(gone) => Err(gone.unreadable()),
        }
    }

    /// As [`Asked::read`], but input files that do not exist are returned, and their inputs are left out.
    ///
    /// # Errors
    /// All other problems of the flow and its inputs.
    pub(crate) fn read_what_is_there(
        args: &args::Flow,
        location: &StoreLocation,
        who: Who,
        printer: &Printer,
    ) -> Result<(Asked, Hints, Vec<Gone>), Fault> {
        Asked::read_as(args, location, (who, true), printer)
    }

    fn read_as(
        args: &args::Flow,
        location: &StoreLocation,
        (who, though_gone): (Who, bool),
        printer: &Printer,
    ) -> Result<(Asked, Hints, Vec<Gone>), Fault> {
        let store = &location.directory;
        let (flow, remember) = flows::load(&args.flow, store, args.verify)?;
        let key = args.key.clone().unwrap_or_else(|| flow.name().to_owned());
        let checked = outputs(&flow, &args.output)?;
        let given = GivenInputs { words: args.input.clone(), file: args.inputs.clone() };
        let bound = if though_gone { flow.bind_though_gone(&given) } else { flow.bind(&given) };
        let values = bound.map_err(|problems| Fault::problems(Exit::Usage, problems))?;
        let mut digests = Digests::open(store, args.verify).shown(printer.live);
        let by_reference = args.sources.by_reference(location, flow.store_inputs);
        let mut gone = Vec::new();
        let mut start = Start::new(key, checked);
        start.classes = who.classes(&start.key, &start.flow);
        let shown = ShownInputs::new(&values);
        for (name, value) in values {
            let ty =
                &flow.inputs.iter().find(|input| input.name == name).expect("only inputs of the flow are bound").ty;
            let mut data = value.into_data(ty).map_err(Fault::misfit(format!("input `{name}`")))?;
            match look_for(&mut data, &mut digests, &by_reference) {
                Ok(()) => start.inputs.push((name, data)),
                Err((path, error)) if error.kind() == io::ErrorKind::NotFound => gone.push(Gone { input: name, path }),
                Err((path, error)) => return Err(Fault::unreadable(&path)(error)),
            }
        }
        let (keep, history) = (args.keep.or(flow.keep_ms), args.history.or(flow.history_ms));
        start.keep_ms = args.retention.keep(keep);
        start.history_ms = args.retention.history(history, HISTORY_MS).max(HISTORY_MS_MIN);
        start.finish_independent = flow.finish_independent;
        let too_long = args.retention.too_long(keep, history);
        Ok((Asked { flow, start, shown, too_long }, Hints { digests, flow: remember }, gone))
    }

    /// Checks that every secret the flow declares is in the environment: a missing one fails now, not after half of the
    /// steps.
    ///
    /// # Errors
    /// The names of the missing secrets.
    pub(crate) fn has_secrets(&self) -> Result<(), Fault> {
        has_secrets(&self.flow)
    }

    /// Warns about steps that never run, unless only some outputs are asked for, and about retention that was cut to
    /// its limit.
    pub(crate) fn say_unused(&self, printer: &Printer) {
        self.too_long.iter().for_each(|line| printer.say(line));
        self.flow.warnings.iter().for_each(|warning| printer.say(format!("warning: {warning}")));
        if self.start.flow.requested().is_none() {
            self.flow.unused.iter().for_each(|unused| printer.say(format!("warning: {unused}")));
        }
    }

    /// Lets other processes take the steps than were asked for: those that take the steps of the existing run.
    pub(crate) fn set_who(&mut self, who: Who) {
        self.start.classes = who.classes(&self.start.key, &self.start.flow);
    }

    pub(crate) fn key(&self) -> &str {
        &self.start.key
    }

    /// The steps of the flow, in its order.
    pub(crate) fn steps(&self) -> Vec<String> {
        let flow = &self.flow.checked.library().flows[self.flow.name()];
        flow.modules.iter().map(|module| module.name.clone()).collect()
    }
}

/// Checks that every secret a flow declares is in the environment.
///
/// # Errors
/// The names of the missing secrets.
pub(crate) fn has_secrets(flow: &LoadedFlow) -> Result<(), Fault> {
    has_all_secrets("flow", &flow.secrets)
}

/// Checks that every one of these secrets is in the environment.
///
/// # Errors
/// The names of the missing secrets.
pub(crate) fn has_all_secrets(what: &str, secrets: &[String]) -> Result<(), Fault> {
    let missing: Vec<_> =
        secrets.iter().filter(|name| std::env::var_os(name).is_none()).map(|name| format!("`{name}`")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("the {what} takes secrets from the environment that are not there: {}", missing.join(", "));
    Err(Fault::new(Exit::Usage, onceflow_exec::codes::SECRET, why).hint("export them, then run the same command"))
}

/// Returns the flow for the outputs asked for, each of which must be one of the flow's; without any, for all.
fn outputs(flow: &LoadedFlow, wanted: &[String]) -> Result<CheckedFlow, Fault> {
    let known = || flow.outputs.iter().map(|port: &Port| port.name.as_str());
    let Some(unknown) = wanted.iter().find(|name| !known().any(|known| known == **name)) else {
        if wanted.is_empty() {
            return Ok(flow.checked.clone());
        }
        return flow.checked.only(wanted).map_err(|errors| onceflow_engine::Error::from(errors).into());
    };
    let hint = match crate::words::nearest(unknown, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has {}", known().collect::<Vec<_>>().join(", ")),
    };
    let what = format!("flow `{}` has no output `{unknown}`", flow.name());
    Err(Fault::new(Exit::Usage, codes::NO_OUTPUT, what).hint(hint))
}

/// An input whose file does not exist.
pub(crate) struct Gone {
    pub(crate) input: String,
    pub(crate) path: PathBuf,
}

impl Gone {
    /// The error for a command that has to run the flow.
    pub(crate) fn unreadable(&self) -> Fault {
        Fault::unreadable(&self.path)(io::ErrorKind::NotFound.into())
    }
}

/// Fills in the digests and lengths of the files in `data`.
pub(crate) fn look(data: &mut Data, digests: &mut Digests) -> Result<(), Fault> {
    look_by(data, digests, &ByReference::default())
}

/// As [`look`], for inputs of a run; `by_reference` decides which files are copied and which are referred to.
pub(crate) fn look_by(data: &mut Data, digests: &mut Digests, by_reference: &ByReference) -> Result<(), Fault> {
    look_for(data, digests, by_reference).map_err(|(path, error)| Fault::unreadable(&path)(error))
}

fn look_for(data: &mut Data, digests: &mut Digests, by_reference: &ByReference) -> Result<(), (PathBuf, io::Error)> {
    match data {
        Data::File(file) => {
            let found = digests.find(&file.path).map_err(|error| (file.path.clone(), error))?;
            file.known = Some(KnownContent { digest: found.digest, len: found.len });
            if by_reference.holds_for(&file.path) {
                file.path = std::path::absolute(&file.path).map_err(|error| (file.path.clone(), error))?;
                (file.by_reference, file.facts) = (true, Some((found.stat, found.is_settled)));
            }
        }
        Data::List(elements) => {
            elements.with_files_mut().iter_mut().try_for_each(|element| look_for(element, digests, by_reference))?;
        }
        Data::Bytes(_) | Data::None => {}
    }
    Ok(())
}
