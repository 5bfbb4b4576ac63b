//! The planner: which steps of a pipeline run together in a stage, and which combines work before the shuffle. Pure:
//! facts about steps go in, stages and the reason of every decision come out.
//!
//! Lifting is decided first, then fusion: a lifted combine's first half is part of the stage that sends to it.

use crate::{combine::Laws, window::Windowing};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The planner's view of a step.
#[derive(Clone, Debug)]
pub struct StepFacts {
    /// Its name, for people.
    pub name: String,
    /// The kind of step.
    pub kind: StepKind,
    /// The steps it reads, by number; every one is smaller than its own.
    pub inputs: Vec<usize>,
    /// The user wants a stage to begin here.
    pub is_break: bool,
    /// It gives records apart that came after their windows.
    pub gives_late: bool,
    /// The type of its records.
    pub output: String,
    /// Everything that its stored state depends on, such as windows; of a step that gives records their key, what the
    /// state of those that read it depends on.
    pub state: Vec<StateFact>,
}

/// Something that the stored state of a step depends on: changed, the state is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFact {
    /// Its name, for people: `window`.
    pub field: String,
    /// Its value: `tumbling, 60000 ms`.
    pub value: String,
}

impl StateFact {
    pub(crate) fn new(field: &str, value: impl fmt::Display) -> Self {
        StateFact { field: field.to_owned(), value: value.to_string() }
    }
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Reads records from outside.
    Source,
    /// Works on one record at a time and remembers nothing.
    Stateless,
    /// Gives records their key.
    KeyBy,
    /// Combines the records of each key and window.
    Combine {
        /// The declared laws.
        laws: Laws,
        /// The windows.
        windowing: Windowing,
    },
    /// Remembers something per key.
    Stateful,
    /// Reads several streams as one.
    Merge,
    /// Brings all records together in one partition.
    Gather,
    /// Writes records to the outside.
    Sink,
}

/// Switches of the planner, for tests and comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Combine before the shuffle where that is legal.
    pub lift: bool,
    /// Run steps together where that is legal.
    pub fuse: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        PlanOptions { lift: true, fuse: true }
    }
}

/// A connection between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageEdge {
    /// The step that sends, and its stage.
    pub from: (usize, usize),
    /// The receiving step: its stage, and its index there.
    pub to: (usize, usize),
    /// Which of the receiver's inputs this is.
    pub port: usize,
    /// Parts are combined before they are sent.
    pub lifted: bool,
}

/// A decision of the planner about a step, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNote {
    /// The step.
    pub step: usize,
    /// The decision and the reason.
    pub text: String,
}

/// A pipeline as it is executed.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The names of the steps.
    names: Vec<String>,
    /// The steps of every stage; the first one is where records enter.
    pub stages: Vec<Vec<usize>>,
    /// The connections between stages.
    pub edges: Vec<StageEdge>,
    /// The planner's decisions, in order of steps.
    pub notes: Vec<PlanNote>,
}

/// Plans a pipeline.
pub fn plan(steps: &[StepFacts], options: PlanOptions) -> StreamPlan {
    let mut notes = Vec::new();
    let lifted: Vec<bool> = (0..steps.len()).map(|step| is_lifted(steps, step, options, &mut notes)).collect();
    let mut stages: Vec<Vec<usize>> = Vec::new();
    let mut stage_of = Vec::new();
    for (step, facts) in steps.iter().enumerate() {
        assert!(facts.inputs.iter().all(|input| *input < step), "a step reads only steps before it");
        let stage = match starts_stage(facts, options) {
            None => stage_of[facts.inputs[0]],
            Some(why) => {
                notes.push(PlanNote { step, text: format!("starts a stage: {why}") });
                stages.push(Vec::new());
                stages.len() - 1
            }
        };
        stages[stage].push(step);
        stage_of.push(stage);
    }
    let mut edges = Vec::new();
    for (step, facts) in steps.iter().enumerate() {
        for (port, input) in facts.inputs.iter().enumerate() {
            if stages[stage_of[step]][0] == step {
                let (from, to) = ((*input, stage_of[*input]), (step, stage_of[step]));
                edges.push(StageEdge { from, to, port, lifted: lifted[step] });
            }
        }
    }
    notes.sort_by_key(|note| note.step);
    let names = steps.iter().map(|step| step.name.clone()).collect();
    StreamPlan { names, stages, edges, notes }
}

/// Returns why a step starts a stage; `None` if it runs with the step it reads.
fn starts_stage(facts: &StepFacts, options: PlanOptions) -> Option<&'static str> {
    match facts.kind {
        StepKind::Source => Some("it is a source"),
        StepKind::Combine { .. } | StepKind::Stateful => Some("it keeps state per key, so records come by their key"),
        StepKind::Merge => Some("it reads several streams"),
        StepKind::Gather => Some("all records come together in one partition"),
        _ if facts.is_break => Some("the user asked for a break"),
        _ if !options.fuse => Some("fusion is switched off"),
        StepKind::Stateless | StepKind::KeyBy | StepKind::Sink => None,
    }
}

/// Decides whether a combine works before the shuffle, and notes the reason.
fn is_lifted(steps: &[StepFacts], step: usize, options: PlanOptions, notes: &mut Vec<PlanNote>) -> bool {
    let StepKind::Combine { laws, windowing } = steps[step].kind else { return false };
    let readers = |input: usize| steps.iter().filter(|other| other.inputs.contains(&input)).count();
    let obstacle = if !laws.allow_lifting() {
        Some("its combine is not declared associative and commutative")
    } else if windowing.kind.merges() {
        Some("its windows merge")
    } else if !windowing.kind.assigns_one() {
        Some("a record is in several of its windows")
    } else if windowing.trigger.observes_records() {
        Some("its trigger counts records")
    } else if steps[step].gives_late {
        Some("its late records are read")
    } else if steps[step].inputs.iter().any(|input| readers(*input) > 1) {
        Some("another step reads the keyed records too")
    } else if !options.lift {
        Some("lifting is switched off")
    } else {
        None
    };
    let text = match obstacle {
        None => String::from("lifted: records are combined per bundle before the shuffle"),
        Some(why) => format!("not lifted: {why}"),
    };
    notes.push(PlanNote { step, text });
    obstacle.is_none()
}

impl StreamPlan {
    /// Returns the stage of the step of this name.
    pub fn stage_of(&self, name: &str) -> Option<usize> {
        let step = self.names.iter().position(|own| own == name)?;
        self.stages.iter().position(|stage| stage.contains(&step))
    }

    /// Returns the names of the steps of every stage.
    pub fn stage_names(&self) -> impl Iterator<Item = Vec<&str>> {
        self.stages.iter().map(|steps| steps.iter().map(|step| self.names[*step].as_str()).collect())
    }

    /// Returns the stages that a stage reads.
    pub fn reads(&self, stage: usize) -> Vec<usize> {
        self.edges.iter().filter(|edge| edge.to.1 == stage).map(|edge| edge.from.1).collect()
    }

    /// Returns the decisions about the steps of a stage, each with the name of its step.
    pub fn notes_of(&self, stage: usize) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.notes.iter().filter(move |note| self.stages[stage].contains(&note.step));
        notes.map(|note| (self.names[note.step].as_str(), note.text.as_str()))
    }
}

impl fmt::Display for StreamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stage, steps) in self.stages.iter().enumerate() {
            let names: Vec<_> = steps.iter().map(|step| self.names[*step].as_str()).collect();
            writeln!(f, "stage {stage}: {}", names.join(" → "))?;
            for edge in self.edges.iter().filter(|edge| edge.to.1 == stage) {
                writeln!(f, "  reads stage {} ({})", edge.from.1, self.names[edge.from.0])?;
            }
            for note in self.notes.iter().filter(|note| steps.contains(&note.step)) {
                writeln!(f, "  {}: {}", self.names[note.step], note.text)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{Early, Trigger};
    use expect_test::expect;

    fn step(name: &str, kind: StepKind, inputs: &[usize]) -> StepFacts {
        StepFacts {
            name: name.into(),
            kind,
            inputs: inputs.to_vec(),
            is_break: false,
            gives_late: false,
            output: String::new(),
            state: Vec::new(),
        }
    }

    fn combine(laws: Laws, windowing: Windowing) -> StepKind {
        StepKind::Combine { laws, windowing }
    }

    fn word_count(count: StepKind) -> Vec<StepFacts> {
        vec![
            step("lines", StepKind::Source, &[]),
            step("words", StepKind::Stateless, &[0]),
            step("by word", StepKind::KeyBy, &[1]),
            step("count", count, &[2]),
            step("out", StepKind::Sink, &[3]),
        ]
    }

    #[test]
    fn a_word_count_is_two_stages_with_its_combine_lifted() {
        let plan = plan(&word_count(combine(Laws::ALL, Windowing::global())), PlanOptions::default());
        expect![[r#"
            stage 0: lines → words → by word
              lines: starts a stage: it is a source
            stage 1: count → out
              reads stage 0 (by word)
              count: lifted: records are combined per bundle before the shuffle
              count: starts a stage: it keeps state per key, so records come by their key
        "#]]
        .assert_eq(&plan.to_string());
    }

    #[test]
    fn a_combine_is_lifted_only_where_that_cannot_change_results() {
        let windows = Windowing::tumbling(10);
        for (kind, why) in [
            (combine(Laws::NONE, windows), "not declared"),
            (combine(Laws { associative: true, commutative: false }, windows), "not declared"),
            (combine(Laws::ALL, Windowing::sessions(10)), "merge"),
            (combine(Laws::ALL, Windowing::sliding(10, 5)), "several"),
            (combine(Laws::ALL, windows.trigger(Trigger::at_end().early(Early::Count(3)))), "counts"),
        ] {
            let plan = plan(&word_count(kind), PlanOptions::default());
            assert!(plan.edges.iter().all(|edge| !edge.lifted), "{plan}");
            assert!(plan.to_string().contains(why), "{plan}");
        }
        let mut steps = word_count(combine(Laws::ALL, windows));
        steps.push(step("other", StepKind::Stateful, &[2]));
        assert!(plan(&steps, PlanOptions::default()).to_string().contains("another step reads"));
    }

    #[test]
    fn breaks_merges_and_switches_start_stages() {
        let kind = combine(Laws::ALL, Windowing::global());
        let unfused = plan(&word_count(kind), PlanOptions { lift: false, fuse: false });
        assert_eq!(unfused.stages.len(), 5);
        assert!(unfused.edges.iter().all(|edge| !edge.lifted));
        let mut steps = word_count(kind);
        steps[1].is_break = true;
        assert_eq!(plan(&steps, PlanOptions::default()).stages, [vec![0], vec![1, 2], vec![3, 4]]);
        let merged = [
            step("a", StepKind::Source, &[]),
            step("b", StepKind::Source, &[]),
            step("both", StepKind::Merge, &[0, 1]),
        ];
        let merged = plan(&merged, PlanOptions::default());
        assert_eq!(merged.edges.iter().map(|edge| (edge.from.1, edge.port)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    }
}
