//! `onceflow lineage FILE|DIGEST`: from a content back to what it was made of: the run and the step that gave it, their
//! code, and the inputs at the beginning.

use crate::{
    args, codes,
    digests::Digests,
    exit::Exit,
    fault::Fault,
    place::Place,
    printer::{Ink, Printer},
    runs,
    session::Session,
    verbs::ls::shell_word,
    words,
};
use onceflow_core::payload::{Digest, Outcome, Payload, Stored};
use onceflow_engine::{Engine, Handle, Origin, Record, task::Data};
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

/// Traces a content.
pub(crate) async fn run(args: &args::Lineage, place: Place, printer: &Printer) -> Result<Exit, Fault> {
    let place = place.must_be_there()?;
    let wanted = wanted(&args.what, &place.directory)?;
    let session = Session::open(place).await?;
    let engine = session.idle().await?;
    let found = find(&engine, &wanted).await?;
    engine.stop();
    session.close().await?;
    if found.is_empty() {
        let what = format!("no run of this store gave {} ({}…)", wanted.name, &wanted.hex[..LETTERS_MIN]);
        return Err(Fault::new(Exit::No, codes::NO_ORIGIN, what)
            .hint("what steps gave on the way is known of runs with `--keep`; `onceflow ls` lists the runs"));
    }
    match printer.json {
        true => printer.pretty(&json!({
            "what": args.what, "digest": wanted.hex, "found": found.iter().map(to_json).collect::<Vec<_>>(),
        })),
        false => {
            let head = format!("{}  blake3 {}\n", printer.ink(Ink::Bold, &wanted.name), short(&wanted.hex));
            printer.text(head + &found.iter().map(|found| to_text(printer, found)).collect::<String>());
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
async fn find(engine: &Engine, wanted: &Wanted) -> Result<Vec<Found>, Fault> {
    let (mut outputs, mut kept, mut given) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs::all(engine).await? {
        let handle = engine.find(&run.key).await?;
        let record = handle.record().await?;
        for (name, from, outcome) in &record.outputs {
            if let Some(outcome) = outcome
                && wanted.is_in(&handle, outcome).await?
            {
                let place = format!("output {name}");
                outputs.push(Found { record: record.clone(), place, from: from.clone() });
            }
        }
        for step in &record.steps {
            for (port, outcome) in &step.outputs {
                let from = Origin::Step { address: step.address.clone(), port: port.clone() };
                let is_told = outputs.iter().any(|found: &Found| found.record.id == run.id && found.from == from);
                if let Some(outcome) = outcome
                    && !is_told
                    && wanted.is_in(&handle, outcome).await?
                {
                    let place = format!("{port} of step {}", words::step(&step.address));
                    kept.push(Found { record: record.clone(), place, from });
                }
            }
        }
        for (name, digest) in &record.inputs {
            if wanted.is(digest) || wanted.as_file.as_ref() == Some(digest) {
                let (place, from) = (format!("input {name}"), Origin::Input(name.clone()));
                given.push(Found { record: record.clone(), place, from });
            }
        }
    }
    Ok(outputs.into_iter().chain(kept).chain(given).collect())
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short(hex: &str) -> &str {
    &hex[..hex.len().min(16)]
}

/// A version as it is shown.
fn code(version: &str) -> String {
    match version.char_indices().nth(16) {
        Some((at, _)) => version[..at].to_owned(),
        None => version.to_owned(),
    }
}

fn to_text(printer: &Printer, found: &Found) -> String {
    let record = &found.record;
    let run = printer.ink(Ink::Bold, &record.key);
    let mut text =
        format!("is {} of run {run} ({}, flow {}, {})\n", found.place, record.id, record.flow, record.status);
    trace(record, &found.from, 1, &mut BTreeSet::new(), &mut text);
    text
}

fn trace(record: &Record, from: &Origin, depth: usize, seen: &mut BTreeSet<String>, text: &mut String) {
    let indent = "  ".repeat(depth);
    match from {
        Origin::None => {}
        Origin::Constant(digest) => {
            text.push_str(&format!("{indent}said by the flow, blake3 {}\n", short(&hex(digest))));
        }
        Origin::Input(name) => {
            let digest = record.inputs.iter().find(|(input, _)| input == name).map(|(_, digest)| hex(digest));
            let digest = digest.map_or(String::new(), |digest| format!(", blake3 {}", short(&digest)));
            text.push_str(&format!("{indent}input {name}{digest}\n"));
        }
        Origin::Step { address, port } => {
            let step = record.steps.iter().find(|step| step.address == *address);
            let name = words::step(address);
            let Some(step) = step else {
                text.push_str(&format!("{indent}from {name}:{port}\n"));
                return;
            };
            let again = !seen.insert(address.clone());
            let told = if again { " (see above)" } else { "" };
            text.push_str(&format!("{indent}from {name}:{port}, {} {}{told}\n", step.kind, code(&step.code)));
            if !again {
                step.inputs.iter().for_each(|(_, from)| trace(record, from, depth + 1, seen, text));
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
