#![allow(missing_docs, clippy::disallowed_methods)]
use onceflow_store::{Records, backend::memory::Memory, values::*, world::RealWorld};
use std::{sync::Arc, time::Instant};
fn cpu() -> f64 { let s = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap(); s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9 }
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let n: usize = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    for what in std::env::args().nth(1).unwrap_or("tree,chain".into()).split(',') {
        let world = RealWorld::here();
        let records: Arc<dyn Records> = Arc::new(Memory::new(world.clone()));
        let values = Values::new(records, world, Default::default());
        let root = EdgeName::root("root");
        let t = Instant::now();
        match what {
            "chain" => {
                let mut last: Option<String> = None;
                for chunk in 0..n / 200 {
                    let mut update = Update::new();
                    for i in 0..200 {
                        let id = format!("chain/{:08}", chunk * 200 + i);
                        update = update.put(id.as_str(), last.iter().map(|l| ValueId::from(l.as_str())), "x");
                        last = Some(id);
                    }
                    values.update(update.set(&root, last.as_deref().unwrap())).await.unwrap();
                }
            }
            _ => {
                // pages of 400 leaves under pages of 400
                let mut pages: Vec<String> = vec![];
                for chunk in 0..n / 400 {
                    let mut update = Update::new();
                    let ids: Vec<String> = (0..400).map(|i| if what == "hash" { format!("{:08x}{:08x}", ((chunk*400+i) as u32).wrapping_mul(2654435761), chunk * 400 + i) } else { format!("leaf/{:08}", chunk * 400 + i) }).collect();
                    for id in &ids { update = update.put(id.as_str(), [] as [&str; 0], "x"); }
                    let page = format!("page/{chunk:08}");
                    update = update.put(page.as_str(), ids.iter().map(|s| s.as_str()), "");
                    values.update(update.set(&EdgeName::root(&page), page.as_str())).await.unwrap();
                    pages.push(page);
                }
                let mut tops = vec![];
                for (i, group) in pages.chunks(200).enumerate() {
                    let top = format!("top/{i}");
                    let mut update = Update::new().put(top.as_str(), group.iter().map(|s| s.as_str()), "").set(&EdgeName::root(&top), top.as_str());
                    for p in group { update = update.clear(&EdgeName::root(p)); }
                    values.update(update).await.unwrap();
                    tops.push(top);
                }
                let mut update = Update::new().put("rootv", tops.iter().map(|s| s.as_str()), "").set(&root, "rootv");
                for p in &tops { update = update.clear(&EdgeName::root(p)); }
                values.update(update).await.unwrap();
            }
        }
        println!("{what}: built in {:?}", t.elapsed());
        values.update(Update::new().clear(&root)).await.unwrap();
        let t = cpu();
        let (mut longest, mut calls, mut buried) = (0.0f64, 0, 0);
        let mut times = vec![];
        loop {
            let c = cpu();
            let done = values.reclaim(1000).await.unwrap();
            let took = cpu() - c;
            times.push(took);
            longest = longest.max(took);
            calls += 1;
            buried += done.buried;
            if !done.more { break; }
        }
        times.sort_by(f64::total_cmp);
        println!("{what}: buried {buried} in {calls} calls, {:.3} µs a value, longest {:.2} ms, p99 {:.2} ms", (cpu() - t) * 1e6 / buried as f64, longest * 1e3, times[times.len()*99/100]*1e3);
    }
}
