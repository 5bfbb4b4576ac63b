//! Steps that call a flow: `call: FILE`, with `in` as in flow files. A record that such a step gives holds the record it
//! was called for, and the outputs.

use super::{
    build::StreamCalls,
    declare::OnError,
    expression::{RECORD, RecordExpression, record_of, scope},
};
use crate::{
    FlowInput, LoadOptions, LoadedFlow,
    source::Text,
    syntax::{MapKey, fields::FieldReader},
    words,
};
use onceflow_core::model::Type;
use onceflow_engine::task::Data;
use onceflow_exec::value::{FileValue, PortValue};
use onceflow_stream::{CallFailure, FailedCall, FlowCalls, RecordFailure, Stream, StreamError};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The field of a result that has the outputs.
const OUTPUTS: &str = "outputs";

/// A declared call.
pub(super) struct CallDecl {
    pub(super) flow: Text,
    /// Its inputs; `None` are the fields of the record with their names.
    pub(super) ins: Option<Vec<(MapKey, Text)>>,
    /// Runs of a partition that are open at a time.
    pub(super) at_most: usize,
}

/// A checked call.
#[derive(Debug)]
pub(super) struct CheckedCall {
    pub(super) flow: Arc<LoadedFlow>,
    ins: Vec<(FlowInput, RecordExpression)>,
    at_most: usize,
}

/// Checks a call for records of a type: the flow, what it is given, and that it gives values that a record can hold.
/// Returns the type of its results too; `None` after reporting a problem.
pub(super) fn check(reader: FieldReader<'_>, call: &CallDecl, ty: &Type) -> Option<(CheckedCall, Type)> {
    let path = Path::new(reader.source.file()).parent().unwrap_or(Path::new("")).join(&call.flow.text);
    if !path.is_file() {
        let hint = format!("it is looked for beside the stream file: {}", path.display());
        reader.say(call.flow.span, "OF0127", format!("there is no flow file `{}`", call.flow.text), hint);
        return None;
    }
    let flow = match crate::load(&path, &LoadOptions::default()) {
        Ok(flow) => flow,
        Err(problems) => {
            problems.0.into_iter().for_each(|problem| reader.report.push(problem));
            return None;
        }
    };
    let before = reader.report.len();
    let mut ins = Vec::new();
    let given = match &call.ins {
        Some(given) => given.clone(),
        None => fields_for(&flow, call, ty),
    };
    for (key, text) in &given {
        let Some(input) = flow.inputs.iter().find(|input| input.name == key.name) else {
            let hint = words::meant(&key.name, flow.inputs.iter().map(|input| input.name.as_str()));
            let message = format!("the flow `{}` has no input `{}`", call.flow.text, key.name);
            reader.say(key.span, "OF0128", message, hint);
            continue;
        };
        let Some(given) = RecordExpression::check(reader, text, &[(RECORD, ty)]) else { continue };
        let mut wanted = vec![input.ty.clone()];
        if is_file(&input.ty) {
            wanted = vec![Type::Text, Type::option(Type::Text)];
        }
        if given.must_be(reader, text, &wanted, "OF0130") {
            ins.push((input.clone(), given));
        }
    }
    for input in flow.inputs.iter().filter(|input| input.is_required()) {
        if !given.iter().any(|(key, _)| key.name == input.name) {
            let message = format!("the flow `{}` needs the input `{}`", call.flow.text, input.name);
            reader.say(call.flow.span, "OF0129", message, format!("`in: {{ {}: … }}`; it is {}", input.name, input.ty));
        }
    }
    for output in flow.outputs.iter().filter(|output| !is_value(&output.ty)) {
        let message =
            format!("output `{}` of `{}` is {}, which no record can hold", output.name, call.flow.text, output.ty);
        let hint = "let the flow store the file where it belongs, and give its name as a text";
        reader.say(call.flow.span, "OF0161", message, hint);
    }
    if reader.report.len() > before {
        return None;
    }
    let outputs = flow.outputs.iter().map(|output| (output.name.clone(), output.ty.clone())).collect();
    let result = [(String::from(RECORD), ty.clone()), (String::from(OUTPUTS), Type::Record(outputs))];
    let checked = CheckedCall { flow: Arc::new(flow), ins, at_most: call.at_most };
    Some((checked, Type::Record(result.into_iter().collect())))
}

/// The fields of a record that are inputs of a flow.
fn fields_for(flow: &LoadedFlow, call: &CallDecl, ty: &Type) -> Vec<(MapKey, Text)> {
    let Type::Record(fields) = ty else { return Vec::new() };
    let of = |input: &FlowInput| {
        let text = Text { text: format!("{RECORD}.{}", input.name), ..call.flow.clone() };
        (MapKey { name: input.name.clone(), span: call.flow.span }, text)
    };
    flow.inputs.iter().filter(|input| fields.contains_key(&input.name)).map(of).collect()
}

fn is_file(ty: &Type) -> bool {
    match ty {
        Type::File => true,
        Type::Option(inner) => **inner == Type::File,
        _ => false,
    }
}

/// A record can hold values of the type.
fn is_value(ty: &Type) -> bool {
    match ty {
        Type::File | Type::Directory | Type::Named(_) => false,
        Type::List(inner) | Type::Option(inner) => is_value(inner),
        Type::Record(fields) => fields.values().all(is_value),
        Type::Unit | Type::Bool | Type::Int | Type::Float | Type::Text | Type::Bytes | Type::Json => true,
    }
}

/// The inputs of a call, as it makes them for a record.
struct CallInputs {
    step: String,
    ins: Vec<(FlowInput, RecordExpression)>,
    /// Inputs that are not given, with their defaults.
    defaults: Vec<(String, PortValue, Type)>,
    base: PathBuf,
    on_error: OnError,
}

impl CallInputs {
    fn make(&self, record: &PortValue) -> Result<Vec<(String, Data)>, CallFailure> {
        let scope = scope(record.clone());
        let made = self.ins.iter().map(|(input, expression)| {
            let value = expression.eval(&scope)?;
            Ok((input.name.clone(), self.input(input, value)?))
        });
        let defaults = self.defaults.iter().map(|(name, value, ty)| {
            let data = value.clone().into_data(ty).map_err(|wrong| format!("input `{name}`: {wrong}"))?;
            Ok((name.clone(), data))
        });
        made.chain(defaults).collect::<Result<_, String>>().map_err(|why| match self.on_error.failure(why, &scope) {
            RecordFailure::Skip => CallFailure::Skip,
            RecordFailure::Stop(message) => CallFailure::Stop(StreamError::Step { name: self.step.clone(), message }),
        })
    }

    fn input(&self, input: &FlowInput, value: PortValue) -> Result<Data, String> {
        let wrong = |wrong| format!("input `{}`: {wrong}", input.name);
        let value = match value {
            PortValue::Text(path) if is_file(&input.ty) => {
                PortValue::from(FileValue::from_path(self.base.join(path)).map_err(wrong)?)
            }
            value => value,
        };
        if let PortValue::Text(word) = &value
            && !input.choices.is_empty()
            && !input.choices.contains(word)
        {
            return Err(format!("input `{}` is one of {}, not `{word}`", input.name, input.choices.join(", ")));
        }
        value.into_data(&input.ty).map_err(wrong)
    }
}

/// Adds the step to a pipeline.
pub(super) fn add(
    (pipeline, name): (&str, &str),
    call: &CheckedCall,
    on_error: OnError,
    base: &Path,
    input: &Stream<PortValue>,
    calls: &StreamCalls,
) -> Stream<PortValue> {
    let given = |input: &&FlowInput| !call.ins.iter().any(|(given, _)| given.name == input.name);
    let default =
        |input: &FlowInput| (input.name.clone(), input.default.clone().unwrap_or(PortValue::Null), input.ty.clone());
    let inputs = CallInputs {
        step: name.to_owned(),
        ins: call.ins.clone(),
        defaults: call.flow.inputs.iter().filter(given).map(default).collect(),
        base: base.to_owned(),
        on_error,
    };
    let types: BTreeMap<String, Type> =
        call.flow.outputs.iter().map(|output| (output.name.clone(), output.ty.clone())).collect();
    let step = name.to_owned();
    let result = move |record: PortValue, outputs: Vec<(String, Data)>| {
        let mut fields = BTreeMap::new();
        for (name, data) in outputs {
            let ty = types.get(&name).unwrap_or(&Type::Json);
            let value = PortValue::from_data(data, ty).map_err(|wrong| {
                let message = format!("output `{name}`: {wrong}");
                CallFailure::Stop(StreamError::Step { name: step.clone(), message })
            })?;
            fields.insert(name, value);
        }
        let record = record_of(scope(record));
        let result = [(String::from(RECORD), record), (String::from(OUTPUTS), PortValue::Record(fields))];
        Ok(PortValue::Record(result.into_iter().collect()))
    };
    let checked = call.flow.checked.clone();
    let of = (pipeline, name);
    let target = FlowCalls::new(calls.engine.clone(), checked.clone(), of, move |record| inputs.make(record), result);
    let classes = calls.classes.clone();
    let target = target.classes(move |key| classes(key, &checked)).on_failure(match on_error {
        OnError::Stop | OnError::Divert => FailedCall::Stop,
        OnError::Skip => FailedCall::Skip,
    });
    input.call(name, call.at_most, target)
}
