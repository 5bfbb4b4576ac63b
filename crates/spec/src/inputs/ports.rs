//! Values for ports of which nothing is known but name and type: those of a run whose flow file is not here.

use super::{Called, Given};
use crate::{Flow, Input, Problems, Shape};
use onceflow_core::model::{Library, Port, Type};
use onceflow_exec::value::Value;

/// What words of a command line mean for these ports, as [`Flow::bind`] would say it. A port that is no option must be
/// given. Messages call them what they are.
///
/// # Errors
/// All that is wrong, at once.
pub fn bind(ports: &[Port], words: &[(String, String)], called: Called) -> Result<Vec<(String, Value)>, Problems> {
    let input = |port: &Port| Input {
        name: port.name.clone(),
        shape: shape(&port.ty),
        ty: port.ty.clone(),
        default: None,
        choices: vec![],
        help: None,
    };
    let flow = Flow {
        name: String::new(),
        description: None,
        library: Library::default(),
        identity: None,
        inputs: ports.iter().map(input).collect(),
        outputs: vec![],
        keep_ms: None,
        history_ms: None,
        finish_independent: false,
        store_inputs: false,
        results_mode: None,
        secrets: vec![],
        unused: vec![],
        warnings: vec![],
        files: vec![],
    };
    flow.bind_called(&Given { words: words.to_vec(), file: None }, called, super::Files::AreThere)
}

fn shape(ty: &Type) -> Shape {
    match ty {
        Type::List(inner) => Shape::List(Box::new(shape(inner))),
        Type::Option(inner) => Shape::Option(Box::new(shape(inner))),
        Type::Record(fields) => {
            Shape::Record(fields.iter().map(|(name, field)| (name.clone(), shape(field))).collect())
        }
        plain => Shape::Plain(plain.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, ty: Type) -> Port {
        Port { name: name.into(), ty }
    }

    #[test]
    fn words_become_values_of_the_types_of_ports() {
        let record = Type::Record([(String::from("n"), Type::Int)].into());
        let ports = [
            port("text", Type::Text),
            port("many", Type::list(Type::Int)),
            port("maybe", Type::option(Type::Bool)),
            port("record", record),
        ];
        let word = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let words = [word("text", "7"), word("many", "1"), word("many", "2"), word("record", "{\"n\": 3}")];
        let bound = bind(&ports, &words, Called::INPUTS).unwrap_or_else(|problems| panic!("{problems}"));
        let shown: Vec<_> = bound.iter().map(|(name, value)| format!("{name}={}", value.to_json())).collect();
        assert_eq!(shown, ["text=\"7\"", "many=[1,2]", "maybe=null", "record={\"n\":3}"]);
        let problems =
            bind(&ports, &[word("txt", "x")], Called::INPUTS).expect_err("it is misspelt, and others are missing");
        assert_eq!(problems.0.len(), 4, "{problems}");
    }
}
