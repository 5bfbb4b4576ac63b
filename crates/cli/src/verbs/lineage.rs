//! `onceflow lineage FILE|DIGEST`: from a content back to what it was made of: the run and the step that gave it, their
//! code, and the inputs at the beginning.

use crate::{
    args, codes,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    picture::style,
    place::Place,
    printer::{Ink, Printer},
    runs,
    session::Session,
    verbs::ls::shell_word,
    words::{self, hex},
};
use onceflow_core::payload::{Digest, Outcome, Payload, Stored};
use onceflow_engine::{Engine, Handle, Origin, Record, Summary, task::Data};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};

/// Letters of a digest that are needed to know it.
const LETTERS_MIN: usize = 8;

/// Where a content was found.
struct Found {
    record: Record,
    /// `output vcf`, `step align, port bam`, `input reads`
    place: String,
    /// What gave it.
    from: Origin,
}

/// What is looked for.
struct Wanted {
    name: String,
    /// The digest, or how it begins, in hexadecimal.
    hex: String,
    /// What an input file of this content and name would be known by.
    as_file: Option<Digest>,
}

/// Everything that was found.
#[derive(Default)]
struct All {
    found: Vec<Found>,
    /// Runs whose history ended while they were looked at.
    gone: Vec<String>,
}

/// Traces a content.
pub(crate) async fn run(args: &args::Lineage, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let place = place.must_be_there()?;
    let wanted = wanted(&args.what, &place.directory)?;
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    let All { found, gone } = find(&engine, runs::all(&engine).await?, &wanted).await?;
    engine.stop();
    session.close().await?;
    for key in &gone {
        printer.say(format!("run `{key}` has gone meanwhile: what it knew is not told"));
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

fn wanted(what: &str, store: &Path) -> Result<Wanted, Fault> {
    let path = Path::new(what);
    if path.is_file() {
        let digest = Digests::open(store, false).of(path).map_err(Fault::io(codes::UNREADABLE, "read", path))?.0;
        let content = Stored { id: onceflow_core::Name::default(), digest, len: 0 };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let as_file = Some(Payload::File { name, content }.digest());
        return Ok(Wanted { name: what.to_owned(), hex: hex(&digest), as_file });
    }
    let text = what.strip_prefix("blake3:").unwrap_or(what).to_ascii_lowercase();
    let is_hex = (LETTERS_MIN..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit());
    match is_hex {
        true => Ok(Wanted { name: what.to_owned(), hex: text, as_file: None }),
        false => Err(Fault::plain(Exit::Usage, format!("there is no file `{what}`, and it is no digest"))
            .hint(format!("a digest is {LETTERS_MIN} to 64 hexadecimal digits, as `b3sum` prints them"))),
    }
}

impl Wanted {
    fn is(&self, digest: &Digest) -> bool {
        hex(digest).starts_with(&self.hex)
    }

    /// Whether something is it, or has it inside.
    async fn is_in(&self, handle: &Handle, outcome: &Outcome) -> Result<bool, Fault> {
        if self.is(&outcome.digest()) {
            return Ok(true);
        }
        let mut look = vec![handle.peek(outcome).await?];
        while let Some(data) = look.pop() {
            let found = match data {
                Data::None => false,
                Data::Bytes(bytes) => self.is(blake3::hash(&bytes).as_bytes()),
                Data::File(file) => file.known.is_some_and(|known| self.is(&known.digest)),
                Data::List(elements) => {
                    look.extend(elements);
                    false
                }
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Every place where it is: outputs of runs first, then what they keep, then what they were given.
async fn find(engine: &Engine, runs: Vec<Summary>, wanted: &Wanted) -> Result<All, Fault> {
    let (mut all, mut kept, mut given) = (All::default(), Vec::new(), Vec::new());
    for run in runs {
        match find_in(engine, &run.key, wanted).await {
            Ok([of_outputs, of_steps, of_inputs]) => {
                all.found.extend(of_outputs);
                kept.extend(of_steps);
                given.extend(of_inputs);
            }
            // It was there when the runs were listed. If it is not any more, that is no fault of the others.
            Err(fault) => match runs::of_key(engine, &run.key).await? {
                Some(now) if now.id == run.id => return Err(fault),
                _ => all.gone.push(run.key),
            },
        }
    }
    all.found.extend(kept.into_iter().chain(given));
    Ok(all)
}

/// The places in one run: among its outputs, what its steps gave, and its inputs.
async fn find_in(engine: &Engine, key: &str, wanted: &Wanted) -> Result<[Vec<Found>; 3], Fault> {
    let (mut outputs, mut kept, mut given) = (Vec::new(), Vec::new(), Vec::new());
    let handle = engine.find(key).await?;
    let record = handle.record().await?;
    let found = |place: String, from: Origin| Found { record: record.clone(), place, from };
    for (name, from, outcome) in &record.outputs {
        if let Some(outcome) = outcome
            && wanted.is_in(&handle, outcome).await?
        {
            outputs.push(found(format!("output {name}"), from.clone()));
        }
    }
    for step in &record.steps {
        for (port, outcome) in &step.outputs {
            let from = Origin::Step { address: step.address.clone(), port: port.clone() };
            if let Some(outcome) = outcome
                && !outputs.iter().any(|found| found.from == from)
                && wanted.is_in(&handle, outcome).await?
            {
                kept.push(found(format!("{port} of step {}", words::step(&step.address)), from));
            }
        }
    }
    for (name, digest) in &record.inputs {
        if wanted.is(digest) || wanted.as_file.as_ref() == Some(digest) {
            given.push(found(format!("input {name}"), Origin::Input(name.clone())));
        }
    }
    Ok([outputs, kept, given])
}

fn short(hex: &str) -> &str {
    &hex[..hex.len().min(16)]
}

fn to_text(printer: &Printer, wanted: &Wanted, found: &Found) -> String {
    let record = &found.record;
    let run = printer.ink(Ink::Bold, &record.key);
    let mut text =
        format!("is {} of run {run} ({}, flow {}, {})\n", found.place, record.id, record.flow, record.status);
    Tracing { record, wanted, seen: BTreeSet::new(), text: &mut text }.trace(&found.from, 1);
    text
}

/// On the way back from something to what it was made of.
struct Tracing<'a> {
    record: &'a Record,
    wanted: &'a Wanted,
    seen: BTreeSet<String>,
    text: &'a mut String,
}

impl Tracing<'_> {
    /// The digest of something, called what it is: a value as it is stored is known by another than a file is, to which
    /// its name belongs. Of the file that is asked about both are known.
    fn digest(&self, digest: &Digest) -> String {
        match self.wanted.as_file.as_ref() == Some(digest) {
            true => format!("blake3 {}", short(&self.wanted.hex)),
            false => format!("value {}", short(&hex(digest))),
        }
    }

    fn trace(&mut self, from: &Origin, depth: usize) {
        let (record, indent) = (self.record, "  ".repeat(depth));
        match from {
            Origin::None => {}
            Origin::Constant(digest) => {
                let told = format!("{indent}said by the flow, {}\n", self.digest(digest));
                self.text.push_str(&told);
            }
            Origin::Input(name) => {
                let digest = record.inputs.iter().find(|(input, _)| input == name).map(|(_, digest)| digest);
                let digest = digest.map_or(String::new(), |digest| format!(", {}", self.digest(digest)));
                self.text.push_str(&format!("{indent}input {name}{digest}\n"));
            }
            Origin::Step { address, port } => {
                let step = record.steps.iter().find(|step| step.address == *address);
                let name = words::step(address);
                let Some(step) = step else {
                    self.text.push_str(&format!("{indent}from {name}:{port}\n"));
                    return;
                };
                let again = !self.seen.insert(address.clone());
                let told = if again { " (see above)" } else { "" };
                self.text.push_str(&format!(
                    "{indent}from {name}:{port}, {} {}{told}\n",
                    step.kind,
                    style::short(&step.code, 17)
                ));
                if !again {
                    step.inputs.iter().for_each(|(_, from)| self.trace(from, depth + 1));
                }
            }
        }
    }
}

/// Where something comes from, as data.
pub(crate) fn origin(from: &Origin) -> Value {
    match from {
        Origin::None => Value::Null,
        Origin::Constant(digest) => json!({"constant": hex(digest)}),
        Origin::Input(name) => json!({"input": name}),
        Origin::Step { address, port } => json!({"step": words::step(address), "port": port}),
    }
}

fn to_json(found: &Found) -> Value {
    let record = &found.record;
    // Only what it comes from, in the order of the flow.
    let mut needed = BTreeSet::new();
    let mut look = vec![&found.from];
    while let Some(from) = look.pop() {
        if let Origin::Step { address, .. } = from
            && needed.insert(address)
            && let Some(step) = record.steps.iter().find(|step| step.address == *address)
        {
            look.extend(step.inputs.iter().map(|(_, from)| from));
        }
    }
    let steps = record.steps.iter().filter(|step| needed.contains(&step.address)).map(|step| {
        let inputs = step.inputs.iter().map(|(name, from)| json!({"name": words::port(name), "from": origin(from)}));
        json!({
            "step": words::step(&step.address), "kind": step.kind, "code": step.code,
            "inputs": inputs.collect::<Vec<_>>(),
        })
    });
    let inputs = record.inputs.iter().map(|(name, digest)| (name.clone(), json!(hex(digest))));
    json!({
        "key": record.key, "id": record.id.to_string(), "flow": record.flow, "status": record.status.to_string(),
        "code": hex(&record.code), "is": found.place, "from": origin(&found.from),
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
            failures: vec![],
            not_undone: vec![],
            undecided: vec![],
            live: 0,
        };
        let wanted = Wanted { name: String::from("x"), hex: String::from("00000000"), as_file: None };
        let all = find(&engine, vec![run], &wanted).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert!(all.found.is_empty() && all.gone == ["was"]);
        engine.stop();
    }
}
