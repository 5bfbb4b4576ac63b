//! A robot delivers parcels. Each delivery is a scope: the robot reserves a lift and drives at the same time, and the
//! lift is released whatever happens: the parcel arrives, the way is blocked, or the caller does not wait any more.
//! The scope is one step of a flow.

use onceflow::{
    prelude::*,
    scope::{BufferKeep, BufferKey, Scope},
};
use std::sync::{Arc, Mutex};

/// The lifts of the building. Reserved ones are in the list.
type Lifts = Arc<Mutex<Vec<u64>>>;

/// Gives back what it finds in the buffer.
fn release(lifts: &Lifts) -> Scope<(BufferKey<u64>,), ()> {
    let lifts = lifts.clone();
    let build = Scope::build(|s| {
        let release = s.start().map(move |(reserved,): (BufferKey<u64>,)| {
            for lift in reserved.drain() {
                println!("  lift {lift} is released");
                lifts.lock().expect("no panic").retain(|other| *other != lift);
            }
        });
        release.terminate(s);
    });
    build.expect("a right scope")
}

/// Brings a parcel to a floor.
fn delivery(lifts: &Lifts) -> Scope<u64, String> {
    let (reserve, cleanup) = (lifts.clone(), release(lifts));
    let build = Scope::build(|s| {
        let (reserved, arrived) = (s.buffer(BufferKeep::All), s.buffer(BufferKeep::All));
        let [lift, drive] = s.start().fork_clone();
        let lift = lift.map(move |floor| {
            reserve.lock().expect("no panic").push(floor);
            println!("  lift {floor} is reserved");
            floor
        });
        lift.named("reserve").store(reserved);
        let driven = drive.try_map_async(|floor: u64| async move {
            tokio::task::yield_now().await;
            if floor < 10 { Ok(floor) } else { Err(format!("floor {floor} is blocked")) }
        });
        driven.named("drive").store(arrived);
        // The lift stays reserved until the end: the join copies it.
        let both = s.join((reserved.by_clone(), arrived));
        both.map(|(lift, floor)| format!("at floor {floor} by lift {lift}")).terminate(s);
        s.on_cleanup("release", (reserved,), &cleanup).unlimited();
    });
    build.expect("a right scope")
}

/// The scope is one step from outside. What a delivery came to is its result, also when it was cancelled.
#[task]
async fn deliver(floor: u64) -> String {
    let lifts = Lifts::default();
    println!("delivery to floor {floor}");
    let result = delivery(&lifts).run(floor).await;
    assert!(lifts.lock().expect("no panic").is_empty(), "a lift is still reserved");
    result.unwrap_or_else(|cancelled| cancelled.to_string())
}

#[flow(outputs(reports))]
fn deliveries(f: &mut Builder, floors: Port<Vec<u64>>) -> Port<Vec<String>> {
    f.at_most(1).each(floors, |f, floor| f.add(deliver(floor)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Engine::in_memory();
    for report in engine.run(&deliveries::flow(), vec![3, 12]).await? {
        println!("{report}");
    }
    // A caller that does not wait any more: the delivery is cancelled in the middle, and cleaned up all the same.
    let lifts = Lifts::default();
    let scope = delivery(&lifts);
    drop(scope.start(5));
    while !lifts.lock().expect("no panic").is_empty() {
        tokio::task::yield_now().await;
    }
    println!("nothing is reserved");
    engine.close().await?;
    Ok(())
}
