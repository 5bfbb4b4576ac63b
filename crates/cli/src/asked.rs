//! What is asked for on the command line, made ready for the engine: the flow is read and checked, its inputs are
//! bound, and what large files hold is looked up instead of read, where that is known.

use crate::{
    args, codes,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    flows::{self, Remember},
    printer::Printer,
    session::Who,
    tasks,
};
use onceflow_core::model::Port;
use onceflow_engine::{
    HISTORY_MS, Start,
    task::{Data, KnownContent},
};
use onceflow_spec::{Flow, Given};
use serde_json::Value;
use std::path::Path;

/// A run is remembered at least for so long after its end: its results have to be written.
const HISTORY_MS_MIN: u64 = 60_000;

/// What was found out on the way and may be remembered for the next time.
pub(crate) struct Hints {
    pub(crate) digests: Digests,
    flow: Remember,
}

impl Hints {
    /// Remembers what is worth it.
    pub(crate) fn save(&mut self) {
        self.digests.save();
        self.flow.save();
    }
}

/// A flow with its inputs.
pub(crate) struct Asked {
    pub(crate) flow: Flow,
    pub(crate) start: Start,
    /// The inputs as data, for people.
    pub(crate) values: Vec<(String, Value)>,
    /// What is not kept as long as the flow or an option asks for.
    too_long: Vec<String>,
}

impl Asked {
    /// Reads the flow and its inputs.
    ///
    /// # Errors
    /// All that is wrong with either.
    pub(crate) fn read(args: &args::Flow, store: &Path, who: Who) -> Result<(Asked, Hints), Fault> {
        let (mut flow, remember) = flows::load(&args.flow, store, args.verify)?;
        let key = args.key.clone().unwrap_or_else(|| flow.name.clone());
        tasks::set_class(&mut flow.library, |class| who.class(&key, class));
        outputs(&flow, &args.output)?;
        let given = Given { words: args.input.clone(), file: args.inputs.clone() };
        let values = flow.bind(&given).map_err(|problems| Fault::problems(Exit::Usage, problems))?;
        let mut digests = Digests::open(store, args.verify);
        let mut start = Start::new(key, flow.library.clone(), flow.name.clone());
        let mut shown = Vec::with_capacity(values.len());
        for (name, value) in values {
            shown.push((name.clone(), value.to_json()));
            let ty =
                &flow.inputs.iter().find(|input| input.name == name).expect("only inputs of the flow are bound").ty;
            let mut data = value.into_data(ty).map_err(Fault::misfit(format!("input `{name}`")))?;
            look(&mut data, &mut digests)?;
            start.inputs.push((name, data));
        }
        start.outputs = (!args.output.is_empty()).then(|| args.output.clone());
        start.identity = flow.identity.clone().filter(|_| start.outputs.is_none());
        let (keep, history) = (args.keep.or(flow.keep_ms), args.history.or(flow.history_ms));
        start.keep_ms = args.retention.keep(keep);
        start.history_ms = args.retention.history(history, HISTORY_MS).max(HISTORY_MS_MIN);
        start.finish_independent = flow.finish_independent;
        let too_long = args.retention.too_long(keep, history);
        Ok((Asked { flow, start, values: shown, too_long }, Hints { digests, flow: remember }))
    }

    /// Whether every secret that the flow declares is in our environment: better now than after half of the steps.
    ///
    /// # Errors
    /// The names of those that are not.
    pub(crate) fn has_secrets(&self) -> Result<(), Fault> {
        let missing: Vec<_> = self
            .flow
            .secrets
            .iter()
            .filter(|name| std::env::var_os(name).is_none())
            .map(|name| format!("`{name}`"))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let why = format!("the flow takes secrets from the environment that are not there: {}", missing.join(", "));
        Err(Fault::new(Exit::Usage, onceflow_exec::codes::SECRET, why).hint("export them, then run the same command"))
    }

    /// Says which steps never run, unless only some outputs are asked for, and what is not kept as long as it is asked for.
    pub(crate) fn say_unused(&self, printer: &Printer) {
        self.too_long.iter().for_each(|line| printer.say(line));
        self.flow.warnings.iter().for_each(|warning| printer.say(format!("warning: {warning}")));
        if self.start.outputs.is_none() {
            self.flow.unused.iter().for_each(|unused| printer.say(format!("warning: {unused}")));
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.start.key
    }

    /// The steps of the flow, in its order.
    pub(crate) fn steps(&self) -> Vec<String> {
        let modules = self.flow.library.flows.get(&self.flow.name).into_iter().flat_map(|flow| &flow.modules);
        modules.map(|module| module.name.clone()).collect()
    }
}

/// Whether the outputs that are asked for are the flow's.
fn outputs(flow: &Flow, wanted: &[String]) -> Result<(), Fault> {
    let known = || flow.outputs.iter().map(|port: &Port| port.name.as_str());
    let Some(unknown) = wanted.iter().find(|name| !known().any(|known| known == **name)) else { return Ok(()) };
    let hint = match crate::words::nearest(unknown, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has {}", known().collect::<Vec<_>>().join(", ")),
    };
    let what = format!("flow `{}` has no output `{unknown}`", flow.name);
    Err(Fault::new(Exit::Usage, codes::NO_OUTPUT, what).hint(hint))
}

/// Finds out what files hold.
pub(crate) fn look(data: &mut Data, digests: &mut Digests) -> Result<(), Fault> {
    match data {
        Data::File(file) => {
            let (digest, len) = digests.of(&file.path).map_err(Fault::unreadable(&file.path))?;
            file.known = Some(KnownContent { digest, len });
        }
        Data::List(elements) => elements.iter_mut().try_for_each(|element| look(element, digests))?,
        Data::Bytes(_) | Data::None => {}
    }
    Ok(())
}
