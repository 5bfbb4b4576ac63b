//! A report from two sources. The first run keeps its inner values for a day; then one source changes. Before anything
//! runs, `explain` says what would be redone and why; after it, `explain` says that there is nothing left to do. Only
//! what depends on the change runs again.

use onceflow::prelude::*;
use std::time::Duration;

#[task(effect = pure)]
fn parse(csv: String) -> Vec<u64> {
    println!("  parsing {csv:?}");
    csv.split(',').filter_map(|cell| cell.trim().parse().ok()).collect()
}

#[task(effect = pure)]
fn sum(numbers: Vec<u64>) -> u64 {
    println!("  summing {numbers:?}");
    numbers.iter().sum()
}

#[task(effect = pure)]
fn report(sales: u64, costs: u64) -> String {
    println!("  reporting");
    format!("sales {sales}, costs {costs}, left {}", sales.saturating_sub(costs))
}

#[flow(outputs(report))]
fn monthly(f: &mut Builder, sales: Port<String>, costs: Port<String>) -> Port<String> {
    let sales = f.named("parse_sales").add(parse(sales));
    let costs = f.named("parse_costs").add(parse(costs));
    let (sales, costs) = (f.named("sales").add(sum(sales)), f.named("costs").add(sum(costs)));
    f.add(report(sales, costs))
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let place = tempfile::tempdir()?;
    // Not fused, so that every step is seen by itself.
    let engine = Engine::builder().fuse(false).open(place.path().join("store")).await?;
    let flow = monthly::flow();
    let start = |sales: &str, costs: &str| engine.start(&flow, (sales.into(), costs.into())).key("may").keep(DAY);

    println!("first:");
    println!("{}\n", start("100, 200", "50").await?.result().await?);

    println!("the sales change; before:\n{}", start("100, 250", "50").explain().await?);
    println!("{}\n", start("100, 250", "50").await?.result().await?);

    println!("after:\n{}", start("100, 250", "50").explain().await?);
    engine.close().await?;
    Ok(())
}
