//! Something of a run, and what gave it. A part of what an each gave comes from a step of that element, and what such a step
//! took from a part of what the each goes over.

use super::parts::{self, ValuePathPart};
use crate::words;
use onceflow_engine::{Origin, Record, StepRecord};
use serde_json::{Value, json};

/// What the number of an element is written as where it is not said.
const ANY: &str = "[*]";

/// Something of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueOrigin {
    /// What gave it.
    pub(super) from: Origin,
    /// For which element, if that is a step of an each.
    element: Option<usize>,
    /// Which part of that it is; nothing if it is the whole.
    pub(super) parts: Vec<ValuePathPart>,
}

impl ValueOrigin {
    /// This part of what was given from there.
    pub(super) fn new(record: &Record, from: &Origin, parts: Vec<ValuePathPart>) -> Self {
        ValueOrigin { from: from.clone(), element: None, parts }.settled(record)
    }

    /// What the step that gave this took from there.
    pub(super) fn before(&self, record: &Record, from: &Origin) -> Self {
        ValueOrigin { from: from.clone(), element: self.element, parts: vec![] }.settled(record)
    }

    /// Into an each to the step that gave an element, and out again to the list that it goes over.
    fn settled(mut self, record: &Record) -> Self {
        loop {
            match (&self.from, &self.parts[..]) {
                (Origin::Element(list), _) => {
                    let element =
                        ValuePathPart::Element(self.element.take().expect("only a step of an element takes one"));
                    self.parts.insert(0, element);
                    self.from = (**list).clone();
                }
                (Origin::Step { address, port }, [ValuePathPart::Element(at), rest @ ..]) if self.element.is_none() => {
                    let Some(from) = inside(record, address, port) else { return self };
                    self = ValueOrigin { from: from.clone(), element: Some(*at), parts: rest.to_vec() };
                }
                _ => return self,
            }
        }
    }

    /// The step that gave it.
    pub(super) fn step<'a>(&self, record: &'a Record) -> Option<&'a StepRecord> {
        let Origin::Step { address, .. } = &self.from else { return None };
        steps(record).find(|step| step.address == *address)
    }

    /// The step and the output that it is, if a step gave it, as people name them.
    pub(super) fn names(&self, record: &Record) -> Option<(String, String)> {
        let Origin::Step { address, port } = &self.from else { return None };
        let (step, port) = match (self.element, inside(record, address, port)) {
            (Some(at), _) => (address.replacen(ANY, &format!("[{at}]"), 1), port.as_str()),
            // Eaches that go through their elements together are one in a record, and have the name of the first.
            (None, Some(Origin::Step { address: inner, port: of_inner })) if each_of(inner) != address => {
                (each_of(inner).to_owned(), of_inner.as_str())
            }
            (None, _) => (address.clone(), port.as_str()),
        };
        Some((words::step(&step), format!("{port}{}", parts::words(&self.parts))))
    }

    /// As data.
    pub(super) fn to_json(&self, record: &Record) -> Value {
        match (self.names(record), &self.from) {
            (Some((step, port)), _) => json!({"step": step, "port": port}),
            (None, Origin::Input(name)) => json!({"input": format!("{name}{}", parts::words(&self.parts))}),
            (None, from) => super::origin(from),
        }
    }
}

/// All steps of a record: an each is followed by what it does for every element.
pub(super) fn steps(record: &Record) -> impl Iterator<Item = &StepRecord> {
    let with_inner = |step| [step].into_iter().chain(inner(step));
    record.steps.iter().flat_map(with_inner)
}

fn inner(step: &StepRecord) -> impl Iterator<Item = &StepRecord> {
    step.inside.iter().flat_map(|inside| &inside.steps)
}

/// The each that a step is done for every element of.
fn each_of(address: &str) -> &str {
    address.split(ANY).next().unwrap_or_default()
}

/// Where an element of what an each gives comes from.
fn inside<'a>(record: &'a Record, address: &str, port: &str) -> Option<&'a Origin> {
    let step = record.steps.iter().find(|step| step.address == address)?;
    let at = step.outputs.iter().position(|(output, _)| output.name == port)?;
    step.inside.as_ref()?.outputs.get(at)
}
