//! The inputs of a run: all that are wanted, none that is not, stored once.

use crate::{Error, data, task::Data};
use onceflow_core::{
    model::{Program, Type},
    payload::{Digest, Outcome},
    protocol::{draft::stored, rows::Held},
};
use onceflow_store::values::{Values, Weave};

/// Inputs, ready to be put into a run.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    names: Vec<String>,
    pub(super) held: Vec<Held>,
    /// What puts those that are large.
    pub(super) weaves: Vec<Weave>,
}

impl Stored {
    /// What they are, by name.
    pub(super) fn digests(&self) -> Vec<(String, Digest)> {
        self.names.iter().cloned().zip(self.held.iter().map(|held| held.outcome.digest())).collect()
    }
}

/// Takes the inputs of a program from those given, and says all that is wrong with them.
pub(super) async fn store(values: &Values, program: &Program, given: &[(String, Data)]) -> Result<Stored, Error> {
    let wanted = &program.blocks[0].inputs;
    let mut wrong = Vec::new();
    for (name, _) in given {
        if !wanted.iter().any(|input| input.port.name == *name) {
            let known: Vec<_> = wanted.iter().map(|input| input.port.name.as_str()).collect();
            wrong.push(format!("the flow has no input `{name}`; it has {}", listed(&known)));
        }
    }
    let mut found = Vec::with_capacity(wanted.len());
    for input in wanted {
        let mut of_name = given.iter().filter(|(name, _)| *name == input.port.name).map(|(_, data)| data);
        match (of_name.next(), of_name.next()) {
            (Some(_), Some(_)) => wrong.push(format!("input `{}` is given twice", input.port.name)),
            (Some(data), None) => found.push(data.clone()),
            (None, _) if matches!(input.port.ty, Type::Option(_)) => found.push(Data::None),
            (None, _) => wrong.push(format!("input `{}` of type {} is not given", input.port.name, input.port.ty)),
        }
    }
    if !wrong.is_empty() {
        return Err(Error::Inputs(wrong.join("\n")));
    }
    let (mut held, mut weaves) = (Vec::with_capacity(found.len()), Vec::new());
    for data in found {
        let outcome: Outcome = data::store(values, data, &mut data::Files::Copied, &mut weaves).await?;
        held.push(Held { owned: stored(&outcome).is_some(), outcome });
    }
    let names = wanted.iter().map(|input| input.port.name.clone()).collect();
    Ok(Stored { names, held, weaves })
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { String::from("none") } else { format!("`{}`", names.join("`, `")) }
}
