//! Runs one step through a real engine on a real store.

use onceflow_core::model::{
    CheckedFlow, Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, graph::ModuleKind,
};
use onceflow_engine::{Engine, Handle, RunStatus, Start};
use onceflow_exec::{
    CalledClass, ExecutorOptions, Home,
    action::{Action, Capture, Command, Shell, Template},
    template,
    value::PortValue,
};
use onceflow_store::Store;
use std::{collections::BTreeMap, path::PathBuf};

/// A store and an engine.
pub(crate) struct Lab {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) engine: Engine,
    pub(crate) home: Home,
}

/// A step to run: an action, its inputs and its outputs.
pub(crate) struct One {
    pub(crate) action: Action,
    pub(crate) inputs: Vec<(&'static str, Type, PortValue)>,
    pub(crate) outputs: Vec<(&'static str, Type)>,
    pub(crate) change: fn(&mut TaskSpec),
}

pub(crate) fn text(text: &str) -> Template {
    template::parse(text).unwrap().template
}

/// A bash command.
pub(crate) fn command(run: &str, outputs: &[&str]) -> Command {
    let outputs = outputs.iter().map(|name| match *name {
        "stdout" => Capture::Stdout,
        name => Capture::Path(text(name)),
    });
    let run = text(run);
    Command { run, shell: Shell::Bash, outputs: outputs.collect(), env: BTreeMap::new(), secrets: vec![] }
}

impl One {
    pub(crate) fn new(action: Action) -> Self {
        One { action, inputs: vec![], outputs: vec![], change: |_| {} }
    }

    /// A step with a bash command; inputs and outputs are added.
    pub(crate) fn command(run: &str) -> Self {
        One::new(Action::Command(command(run, &[])))
    }

    pub(crate) fn input(mut self, name: &'static str, ty: Type, value: PortValue) -> Self {
        self.inputs.push((name, ty, value));
        self
    }

    /// Adds an output; `place` is its name, or `stdout`.
    pub(crate) fn output(mut self, name: &'static str, ty: Type, place: &str) -> Self {
        self.outputs.push((name, ty));
        if let Action::Command(command) = &mut self.action {
            command.outputs.push(match place {
                "stdout" => Capture::Stdout,
                place => Capture::Path(text(place)),
            });
        }
        self
    }

    pub(crate) fn change(mut self, change: fn(&mut TaskSpec)) -> Self {
        self.change = change;
        self
    }

    fn start(&self, key: &str) -> Start {
        let port = |(name, ty): &(&str, Type)| Port::new(*name, ty.clone());
        let inputs: Vec<_> = self.inputs.iter().map(|(name, ty, _)| Port::new(*name, ty.clone())).collect();
        let outputs: Vec<_> = self.outputs.iter().map(port).collect();
        let mut spec = TaskSpec::new(self.action.executor(), inputs.clone(), outputs.clone());
        spec.params = self.action.to_params();
        spec.version = self.action.version("");
        (self.change)(&mut spec);
        let end = |module: Option<&str>, port: &str| Endpoint { module: module.map(String::from), port: port.into() };
        let mut graph = Graph { inputs: inputs.clone(), outputs: outputs.clone(), ..Graph::default() };
        for port in &inputs {
            let (from, to) = (end(None, &port.name), end(Some("step"), &port.name));
            graph.connections.push(Connection { from, to, origin: None });
        }
        for port in &outputs {
            let (from, to) = (end(Some("step"), &port.name), end(None, &port.name));
            graph.connections.push(Connection { from, to, origin: None });
        }
        if outputs.is_empty() {
            graph.outputs.push(Port::new("done", Type::Unit));
            let (from, to) = (end(Some("step"), "done"), end(None, "done"));
            graph.connections.push(Connection { from, to, origin: None });
        }
        graph.modules.push(Module {
            name: "step".into(),
            kind: ModuleKind::Task(spec.into()),
            origin: None,
            attempt: false,
        });
        let library = Library { flows: [(String::from("main"), graph)].into() };
        let flow = CheckedFlow::check(library, "main").expect("a flow without mistakes");
        let start = Start::new(key, flow);
        self.inputs.iter().fold(start, |start, (name, ty, value)| {
            start.input(*name, value.clone().into_data(ty).unwrap_or_else(|wrong| panic!("{name}: {wrong}")))
        })
    }
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Lab::with_guard(None).await
    }

    pub(crate) async fn with_guard(guard: Option<PathBuf>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join(".onceflow");
        let store = Store::open(&root).await.unwrap();
        let scratch = root.join("scratch");
        let options = onceflow_engine::Options { scratch, ..onceflow_engine::Options::default() };
        let engine = Engine::open(&store, options).await.unwrap();
        let home = Home::new(&root);
        let guard = guard.map(|program| (program, vec!["guard".into()]));
        engine
            .add_tasks(&onceflow_exec::executors(ExecutorOptions {
                home: home.clone(),
                guard,
                called_class: CalledClass::default(),
            }))
            .unwrap();
        Lab { directory, engine, home }
    }

    /// Writes a file to be an input.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PortValue {
        let directory = self.directory.path().join(format!("inputs{}", rand(name)));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(name), content).unwrap();
        let path = directory.join(name).to_str().unwrap().to_owned();
        PortValue::from_json(path.into(), &Type::File).unwrap()
    }

    pub(crate) async fn start(&self, key: &str, one: &One) -> Handle {
        self.engine.start(one.start(key)).await.unwrap()
    }

    /// Runs the step; returns its outputs, or the failure as text.
    pub(crate) async fn run(&self, key: &str, one: &One) -> Result<Vec<PortValue>, String> {
        let handle = self.start(key, one).await;
        let report = handle.wait().await.unwrap();
        if report.status != RunStatus::Done {
            return Err(report.to_string());
        }
        let mut values = Vec::new();
        for (name, ty) in &one.outputs {
            let into = self.directory.path().join("results").join(key).join(name);
            let data = handle.outputs().output_into(name, Some(&into)).await.unwrap();
            values.push(PortValue::from_data(data, ty).unwrap());
        }
        Ok(values)
    }

    /// As `run`, but the step must succeed; files are shown as their contents.
    pub(crate) async fn texts(&self, key: &str, one: &One) -> Vec<String> {
        let values = self.run(key, one).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        values.iter().map(shown).collect()
    }

    /// Lists the files of runs that are left on the disk, except for logs.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        walk(&self.home.root.join("runs"), &mut left);
        left.retain(|path| !path.contains("/logs"));
        left.sort();
        left
    }
}

/// Formats a value, with files as `name=content`.
pub(crate) fn shown(value: &PortValue) -> String {
    match value {
        PortValue::File(file) => format!("{}={}", file.name, std::fs::read_to_string(&file.path).unwrap()),
        PortValue::Directory(directory) => {
            directory.files.iter().map(|file| shown(&PortValue::from(file.clone()))).collect::<Vec<_>>().join("|")
        }
        PortValue::List(elements) => elements.iter().map(shown).collect::<Vec<_>>().join(";"),
        PortValue::Text(text) => text.clone(),
        other => other.to_json().to_string(),
    }
}

fn rand(name: &str) -> String {
    blake3::hash(name.as_bytes()).to_hex()[..8].to_owned()
}

fn walk(directory: &std::path::Path, left: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() && !path.is_symlink() {
            true => walk(&path, left),
            false => left.push(path.display().to_string()),
        }
    }
}
