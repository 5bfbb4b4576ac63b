//! Flows of every shape, with their outputs: for tests that run them undisturbed, and for those that disturb them.

use super::{Kit, as_int, bool, graphs::*, int, ints};
use onceflow_core::model::{Arm, Effect, Graph, Library, Port, TaskSpec, Type, graph::ModuleKind};
use onceflow_engine::{
    Start,
    task::{Data, Failure},
};
use std::borrow::Cow;

/// A run to start, and its expected outputs as text.
pub(crate) type Case = (Start, String);

/// Makes a case with the tasks it needs.
pub(crate) type Make = fn(&mut Kit) -> Case;

/// All shapes that take few steps.
pub(crate) const SMALL: [(&str, Make); 24] = [
    ("chain of 4", |kit| chain_of(kit, 4)),
    ("chain of 8", |kit| chain_of(kit, 8)),
    ("diamond", diamond),
    ("each of 0", |kit| each_of(kit, 0)),
    ("each of 1", |kit| each_of(kit, 1)),
    ("each of 3", |kit| each_of(kit, 3)),
    ("ragged", ragged),
    ("each in loop in each", each_in_loop_in_each),
    ("prefixes", prefixes),
    ("rejoin", |kit| rejoin(kit, 4)),
    ("rejoin by default", |kit| rejoin(kit, 3)),
    ("no arm", no_arm),
    ("handled", handled),
    ("loop of 1", |kit| loop_of(kit, 1)),
    ("loop of 2", |kit| loop_of(kit, 2)),
    ("loop of one task", |kit| loop_of_one_task(kit, 3)),
    ("loop of large values", loop_of_large_values),
    ("called twice", called_twice),
    ("recursive", |kit| recursive(kit, 3)),
    ("forwarded", forwarded),
    ("no outputs", no_outputs),
    ("fold", fold),
    ("large", large),
    ("many", many),
];

pub(crate) fn inc(kit: &mut Kit) -> TaskSpec {
    kit.task("inc", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) + 1)]))
}

pub(crate) fn add(kit: &mut Kit) -> TaskSpec {
    kit.task("add", &["a", "b"], |inputs| Ok(vec![int(as_int(&inputs[0]) + as_int(&inputs[1]))]))
}

pub(crate) fn spec(name: &str, inputs: &[(&str, Type)], outputs: &[(&str, Type)]) -> TaskSpec {
    let ports = |ports: &[(&str, Type)]| ports.iter().map(|(name, ty)| Port::new(*name, ty.clone())).collect();
    TaskSpec::new(name, ports(inputs), ports(outputs))
}

/// The sum of a list.
pub(crate) fn sum(kit: &mut Kit) -> TaskSpec {
    let spec = spec("sum", &[("xs", list())], &[("out", Type::Int)]);
    kit.add(spec, |_, inputs| match &inputs[0] {
        Data::List(list) => Ok(vec![int(list.iter().map(|x| as_int(&x)).sum())]),
        other => Err(Failure::new(format!("{other:?}"))),
    })
}

pub(crate) fn below(kit: &mut Kit, limit: i64) -> TaskSpec {
    let spec = spec("below", &[("x", Type::Int)], &[("out", Type::Bool)]);
    kit.add(spec, move |_, inputs| Ok(vec![bool(as_int(&inputs[0]) < limit)]))
}

pub(crate) fn fails(kit: &mut Kit) -> TaskSpec {
    kit.task("fails", &["x"], |_| Err(Failure::new("no")))
}

pub(crate) fn list() -> Type {
    Type::list(Type::Int)
}

pub(crate) fn start(graph: G) -> Start {
    Start::new("r", graph.flow())
}

pub(crate) fn io() -> G {
    G::new().input("x", Type::Int).output("y", Type::Int)
}

pub(crate) fn chain_of(kit: &mut Kit, n: usize) -> Case {
    let inc = inc(kit);
    (start(chain(&inc, n)).input("x", int(1)), format!("y={}", n + 1))
}

pub(crate) fn diamond(kit: &mut Kit) -> Case {
    let (inc, add) = (inc(kit), add(kit));
    let g = io().task("a", &inc).task("b", &inc).task("c", &inc).task("d", &add);
    let g = g.connect("x -> a.x; a.out -> b.x; a.out -> c.x; b.out -> d.a; c.out -> d.b; d.out -> y");
    (start(g).input("x", int(1)), "y=6".into())
}

pub(crate) fn each_of(kit: &mut Kit, n: i64) -> Case {
    let (inc, sum) = (inc(kit), sum(kit));
    let g = G::new().input("xs", list()).output("ys", list()).output("sum", Type::Int);
    let g = g.module("each", each(chain(&inc, 1).graph())).task("s", &sum);
    let g = g.connect("xs -> each.x; each.y -> ys; each.y -> s.xs; s.out -> sum");
    let ys = (1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    (start(g).input("xs", ints(0..n)), format!("ys=[{ys}] sum={}", n * (n + 1) / 2))
}

pub(crate) fn ragged(kit: &mut Kit) -> Case {
    let inc = inc(kit);
    let inner = G::new().input("x", list()).output("y", list());
    let inner = inner.module("in", each(chain(&inc, 1).graph())).connect("x -> in.x; in.y -> y").graph();
    let g = G::new().input("xs", Type::list(list())).output("ys", Type::list(list()));
    let g = g.module("out", each(inner)).connect("xs -> out.x; out.y -> ys");
    let xs = Data::List([0, 3, 1, 0, 2].map(|n| ints(0..n)).into_iter().collect());
    (start(g).input("xs", xs), "ys=[[] [1 2 3] [1] [] [1 2]]".into())
}

/// Loops every element until it is at least ten: each iteration takes the sum of all smaller numbers, each plus one.
pub(crate) fn each_in_loop_in_each(kit: &mut Kit) -> Case {
    let (inc, sum, below) = (inc(kit), sum(kit), below(kit, 10));
    let range = spec("range", &[("x", Type::Int)], &[("out", list())]);
    let range = kit.add(range, |_, inputs| Ok(vec![ints(0..as_int(&inputs[0]))]));
    let body = io().output("go", Type::Bool).task("range", &range).task("sum", &sum).task("below", &below);
    let body = body.module("each", each(chain(&inc, 1).graph()));
    let body = body.connect("x -> range.x; range.out -> each.x; each.y -> sum.xs; sum.out -> y; sum.out -> below.x");
    let body = body.connect("below.out -> go").graph();
    let round = ModuleKind::Loop { body, carried: vec![("y".into(), "x".into())], condition: "go".into() };
    let outer = io().module("round", round).connect("x -> round.x; round.y -> y").graph();
    let g = G::new().input("xs", list()).output("ys", list());
    let g = g.module("each", each(outer)).connect("xs -> each.x; each.y -> ys");
    // 3 -> 6 -> 21; 4 -> 10; 5 -> 15
    (start(g).input("xs", ints([3, 4, 5])), "ys=[21 10 15]".into())
}

pub(crate) fn prefixes(kit: &mut Kit) -> Case {
    let (inc, add) = (inc(kit), add(kit));
    let mut g = io();
    for at in 1..=11 {
        let from = if at == 1 { String::from("x") } else { format!("F{}.out", at - 1) };
        g = g.task(&format!("F{at}"), &inc).connect(&format!("{from} -> F{at}.x"));
    }
    let g = g.task("F", &add).connect("F1.out -> F.a; F11.out -> F.b; F.out -> y");
    (start(g).input("x", int(0)), "y=12".into())
}

fn arm(name: &str, guard: Option<&str>, body: Graph) -> Arm {
    Arm { name: name.into(), guard: guard.map(Into::into), body }
}

/// A number below four is increased once, any other twice; then once more.
pub(crate) fn rejoin(kit: &mut Kit, x: i64) -> Case {
    let (inc, below) = (inc(kit), below(kit, 4));
    let arms = vec![arm("low", Some("low"), chain(&inc, 1).graph()), arm("high", None, chain(&inc, 2).graph())];
    let g = io().task("below", &below).module("which", ModuleKind::Choice { arms }).task("after", &inc);
    let g = g.connect("x -> below.x; below.out -> which.low; x -> which.x; which.y -> after.x; after.out -> y");
    (start(g).input("x", int(x)), format!("y={}", if x < 4 { x + 2 } else { x + 3 }))
}

pub(crate) fn no_arm(kit: &mut Kit) -> Case {
    let (inc, below) = (inc(kit), below(kit, 4));
    let arms = vec![arm("low", Some("low"), chain(&inc, 1).graph())];
    let g = G::new().input("x", Type::Int).output("y", Type::option(Type::Int));
    let g = g.task("below", &below).module("which", ModuleKind::Choice { arms });
    let g = g.connect("x -> below.x; below.out -> which.low; x -> which.x; which.y -> y");
    (start(g).input("x", int(9)), "y=none".into())
}

/// A choice with an arm that fails.
fn failing_choice(kit: &mut Kit) -> (TaskSpec, ModuleKind) {
    let (below, fails, inc) = (below(kit, 4), fails(kit), inc(kit));
    let bad = io().task("bad", &fails).task("never", &inc).connect("x -> bad.x; bad.out -> never.x; never.out -> y");
    let arms = vec![arm("bad", Some("low"), bad.graph()), arm("good", None, chain(&inc, 1).graph())];
    (below, ModuleKind::Choice { arms })
}

pub(crate) fn handled(kit: &mut Kit) -> Case {
    let (below, choice) = failing_choice(kit);
    let g = G::new().input("x", Type::Int).output("y", Type::option(Type::Int));
    let g = g.output("error", Type::option(Type::Text)).task("below", &below).attempt("which", choice);
    let g = g.connect("x -> below.x; below.out -> which.low; x -> which.x; which.y -> y; which.error -> error");
    (start(g).input("x", int(1)), "y=none error=/which/bad/bad: no".into())
}

pub(crate) fn unhandled(kit: &mut Kit) -> Case {
    let (below, choice) = failing_choice(kit);
    let g = io().task("below", &below).module("which", choice);
    let g = g.connect("x -> below.x; below.out -> which.low; x -> which.x; which.y -> y");
    (start(g).input("x", int(1)), "/which/bad/bad failed at attempt 1: no".into())
}

pub(crate) fn loop_of(kit: &mut Kit, n: i64) -> Case {
    let (inc, below) = (inc(kit), below(kit, n));
    let body = io().output("go", Type::Bool).task("inc", &inc).task("below", &below);
    let body = body.connect("x -> inc.x; inc.out -> y; inc.out -> below.x; below.out -> go").graph();
    let round = ModuleKind::Loop { body, carried: vec![("y".into(), "x".into())], condition: "go".into() };
    let g = io().module("round", round).connect("x -> round.x; round.y -> y");
    (start(g).input("x", int(0)), format!("y={n}"))
}

/// A loop whose only step gives every output and the condition: its commit begins the next iteration.
pub(crate) fn loop_of_one_task(kit: &mut Kit, n: i64) -> Case {
    let next = spec("next", &[("x", Type::Int)], &[("out", Type::Int), ("go", Type::Bool)]);
    let next = kit.add(next, move |_, inputs| {
        let x = as_int(&inputs[0]) + 1;
        Ok(vec![int(x), bool(x < n)])
    });
    let body = io().output("go", Type::Bool).task("next", &next);
    let body = body.connect("x -> next.x; next.out -> y; next.go -> go").graph();
    let round = ModuleKind::Loop { body, carried: vec![("y".into(), "x".into())], condition: "go".into() };
    let g = io().module("round", round).connect("x -> round.x; round.y -> y");
    (start(g).input("x", int(0)), format!("y={n}"))
}

/// As [`loop_of_one_task`], with values that are stored: one is carried, one is dropped
/// by every iteration but the last, and one is held by the frame.
pub(crate) fn loop_of_large_values(kit: &mut Kit) -> Case {
    let grow = spec(
        "grow",
        &[("v", Type::Bytes), ("fixed", Type::Bytes)],
        &[("v", Type::Bytes), ("b", Type::Bytes), ("go", Type::Bool)],
    );
    let grow = kit.add(grow, |_, inputs| match (&inputs[0], &inputs[1]) {
        (Data::Bytes(v), Data::Bytes(fixed)) => {
            let n = i64::from(v[0]) + i64::from(fixed[0]);
            Ok(vec![bytes(2048 + n as usize, n), bytes(200_000, n), bool(n < 4)])
        }
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let io = || {
        let g = G::new().input("v", Type::Bytes).input("fixed", Type::Bytes);
        g.output("v2", Type::Bytes).output("b", Type::Bytes)
    };
    let body = io().output("go", Type::Bool).task("grow", &grow);
    let body = body.connect("v -> grow.v; fixed -> grow.fixed; grow.v -> v2; grow.b -> b; grow.go -> go").graph();
    let round = ModuleKind::Loop { body, carried: vec![("v2".into(), "v".into())], condition: "go".into() };
    let g = io().module("round", round);
    let g = g.connect("v -> round.v; fixed -> round.fixed; round.v2 -> v2; round.b -> b");
    (start(g).input("v", bytes(2048, 1)).input("fixed", bytes(3000, 1)), "v2=2052 bytes b=200000 bytes".into())
}

pub(crate) fn called_twice(kit: &mut Kit) -> Case {
    let (inc, add) = (inc(kit), add(kit));
    let call = || ModuleKind::Call { flow: "sub".into() };
    let g = io().module("one", call()).module("two", call()).task("add", &add);
    let g = g.connect("x -> one.x; one.y -> two.x; one.y -> add.a; two.y -> add.b; add.out -> y");
    let flows = [("main".into(), g.graph()), ("sub".into(), chain(&inc, 2).graph())].into();
    (Start::new("r", checked(Library { flows })).input("x", int(0)), "y=6".into())
}

/// Counts down by calling itself, and up again on the way back.
pub(crate) fn recursive(kit: &mut Kit, depth: i64) -> Case {
    let inc = inc(kit);
    let dec = kit.task("dec", &["x"], |inputs| Ok(vec![int(as_int(&inputs[0]) - 1)]));
    let below = below(kit, 1);
    let deeper = io().task("dec", &dec).module("again", ModuleKind::Call { flow: "main".into() }).task("inc", &inc);
    let deeper = deeper.connect("x -> dec.x; dec.out -> again.x; again.y -> inc.x; inc.out -> y").graph();
    let bottom = io().connect("x -> y").graph();
    let arms = vec![arm("bottom", Some("end"), bottom), arm("deeper", None, deeper)];
    let g = io().task("below", &below).module("which", ModuleKind::Choice { arms });
    let g = g.connect("x -> below.x; below.out -> which.end; x -> which.x; which.y -> y");
    (start(g).input("x", int(depth)), format!("y={depth}"))
}

pub(crate) fn forwarded(kit: &mut Kit) -> Case {
    let inc = inc(kit);
    let inside = io().input("z", list()).output("w", list()).output("same", Type::Int);
    let inside = inside.task("inc", &inc).connect("x -> inc.x; inc.out -> y; z -> w; x -> same").graph();
    let body = ModuleKind::Each { body: inside, over: vec!["x".into()], concurrency: None };
    let g = G::new().input("xs", list()).input("z", list()).output("ys", list()).output("ws", Type::list(list()));
    let g = g.output("same", list()).output("z", list()).module("each", body);
    let g = g.connect("xs -> each.x; z -> each.z; each.y -> ys; each.w -> ws; each.same -> same; z -> z");
    (start(g).input("xs", ints(0..2)).input("z", ints([7])), "ys=[1 2] ws=[[7] [7]] same=[0 1] z=[7]".into())
}

pub(crate) fn no_outputs(kit: &mut Kit) -> Case {
    let inc = inc(kit);
    let sink = kit.add(spec("sink", &[("x", Type::Int)], &[]), |_, _| Ok(vec![]));
    let body = io().task("sink", &sink).task("inc", &inc).connect("x -> sink.x; x -> inc.x; inc.out -> y").graph();
    let g = G::new().input("xs", list()).output("ys", list()).module("each", each(body));
    let g = g.task("sink", &sink).task("inc", &inc).input("x", Type::Int).output("y", Type::Int);
    let g = g.connect("xs -> each.x; each.y -> ys; x -> sink.x; x -> inc.x; inc.out -> y");
    (start(g).input("xs", ints(0..2)).input("x", int(4)), "ys=[1 2] y=5".into())
}

/// Step `i` takes its own input and the output of step `i - 1`.
pub(crate) fn fold(kit: &mut Kit) -> Case {
    let (inc, add) = (inc(kit), add(kit));
    let mut g = io();
    for at in 0..6 {
        g = g.task(&format!("own{at}"), &inc).task(&format!("step{at}"), &add);
        let before = if at == 0 { String::from("x") } else { format!("step{}.out", at - 1) };
        g = g.connect(&format!("x -> own{at}.x; own{at}.out -> step{at}.a; {before} -> step{at}.b"));
    }
    (start(g.connect("step5.out -> y")).input("x", int(1)), "y=13".into())
}

/// Bytes of this length, from a number.
pub(crate) fn bytes(len: usize, n: i64) -> Data {
    Data::Bytes(vec![n as u8; len].into())
}

/// Values too large to be inlined, and some that are blobs: made, passed on, gathered, iterated over.
pub(crate) fn large(kit: &mut Kit) -> Case {
    let make = spec("make", &[("x", Type::Int)], &[("v", Type::Bytes), ("b", Type::Bytes)]);
    let make = kit.add(make, |_, inputs| {
        let n = as_int(&inputs[0]);
        Ok(vec![bytes(2048, n), bytes(200_000, n)])
    });
    let len = spec("len", &[("v", Type::Bytes), ("b", Type::Bytes)], &[("out", Type::Int)]);
    let len = kit.add(len, |_, inputs| match (&inputs[0], &inputs[1]) {
        (Data::Bytes(v), Data::Bytes(b)) => Ok(vec![int((v.len() + b.len()) as i64 + i64::from(v[0]))]),
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let body = G::new().input("x", Type::Int).output("v", Type::Bytes).output("b", Type::Bytes).task("make", &make);
    let body = body.connect("x -> make.x; make.v -> v; make.b -> b").graph();
    let again =
        G::new().input("v", Type::Bytes).input("b", Type::Bytes).output("n", Type::Int).output("v2", Type::Bytes);
    let again = again.task("len", &len).connect("v -> len.v; b -> len.b; len.out -> n; v -> v2").graph();
    let again = ModuleKind::Each { body: again, over: vec!["v".into(), "b".into()], concurrency: None };
    let g = G::new().input("xs", list()).output("ns", list()).output("vs", Type::list(Type::Bytes));
    let g = g.module("each", each(body)).module("again", again);
    let g = g.connect("xs -> each.x; each.v -> again.v; each.b -> again.b; again.n -> ns; again.v2 -> vs");
    (start(g).input("xs", ints([1, 2, 1])), "ns=[202049 202050 202049] vs=[2048 bytes 2048 bytes 2048 bytes]".into())
}

/// A task with an effect.
pub(crate) fn effect(mut spec: TaskSpec, effect: Effect) -> TaskSpec {
    spec.effect = effect;
    spec
}

/// A list with more stored elements than one batch can put, as an input and as an output; an each goes over its
/// elements.
pub(crate) fn many(kit: &mut Kit) -> Case {
    let list = || Type::list(Type::Bytes);
    let turn = spec("turn", &[("xs", list())], &[("out", list())]);
    let turn = kit.add(turn, |_, inputs| match &inputs[0] {
        Data::List(xs) => Ok(vec![Data::List(xs.iter().rev().map(Cow::into_owned).collect())]),
        other => Err(Failure::new(format!("{other:?}"))),
    });
    let g = G::new().input("xs", list()).output("ys", list()).task("turn", &turn);
    let g = g.connect("xs -> turn.xs; turn.out -> ys");
    let xs: Vec<_> = (0..130).map(|n| bytes(1100 + n as usize, n)).collect();
    let shown: Vec<_> = (0..130).rev().map(|n| format!("{} bytes", 1100 + n)).collect();
    (start(g).input("xs", Data::List(xs.into())), format!("ys=[{}]", shown.join(" ")))
}

/// Counts in a row of its flow, and returns the count. It has one attempt: a store that does not answer does not use it
/// up.
struct Counting;

impl onceflow_engine::task::Body for Counting {
    fn start(&self, step: onceflow_engine::task::Step, _: Vec<Data>) -> onceflow_engine::task::Attempt {
        onceflow_engine::task::Attempt::Async(Box::pin(async move {
            let tx = step.tx().ok_or_else(|| Failure::new("no transaction"))?;
            let row = tx.get("count").await.map_err(|error| Failure::new(error.to_string()))?;
            let n = row.map_or(0, |row| i64::from(row[0])) + 1;
            if n == 2 {
                tx.delete("count");
            } else {
                tx.put("count", [n as u8]);
            }
            Ok(vec![int(n)])
        }))
    }
}

/// Two transactions, one after the other, on the same row; the second deletes it.
pub(crate) fn transaction(kit: &mut Kit) -> Case {
    let count = effect(spec("count", &[("x", Type::Int)], &[("out", Type::Int)]), Effect::Transactional);
    kit.tasks.add(count.clone(), std::sync::Arc::new(Counting));
    let g = io().task("one", &count).task("two", &count).connect("x -> one.x; one.out -> two.x; two.out -> y");
    (start(g).input("x", int(1)), "y=2".into())
}
