//! `onceflow lineage FILE|DIGEST`: traces a content back to its origin: the run and the step that produced it, their
//! code, and the inputs at the beginning.

mod origin;
mod parts;

use crate::{
    args,
    asked::look,
    codes,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    location::StoreLocation,
    picture::style,
    printer::{Ink, Printer},
    run_meta, runs,
    session::Session,
    verbs::ls::shell_word,
    words::{self, hex},
};
use onceflow_core::{
    Digest,
    model::Port,
    payload::{Outcome, Payload, Stored},
};
use onceflow_engine::{Engine, Handle, Origin, Record, StepRecord, Summary, ValueOutline, task::Data};
use onceflow_exec::value;
use origin::ValueOrigin;
use parts::ValuePathPart;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The fewest letters of a digest that identify it.
const LETTERS_MIN: usize = 8;

/// A place where the content was found.
struct LineageMatch {
    record: Record,
    /// `output vcf`, `step align, port bam`, `input reads`
    place: String,
    /// The origin of the value.
    spot: ValueOrigin,
}

/// The content that is searched for.
struct LineageQuery {
    name: String,
    /// The digest, or its beginning, in hexadecimal.
    hex: String,
    /// The digest that an input file of this content and name would have.
    as_file: Option<Digest>,
}

/// The results of the search.
#[derive(Default)]
struct All {
    found: Vec<LineageMatch>,
    /// Runs whose history expired during the search.
    gone: Vec<String>,
}

/// Traces a content.
pub(crate) async fn run(args: &args::Lineage, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let location = location.must_be_there()?;
    let wanted = wanted(&args.what, &location.directory)?;
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let All { found, gone } = find(&engine, &session.location, runs::all(&engine).await?, &wanted).await?;
    engine.stop();
    session.close().await?;
    for key in &gone {
        printer.say(format!("run `{key}` was removed meanwhile: its records are not shown"));
    }
    if found.is_empty() {
        let what = format!("no run of this store gave {} ({}…)", wanted.name, &wanted.hex[..LETTERS_MIN]);
        return Err(Fault::new(Exit::No, codes::NO_ORIGIN, what)
            .hint("what steps gave on the way is known of runs with `--keep`; `onceflow ls` lists the runs"));
    }
    match printer.json {
        true => printer.pretty(&json!({
            "what": args.what, "digest": wanted.hex, "found": found.iter().map(to_json).collect::<Vec<_>>(), "gone": gone,
        })),
        false => {
            let head = format!("{}  blake3 {}\n", printer.ink(Ink::Bold, &wanted.name), short(&wanted.hex));
            printer.text(head + &found.iter().map(|found| to_text(printer, &wanted, found)).collect::<String>());
        }
    }
    printer.next(format!("onceflow show {}", shell_word(&found[0].record.key)));
    Ok(Exit::Done)
}

fn wanted(what: &str, store: &Path) -> Result<LineageQuery, Fault> {
    let path = Path::new(what);
    if path.is_file() {
        let digest = Digests::open(store, false).of(path).map_err(Fault::unreadable(path))?.0;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let as_file = Some(file_digest(&name, digest));
        return Ok(LineageQuery { name: what.to_owned(), hex: hex(&digest), as_file });
    }
    let text = what.strip_prefix("blake3:").unwrap_or(what).to_ascii_lowercase();
    let is_hex = (LETTERS_MIN..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit());
    match is_hex {
        true => Ok(LineageQuery { name: what.to_owned(), hex: text, as_file: None }),
        false => Err(Fault::usage(format!("there is no file `{what}`, and it is no digest"))
            .hint(format!("a digest is {LETTERS_MIN} to 64 hexadecimal digits, as `b3sum` prints them"))),
    }
}

/// Returns the digest of a file value of this name and content.
fn file_digest(name: &str, digest: Digest) -> Digest {
    let content = Stored { id: onceflow_core::ValueId::default(), digest, len: 0 };
    Payload::File { name: name.to_owned(), content }.digest()
}

impl LineageQuery {
    fn is(&self, digest: &Digest) -> bool {
        hex(digest).starts_with(&self.hex)
    }

    /// Returns the path to the content in data. A file with the name searched for takes precedence over others of the
    /// same content.
    fn part_of(&self, data: &ValueOutline, ty: &onceflow_core::model::Type) -> Option<Vec<ValuePathPart>> {
        let is_it = |data: &ValueOutline| match data {
            ValueOutline::Inline(bytes) => self.is(&Digest::of(bytes)),
            ValueOutline::Stored(digest) | ValueOutline::File(_, digest) => self.is(digest),
            ValueOutline::None | ValueOutline::List(_) => false,
        };
        let is_named = |data: &ValueOutline| match (data, &self.as_file) {
            (ValueOutline::File(name, digest), Some(wanted)) => file_digest(name, *digest) == *wanted,
            _ => false,
        };
        parts::first(data, ty, &is_named).or_else(|| parts::first(data, ty, &is_it))
    }

    /// Returns the path to the content in a stored value. Digests are compared; no value is read.
    async fn part_of_stored(
        &self,
        handle: &Handle,
        port: &Port,
        outcome: &Outcome,
    ) -> Result<Option<Vec<ValuePathPart>>, Fault> {
        if self.is(&outcome.digest()) {
            return Ok(Some(vec![]));
        }
        Ok(self.part_of(&handle.outputs().value_outline(outcome).await?, &port.ty))
    }
}

/// Finds every place of the content: outputs of runs first, then values they keep, then their inputs.
async fn find(
    engine: &Engine,
    location: &StoreLocation,
    runs: Vec<Summary>,
    wanted: &LineageQuery,
) -> Result<All, Fault> {
    let (mut all, mut kept, mut given) = (All::default(), Vec::new(), Vec::new());
    let mut digests = Digests::open(&location.directory, false);
    for run in runs {
        match find_in_run(engine, location, &mut digests, wanted, run).await? {
            Ok([of_outputs, of_steps, of_inputs]) => {
                all.found.extend(of_outputs);
                kept.extend(of_steps);
                given.extend(of_inputs);
            }
            Err(gone) => all.gone.push(gone.key),
        }
    }
    all.found.extend(kept.into_iter().chain(given));
    Ok(all)
}

/// How often a run that changes meanwhile is searched: when it ends, its values are released or go into its history.
const LOOKS_MAX: usize = 4;

/// Returns the places in one run; the run's summary if it is gone meanwhile, which must not fail the search of the
/// others.
async fn find_in_run(
    engine: &Engine,
    location: &StoreLocation,
    digests: &mut Digests,
    wanted: &LineageQuery,
    mut run: Summary,
) -> Result<Result<[Vec<LineageMatch>; 3], Summary>, Fault> {
    for look in 1..=LOOKS_MAX {
        let found = match engine.find(&run.key).await {
            Ok(handle) => find_in(&handle, location, digests, wanted).await,
            Err(error) => Err(error.into()),
        };
        let fault = match found {
            Ok(found) => return Ok(Ok(found)),
            Err(fault) => fault,
        };
        match runs::of_key(engine, &run.key).await? {
            Some(now) if now.id != run.id => return Ok(Err(run)),
            None => return Ok(Err(run)),
            // The run has not changed since before the search, so its end did not cause the error.
            Some(now) if look == LOOKS_MAX || stands(&now) == stands(&run) => return Err(fault),
            Some(now) => run = now,
        }
    }
    unreachable!("the last look answers")
}

/// Returns the state of a run that changes when its values are released.
fn stands(run: &Summary) -> (String, u32, bool) {
    (run.status.to_string(), run.generation, run.ended.is_some())
}

/// Returns the places in one run: among its outputs, the outputs of its steps, and its inputs.
async fn find_in(
    handle: &Handle,
    location: &StoreLocation,
    digests: &mut Digests,
    wanted: &LineageQuery,
) -> Result<[Vec<LineageMatch>; 3], Fault> {
    let (mut outputs, mut kept, mut given) = (Vec::new(), Vec::new(), Vec::new());
    let record = handle.history().record().await?;
    let found = |place: String, spot: ValueOrigin| LineageMatch { record: record.clone(), place, spot };
    for (port, from, outcome) in &record.outputs {
        if let Some(outcome) = outcome
            && let Some(parts) = wanted.part_of_stored(handle, port, outcome).await?
        {
            let place = format!("output {}{}", port.name, parts::words(&parts));
            outputs.push(found(place, ValueOrigin::new(&record, from, parts)));
        }
    }
    for step in &record.steps {
        for (port, outcome) in &step.outputs {
            if let Some(outcome) = outcome
                && let Some(parts) = wanted.part_of_stored(handle, port, outcome).await?
            {
                let from = Origin::Step { address: step.address.clone(), port: port.name.clone() };
                let part = format!("{}{}", port.name, parts::words(&parts));
                let spot = ValueOrigin::new(&record, &from, parts);
                if !outputs.iter().any(|found| found.spot == spot) {
                    // A value that a step only passes on has another origin.
                    let named = spot.names(&record);
                    let (step, part) = named.unwrap_or_else(|| (words::step(&step.address), part));
                    kept.push(found(format!("{part} of step {step}"), spot));
                }
            }
        }
    }
    let mut known = LineageInputs::of(handle, location, &record).await?;
    for (name, digest) in &record.inputs {
        let parts = match wanted.is(digest) || wanted.as_file.as_ref() == Some(digest) {
            true => Some(vec![]),
            false => known.part_of(wanted, handle, digests, (name, digest)).await?,
        };
        if let Some(parts) = parts {
            let place = format!("input {name}{}", parts::words(&parts));
            given.push(found(place, ValueOrigin::new(&record, &Origin::Input(name.clone()), parts)));
        }
    }
    Ok([outputs, kept, given])
}

/// The inputs of a run, beyond their digests.
struct LineageInputs {
    ports: Vec<Port>,
    /// The inputs held by the store, of a run that has not ended.
    held: Option<Vec<(String, Outcome)>>,
    /// The inputs in the metadata beside the store, which is not authoritative.
    said: Map<String, Value>,
}

impl LineageInputs {
    async fn of(handle: &Handle, location: &StoreLocation, record: &Record) -> Result<Self, Fault> {
        Ok(LineageInputs {
            ports: handle.request().signature().await?.map(|signature| signature.inputs).unwrap_or_default(),
            held: handle.request().input_outcomes().await?,
            said: run_meta::inputs(location, record.id).unwrap_or_default(),
        })
    }

    /// Returns the path to the content in an input.
    async fn part_of(
        &mut self,
        wanted: &LineageQuery,
        handle: &Handle,
        digests: &mut Digests,
        (name, digest): (&String, &Digest),
    ) -> Result<Option<Vec<ValuePathPart>>, Fault> {
        let Some(port) = self.ports.iter().find(|port| port.name == *name) else { return Ok(None) };
        if let Some((_, outcome)) = self.held.iter().flatten().find(|(held, _)| held == name) {
            return wanted.part_of_stored(handle, port, outcome).await;
        }
        let data = self.said.remove(name).and_then(|said| as_given(said, port, digest, digests));
        Ok(data.and_then(|data| wanted.part_of(&ValueOutline::of(&data), &port.ty)))
    }
}

/// Returns an input from the metadata, if its files still exist and its digest is right.
fn as_given(said: Value, port: &Port, digest: &Digest, digests: &mut Digests) -> Option<Data> {
    let mut data = value::PortValue::from_json(said, &port.ty).ok()?.into_data(&port.ty).ok()?;
    look(&mut data, digests).ok()?;
    (data.digest() == Some(*digest)).then_some(data)
}

fn short(hex: &str) -> &str {
    &hex[..hex.len().min(16)]
}

fn to_text(printer: &Printer, wanted: &LineageQuery, found: &LineageMatch) -> String {
    let record = &found.record;
    let run = printer.ink(Ink::Bold, &record.key);
    let mut text =
        format!("is {} of run {run} ({}, flow {}, {})\n", found.place, record.id, record.flow, record.status);
    Tracing { record, wanted, seen: BTreeSet::new(), text: &mut text }.trace(&found.spot, 1);
    text
}

/// The state of a trace back from a value to its origins.
struct Tracing<'a> {
    record: &'a Record,
    wanted: &'a LineageQuery,
    seen: BTreeSet<String>,
    text: &'a mut String,
}

impl Tracing<'_> {
    /// Formats a digest with its kind: the digest of a stored value differs from that of a file, which covers its name.
    /// Of the file that is asked about both are known.
    fn digest(&self, digest: &Digest) -> String {
        match self.wanted.as_file.as_ref() == Some(digest) {
            true => format!("blake3 {}", short(&self.wanted.hex)),
            false => format!("value {}", short(&hex(digest))),
        }
    }

    fn trace(&mut self, spot: &ValueOrigin, depth: usize) {
        let (record, indent) = (self.record, "  ".repeat(depth));
        let told = match &spot.from {
            Origin::None | Origin::Element(_) => return,
            Origin::Constant(digest) => format!("said by the flow, {}", self.digest(digest)),
            Origin::Input(name) => {
                let digest = record.inputs.iter().find(|(input, _)| input == name).map(|(_, digest)| digest);
                let of = if spot.parts.is_empty() { "," } else { " of" };
                let digest = digest.map_or(String::new(), |digest| format!("{of} {}", self.digest(digest)));
                format!("input {name}{}{digest}", parts::words(&spot.parts))
            }
            Origin::Step { .. } => {
                let (name, port) = spot.names(record).expect("a step gave it");
                match spot.step(record) {
                    Some(step) => format!("from {name}:{port}, {} {}", step.kind, style::short(&step.code, 17)),
                    None => format!("from {name}:{port}"),
                }
            }
        };
        let step = spot.step(record);
        let again = step.is_some() && !self.seen.insert(spot.names(record).unwrap_or_default().0);
        self.text.push_str(&format!("{indent}{told}{}\n", if again { " (see above)" } else { "" }));
        for (_, from) in step.filter(|_| !again).into_iter().flat_map(|step| &step.inputs) {
            self.trace(&spot.before(record, from), depth + 1);
        }
    }
}

/// Returns an origin as JSON.
pub(crate) fn origin(from: &Origin) -> Value {
    match from {
        Origin::None => Value::Null,
        Origin::Constant(digest) => json!({"constant": hex(digest)}),
        Origin::Input(name) => json!({"input": name}),
        Origin::Element(list) => json!({"element_of": origin(list)}),
        Origin::Step { address, port } => json!({"step": words::step(address), "port": port}),
    }
}

fn to_json(found: &LineageMatch) -> Value {
    let record = &found.record;
    // Only the steps it comes from are listed, in the order of the flow.
    let mut needed = BTreeMap::new();
    let mut look = vec![found.spot.clone()];
    while let Some(spot) = look.pop() {
        if let (Some((name, _)), Some(step)) = (spot.names(record), spot.step(record))
            && !needed.contains_key(&(step.address.as_str(), name.clone()))
        {
            look.extend(step.inputs.iter().map(|(_, from)| spot.before(record, from)));
            needed.insert((step.address.as_str(), name), spot);
        }
    }
    let one = |step: &StepRecord, name: &str, spot: &ValueOrigin| {
        let from = |from: &Origin| spot.before(record, from).to_json(record);
        let inputs = step.inputs.iter().map(|(name, of)| json!({"name": words::port(name), "from": from(of)}));
        json!({"step": name, "kind": step.kind, "code": step.code, "inputs": inputs.collect::<Vec<_>>()})
    };
    let steps = origin::steps(record).flat_map(|step| {
        let named = needed.iter().filter(|((address, _), _)| *address == step.address);
        named.map(|((_, name), spot)| one(step, name, spot)).collect::<Vec<_>>()
    });
    let inputs = record.inputs.iter().map(|(name, digest)| (name.clone(), json!(hex(digest))));
    json!({
        "key": record.key, "id": record.id.to_string(), "flow": record.flow, "status": record.status.to_string(),
        "code": hex(&record.code), "is": found.place, "from": found.spot.to_json(record),
        "steps": steps.collect::<Vec<_>>(), "inputs": inputs.collect::<serde_json::Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_core::{Timestamp, protocol::ids::RunId};
    use onceflow_engine::{Options, RunStatus};

    #[tokio::test]
    async fn a_run_that_has_gone_meanwhile_is_named_and_the_others_are_told() {
        let at = tempfile::tempdir().expect("a directory");
        let store = onceflow_store::Store::open(at.path()).await.expect("a store");
        let engine = Engine::open(&store, Options { works: false, ..Options::default() }).await.expect("an engine");
        let run = Summary {
            key: String::from("was"),
            id: RunId([7; 8]),
            flow: String::from("f"),
            generation: 0,
            status: RunStatus::Done,
            started: Timestamp::ZERO,
            ended: None,
            keep_ms: None,
            history_ms: 0,
            outputs: vec![],
            failures: vec![],
            failed: 0,
            not_undone: vec![],
            undecided: vec![],
            live: 0,
        };
        let location = crate::location::find(Some(at.path()), at.path());
        let wanted = LineageQuery { name: String::from("x"), hex: String::from("00000000"), as_file: None };
        let all = find(&engine, &location, vec![run], &wanted).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(all.found.is_empty() && all.gone == ["was"]);
        engine.stop();
    }
}
