//! A worker in a few lines: it has the tasks of a flow, and takes steps of any run of that flow, until asked to stop.
//! Start it as often as you like, on as many machines as you like, with the same store: a directory, or `redis://host`
//! with the feature `redis`.
//!
//! ```text
//! worker STORE               works until SIGTERM or Ctrl-C
//! worker STORE run KEY N     starts a run, leaves it to workers, and waits for its result
//! ```

use onceflow::prelude::*;

/// Something that takes a moment.
#[task]
fn square(n: u64) -> u64 {
    (0..200_000).fold(0, |_, _| std::hint::black_box(n * n))
}

#[task(effect = pure)]
fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

#[flow(outputs(total))]
fn squares(f: &mut Builder, numbers: Port<Vec<u64>>) -> Port<u64> {
    let squares = f.each(numbers, |f, n| f.add(square(n)));
    f.add(sum(squares))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = args.iter().map(String::as_str).collect();
    let flow = squares::flow();
    match words[..] {
        [store] => {
            let engine = Engine::open(store).await?;
            engine.offer(&flow)?;
            println!("works");
            engine.work().await?;
            println!("done");
        }
        [store, "run", key, n] => {
            let engine = Engine::builder().works(false).open(store).await?;
            let run = engine.start(&flow, (1..=n.parse()?).collect()).key(key).await?;
            println!("{}", run.result().await?);
            engine.close().await?;
        }
        _ => anyhow::bail!("worker STORE, or worker STORE run KEY N"),
    }
    Ok(())
}
