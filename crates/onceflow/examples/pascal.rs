//! Pascal's triangle as a graph: every number is a step that adds the two above it, every row is a composite, so the
//! flow can be read row by row. Steps run as soon as what they need is there, not row after row. All of them
//! are pure, so the engine is free to fuse neighbours into one step; a composite costs nothing when it runs.

use onceflow::prelude::*;

#[task(effect = pure, inline)]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

/// The sums of neighbours: the row between the ones.
fn between(f: &mut Builder, above: [Port<u64>; 5]) -> (Port<u64>, Port<u64>, Port<u64>, Port<u64>) {
    let [a, b, c, d, e] = above;
    (f.add(add(a, b)), f.add(add(b, c)), f.add(add(c, d)), f.add(add(d, e)))
}

#[task(effect = pure)]
fn join(numbers: Vec<u64>) -> String {
    let numbers: Vec<_> = numbers.iter().filter(|n| **n > 0).map(u64::to_string).collect();
    numbers.join(" ")
}

#[task(effect = pure, inline)]
fn list(a: u64, b: u64, c: u64, d: u64, e: u64) -> Vec<u64> {
    vec![a, b, c, d, e]
}

#[flow(outputs(first, second, third, fourth, fifth))]
fn pascal(f: &mut Builder) -> (Port<String>, Port<String>, Port<String>, Port<String>, Port<String>) {
    let (zero, one) = (f.constant(0_u64), f.named("one").constant(1_u64));
    let mut row = [one, zero, zero, zero, zero];
    let mut shown = Vec::new();
    for number in 1..=5 {
        let text = f.composite(&format!("show_{number}"), |f| {
            let [a, b, c, d, e] = row;
            let all = f.add(list(a, b, c, d, e));
            f.add(join(all))
        });
        shown.push(text);
        let (b, c, d, e) = f.composite(&format!("row_{number}"), |f| between(f, row));
        row = [one, b, c, d, e];
    }
    (shown[0], shown[1], shown[2], shown[3], shown[4])
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = Engine::in_memory();
    let (a, b, c, d, e) = engine.run(&pascal::flow(), ()).await?;
    for row in [a, b, c, d, e] {
        println!("{row:^20}");
    }
    engine.close().await?;
    Ok(())
}
