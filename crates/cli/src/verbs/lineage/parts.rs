//! Paths to a content inside a value: an element of a list, a file of a directory, a field of a record.

use onceflow_core::model::Type;
use onceflow_engine::{ValueOutline, task::Data};
use onceflow_exec::value::PortValue;

/// One part of a path into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValuePathPart {
    Element(usize),
    File(String),
    Field(String),
}

/// Formats a path into a value: `[3]`, `[3].bam`.
pub(super) fn words(parts: &[ValuePathPart]) -> String {
    let word = |part: &ValuePathPart| match part {
        ValuePathPart::Element(at) => format!("[{at}]"),
        ValuePathPart::File(name) => format!("/{name}"),
        ValuePathPart::Field(name) => format!(".{name}"),
    };
    parts.iter().map(word).collect()
}

/// Returns the path to the first match in data of this type; empty if the whole matches.
pub(super) fn first(
    data: &ValueOutline,
    ty: &Type,
    is_it: &dyn Fn(&ValueOutline) -> bool,
) -> Option<Vec<ValuePathPart>> {
    let inside = |part: ValuePathPart, data: &ValueOutline, ty: &Type| {
        let mut parts = vec![part];
        parts.extend(first(data, ty, is_it)?);
        Some(parts)
    };
    match (ty, data) {
        (Type::Option(inner), data) => first(data, inner, is_it),
        (Type::Record(types), ValueOutline::List(said)) => said.chunks_exact(2).find_map(|field| {
            let name = field_name(&field[0])?;
            inside(ValuePathPart::Field(name.clone()), &field[1], types.get(&name)?)
        }),
        (ty, ValueOutline::List(elements)) => {
            elements.iter().enumerate().find_map(|(at, element)| match (ty, element) {
                (Type::Directory, ValueOutline::File(name, _)) => {
                    inside(ValuePathPart::File(name.clone()), element, &Type::File)
                }
                (Type::List(inner), element) => inside(ValuePathPart::Element(at), element, inner),
                (ty, element) => inside(ValuePathPart::Element(at), element, ty),
            })
        }
        (_, data) => is_it(data).then(Vec::new),
    }
}

/// Returns the name of a field of a record; names are short, so they are never stored apart.
fn field_name(outline: &ValueOutline) -> Option<String> {
    let ValueOutline::Inline(bytes) = outline else { return None };
    match PortValue::from_data(Data::Bytes(bytes.clone()), &Type::Text) {
        Ok(PortValue::Text(name)) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_file_is_found_wherever_it_is_inside() {
        let file = |name: &str| ValueOutline::File(name.to_owned(), Default::default());
        let text = |text: &str| ValueOutline::of(&PortValue::Text(text.to_owned()).into_data(&Type::Text).unwrap());
        let record =
            Type::Record(BTreeMap::from([(String::from("bam"), Type::File), (String::from("name"), Type::Text)]));
        let of_record = ValueOutline::List(vec![text("bam"), file("it"), text("name"), text("it")]);
        for (data, ty, expected) in [
            (file("it"), Type::File, ""),
            (ValueOutline::List(vec![file("a"), file("it")]), Type::list(Type::File), "[1]"),
            (
                ValueOutline::List(vec![ValueOutline::None, file("it")]),
                Type::list(Type::Option(Box::new(Type::File))),
                "[1]",
            ),
            (ValueOutline::List(vec![file("a/b"), file("it")]), Type::Directory, "/it"),
            (ValueOutline::List(vec![of_record]), Type::list(record), "[0].bam"),
            // Without an exact type, the path consists of indices.
            (ValueOutline::List(vec![ValueOutline::List(vec![file("it")])]), Type::Json, "[0][0]"),
        ] {
            let found = first(&data, &ty, &|data| matches!(data, ValueOutline::File(name, _) if name == "it"));
            assert_eq!(found.as_deref().map(words).as_deref(), Some(expected), "{ty}");
        }
        assert_eq!(first(&file("other"), &Type::File, &|_| false), None);
    }
}
