//! Runs one command under a guard: `guarded run DIRECTORY SCRIPT KEY`. As `guarded guard` this process is the guard.

use onceflow_core::model::{
    CheckedFlow, Connection, Endpoint, Graph, Library, Module, Port, TaskSpec, Type, graph::ModuleKind,
};
use onceflow_engine::{Engine, Start};
use onceflow_exec::{
    CalledClass, ExecutorOptions, Home,
    action::{Action, Command, Shell, Template},
};
use onceflow_store::Store;

fn main() {
    let args: Vec<_> = std::env::args().collect();
    match args[1].as_str() {
        "guard" => onceflow_exec::guard::main(),
        _ => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(run(&args[2], &args[3], &args[4]));
        }
    }
}

async fn run(directory: &str, script: &str, key: &str) {
    let store = Store::open(directory).await.expect("a store");
    let engine = Engine::open(&store, onceflow_engine::Options::default()).await.expect("an engine");
    let guard = Some((std::env::current_exe().expect("a program"), vec!["guard".into()]));
    let tasks = onceflow_exec::executors(ExecutorOptions {
        home: Home::new(directory),
        guard,
        called_class: CalledClass::default(),
    });
    engine.add_tasks(&tasks).expect("no two tasks of one name");
    let command = Command {
        run: Template::text(script),
        shell: Shell::Bash,
        outputs: vec![],
        env: Default::default(),
        secrets: vec![],
    };
    let action = Action::Command(command);
    let mut spec = TaskSpec::new(action.executor(), vec![], vec![]);
    spec.params = action.to_params();
    let end = |module: Option<&str>| Endpoint { module: module.map(String::from), port: "done".into() };
    let graph = Graph {
        inputs: vec![],
        outputs: vec![Port::new("done", Type::Unit)],
        modules: vec![Module {
            name: "step".into(),
            kind: ModuleKind::Task(spec.into()),
            origin: None,
            attempt: false,
        }],
        connections: vec![Connection { from: end(Some("step")), to: end(None), origin: None }],
    };
    let library = Library { flows: [(String::from("main"), graph)].into() };
    let flow = CheckedFlow::check(library, "main").expect("a flow without mistakes");
    let handle = engine.start(Start::new(key, flow)).await.expect("a run");
    println!("{}", handle.wait().await.expect("a report"));
    engine.close().await.expect("closed");
    drop((tasks, handle, engine));
}
