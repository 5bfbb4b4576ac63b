//! Values for ports of which only name and type are known: those of a run whose flow file is not available.

use super::{Binding, FilePresence, GivenInputs, InputNoun};
use crate::{FlowInput, Problems, TypeDecl};
use onceflow_core::model::{Port, Type};
use onceflow_exec::value::PortValue;

/// Converts words of a command line to values of these ports, as [`LoadedFlow::bind`](crate::LoadedFlow::bind) does. A port that is no option
/// must be given. Messages use the words of the given noun for the ports.
///
/// # Errors
/// All problems, at once.
pub fn bind(
    ports: &[Port],
    words: &[(String, String)],
    called: InputNoun,
) -> Result<Vec<(String, PortValue)>, Problems> {
    let input = |port: &Port| FlowInput {
        name: port.name.clone(),
        shape: shape(&port.ty),
        ty: port.ty.clone(),
        default: None,
        choices: vec![],
        help: None,
    };
    let inputs: Vec<_> = ports.iter().map(input).collect();
    let given = GivenInputs { words: words.to_vec(), file: None };
    Binding { inputs: &inputs, called, files: FilePresence::AreThere }.bind(&given)
}

fn shape(ty: &Type) -> TypeDecl {
    match ty {
        Type::List(inner) => TypeDecl::List(Box::new(shape(inner))),
        Type::Option(inner) => TypeDecl::Option(Box::new(shape(inner))),
        Type::Record(fields) => {
            TypeDecl::Record(fields.iter().map(|(name, field)| (name.clone(), shape(field))).collect())
        }
        plain => TypeDecl::Plain(plain.clone()),
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
        let bound = bind(&ports, &words, InputNoun::INPUTS).unwrap_or_else(|problems| panic!("{problems}"));
        let shown: Vec<_> = bound.iter().map(|(name, value)| format!("{name}={}", value.to_json())).collect();
        assert_eq!(shown, ["text=\"7\"", "many=[1,2]", "maybe=null", "record={\"n\":3}"]);
        let problems =
            bind(&ports, &[word("txt", "x")], InputNoun::INPUTS).expect_err("it is misspelt, and others are missing");
        assert_eq!(problems.0.len(), 4, "{problems}");
    }
}
