//! Common parts of the engine's tests: short notation for graphs, tasks over whole numbers, and a test bed.

pub(crate) mod flows;
pub(crate) mod graphs;
pub(crate) mod meanwhile;
pub(crate) mod paused;
pub(crate) mod proof;

use bytes::Bytes;
use onceflow_core::{
    model::{Effect, Port, TaskSpec, Type},
    payload::Outcome,
};
use onceflow_engine::{
    Engine, Handle, Options, RunStatus, Start, Summary,
    task::{Attempt, Body, Data, Failure, Step, Tasks},
};
use onceflow_store::{
    Records,
    backend::memory::Memory,
    blobs::Objects,
    values::Values,
    world::{RealWorld, World},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// A whole number as the output of a task.
pub(crate) fn int(n: i64) -> Data {
    Data::Bytes(Bytes::from(pack_int(n)))
}

/// A boolean as the output of a task.
pub(crate) fn bool(yes: bool) -> Data {
    Data::Bytes(Bytes::from_static(if yes { &[0xc3] } else { &[0xc2] }))
}

/// A list of whole numbers.
pub(crate) fn ints(list: impl IntoIterator<Item = i64>) -> Data {
    Data::List(list.into_iter().map(int).collect())
}

fn pack_int(n: i64) -> Vec<u8> {
    let mut bytes = vec![0xd3];
    bytes.extend_from_slice(&n.to_be_bytes());
    bytes
}

/// Decodes the number that [`int`] encoded.
pub(crate) fn as_int(data: &Data) -> i64 {
    match data {
        Data::Bytes(bytes) => i64::from_be_bytes(bytes[1..9].try_into().expect("an int")),
        other => panic!("{other:?} is no int"),
    }
}

/// Formats a number, or a list of numbers or of lists.
pub(crate) fn show(data: &Data) -> String {
    match data {
        Data::List(list) => format!("[{}]", list.iter().map(|element| show(&element)).collect::<Vec<_>>().join(" ")),
        Data::None => String::from("none"),
        Data::Bytes(bytes) if bytes.len() == 9 => as_int(data).to_string(),
        Data::Bytes(bytes) if bytes[..] == [0xc3] => String::from("true"),
        Data::Bytes(bytes) if bytes[..] == [0xc2] => String::from("false"),
        Data::Bytes(bytes) if bytes[..] == [0xc0] => String::from("done"),
        Data::Bytes(bytes) if bytes.first() == Some(&0xdb) => String::from_utf8_lossy(&bytes[5..]).into_owned(),
        Data::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Data::File(file) => file.name.clone(),
    }
}

/// The number of starts of each step's body, by address; shared by all tasks of a bed.
pub(crate) type Log = Arc<Mutex<BTreeMap<String, usize>>>;

type Code = Arc<dyn Fn(&Step, &[Data]) -> Result<Vec<Data>, Failure> + Send + Sync>;

struct Coded {
    code: Code,
    log: Log,
}

impl Body for Coded {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        *self.log.lock().unwrap().entry(step.address()).or_default() += 1;
        Attempt::Done((self.code)(&step, &inputs))
    }
}

/// Tasks under construction, with their log of starts.
#[derive(Clone, Default)]
pub(crate) struct Kit {
    pub(crate) tasks: Tasks,
    pub(crate) log: Log,
}

impl Kit {
    /// Adds a task over whole numbers: pure, named, with these inputs.
    pub(crate) fn task(
        &mut self,
        name: &str,
        inputs: &[&str],
        code: impl Fn(&[Data]) -> Result<Vec<Data>, Failure> + Send + Sync + 'static,
    ) -> TaskSpec {
        let ports = inputs.iter().map(|name| Port::new(*name, Type::Int)).collect();
        let spec = TaskSpec::new(name, ports, vec![Port::new("out", Type::Int)]);
        self.add(spec, move |_, inputs| code(inputs))
    }

    /// Adds any task.
    pub(crate) fn add(
        &mut self,
        spec: TaskSpec,
        code: impl Fn(&Step, &[Data]) -> Result<Vec<Data>, Failure> + Send + Sync + 'static,
    ) -> TaskSpec {
        let body = Coded { code: Arc::new(code), log: self.log.clone() };
        self.tasks.add(spec.clone(), Arc::new(body));
        spec
    }

    /// The starts of bodies: `address` or `address×n`, in order.
    pub(crate) fn ran(&self) -> String {
        let log = self.log.lock().unwrap();
        let one = |(address, n): (&String, &usize)| if *n == 1 { address.clone() } else { format!("{address}×{n}") };
        log.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

/// Sets the effect of a task.
pub(crate) fn with(mut spec: TaskSpec, effect: Effect) -> TaskSpec {
    spec.effect = effect;
    spec
}

/// A store, values and a world to run on.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) world: Arc<dyn World>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let world: Arc<dyn World> = RealWorld::here();
        Bed::on(Arc::new(Memory::new(world.clone())), world)
    }

    pub(crate) fn on(records: Arc<dyn Records>, world: Arc<dyn World>) -> Self {
        let values = Values::new(records.clone(), world.clone(), Default::default());
        let values = Arc::new(values.with_blobs(Arc::new(Objects::memory())));
        Bed { records, values, world }
    }

    pub(crate) fn engine(&self, kit: &Kit, options: Options) -> Engine {
        let engine = Engine::new(self.records.clone(), self.values.clone(), self.world.clone(), options);
        engine.add_tasks(&kit.tasks).unwrap();
        engine
    }

    /// Runs to the end and returns the outputs as text.
    pub(crate) async fn run(&self, kit: &Kit, start: Start) -> String {
        let engine = self.engine(kit, Options::default());
        let answer = run(&engine, start).await;
        engine.close().await.unwrap();
        answer
    }
}

/// Runs to the end and returns the outputs as text.
pub(crate) async fn run(engine: &Engine, start: Start) -> String {
    let handle = engine.start(start).await.unwrap_or_else(|error| panic!("{error}"));
    match handle.wait().await.unwrap() {
        Summary { status: RunStatus::Done, outputs, .. } => told(&handle, outputs).await,
        other => other.to_string(),
    }
}

/// The outputs of a run as text.
pub(crate) async fn told(handle: &Handle, outputs: Vec<(String, Outcome)>) -> String {
    let mut told = Vec::new();
    for (name, outcome) in outputs {
        let data = match outcome {
            Outcome::Value(_) => handle.output(&name).await.unwrap(),
            _ => Data::None,
        };
        told.push(format!("{name}={}", show(&data)));
    }
    told.join(" ")
}
