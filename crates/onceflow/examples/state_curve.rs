//! How much a store holds while a run goes on, counted from inside its steps: for a loop, and for a list. It draws the
//! picture in the book (`docs/book/src/state-curve.svg`); given a number of steps, it only says how much there was.
//!
//! ```text
//! state_curve > docs/book/src/state-curve.svg
//! state_curve 50
//! ```

use onceflow::prelude::*;
use onceflow_engine::{Options, Start};
use onceflow_store::{World, backend::memory::Memory, blobs::Objects, values::Values, world::RealWorld};
use std::sync::{Arc, Mutex};

/// The store, for the steps to look into.
static STORE: Mutex<Option<Arc<Memory>>> = Mutex::new(None);

/// The measurements, one for each step.
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
struct Seen {
    rows: u64,
    bytes: u64,
}

fn look() -> Seen {
    let store = STORE.lock().expect("no holder of the lock panics").clone().expect("a store");
    let state = store.state();
    Seen { rows: state.durable_rows(), bytes: state.durable_bytes() }
}

#[task(name = "work")]
fn work(n: u64) -> u64 {
    let seen = look();
    SEEN.lock().expect("no holder of the lock panics").push(seen);
    n + 1
}

#[task(effect = pure)]
fn less(a: u64, than: u64) -> bool {
    a < than
}

#[task(effect = pure)]
fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

#[flow(name = "loop", outputs(number))]
fn rounds(f: &mut Builder, steps: Port<u64>) -> Port<u64> {
    let zero = f.constant(0);
    f.repeat(zero, |f, n| {
        let n = f.add(work(n));
        (n, f.add(less(n, steps)))
    })
}

#[flow(name = "list", outputs(number))]
fn elements(f: &mut Builder, numbers: Port<Vec<u64>>) -> Port<u64> {
    let all = f.at_most(8).each(numbers, |f, n| f.add(work(n)));
    f.add(sum(all))
}

/// The contents of the store at every step, when the run was done, and when its history was over.
struct Curve {
    steps: Vec<Seen>,
    done: Seen,
    over: Seen,
}

impl Curve {
    fn most(&self) -> Seen {
        let most = |of: fn(&Seen) -> u64| self.steps.iter().map(of).max().unwrap_or_default();
        Seen { rows: most(|seen| seen.rows), bytes: most(|seen| seen.bytes) }
    }
}

const HISTORY_MS: u64 = 1000;

/// Runs a flow on a store of its own.
async fn curve(
    name: &str,
    checked: onceflow_core::model::CheckedFlow,
    tasks: &onceflow::task::Tasks,
    inputs: Inputs,
) -> anyhow::Result<Curve> {
    let world: Arc<dyn World> = RealWorld::here();
    let records = Arc::new(Memory::new(world.clone()));
    *STORE.lock().expect("no holder of the lock panics") = Some(records.clone());
    SEEN.lock().expect("no holder of the lock panics").clear();
    let options = Options { fuse: false, ..Options::default() };
    let values = Values::new(records.clone(), world.clone(), options.shard).with_blobs(Arc::new(Objects::memory()));
    let engine = onceflow_engine::Engine::new(records, Arc::new(values), world.clone(), options);
    engine.add_tasks(tasks)?;
    let mut start = Start::new(name, checked);
    (start.inputs, start.history_ms) = (inputs, HISTORY_MS);
    engine.start(start).await?.wait().await?;
    let steps = SEEN.lock().expect("no holder of the lock panics").clone();
    let done = at_rest(&*world).await;
    let over = until_nothing(&*world).await;
    engine.close().await?;
    Ok(Curve { steps, done, over })
}

type Inputs = Vec<(String, onceflow::task::Data)>;

/// Waits until nothing more is reclaimed, and measures the store.
async fn at_rest(world: &dyn World) -> Seen {
    let mut seen = look();
    loop {
        world.sleep(50).await;
        let now = look();
        if now.rows == seen.rows {
            return now;
        }
        seen = now;
    }
}

/// Waits until the store is empty, or was not cleaned up for much longer than the history, and measures it.
async fn until_nothing(world: &dyn World) -> Seen {
    for _ in 0..300 {
        if look().rows == 0 {
            break;
        }
        world.sleep(HISTORY_MS / 10).await;
    }
    look()
}

const STEPS: u64 = 1000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let given = std::env::args().nth(1).map(|steps| steps.parse()).transpose()?;
    let steps: u64 = given.unwrap_or(STEPS);
    let (rounds, elements) = (rounds::flow(), elements::flow());
    let a_loop = curve("loop", rounds.check()?, rounds.tasks(), rounds.encode(steps)?).await?;
    let a_list = curve("list", elements.check()?, elements.tasks(), elements.encode((0..steps).collect())?).await?;
    for (name, curve) in [("loop", &a_loop), ("list", &a_list)] {
        let (most, done, over) = (curve.most(), curve.done, curve.over);
        let told = format!(
            "{name} of {steps}: at most {} rows and {} bytes, {} rows and {} bytes when it was done, {} rows in the end",
            most.rows, most.bytes, done.rows, done.bytes, over.rows
        );
        if given.is_some() { println!("{told}") } else { eprintln!("{told}") }
    }
    if given.is_none() {
        print!("{}", picture(&[("a loop of 1000 rounds", &a_loop), ("a list of 1000 elements, 8 at a time", &a_list)]));
    }
    Ok(())
}

/// Size of one panel, and how far it is from the next.
const WIDE: f64 = 340.0;
const HIGH: f64 = 200.0;
const APART: f64 = 60.0;

/// Two curves beside each other, and what there would be if every step left a row.
fn picture(curves: &[(&str, &Curve)]) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 290\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"800\" height=\"290\" fill=\"white\"/>\n",
    );
    for (at, (title, curve)) in curves.iter().enumerate() {
        let left = 50.0 + at as f64 * (WIDE + APART);
        svg.push_str(&panel(title, curve, left));
    }
    svg + "</svg>\n"
}

fn panel(title: &str, curve: &Curve, left: f64) -> String {
    let (steps, top) = (curve.steps.len(), 30.0);
    let rows_max = (steps as u64).max(curve.most().rows) as f64;
    // The last tenth is for what comes after the run.
    let x = |step: f64| left + 0.85 * WIDE * step / steps as f64;
    let y = |rows: u64| top + HIGH - HIGH * rows as f64 / rows_max;
    let line = |points: &[(f64, f64)]| points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect::<String>();
    let every = (steps / 200).max(1);
    let mut held: Vec<_> =
        curve.steps.iter().enumerate().step_by(every).map(|(step, seen)| (x(step as f64), y(seen.rows))).collect();
    let (end, after) = (x(steps as f64), left + 0.93 * WIDE);
    held.extend([
        (end, y(curve.done.rows)),
        (after, y(curve.done.rows)),
        (after, y(curve.over.rows)),
        (left + WIDE, y(curve.over.rows)),
    ]);
    let bottom = top + HIGH;
    format!(
        "<g>\n\
         <text x=\"{left}\" y=\"18\" font-weight=\"bold\">{title}</text>\n\
         <path d=\"M{left},{top} V{bottom} H{}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{rows_max}</text><text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{left}\" y=\"{}\">steps done →</text><text x=\"{end:.1}\" y=\"{}\" text-anchor=\"middle\">{steps}</text>\n\
         <path d=\"M{end:.1},{top} V{bottom} M{after:.1},{top} V{bottom}\" stroke=\"silver\" stroke-dasharray=\"2 3\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">done | history over</text>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#c33\" stroke-dasharray=\"6 4\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#16a\" stroke-width=\"2\"/>\n\
         </g>\n",
        left + WIDE,
        left - 5.0,
        top + 8.0,
        left - 5.0,
        bottom + 18.0,
        bottom + 18.0,
        left + WIDE,
        bottom + 36.0,
        line(&[(x(0.0), y(0)), (end, y(steps as u64)), (left + WIDE, y(steps as u64))]),
        line(&held),
    )
}
