//! Fibonacci numbers as a loop that carries two numbers. A loop of a billion rounds holds as many bytes as one of ten:
//! what a round no longer needs is reclaimed while the next one runs. Give it how many rounds; without that it takes 50.

use onceflow::prelude::*;

#[task(effect = pure, inline)]
fn add(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

#[task(effect = pure, inline)]
fn less(a: u64, than: u64) -> bool {
    a < than
}

#[flow(outputs(number))]
fn fibonacci(f: &mut Builder, rounds: Port<u64>) -> Port<u64> {
    let (zero, one) = (f.constant(0), f.constant(1));
    let (number, _, _) = f.repeat((zero, one, zero), |f, (a, b, round)| {
        let round = f.add(add(round, 1));
        ((b, f.add(add(a, b)), round), f.add(less(round, rounds)))
    });
    number
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(50), |rounds| rounds.parse())?;
    let engine = Engine::in_memory();
    let number = engine.run(&fibonacci::flow(), rounds).await?;
    println!("fibonacci({rounds}) = {number}");
    engine.close().await?;
    Ok(())
}
