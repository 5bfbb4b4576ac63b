//! An order: charge the card, reserve the goods, ship them. Shipping fails for good, so what was done is undone, the last
//! first, once each, durably: the compensations are written down before the steps they undo begin, so a crash cannot
//! lose one. What the tasks do to the world goes through a stand-in that remembers it by the step's key, as a payment
//! provider does with its idempotency keys; it prints what really happened. Give it a directory for the store to start
//! the same order twice.

use onceflow::prelude::*;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, sync::Mutex};

#[derive(Clone, Serialize, Deserialize, Value)]
struct Order {
    id: String,
    cents: u64,
    goods: String,
}

/// The world: what was done, by key. Doing the same again under the same key does nothing.
static WORLD: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

fn once(step: &Step, verb: &str, what: &str) {
    let mut world = WORLD.lock().expect("no holder of the lock panics");
    world.entry(format!("{verb} {}", step.key())).or_insert_with(|| {
        println!("{verb} {what}");
        what.to_owned()
    });
}

/// `undo` names the task that takes it back; it is given the same inputs, and the same key.
#[task(undo = refund, retry(attempts = 3, backoff = "10ms"))]
async fn charge(step: &Step, order: Order) -> Result<String, anyhow::Error> {
    once(step, "charge", &format!("{} cents", order.cents));
    // The answer of the first attempt is lost on the way; the second finds that the card was charged already.
    anyhow::ensure!(step.attempt() > 1, "the payment provider did not answer");
    Ok(format!("receipt of {}", order.id))
}

#[task(retry(attempts = 5, backoff = "10ms"))]
async fn refund(step: &Step, order: Order) {
    once(step, "refund", &format!("{} cents", order.cents));
}

#[task(undo = unreserve)]
fn reserve(step: &Step, order: Order, _receipt: String) -> String {
    once(step, "reserve", &order.goods);
    format!("shelf 7 for {}", order.id)
}

#[task]
fn unreserve(step: &Step, order: Order, _receipt: String) {
    once(step, "unreserve", &order.goods);
}

#[task(retry(attempts = 9, backoff = "10ms"))]
fn ship(order: Order, _place: String) -> Result<String, anyhow::Error> {
    // Another attempt would not help, whatever `retry` says.
    Err(fatal(anyhow::anyhow!("no road leads there").context(format!("{} cannot be shipped", order.goods))))?
}

#[flow(name = "order", outputs(parcel))]
fn process(f: &mut Builder, order: Port<Order>) -> Port<String> {
    let receipt = f.add(charge(order));
    let place = f.add(reserve(order, receipt));
    f.add(ship(order, place))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let own = tempfile::tempdir()?;
    let directory = std::env::args_os().nth(1).map_or_else(|| own.path().join("store"), PathBuf::from);
    let engine = Engine::open(directory).await?;
    let mut events = engine.events();
    let flow = process::flow();
    let order = Order { id: "order-17".into(), cents: 1299, goods: "a lamp".into() };
    let run = engine.start(&flow, order).key("order-17").await?;
    if let Err(error) = run.result().await {
        println!("\n{error}");
    }
    engine.close().await?;
    println!("\nwhat happened:");
    while let Some(event) = events.next().await {
        println!("  {event}");
    }
    Ok(())
}
