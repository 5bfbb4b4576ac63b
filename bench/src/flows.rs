//! The flows that are measured: chains, an each over a chain, a loop; and their tasks, which do next to nothing.

use bytes::Bytes;
use onceflow_core::model::{
    CheckedFlow, Connection, Effect, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, graph::ModuleKind,
};
use onceflow_engine::task::{Attempt, Body, Data, Step, Tasks};
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Counts how often bodies ran, when the first one did, and, on request, when each did.
pub struct Count {
    ran: AtomicU64,
    since: Instant,
    /// Nanoseconds after `since`; 0 if none ran since it was last asked for.
    first_ns: AtomicU64,
    /// The time of each body, if they are kept.
    times: Mutex<Option<Vec<Instant>>>,
    keeps_times: AtomicBool,
    /// Bodies that are held, so that a caller can see how many run at a time.
    held: Mutex<Option<Vec<oneshot::Sender<()>>>>,
    holds: AtomicBool,
}

impl Count {
    pub fn new() -> Arc<Count> {
        Arc::new(Count {
            ran: AtomicU64::new(0),
            since: Instant::now(),
            first_ns: AtomicU64::new(0),
            times: Mutex::default(),
            keeps_times: AtomicBool::new(false),
            held: Mutex::default(),
            holds: AtomicBool::new(false),
        })
    }

    fn one(&self) {
        self.ran.fetch_add(1, Relaxed);
        if self.first_ns.load(Relaxed) == 0 {
            self.first_ns.store(self.since.elapsed().as_nanos() as u64, Relaxed);
        }
        if self.keeps_times.load(Relaxed)
            && let Some(times) = &mut *lock(&self.times)
        {
            times.push(Instant::now());
        }
    }

    /// Keeps the time of each body from now on.
    pub fn keep_times(&self) {
        *lock(&self.times) = Some(Vec::new());
        self.keeps_times.store(true, Relaxed);
    }

    /// The times between bodies that followed each other, in microseconds, since [`Count::keep_times`].
    pub fn gaps_us(&self) -> Vec<f64> {
        self.keeps_times.store(false, Relaxed);
        let times = lock(&self.times).take().unwrap_or_default();
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e6).collect()
    }

    /// Holds every body that starts from now on, until [`Count::release`].
    pub fn hold(&self) {
        *lock(&self.held) = Some(Vec::new());
        self.holds.store(true, Relaxed);
    }

    /// How many bodies are held.
    pub fn held(&self) -> usize {
        lock(&self.held).as_ref().map_or(0, Vec::len)
    }

    /// Lets all held bodies go on, and holds none any more.
    pub fn release(&self) {
        self.holds.store(false, Relaxed);
        *lock(&self.held) = None;
    }

    /// The end of holding, if bodies are held.
    fn until_released(&self) -> Option<oneshot::Receiver<()>> {
        if !self.holds.load(Relaxed) {
            return None;
        }
        let mut held = lock(&self.held);
        let (release, released) = oneshot::channel();
        held.as_mut()?.push(release);
        Some(released)
    }

    /// How often bodies ran.
    pub fn ran(&self) -> u64 {
        self.ran.load(Relaxed)
    }

    /// When the first body ran since this was asked last.
    pub fn first(&self) -> Instant {
        self.since + Duration::from_nanos(self.first_ns.swap(0, Relaxed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds this lock")
}

/// Gives what it gets.
struct Noop(Arc<Count>);

impl Body for Noop {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        self.0.one();
        let Some(released) = self.0.until_released() else { return Attempt::Done(Ok(inputs)) };
        Attempt::Async(Box::pin(async move {
            // The sender is dropped, never used.
            let _ = released.await;
            Ok(inputs)
        }))
    }
}

/// Gives the next number, and whether to go on.
struct Next {
    count: Arc<Count>,
    until: i64,
}

impl Body for Next {
    fn start(&self, _: Step, inputs: Vec<Data>) -> Attempt {
        self.count.one();
        let next = as_int(&inputs[0]) + 1;
        let go_on = Bytes::from_static(if next < self.until { &[0xc3] } else { &[0xc2] });
        Attempt::Done(Ok(vec![int(next), Data::Bytes(go_on)]))
    }
}

/// A whole number, as MessagePack.
pub fn int(n: i64) -> Data {
    let mut bytes = vec![0xd3];
    bytes.extend_from_slice(&n.to_be_bytes());
    Data::Bytes(Bytes::from(bytes))
}

/// Reads what [`int`] made.
pub fn as_int(data: &Data) -> i64 {
    match data {
        Data::Bytes(bytes) => bytes.get(1..9).map_or(-1, |n| i64::from_be_bytes(n.try_into().expect("eight bytes"))),
        Data::List(_) | Data::File(_) | Data::None => -1,
    }
}

/// A task that does nothing: pure, so that it may be fused, or as by default.
pub fn noop(pure: bool) -> TaskSpec {
    let name = if pure { "pure" } else { "noop" };
    let mut spec = TaskSpec::new(name, vec![Port::new("x", Type::Int)], vec![Port::new("out", Type::Int)]);
    if pure {
        spec.effect = Effect::Pure;
    }
    spec
}

fn next() -> TaskSpec {
    let outputs = vec![Port::new("out", Type::Int), Port::new("more", Type::Bool)];
    TaskSpec::new("next", vec![Port::new("x", Type::Int)], outputs)
}

/// All tasks; a loop ends at `until`.
pub fn tasks(count: &Arc<Count>, until: i64) -> Tasks {
    let mut tasks = Tasks::new();
    tasks.add(noop(false), Arc::new(Noop(count.clone())));
    tasks.add(noop(true), Arc::new(Noop(count.clone())));
    tasks.add(next(), Arc::new(Next { count: count.clone(), until }));
    tasks
}

/// `steps` tasks one after the other, from `x` to `y`.
pub fn chain(steps: usize, pure: bool) -> Graph {
    let mut graph = numbers("x", "y", Type::Int);
    for at in 0..steps {
        let name = format!("f{at}");
        let from = if at == 0 { end(None, "x") } else { end(Some(&format!("f{}", at - 1)), "out") };
        graph.connections.push(connect(from, end(Some(&name), "x")));
        graph.modules.push(module(&name, ModuleKind::Task(noop(pure).into())));
    }
    graph.connections.push(connect(end(Some(&format!("f{}", steps - 1)), "out"), end(None, "y")));
    graph
}

/// Each of `xs` through a chain.
pub fn each(steps: usize, pure: bool) -> Graph {
    let mut graph = numbers("xs", "ys", Type::List(Box::new(Type::Int)));
    let over = vec![String::from("x")];
    let body = ModuleKind::Each { body: chain(steps, pure), over, concurrency: None };
    graph.modules.push(module("each", body));
    graph.connections.push(connect(end(None, "xs"), end(Some("each"), "x")));
    graph.connections.push(connect(end(Some("each"), "y"), end(None, "ys")));
    graph
}

/// Counts from `x` until the task says that it is enough.
pub fn count_up() -> Graph {
    let mut body = numbers("x", "y", Type::Int);
    body.outputs.push(Port::new("more", Type::Bool));
    body.modules.push(module("next", ModuleKind::Task(next().into())));
    body.connections.push(connect(end(None, "x"), end(Some("next"), "x")));
    body.connections.push(connect(end(Some("next"), "out"), end(None, "y")));
    body.connections.push(connect(end(Some("next"), "more"), end(None, "more")));
    let carried = vec![(String::from("y"), String::from("x"))];
    let kind = ModuleKind::Loop { body, carried, condition: String::from("more") };
    let mut graph = numbers("x", "y", Type::Int);
    graph.modules.push(module("count", kind));
    graph.connections.push(connect(end(None, "x"), end(Some("count"), "x")));
    graph.connections.push(connect(end(Some("count"), "y"), end(None, "y")));
    graph
}

/// The only flow of a library, checked.
pub fn flow(graph: Graph) -> CheckedFlow {
    let library = Library { flows: [(String::from("main"), graph)].into() };
    CheckedFlow::check(library, "main").unwrap_or_else(|errors| panic!("{errors}"))
}

fn numbers(input: &str, output: &str, ty: Type) -> Graph {
    Graph { inputs: vec![Port::new(input, ty.clone())], outputs: vec![Port::new(output, ty)], ..Graph::default() }
}

fn module(name: &str, kind: ModuleKind) -> Module {
    Module { name: name.into(), kind, origin: None, attempt: false }
}

fn connect(from: Endpoint, to: Endpoint) -> Connection {
    Connection { from, to, origin: None }
}

fn end(module: Option<&str>, port: &str) -> Endpoint {
    Endpoint { module: module.map(str::to_owned), port: port.into() }
}

/// A list of whole numbers.
pub fn int_list(n: usize) -> Data {
    Data::List((0..n as i64).map(int).collect())
}
