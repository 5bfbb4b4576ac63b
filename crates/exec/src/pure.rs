//! The executor of expressions.

use crate::{
    ExecutorContext,
    action::Action,
    expr::{self, Bindings},
    home, job,
    value::{FileValue, PortValue},
};
use onceflow_core::model::TaskSpec;
use onceflow_engine::task::{Attempt, Body, Data, Failure, Step};
use onceflow_store::tree;
use std::sync::Arc;

/// The executor that evaluates expressions.
pub(crate) struct Expressions(pub(crate) Arc<ExecutorContext>);

impl Body for Expressions {
    fn start(&self, step: Step, inputs: Vec<Data>) -> Attempt {
        let values = match compute(&step, inputs) {
            Ok(values) => values,
            Err(failure) => return Attempt::Done(Err(failure)),
        };
        match values.iter().all(|value| value.files().is_empty()) {
            true => Attempt::Done(give(&step, values)),
            false => {
                let shared = self.0.clone();
                Attempt::Blocking(Box::new(move || give(&step, copied(&shared, &step, values)?)))
            }
        }
    }
}

fn compute(step: &Step, inputs: Vec<Data>) -> Result<Vec<PortValue>, Failure> {
    let (spec, action) = crate::action(step)?;
    let Action::Expr(action) = action else { return Err(crate::not_for("expr")) };
    let scope = scope(step, spec, inputs)?;
    let one = |(source, port): (&String, &onceflow_core::model::Port)| {
        expr::eval_as(source, &scope, &port.ty).map_err(|error| job::uncomputed(&error))
    };
    assert_eq!(action.outputs.len(), spec.outputs.len(), "{} computes one expression for each output", step.address());
    action.outputs.iter().zip(&spec.outputs).map(one).collect()
}

fn scope(step: &Step, spec: &TaskSpec, inputs: Vec<Data>) -> Result<Bindings, Failure> {
    let mut scope = job::scope(step, spec);
    assert_eq!(inputs.len(), spec.inputs.len(), "{} gets one value for each input of its task", step.address());
    for (at, data) in inputs.into_iter().enumerate() {
        scope.bind(&spec.inputs[at].name, job::input(spec, at, data)?);
    }
    Ok(scope)
}

fn give(step: &Step, values: Vec<PortValue>) -> Result<Vec<Data>, Failure> {
    let (spec, _) = crate::action(step)?;
    assert_eq!(values.len(), spec.outputs.len(), "{} gives one value for each output of its task", step.address());
    values.into_iter().zip(&spec.outputs).map(|(value, port)| job::give(value, port)).collect()
}

/// Copies the files in these outputs: the engine takes ownership of output files, but files of inputs belong to others.
fn copied(shared: &ExecutorContext, step: &Step, mut values: Vec<PortValue>) -> Result<Vec<PortValue>, Failure> {
    let wrong = |error: std::io::Error| crate::codes::work("a file could not be copied", &error);
    let name = home::safe(&step.address());
    let mut copy = |file: &mut FileValue| -> Result<(), Failure> {
        let (mut to, path) = shared.home.out_file(step.run(), &name).map_err(wrong)?;
        let copied = tree::open_regular(&file.path).and_then(|mut from| std::io::copy(&mut from, &mut to));
        copied.map_err(wrong)?;
        file.path = path;
        Ok(())
    };
    values.iter_mut().try_for_each(|value| each_file(value, &mut copy))?;
    Ok(values)
}

fn each_file(
    value: &mut PortValue,
    act: &mut impl FnMut(&mut FileValue) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match value {
        PortValue::File(file) => act(file),
        PortValue::Directory(directory) => directory.files.iter_mut().try_for_each(act),
        PortValue::List(elements) => elements.iter_mut().try_for_each(|element| each_file(element, act)),
        PortValue::Record(fields) => fields.values_mut().try_for_each(|field| each_file(field, act)),
        _ => Ok(()),
    }
}
