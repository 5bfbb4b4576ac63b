//! A checked flow: the proof that an engine takes, for all outputs or for some.

use super::notation::library;
use onceflow_core::model::{CheckedFlow, Library, check};

const TWO: &str = "
flow main(x: int) -> (p: int, q: int) {
  a: task inc(i: int) -> (o: int);
  e: choice { small if ok (ok: bool, x: int) -> (y: int) { t: task inc(i: int) -> (o: int); x -> t.i; t.o -> y; };
              rest (ok: bool, x: int) -> (y: int) { x -> y; }; };
  f: call other;
  b: task is(i: int) -> (o: bool);
  x -> a.i; a.o -> p; x -> b.i; b.o -> e.ok; x -> e.x; e.y -> f.x; f.y -> q;
}
flow other(x: int) -> (y: int) { o: task inc(i: int) -> (o: int); x -> o.i; o.o -> y; }
";

fn names(outputs: &[&str]) -> Vec<String> {
    outputs.iter().map(|output| output.to_string()).collect()
}

fn two() -> (Library, CheckedFlow) {
    let library = library(TWO);
    let flow = CheckedFlow::check(library.clone(), "main").unwrap_or_else(|errors| panic!("{errors}"));
    (library, flow)
}

#[test]
fn some_outputs_of_a_checked_flow_give_the_program_that_checking_for_them_gives() {
    let (library, flow) = two();
    assert_eq!(**flow.program(), check(&library, "main", None).unwrap());
    for outputs in [&["p"][..], &["q"], &["p", "q"], &["q", "p"], &[]] {
        let outputs = names(outputs);
        let only = flow.only(&outputs).unwrap_or_else(|errors| panic!("{errors}"));
        let program = check(&library, "main", Some(&outputs)).unwrap();
        assert_eq!((only.identity(), only.requested()), (&program.identity(), Some(&outputs[..])));
        assert_eq!(**only.program(), program, "{outputs:?}");
    }
}

#[test]
fn unknown_outputs_of_a_checked_flow_are_the_mistakes_that_checking_for_them_finds() {
    let (library, flow) = two();
    let outputs = names(&["p", "qq", "z"]);
    let errors = flow.only(&outputs).expect_err("two of them are no outputs");
    assert_eq!(errors.to_string(), check(&library, "main", Some(&outputs)).unwrap_err().to_string());
    assert_eq!(errors.0.len(), 2);
}

#[test]
fn a_flow_that_was_written_down_is_lowered_to_the_same_program() {
    let (_, flow) = two();
    for flow in [flow.only(&names(&["q"])).unwrap(), flow] {
        let bytes = postcard::to_stdvec(&flow).unwrap();
        let read: CheckedFlow = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{flow:?}"));
        assert_eq!((read.identity(), read.program()), (flow.identity(), flow.program()));
    }
}

#[test]
fn every_task_of_a_library_is_visited_also_those_that_undo() {
    let mut library = library(TWO);
    let graph = library.flows.get_mut("other").unwrap();
    let onceflow_core::model::graph::ModuleKind::Task(task) = &mut graph.modules[0].kind else { panic!("a task") };
    let mut undo = onceflow_core::model::TaskSpec::new("undo", vec![], vec![]);
    undo.class = String::from("undoing");
    std::sync::Arc::make_mut(task).compensation = Some(Box::new(undo));
    let mut found = Vec::new();
    library.for_each_task(&mut |task| found.push(format!("{} {}", task.name, task.class)));
    assert_eq!(found, ["inc default", "inc default", "is default", "inc default", "undo undoing"]);
}
