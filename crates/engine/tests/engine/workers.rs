//! Several workers on one store: their registrations, and which worker performs a step when not all offer every task.

use crate::support;

use onceflow_core::model::{TaskSpec, Type, task::DEFAULT_CLASS};
use onceflow_engine::{About, Engine, Options, RunStatus, Start, Summary};
use onceflow_store::Records;
use support::{
    Kit,
    flows::{Case, SMALL, inc, start},
    graphs::G,
    int,
    proof::Proof,
};

/// The options of a worker that registers.
fn options(host: &str) -> Options {
    Options { about: Some(About { host: host.into(), pid: 7, ..About::default() }), ..Options::default() }
}

/// The same store for a worker that offers other tasks.
fn with(proof: &Proof, kit: &Kit) -> Proof {
    let mut other = proof.clone();
    other.kit = kit.clone();
    other
}

fn engine(proof: &Proof, kit: &Kit, host: &str) -> Engine {
    with(proof, kit).engine_on(proof.memory.clone(), options(host))
}

async fn hosts(engine: &Engine) -> Vec<String> {
    engine.workers().await.unwrap().into_iter().map(|worker| worker.about.host).collect()
}

/// `one` and `two` in turn: each is offered by another worker.
fn in_turn(one: &mut Kit, two: &mut Kit, rounds: usize) -> Case {
    in_turn_of(one, two, rounds, DEFAULT_CLASS)
}

/// The same, with the second task in this class.
fn in_turn_of(one: &mut Kit, two: &mut Kit, rounds: usize, class: &str) -> Case {
    let a = one.task("one", &["x"], |inputs| Ok(vec![int(support::as_int(&inputs[0]) + 1)]));
    let b = two.task("two", &["x"], |inputs| Ok(vec![int(support::as_int(&inputs[0]) * 2)]));
    let b = TaskSpec { class: class.into(), ..b };
    let mut g = G::new().input("x", Type::Int).output("y", Type::Int);
    let (mut from, mut y) = (String::from("x"), 1);
    for at in 0..rounds {
        g = g.task(&format!("a{at}"), &a).task(&format!("b{at}"), &b);
        g = g.connect(&format!("{from} -> a{at}.x; a{at}.out -> b{at}.x"));
        (from, y) = (format!("b{at}.out"), (y + 1) * 2);
    }
    (start(g.connect(&format!("{from} -> y"))).input("x", int(1)), format!("y={y}"))
}

#[tokio::test]
async fn a_worker_is_there_until_it_leaves() {
    let kit = Kit::default();
    let proof = Proof::new(&kit);
    let (one, two) = (engine(&proof, &kit, "one"), engine(&proof, &kit, "two"));
    proof.calm().await;
    let mut there = hosts(&one).await;
    there.sort();
    assert_eq!(there, ["one", "two"]);
    proof.drive(two.close()).await.unwrap();
    assert_eq!(hosts(&one).await, ["one"]);
    proof.drive(one.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_worker_that_is_gone_without_a_word_is_silent_and_forgotten_when_its_lease_is_over() {
    let kit = Kit::default();
    let proof = Proof::new(&kit);
    let (gone, lives) = (engine(&proof, &kit, "gone"), engine(&proof, &kit, "lives"));
    proof.calm().await;
    gone.stop();
    proof.calm().await;
    let alive = |workers: Vec<onceflow_engine::WorkerInfo>| {
        let mut alive: Vec<_> = workers.into_iter().map(|worker| (worker.about.host, worker.is_alive)).collect();
        alive.sort();
        alive
    };
    let quarter = Options::default().lease_ms / 4;
    let pass = async |quarters: u64| {
        for _ in 0..quarters {
            proof.world.advance(quarter);
            proof.calm().await;
        }
        alive(lives.workers().await.unwrap())
    };
    let both = |is_alive| [(String::from("gone"), is_alive), (String::from("lives"), true)];
    assert_eq!(pass(1).await, both(true), "no sign of life is overdue");
    assert_eq!(pass(2).await, both(false), "its claims stand, but it is silent");
    assert_eq!(pass(2).await, both(true)[1..], "its claims stand no more");
    assert_eq!(hosts(&lives).await, ["lives"]);
    proof.drive(lives.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn workers_say_how_much_they_did_and_what_they_offer() {
    let mut kit = Kit::default();
    let begin = start(support::graphs::chain(&inc(&mut kit), 3)).input("x", int(1));
    let proof = Proof::new(&kit);
    let options = Options { fuse: false, ..options("one") };
    let one = proof.engine_on(proof.memory.clone(), options);
    let handle = proof.drive(one.start(begin)).await.unwrap();
    assert!(proof.drive(handle.wait()).await.unwrap().status == RunStatus::Done);
    proof.world.advance(1000);
    proof.calm().await;
    let workers = one.workers().await.unwrap();
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!((worker.done, worker.done_of.get(&handle.id()), worker.lost), (3, Some(&3), 0));
    assert!(worker.serves("default") && worker.offers("inc", "1") && !worker.offers("inc", "2"));
    assert!(one.backlog().await.unwrap().is_empty());
    proof.drive(one.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_worker_leaves_steps_of_unknown_tasks_to_other_workers() {
    let (mut one, mut two) = (Kit::default(), Kit::default());
    let (begin, expected) = in_turn(&mut one, &mut two, 3);
    let proof = Proof::new(&one);
    let first = engine(&proof, &one, "one");
    let handle = proof.drive(first.start(begin)).await.unwrap();
    proof.calm().await;
    assert_eq!(one.ran(), "/a0");
    let lacking = handle.steps().missing_tasks().await.unwrap();
    assert_eq!(lacking[0].to_string(), "waits for a worker that offers `two`, version 1");
    assert_eq!((lacking.len(), lacking[0].steps), (1, 1));
    // The step is not claimed in vain again and again.
    let before = proof.memory.position().0;
    for _ in 0..100 {
        proof.world.advance(100);
        proof.calm().await;
    }
    assert!(proof.memory.position().0 - before < 10, "{} batches", proof.memory.position().0 - before);
    let second = engine(&proof, &two, "two");
    let Summary { status: RunStatus::Done, outputs, .. } = proof.drive(handle.wait()).await.unwrap() else {
        panic!("not done")
    };
    assert_eq!(support::told(&handle, outputs).await, expected);
    assert_eq!((one.ran().as_str(), two.ran().as_str()), ("/a0 /a1 /a2", "/b0 /b1 /b2"));
    assert!(handle.steps().missing_tasks().await.unwrap().is_empty());
    proof.world.advance(60_000);
    proof.calm().await;
    proof.drive(second.close()).await.unwrap();
    proof.drive(first.close()).await.unwrap();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn a_task_that_is_added_later_is_done_then() {
    let (mut one, mut two) = (Kit::default(), Kit::default());
    let (begin, expected) = in_turn(&mut one, &mut two, 2);
    let proof = Proof::new(&one);
    let engine = engine(&proof, &one, "one");
    let handle = proof.drive(engine.start(begin)).await.unwrap();
    proof.calm().await;
    engine.add_tasks(&two.tasks).unwrap();
    let Summary { status: RunStatus::Done, outputs, .. } = proof.drive(handle.wait()).await.unwrap() else {
        panic!("not done")
    };
    assert_eq!(support::told(&handle, outputs).await, expected);
    proof.world.advance(60_000);
    proof.calm().await;
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_run_that_waits_for_an_unserved_task_can_be_cancelled() {
    for class in ["default", "nobody's"] {
        let (mut one, mut two) = (Kit::default(), Kit::default());
        let (begin, _) = in_turn_of(&mut one, &mut two, 2, "two's");
        let begin = Start { classes: vec![(String::from("two's"), class.into())], ..begin };
        let proof = Proof::new(&one);
        let only = Options { classes: [(String::from("default"), 4)].into(), other_classes: false, ..options("one") };
        let worker = with(&proof, &one).engine_on(proof.memory.clone(), only);
        let user = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
        let handle = proof.drive(user.start(begin)).await.unwrap();
        proof.calm().await;
        let lacking = handle.steps().missing_tasks().await.unwrap();
        assert_eq!((lacking.len(), lacking[0].steps, lacking[0].class.as_str()), (1, 1, class));
        proof.drive(handle.cancel()).await.unwrap();
        assert_eq!(proof.drive(handle.wait()).await.unwrap().to_string(), "cancelled");
        proof.world.advance(60_000);
        proof.calm().await;
        proof.drive(worker.close()).await.unwrap();
        proof.drive(user.close()).await.unwrap();
        proof.only_what_remains().await;
        proof.nothing_remains().await;
    }
}

#[tokio::test]
async fn a_run_that_waits_for_a_task_gets_a_new_plan_without_it() {
    let (mut one, mut two) = (Kit::default(), Kit::default());
    let (begin, _) = in_turn(&mut one, &mut two, 2);
    let proof = Proof::new(&one);
    let engine = engine(&proof, &one, "one");
    proof.drive(engine.start(begin)).await.unwrap();
    proof.calm().await;
    let other = start(support::graphs::chain(&inc(&mut one), 2)).input("x", int(1));
    engine.add_tasks(&one.tasks).unwrap();
    let handle = proof.drive(engine.start(other)).await.unwrap();
    let Summary { status: RunStatus::Done, outputs, .. } = proof.drive(handle.wait()).await.unwrap() else {
        panic!("not done")
    };
    assert_eq!(support::told(&handle, outputs).await, "y=3");
    proof.world.advance(60_000);
    proof.calm().await;
    proof.drive(engine.close()).await.unwrap();
    proof.only_what_remains().await;
    proof.nothing_remains().await;
}

#[tokio::test]
async fn every_shape_is_done_by_two_workers_that_share_its_tasks() {
    for (name, make) in SMALL {
        let mut kit = Kit::default();
        let (begin, expected) = make(&mut kit);
        let proof = Proof::new(&kit);
        // One worker offers no task at all, and claims steps that it cannot perform.
        let workers = [engine(&proof, &Kit::default(), "none"), engine(&proof, &kit, "all")];
        let none = &workers[0];
        let begin = Start { key: name.into(), ..begin };
        let handle = proof.drive(none.start(begin)).await.unwrap();
        let Summary { status: RunStatus::Done, outputs, .. } = proof.drive(handle.wait()).await.unwrap() else {
            panic!("{name} is not done")
        };
        assert_eq!(support::told(&handle, outputs).await, expected, "{name}");
        proof.once();
        proof.world.advance(60_000);
        proof.calm().await;
        for worker in &workers {
            proof.drive(worker.close()).await.unwrap();
        }
        proof.only_what_remains().await;
    }
}

#[tokio::test]
async fn uploads_of_a_dead_worker_go_when_its_death_is_known() {
    use onceflow_store::blobs::content::from_bytes;
    let proof = Proof::new(&Kit::default());
    let values = proof.values(proof.memory.clone());
    let worker = Engine::new(proof.memory.clone(), values.clone(), proof.world.clone(), options("dies"));
    proof.calm().await;
    assert_eq!(hosts(&worker).await, ["dies"]);
    values.uploads().upload(from_bytes("an object")).await.unwrap();
    let (mut hold, upload) = (values.hold(), values.uploads().upload(from_bytes("another")).await.unwrap());
    hold.put_ahead(&values, &mut vec![upload.change()]).await.unwrap();
    worker.stop();
    proof.world.advance(2 * Options::default().lease_ms);
    let other = proof.engine_on(proof.memory.clone(), Options { works: false, ..Options::default() });
    other.remove_due().await.unwrap();
    assert!(proof.drive(other.clean_up(u64::MAX)).await.unwrap());
    assert_eq!(values.rows().await.unwrap(), [], "nothing of it is left");
}

#[tokio::test]
async fn uploads_of_a_killed_process_that_is_no_worker_go_before_their_time() {
    use onceflow_store::blobs::content::from_bytes;
    let (proof, scratch) = (Proof::new(&Kit::default()), tempfile::tempdir().unwrap());
    let idle = || Options { works: false, locks: true, scratch: scratch.path().to_owned(), ..Options::default() };
    let values = proof.values(proof.memory.clone());
    let command = Engine::new(proof.memory.clone(), values.clone(), proof.world.clone(), idle());
    values.uploads().upload(from_bytes("an object")).await.unwrap();
    let (mut hold, upload) = (values.hold(), values.uploads().upload(from_bytes("another")).await.unwrap());
    hold.put_ahead(&values, &mut vec![upload.change()]).await.unwrap();
    let other = proof.engine_on(proof.memory.clone(), idle());
    assert!(hosts(&other).await.is_empty(), "it takes no steps, so it is no worker");
    // However long it takes: its process is alive.
    proof.world.advance(10 * Options::default().lease_ms);
    other.remove_due().await.unwrap();
    assert_ne!(values.rows().await.unwrap(), [], "a living process goes on with its upload");
    // The kernel releases the lock when the process is killed.
    std::fs::remove_file(scratch.path().join(format!("onceflow-{:032x}.alive", command.incarnation()))).unwrap();
    other.remove_due().await.unwrap();
    assert!(proof.drive(other.clean_up(u64::MAX)).await.unwrap());
    assert_eq!(values.rows().await.unwrap(), [], "nothing of it is left");
    proof.drive(other.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_process_that_only_writes_leaves_no_registration_when_it_closes() {
    use onceflow_store::blobs::content::from_bytes;
    let (proof, scratch) = (Proof::new(&Kit::default()), tempfile::tempdir().unwrap());
    let options = Options { works: false, locks: true, scratch: scratch.path().to_owned(), ..Options::default() };
    let values = proof.values(proof.memory.clone());
    let command = Engine::new(proof.memory.clone(), values.clone(), proof.world.clone(), options);
    values.uploads().upload(from_bytes("an object")).await.unwrap();
    proof.drive(command.close()).await.unwrap();
    proof.forget_uploads();
    proof.only_what_remains().await;
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "no lock file either");
}

/// A worker limited to one run.
fn limited(proof: &Proof, host: &str, options: Options) -> Engine {
    let about = About { host: host.into(), run: Some(String::from("run")), ..About::default() };
    proof.engine_on(proof.memory.clone(), Options { about: Some(about), waits: true, ..options })
}

#[tokio::test]
async fn one_worker_attends_a_run_and_the_other_learns_its_id() {
    let kit = Kit::default();
    let proof = Proof::new(&kit);
    let (one, two) = (limited(&proof, "one", Options::default()), limited(&proof, "two", Options::default()));
    let other = async |engine: &Engine| {
        let other = proof.drive(engine.attend()).await.unwrap();
        other.map(|attendant| (attendant.worker.about.host, attendant.has_started))
    };
    assert_eq!(other(&one).await, None);
    assert_eq!(other(&one).await, None, "it may ask again");
    assert_eq!(other(&two).await, Some((String::from("one"), false)));
    proof.drive(one.begin_attended()).await.unwrap();
    assert_eq!(other(&two).await, Some((String::from("one"), true)));
    assert!(two.attendant("another").await.unwrap().is_none());
    proof.drive(one.drain()).await.unwrap();
    assert_eq!(other(&two).await, Some((String::from("one"), true)), "it may be writing results");
    proof.drive(one.close()).await.unwrap();
    assert_eq!(other(&two).await, None);
    assert!(two.attendant("run").await.unwrap().is_some_and(|attendant| attendant.worker.about.host == "two"));
    proof.drive(two.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_worker_whose_lease_has_ended_attends_no_run() {
    let kit = Kit::default();
    let proof = Proof::new(&kit);
    let (gone, lives) = (limited(&proof, "gone", Options::default()), limited(&proof, "lives", Options::default()));
    assert!(proof.drive(gone.attend()).await.unwrap().is_none());
    gone.stop();
    proof.calm().await;
    assert!(proof.drive(lives.attend()).await.unwrap().is_some());
    proof.world.advance(Options::default().lease_ms + 1);
    assert!(proof.drive(lives.attend()).await.unwrap().is_none());
    proof.drive(lives.remove_due()).await.unwrap();
    assert!(lives.attendant("run").await.unwrap().is_some(), "only the registration of the other goes");
    proof.drive(lives.close()).await.unwrap();
    proof.only_what_remains().await;
}

#[tokio::test]
async fn a_worker_whose_lock_is_free_is_gone_before_its_lease_ends() {
    let (kit, scratch) = (Kit::default(), tempfile::tempdir().unwrap());
    let proof = Proof::new(&kit);
    let options = || Options { locks: true, scratch: scratch.path().to_owned(), ..Options::default() };
    let (killed, lives) = (limited(&proof, "killed", options()), limited(&proof, "lives", options()));
    assert!(proof.drive(killed.attend()).await.unwrap().is_none());
    assert!(proof.drive(lives.attend()).await.unwrap().is_some() && lives.ended_workers().await.unwrap().is_empty());
    // A lock that is held outlives any lease: the process is alive, however slow.
    proof.world.advance(10 * Options::default().lease_ms);
    assert!(lives.attendant("run").await.unwrap().is_some_and(|attendant| !attendant.worker.is_alive));
    // The kernel releases the lock when the process is killed.
    let lock = scratch.path().join(format!("onceflow-{:032x}.alive", killed.incarnation()));
    std::fs::remove_file(&lock).unwrap();
    assert!(lives.attendant("run").await.unwrap().is_none());
    let ended = proof.drive(lives.release_ended()).await.unwrap();
    assert_eq!(ended.iter().map(|worker| worker.about.host.as_str()).collect::<Vec<_>>(), ["killed"]);
    assert!(proof.drive(lives.attend()).await.unwrap().is_none());
    killed.stop();
    proof.drive(lives.close()).await.unwrap();
    proof.only_what_remains().await;
}
