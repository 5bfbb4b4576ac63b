//! Flows that a scope calls: the inputs of a run from its message, and the message from its outputs.

use super::{ScopeContext, message, row};
use crate::{
    action::{CallGiven, CallInput, FileCall},
    codes,
    expr::{self, Bindings},
    value::PortValue,
};
use onceflow_core::{
    Row,
    model::{Port, Type},
};
use onceflow_engine::{
    scope::{FlowCall, FlowValues},
    task::{Failure, Step},
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The call of a flow. Without a step that it belongs to, it can be looked at, and not run.
pub(super) fn called(owner: Option<(&ScopeContext, &Step)>, call: &FileCall) -> Result<Arc<FlowCall>, Failure> {
    let flow = call.checked().map_err(|why| codes::failure(codes::OTHER_VERSION, why).finally())?;
    let class = owner.and_then(|(context, step)| Some((context, &step.spec()?.class)));
    let classes = class.iter().flat_map(|(context, of)| {
        flow.classes().into_iter().map(|asked| (asked.to_owned(), context.shared.called_class.of(of, asked)))
    });
    let (inputs, outputs) = (call.inputs.clone(), call.outputs.clone());
    Ok(Arc::new(FlowCall {
        classes: classes.collect(),
        flow,
        inputs: Arc::new(move |given| make_inputs(&inputs, &message(given))),
        output: Arc::new(move |given| make_message(&outputs, given)),
    }))
}

fn make_inputs(inputs: &[CallInput], given: &Value) -> Result<FlowValues, String> {
    let mut scope = Bindings::new();
    let value = PortValue::from_json(given.clone(), &Type::Json).map_err(|wrong| wrong.to_string())?;
    scope.set("message", value);
    let one = |input: &CallInput| {
        let wrong = |why: String| format!("input `{}`: {why}", input.name);
        let field = given.get(&input.name);
        let value = match (&input.given, field, &input.default) {
            (CallGiven::Expr(source), ..) => {
                expr::eval(source, &scope).map_err(|error| wrong(error.to_string()))?.to_json()
            }
            (CallGiven::Field, Some(field), _) => field.clone(),
            (CallGiven::Field | CallGiven::Default, _, Some(default)) => default.clone(),
            (CallGiven::Field | CallGiven::Default, _, None) if matches!(input.ty, Type::Option(_)) => Value::Null,
            (CallGiven::Field | CallGiven::Default, ..) => {
                return Err(wrong(String::from("the message has no field of this name")));
            }
        };
        if let Value::String(word) = &value
            && !input.choices.is_empty()
            && !input.choices.contains(word)
        {
            return Err(wrong(format!("it is one of {}, not `{word}`", input.choices.join(", "))));
        }
        let value = PortValue::from_json(value, &input.ty).map_err(|mismatch| wrong(mismatch.to_string()))?;
        let data = value.into_data(&input.ty).map_err(|mismatch| wrong(mismatch.to_string()))?;
        Ok((input.name.clone(), data))
    };
    inputs.iter().map(one).collect()
}

fn make_message(outputs: &[Port], given: FlowValues) -> Result<Row, String> {
    let mut fields = Map::new();
    for (name, data) in given {
        let ty = outputs.iter().find(|port| port.name == name).map_or(&Type::Json, |port| &port.ty);
        let value = PortValue::from_data(data, ty).map_err(|wrong| format!("output `{name}`: {wrong}"))?;
        fields.insert(name, value.to_json());
    }
    Ok(row(&Value::Object(fields)))
}
