//! Checks a flow as it was described, and lowers it to the program that is run. Reports all mistakes at once; a flow
//! without any gives a program in which no node waits for an input that never arrives.
//!
//! | module | what it owns |
//! |---|---|
//! | [`mistakes`] | the kinds of mistake, and their messages |
//! | `graphs` | checks of one graph: names, connections, cycles |
//! | `kinds` | checks of one module, by its kind |
//! | `names` | valid names, and the nearest known name as a hint |
//! | `face` | the ports of a module, as its siblings see them |
//! | `links`, `calls`, `components` | which module feeds which, which flow calls which, and the cycles in both |

pub(crate) mod calls;
pub(crate) mod components;
pub(crate) mod face;
mod graphs;
mod kinds;
pub(crate) mod links;
pub mod mistakes;
pub mod names;

pub use mistakes::{Errors, Mistake, MistakeKind, NameRole};

use super::{Graph, Library, Program, SourceLocation, TaskSpec, lower::lower};
use crate::limits::{GRAPH_MODULES_MAX, NESTING_DEPTH_MAX, PROGRAM_MODULES_MAX};
use calls::{Calls, Size, called_by, nesting};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Checks the flow `main` and all it calls, and makes the program that gives the `requested` outputs (`None`: all).
///
/// Every mistake is reported once, at the first place where a run would meet it: callers before the flows they call,
/// modules in the order they were written.
pub fn check(library: &Library, main: &str, requested: Option<&[String]>) -> Result<Program, Errors> {
    check_within(GRAPH_MODULES_MAX, library, main, requested)
}

/// As [`check`], for graphs of up to `graph_modules_max` modules.
pub fn check_within(
    graph_modules_max: usize,
    library: &Library,
    main: &str,
    outputs: Option<&[String]>,
) -> Result<Program, Errors> {
    let mut found = MistakeList::new(graph_modules_max);
    let Some(graph) = library.flows.get(main) else {
        found.unknown_flow(library, main, String::from("/"), None);
        return Err(Errors(found.mistakes));
    };
    let (wanted, all) = requested(graph, outputs, &mut found);
    flows(library, main, &wanted, &mut found);
    if found.mistakes.is_empty() {
        Ok(lower(library, main, &wanted, wanted == all))
    } else {
        Err(Errors(found.mistakes))
    }
}

/// Returns the requested outputs of a flow, and all of them.
///
/// # Errors
/// The requested names that are no outputs of the flow.
pub(super) fn requested_outputs<'a>(
    graph: &'a Graph,
    outputs: Option<&'a [String]>,
) -> Result<(BTreeSet<&'a str>, BTreeSet<&'a str>), Errors> {
    let mut found = MistakeList::new(GRAPH_MODULES_MAX);
    let both = requested(graph, outputs, &mut found);
    if found.mistakes.is_empty() { Ok(both) } else { Err(Errors(found.mistakes)) }
}

fn requested<'a>(
    graph: &'a Graph,
    outputs: Option<&'a [String]>,
    found: &mut MistakeList,
) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
    let all: BTreeSet<_> = graph.outputs.iter().map(|port| port.name.as_str()).collect();
    let wanted = outputs.map_or_else(|| all.clone(), |names| names.iter().map(String::as_str).collect());
    for output in wanted.difference(&all) {
        let hint = names::meant(output, all.iter().copied());
        found.add(MistakeKind::UnknownRequest { output: (*output).to_owned() }, format!("/:{output}"), None, hint);
    }
    (wanted, all)
}

/// Checks every flow that can be reached, and how they call each other.
fn flows<'a>(library: &'a Library, main: &'a str, wanted: &BTreeSet<&str>, found: &mut MistakeList) {
    let mut places = BTreeMap::from([(main, String::new())]);
    let mut todo = VecDeque::from([main]);
    while let Some(name) = todo.pop_front() {
        let (graph, place) = (&library.flows[name], places[name].clone());
        if !names::is_name(name) {
            found.bad_name(NameRole::Flow, name, graphs::or_root(&place), None);
        }
        if let depth @ NESTING_DEPTH_MAX.. = nesting(graph) {
            found.too_many("graphs within graphs", &place, depth as u64, NESTING_DEPTH_MAX as u64 - 1, None);
            return;
        }
        graphs::Checked { library, graph, place: &place, wanted: (name == main).then_some(wanted) }.check(found);
        called_by(graph, &place, &mut |flow, place| {
            if library.flows.contains_key(flow) && !places.contains_key(flow) {
                places.insert(flow, place);
                todo.push_back(flow);
            }
        });
    }
    let calls = Calls::of(library, main);
    for group in calls.endless() {
        let place = group.iter().filter_map(|flow| places.get(flow)).min_by_key(|place| (place.len(), *place));
        let flows = group.iter().map(|flow| (*flow).to_owned()).collect();
        let hint = "call it from an arm of a choice, so that it can end";
        let address = graphs::or_root(place.map_or("", String::as_str));
        found.add(MistakeKind::Endless { flows }, address, None, Some(hint.to_owned()));
    }
    let Size { depth, modules } = calls.sizes().get(main).copied().unwrap_or_default();
    if depth > NESTING_DEPTH_MAX {
        found.too_many("graphs within graphs (calls included)", "", depth as u64, NESTING_DEPTH_MAX as u64, None);
    }
    let most = PROGRAM_MODULES_MAX.max(found.graph_modules_max as u64);
    if modules > most {
        found.too_many("modules (all calls expanded)", "", modules, most, None);
    }
}

/// The hint for a graph with too many modules.
const WIDER: &str =
    "what is so wide is usually data: use an each; or allow more with the engine's option `graph_modules_max`";

/// The mistakes so far.
pub(crate) struct MistakeList {
    mistakes: Vec<Mistake>,
    graph_modules_max: usize,
    /// Tasks already found free of mistakes, by their address in memory: half a million modules of one task check it
    /// once.
    sound_tasks: BTreeSet<*const TaskSpec>,
}

impl MistakeList {
    fn new(graph_modules_max: usize) -> Self {
        MistakeList { mistakes: vec![], graph_modules_max, sound_tasks: BTreeSet::new() }
    }

    fn len(&self) -> usize {
        self.mistakes.len()
    }

    /// The task was checked before, and nothing was wrong with it. Modules share a task by its `Arc`, which the library
    /// keeps alive as long as it is checked.
    fn is_sound(&self, spec: &Arc<TaskSpec>) -> bool {
        self.sound_tasks.contains(&Arc::as_ptr(spec))
    }

    fn note_sound(&mut self, spec: &Arc<TaskSpec>) {
        self.sound_tasks.insert(Arc::as_ptr(spec));
    }

    fn add(&mut self, what: MistakeKind, address: String, origin: Option<&SourceLocation>, hint: Option<String>) {
        self.mistakes.push(Mistake { what, address, origin: origin.cloned(), hint });
    }

    fn unknown_flow(&mut self, library: &Library, flow: &str, address: String, origin: Option<&SourceLocation>) {
        let hint = names::meant(flow, library.flows.keys().map(String::as_str));
        self.add(MistakeKind::UnknownFlow { flow: flow.to_owned() }, address, origin, hint);
    }

    fn bad_name(&mut self, named: NameRole, name: &str, address: String, origin: Option<&SourceLocation>) {
        self.add(MistakeKind::BadName { named, name: name.to_owned() }, address, origin, Some(names::RULE.to_owned()));
    }

    fn too_many(&mut self, what: &'static str, place: &str, found: u64, most: u64, origin: Option<&SourceLocation>) {
        let of = graphs::or_root(place);
        let hint = (what == "modules").then(|| String::from(WIDER));
        self.add(MistakeKind::TooMany { what, of: of.clone(), found, most }, of, origin, hint);
    }
}
