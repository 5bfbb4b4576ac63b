//! The version of a task changes with everything that results depend on, and with nothing else.

use super::support::good;
use onceflow_core::model::{Graph, TaskSpec, graph::ModuleKind};

const FLOW: &str = "
flow: test
inputs: { a: file, n: int }
steps:
  first: { run: 'cat ${{ inputs.a }}', out: { t: file } }
  second:
    run: head -n ${{ inputs.n }} ${{ first.t }}
    out: { t: { file: '${{ first.t.stem }}.txt' } }
    env: { LANG: C }
    retry: 3
    timeout: 3s
    resources: { cpus: 2 }
    version: \"1\"
outputs: { t: second.t }
";

fn tasks(graph: &Graph) -> Vec<&TaskSpec> {
    let task = |module| match module {
        &onceflow_core::model::Module { kind: ModuleKind::Task(ref spec), .. } => Some(&**spec),
        _ => None,
    };
    graph.modules.iter().filter_map(task).collect()
}

fn versions(text: &str) -> Vec<String> {
    let flow = good(text);
    tasks(&flow.checked.library().flows[flow.name()]).iter().map(|spec| spec.version.clone()).collect()
}

#[test]
fn a_version_says_what_results_depend_on() {
    let known = versions(FLOW);
    assert_eq!(known.len(), 2);
    assert_ne!(known[0], known[1]);
    for (from, to) in [
        ("head -n", "tail -n"),
        ("stem }}.txt", "stem }}.csv"),
        ("LANG: C", "LANG: D"),
        ("LANG: C", "LANG: C, LC_ALL: C"),
        ("version: \"1\"", "version: \"2\""),
        ("    retry: 3", "    shell: sh"),
        ("${{ inputs.n }} ${{ first.t }}", "${{ inputs.n + 1 }} ${{ first.t }}"),
        ("t: { file: '${{ first.t.stem }}.txt' }", "t: { dir: '${{ first.t.stem }}.txt' }"),
    ] {
        assert!(FLOW.contains(from), "{from}");
        let changed = versions(&FLOW.replace(from, to));
        assert_eq!(changed[0], known[0], "{to}");
        assert_ne!(changed[1], known[1], "{to}");
    }
}

#[test]
fn a_version_does_not_depend_on_names_of_steps_or_how_they_are_run() {
    let known = versions(FLOW);
    for (from, to) in [
        ("first", "zeroth"),
        ("second", "last"),
        ("flow: test", "flow: other"),
        ("retry: 3", "retry: { attempts: 5, backoff: 1s }"),
        ("timeout: 3s", "timeout: 1h"),
        ("cpus: 2", "cpus: 4, memory: 1GB"),
        ("head -n ${{ inputs.n }} ${{ first.t }}", "head -n ${{ inputs.n }} ${{ first }}"),
        ("head -n ${{ inputs.n }} ${{ first.t }}", "head -n ${{inputs.n}} ${{  first.t  }}"),
        ("inputs: { a: file, n: int }", "secrets: [TOKEN]\ninputs: { n: int, a: file }"),
    ] {
        assert!(FLOW.contains(from), "{from}");
        assert_eq!(versions(&FLOW.replace(from, to)), known, "{to}");
    }
}

#[test]
fn a_task_carries_all_that_it_is_run_with() {
    let text = FLOW.replace(
        "timeout: 3s",
        "timeout: 3s\n    effect: at_most_once\n    undo: { run: 'rm ${{ key }} ${{ inputs.a }}', retry: 5 }",
    );
    let flow = good(&text);
    let second = tasks(&flow.checked.library().flows["test"])[1];
    assert_eq!(second.name, "command");
    assert_eq!((second.retry.attempts, second.timeout_ms), (3, Some(3000)));
    assert_eq!((second.resources.cpu_milli, second.resources.memory_bytes), (2000, 0));
    assert_eq!(second.effect, onceflow_core::model::Effect::AtMostOnce);
    let undo = second.compensation.as_ref().unwrap();
    assert_eq!(undo.inputs, second.inputs);
    assert_eq!(undo.retry.attempts, 5);
    let ports: Vec<_> = second.inputs.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["inputs-n", "first-t", "inputs-a"]);
    let action = onceflow_exec::action::Action::from_spec(second).unwrap();
    assert!(matches!(action, onceflow_exec::action::Action::Command(_)));
    assert_eq!(tasks(&flow.checked.library().flows["test"])[0].resources.cpu_milli, 1000);
}
