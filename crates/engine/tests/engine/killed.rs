//! A real process on the journal, killed again and again while it works, and restarted: no effect is lost, and the only
//! repeated effects are those of steps in flight at a kill, with the same key both times.
//!
//! The test starts itself as a child. Every body appends a line to a file, in one write, and then reports it on its
//! standard output; the parent kills the child after a random number of reports. Few effects later the child waits for
//! that, so that it does not get far ahead of a parent that a busy machine keeps waiting.

use crate::support;

use onceflow_core::model::{Arm, Library, Type, graph::ModuleKind};
use onceflow_engine::{Engine, Options, RunStatus, Start, Summary, task::Failure};
use onceflow_store::{Store, testing::random::Random, values::fsck::Mode};
use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};
use support::{Kit, as_int, bool, flows::spec, graphs::*, int, ints, proof::Proof};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

/// Environment variables of a child: the directory of the store, the number of elements, and the number of effects after
/// which it waits to be killed, if it is to be.
const DIR: &str = "ONCEFLOW_TEST_KILLED_DIR";
const ELEMENTS: &str = "ONCEFLOW_TEST_KILLED_ELEMENTS";
const EFFECTS_MAX: &str = "ONCEFLOW_TEST_KILLED_EFFECTS_MAX";

/// Effects that a child may have beyond those after which it is killed.
const EFFECTS_AHEAD: usize = 3;

/// Steps in flight at a time.
const SLOTS: usize = 8;

/// Appends one line to the file of effects, in one write, and reports it.
fn effect(file: Option<&Path>, line: &str) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    wait_for_the_kill_if_due();
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("the file of effects");
    file.write_all(format!("{line}\n").as_bytes()).map_err(|error| Failure::new(error.to_string()))?;
    // The parent may be gone.
    let _said = std::io::stdout().lock().write_all(b"@\n");
    Ok(())
}

/// Counts an effect of this child; never returns once it has had as many as it may.
fn wait_for_the_kill_if_due() {
    static MAX: LazyLock<Option<usize>> = LazyLock::new(|| std::env::var(EFFECTS_MAX).ok()?.parse().ok());
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if let Some(max) = *MAX
        && COUNT.fetch_add(1, SeqCst) >= max
    {
        loop {
            std::thread::park();
        }
    }
}

/// Every element goes through a chain, a loop, a choice and a flow that calls itself.
fn mixed(kit: &mut Kit, file: Option<PathBuf>, elements: i64) -> Start {
    let task = |kit: &mut Kit, name: &str, out: Type, code: fn(i64) -> onceflow_engine::task::Data| {
        let file = file.clone();
        kit.add(spec(name, &[("x", Type::Int)], &[("out", out)]), move |step, inputs| {
            effect(file.as_deref(), &format!("{} {}", step.key(), step.address()))?;
            Ok(vec![code(as_int(&inputs[0]))])
        })
    };
    let inc = task(kit, "inc", Type::Int, |n| int(n + 1));
    let dec = task(kit, "dec", Type::Int, |n| int(n - 10));
    let again = task(kit, "again", Type::Bool, |n| bool(n % 5 != 0));
    let low = task(kit, "low", Type::Bool, |n| bool(n < 20));
    let io = || G::new().input("x", Type::Int).output("y", Type::Int);
    let round = io().output("go", Type::Bool).task("inc", &inc).task("again", &again);
    let round = round.connect("x -> inc.x; inc.out -> y; inc.out -> again.x; again.out -> go").graph();
    let round = ModuleKind::Loop { body: round, carried: vec![("y".into(), "x".into())], condition: "go".into() };
    let deeper = io().task("dec", &dec).module("call", ModuleKind::Call { flow: "down".into() });
    let deeper = deeper.connect("x -> dec.x; dec.out -> call.x; call.y -> y").graph();
    let arms = vec![
        Arm { name: "end".into(), guard: Some("end".into()), body: io().connect("x -> y").graph() },
        Arm { name: "deeper".into(), guard: None, body: deeper },
    ];
    let down = io().task("low", &low).module("which", ModuleKind::Choice { arms });
    let down = down.connect("x -> low.x; low.out -> which.end; x -> which.x; which.y -> y").graph();
    let body = io().module("chain", ModuleKind::Composite(chain(&inc, 4).graph())).module("round", round);
    let body = body.module("down", ModuleKind::Call { flow: "down".into() });
    let body = body.connect("x -> chain.x; chain.y -> round.x; round.y -> down.x; down.y -> y").graph();
    let list = || Type::list(Type::Int);
    let g = G::new().input("xs", list()).output("ys", list()).module("each", each(body));
    let g = g.connect("xs -> each.x; each.y -> ys").graph();
    let flows = [("main".into(), g), ("down".into(), down)].into();
    Start::new("mixed", checked(Library { flows })).input("xs", ints((0..elements).map(|n| n % 40)))
}

#[test]
fn child() {
    let (Ok(dir), Ok(elements)) = (std::env::var(DIR), std::env::var(ELEMENTS)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(live(Path::new(&dir), elements.parse().unwrap()));
}

async fn live(dir: &Path, elements: i64) {
    let mut kit = Kit::default();
    let start = mixed(&mut kit, Some(dir.join("effects")), elements);
    let store = Store::open(dir.join("store")).await.unwrap();
    let engine = Engine::open(&store, Options { steps_max: SLOTS, ..Options::default() }).await.unwrap();
    engine.add_tasks(&kit.tasks).expect("no two tasks of one name");
    let handle = engine.start(start).await.unwrap();
    let Summary { status: RunStatus::Done, outputs, .. } = handle.wait().await.unwrap() else { panic!("not done") };
    let told = support::told(&handle, outputs).await;
    engine.close().await.unwrap();
    store.close().await.unwrap();
    std::io::stdout().lock().write_all(format!("={told}\n").as_bytes()).expect("the parent listens");
}

/// Runs a child. Kills it after so many effects; returns its final output, if it came so far.
async fn run_child(dir: &Path, elements: i64, kill_after: Option<usize>) -> Option<String> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["killed::child", "--exact", "--nocapture"]).env(DIR, dir).env(ELEMENTS, elements.to_string());
    if let Some(after) = kill_after {
        child.env(EFFECTS_MAX, (after + EFFECTS_AHEAD).to_string());
    }
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut seen, mut told) = (0, None);
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, end)) = line.split_once('=') {
            told = Some(end.to_owned());
        }
        seen += usize::from(line.ends_with('@'));
        if kill_after.is_some_and(|after| seen > after) {
            child.start_kill().unwrap();
            break;
        }
    }
    child.wait().await.unwrap();
    told
}

/// The lines of the file of effects: for each address, the number of lines with each key.
fn effects(dir: &Path) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut found = BTreeMap::<String, BTreeMap<String, usize>>::new();
    for line in std::fs::read_to_string(dir.join("effects")).unwrap().lines() {
        let (key, address) = line.split_once(' ').unwrap_or_else(|| panic!("a torn line: {line}"));
        *found.entry(address.into()).or_default().entry(key.into()).or_default() += 1;
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_anywhere_loses_nothing_and_doubles_only_what_was_in_flight() {
    let kills_max = if std::env::var_os("ONCEFLOW_LONG").is_some() { 1000 } else { 100 };
    let elements = kills_max as i64 * 3 / 4;
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let mut random = Random::new(4711);
    let (mut kills, mut told) = (0, None);
    while told.is_none() && kills < kills_max {
        told = run_child(dir, elements, Some(random.below(14))).await;
        kills += usize::from(told.is_none());
    }
    assert!(kills >= kills_max * 3 / 4, "it was done after {kills} kills; make it longer");
    let told = match told {
        Some(told) => told,
        None => run_child(dir, elements, None).await.expect("it ends when it is not killed"),
    };
    let (steps, expected) = undisturbed(elements).await;
    assert_eq!(told, expected);
    let effects = effects(dir);
    assert_eq!(effects.keys().cloned().collect::<Vec<_>>(), steps, "effects were lost, or others happened");
    let doubled: usize = effects.values().flat_map(BTreeMap::values).map(|n| n - 1).sum();
    assert!(effects.values().all(|keys| keys.len() == 1), "a step had two keys");
    assert!(doubled <= kills * SLOTS, "{doubled} effects were doubled by {kills} kills");
    println!("{kills} kills, {} effects, {doubled} doubled", effects.len());
    look(dir, kills).await;
}

/// The addresses of all steps, and the outputs of the flow, without kills.
async fn undisturbed(elements: i64) -> (Vec<String>, String) {
    let mut kit = Kit::default();
    let start = mixed(&mut kit, None, elements);
    let here = tokio::task::LocalSet::new();
    let proof = Proof::new(&kit);
    let told = here.run_until(proof.run(start)).await;
    let steps = kit.log.lock().unwrap().keys().cloned().collect();
    (steps, told)
}

/// Checks the values that the killed processes left in the store.
async fn look(dir: &Path, kills: usize) {
    let store = Store::open(dir.join("store")).await.unwrap();
    let values = store.values().await.unwrap();
    while values.reclaim(usize::MAX).await.unwrap().more {}
    let report = values.fsck(Mode::Check).await.unwrap();
    assert!(report.is_clean(), "after {kills} kills: {report}");
    // The remaining values go with the history of the run: the gathered result, the program, and the sealed record.
    assert!(report.values <= 3, "{report}");
    store.close().await.unwrap();
}
