//! The command line that started a run, in `runs/<id>/asked.json`. Informational, for `show` and for hints; it may be
//! missing.

use crate::{args, asked::Asked, location::StoreLocation, picture::Scene, verbs::ls::shell_word};
use onceflow_core::protocol::ids::RunId;
use onceflow_engine::Handle;
use onceflow_exec::value::PortValue;
use onceflow_spec::ResultsMode;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::{io, path::Path};

/// The most elements of a list that are written.
const ELEMENTS_MAX: usize = 20;

/// The name of the file with the flow's scene.
const PICTURE: &str = "graph.json";

/// Flows with more nodes are not drawn.
const DRAWN_MAX: usize = 20_000;

/// The name of the file.
const NAME: &str = "asked.json";

/// The name of the file with all inputs, and its largest size.
const INPUTS: &str = "inputs.json";
const INPUTS_BYTES_MAX: usize = 4 << 20;

/// Writes the metadata of a run. A file that cannot be written is left out.
pub(crate) fn write(location: &StoreLocation, run: RunId, args: &args::Run, asked: &Asked) {
    let (flow, out) = (json!(args.flow.flow.to_string_lossy()), args.out.display().to_string());
    let mode = crate::verbs::run::results_mode(args, asked);
    put(location, run, (&flow, &command(&args.flow, Some(&args.out)), &out, mode), &asked.shown);
}

/// The inputs of a run as they are written.
pub(crate) struct ShownInputs {
    /// The inputs, with long lists cut.
    short: Map<String, Value>,
    /// All inputs in JSON, if they are not too long.
    all: Option<Vec<u8>>,
}

impl ShownInputs {
    /// The inputs as they were given. Nothing is kept of a long list but its first elements.
    pub(crate) fn new(inputs: &[(String, PortValue)]) -> Self {
        struct All<'a>(&'a [(String, PortValue)]);
        impl Serialize for All<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(name, value)| (name, value.as_json())))
            }
        }
        let short = inputs.iter().map(|(name, value)| (name.clone(), shortened(value))).collect();
        ShownInputs { short, all: within_limit(&All(inputs)) }
    }

    /// The inputs as another run has them written.
    pub(crate) fn from_json(inputs: Map<String, Value>) -> Self {
        let all = within_limit(&inputs);
        ShownInputs { short: inputs.into_iter().map(|(name, value)| (name, bounded(value))).collect(), all }
    }
}

/// Encodes inputs, unless they are longer than [`INPUTS_BYTES_MAX`].
fn within_limit(inputs: &impl Serialize) -> Option<Vec<u8>> {
    struct Limited(Vec<u8>);
    impl io::Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.len() + bytes.len() <= INPUTS_BYTES_MAX {
                true => self.0.write(bytes),
                false => Err(io::ErrorKind::FileTooLarge.into()),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut written = Limited(Vec::new());
    serde_json::to_writer(&mut written, inputs).is_ok().then_some(written.0)
}

/// The JSON of a value, with long lists cut as [`bounded`] does.
fn shortened(value: &PortValue) -> Value {
    match value {
        PortValue::List(all) => {
            let some = all.iter().take(ELEMENTS_MAX).map(shortened);
            some.chain(more(all.len())).collect()
        }
        PortValue::Record(fields) => fields.iter().map(|(name, field)| (name.clone(), shortened(field))).collect(),
        plain => plain.to_json(),
    }
}

/// The last element of a list that was cut.
fn more(elements: usize) -> Option<Value> {
    (elements > ELEMENTS_MAX).then(|| Value::String(format!("… and {} more", elements - ELEMENTS_MAX)))
}

/// Writes the same from its parts: the flow, the command that resumes it, the directory of results and their mode, and
/// the inputs.
pub(crate) fn put(
    location: &StoreLocation,
    run: RunId,
    (flow, command, out, mode): (&Value, &str, &str, ResultsMode),
    inputs: &ShownInputs,
) {
    let data =
        json!({ "flow": flow, "command": command, "inputs": inputs.short, "out": out, "results_mode": mode.word() });
    let written = location.run_dir(run).and_then(|directory| {
        directory.replace_file(NAME, &serde_json::to_vec_pretty(&data).unwrap_or_default())?;
        inputs.all.as_ref().map_or(Ok(()), |all| directory.replace_file(INPUTS, all))
    });
    if let Err(error) = written {
        tracing::debug!(%error, "what the run was started with is not written down");
    }
}

/// Writes the scene of a run's flow: the store keeps the program only as long as it needs it.
pub(crate) async fn draw(location: &StoreLocation, handle: &Handle) {
    let Ok(Some(program)) = handle.steps().program().await else { return };
    let nodes: usize = program.blocks.iter().map(|block| block.nodes.len()).sum();
    if nodes > DRAWN_MAX {
        return;
    }
    let scene = serde_json::to_vec(&Scene::of(&program, handle.key())).unwrap_or_default();
    let written = location.run_dir(handle.id()).and_then(|directory| directory.replace_file(PICTURE, &scene));
    if let Err(error) = written {
        tracing::debug!(%error, "what the flow looks like is not written down");
    }
}

/// Returns the scene of the run's flow.
pub(crate) fn drawn(location: &StoreLocation, run: RunId) -> Option<Scene> {
    serde_json::from_slice(&std::fs::read(location.run(run).join(PICTURE)).ok()?).ok()
}

/// Returns all inputs as they were given, if they were not too long.
pub(crate) fn inputs(location: &StoreLocation, run: RunId) -> Option<Map<String, Value>> {
    serde_json::from_slice(&std::fs::read(location.run(run).join(INPUTS)).ok()?).ok()
}

/// Returns the metadata of a run.
pub(crate) fn read(location: &StoreLocation, run: RunId) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(location.run(run).join(NAME)).ok()?).ok()
}

/// Returns the command that resumes a run.
pub(crate) fn again(meta: Option<&Value>) -> Option<String> {
    meta?["command"].as_str().map(str::to_owned)
}

/// Returns the command line, as one would write it in a shell.
pub(crate) fn command(flow: &args::Flow, out: Option<&Path>) -> String {
    let mut words = vec![String::from("onceflow"), String::from("run"), shell_word(&flow.flow.display().to_string())];
    let mut option = |name: &str, value: &str| words.extend([name.to_owned(), shell_word(value)]);
    flow.input.iter().for_each(|(name, value)| option("-i", &format!("{name}={value}")));
    if let Some(file) = &flow.inputs {
        option("--inputs", &file.display().to_string());
    }
    flow.output.iter().for_each(|name| option("-o", name));
    if let Some(key) = &flow.key {
        option("--key", key);
    }
    if let Some(out) = out.filter(|out| out.as_os_str() != "results") {
        option("--out", &out.display().to_string());
    }
    words.join(" ")
}

/// Replaces lists that [`bounded`] cut by objects with their length and first elements, so that a cut list is not taken
/// for a whole one.
pub(crate) fn without_cuts(inputs: Map<String, Value>) -> Map<String, Value> {
    fn one(value: Value) -> Value {
        match value {
            Value::Array(mut all) => match all.last().and_then(Value::as_str).and_then(cut) {
                Some(more) => {
                    all.pop();
                    json!({"elements": all.len() + more, "first": all})
                }
                None => all.into_iter().map(one).collect(),
            },
            Value::Object(all) => all.into_iter().map(|(name, value)| (name, one(value))).collect(),
            plain => plain,
        }
    }
    inputs.into_iter().map(|(name, value)| (name, one(value))).collect()
}

/// Returns the number of elements that were cut, if the last element gives it.
fn cut(last: &str) -> Option<usize> {
    last.strip_prefix("… and ")?.strip_suffix(" more")?.parse().ok()
}

/// Cuts long lists.
pub(crate) fn bounded(value: Value) -> Value {
    match value {
        Value::Array(all) if all.len() > ELEMENTS_MAX => {
            let more = more(all.len());
            all.into_iter().take(ELEMENTS_MAX).map(bounded).chain(more).collect()
        }
        Value::Array(all) => all.into_iter().map(bounded).collect(),
        Value::Object(all) => all.into_iter().map(|(name, value)| (name, bounded(value))).collect(),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_place_of_the_files_of_a_run_are_not_written_through() {
        let (store, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let canary = outside.path().join("canary");
        std::fs::write(&canary, "sings").unwrap();
        let location = StoreLocation {
            directory: store.path().to_owned(),
            is_there: true,
            is_given: true,
            server: None,
            backend: None,
            bytes_max: None,
        };
        let run = RunId([7; 8]);
        let directory = location.run(run);
        std::fs::create_dir_all(&directory).unwrap();
        for name in [NAME, INPUTS] {
            std::os::unix::fs::symlink(&canary, directory.join(name)).unwrap();
        }
        let inputs = Map::from_iter([(String::from("n"), json!(1))]);
        let write = || {
            put(
                &location,
                run,
                (&json!("flow"), "onceflow run flow", "results", ResultsMode::Copy),
                &ShownInputs::from_json(inputs.clone()),
            );
        };
        write();
        assert_eq!(std::fs::read_to_string(&canary).unwrap(), "sings");
        assert_eq!(super::inputs(&location, run), Some(inputs.clone()), "the files are written in place of the links");
        // A link in place of the whole directory.
        std::fs::remove_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(outside.path(), &directory).unwrap();
        write();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing but the canary");
        assert!(location.run_dir(run).is_err());
    }
}
