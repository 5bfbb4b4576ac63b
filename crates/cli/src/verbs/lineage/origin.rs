//! A value of a run, and its origin. An element of an each's output comes from the step for that element, and the input
//! of such a step is an element of the list that the each goes over.

use super::parts::{self, ValuePathPart};
use crate::words;
use onceflow_engine::{Origin, Record, StepRecord};
use serde_json::{Value, json};

/// The number of an element in an address where it is left open.
const ANY: &str = "[*]";

/// A value of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueOrigin {
    /// The origin: an input, a constant, or an output of a step.
    pub(super) from: Origin,
    /// The element that it belongs to, if its origin is a step of an each.
    element: Option<usize>,
    /// The path to the value in that output or input; empty if it is the whole.
    pub(super) parts: Vec<ValuePathPart>,
}

impl ValueOrigin {
    /// Makes the value at this path from this origin.
    pub(super) fn new(record: &Record, from: &Origin, parts: Vec<ValuePathPart>) -> Self {
        ValueOrigin { from: from.clone(), element: None, parts }.settled(record)
    }

    /// Makes the value that the step which produced this one took from `from`.
    pub(super) fn before(&self, record: &Record, from: &Origin) -> Self {
        ValueOrigin { from: from.clone(), element: self.element, parts: vec![] }.settled(record)
    }

    /// Follows the origin into an each to the step that produced an element, and out again to the list that the each
    /// goes over.
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

    /// Returns the step that produced it.
    pub(super) fn step<'a>(&self, record: &'a Record) -> Option<&'a StepRecord> {
        let Origin::Step { address, .. } = &self.from else { return None };
        steps(record).find(|step| step.address == *address)
    }

    /// Returns the names of the step and the output, for display, if a step produced it.
    pub(super) fn names(&self, record: &Record) -> Option<(String, String)> {
        let Origin::Step { address, port } = &self.from else { return None };
        let (step, port) = match (self.element, inside(record, address, port)) {
            (Some(at), _) => (address.replacen(ANY, &format!("[{at}]"), 1), port.as_str()),
            // Eaches that go through their elements together are one in a record, under the name of the first.
            (None, Some(Origin::Step { address: inner, port: of_inner })) if each_of(inner) != address => {
                (each_of(inner).to_owned(), of_inner.as_str())
            }
            (None, _) => (address.clone(), port.as_str()),
        };
        Some((words::step(&step), format!("{port}{}", parts::words(&self.parts))))
    }

    /// Returns the origin as JSON.
    pub(super) fn to_json(&self, record: &Record) -> Value {
        match (self.names(record), &self.from) {
            (Some((step, port)), _) => json!({"step": step, "port": port}),
            (None, Origin::Input(name)) => json!({"input": format!("{name}{}", parts::words(&self.parts))}),
            (None, from) => super::origin(from),
        }
    }
}

/// Returns all steps of a record: an each is followed by the steps that run for every element.
pub(super) fn steps(record: &Record) -> impl Iterator<Item = &StepRecord> {
    let with_inner = |step| [step].into_iter().chain(inner(step));
    record.steps.iter().flat_map(with_inner)
}

fn inner(step: &StepRecord) -> impl Iterator<Item = &StepRecord> {
    step.inside.iter().flat_map(|inside| &inside.steps)
}

/// Returns the each around a step that runs for every element.
fn each_of(address: &str) -> &str {
    address.split(ANY).next().unwrap_or_default()
}

/// Returns the origin of an element of an each's output.
fn inside<'a>(record: &'a Record, address: &str, port: &str) -> Option<&'a Origin> {
    let step = record.steps.iter().find(|step| step.address == address)?;
    let at = step.outputs.iter().position(|(output, _)| output.name == port)?;
    step.inside.as_ref()?.outputs.get(at)
}
