//! The inputs of a run: exactly those that its flow has. They are digested first, and stored, once, only if a run
//! begins with them.

use crate::{
    Error,
    data::{Files, Looked, Storing, look, sources},
    task::Data,
};
use onceflow_core::{
    Digest,
    model::{Port, Type},
    payload::Outcome,
    protocol::{draft::stored, rows::Held},
};
use onceflow_store::values::{ValueChange, Values};

/// Inputs that were digested, and not stored.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    names: Vec<String>,
    looked: Vec<Looked>,
}

/// Stored inputs, ready to be put into a run.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) held: Vec<Held>,
    /// Changes that put the large ones.
    pub(super) changes: Vec<ValueChange>,
}

impl Inputs {
    /// Inputs of which only the outcomes are known: enough to plan with, not to begin a run with.
    pub(super) fn seen(all: Vec<(String, Outcome)>) -> Self {
        let (names, looked) =
            all.into_iter().map(|(name, outcome)| (name, Looked { data: Data::None, outcome })).unzip();
        Inputs { names, looked }
    }

    /// The digests of the inputs, by name.
    pub(super) fn digests(&self) -> Vec<(String, Digest)> {
        self.names.iter().cloned().zip(self.looked.iter().map(|looked| looked.outcome.digest())).collect()
    }

    /// Records the paths of files by reference in this process's store.
    pub(super) fn note_sources(&self, values: &Values) {
        let mut found = Vec::new();
        self.looked.iter().for_each(|looked| sources(&looked.data, &mut found));
        found.iter().for_each(|source| values.sources().note(&source.path, source.digest));
    }

    /// The outcome of an input, which may not be stored yet.
    pub(super) fn outcome(&self, port: u16) -> &Outcome {
        &self.looked[usize::from(port)].outcome
    }

    /// The same, with the elements of lists that are not stored yet.
    pub(super) fn outcome_with_elements(&self, port: u16) -> Outcome {
        self.looked[usize::from(port)].with_elements()
    }

    /// Stores the inputs.
    pub(super) async fn store(&self, values: &Values) -> Result<Stored, Error> {
        let mut storing = Storing::new(values, Files::Copied);
        let mut held = Vec::with_capacity(self.looked.len());
        for (name, looked) in self.names.iter().zip(&self.looked) {
            let outcome = storing.store(&looked.data).await?;
            if outcome.digest() != looked.outcome.digest() {
                return Err(Error::Inputs(format!("input `{name}` changed while it was read")));
            }
            held.push(Held { owned: stored(&outcome).is_some(), outcome });
        }
        Ok(Stored { held, changes: storing.changes() })
    }

    /// Resolves a value that a plan reads: an input that was only digested becomes that input as stored; any other
    /// value stays itself.
    pub(super) fn settled(&self, reused: Held, stored_as: &Stored) -> Held {
        match self.looked.iter().position(|looked| looked.outcome == reused.outcome) {
            Some(port) => stored_as.held[port].clone(),
            None => reused,
        }
    }
}

/// Takes the inputs of the flow from those given, and reports all that is wrong with them. Of the inputs in `assumed`
/// only the digest is known, which is enough to plan with.
pub(super) async fn take(
    wanted: &[Port],
    given: &mut [(String, Data)],
    assumed: &[(String, Digest)],
) -> Result<Inputs, Error> {
    let mut wrong = Vec::new();
    for (name, _) in given.iter() {
        if !wanted.iter().any(|input| input.name == *name) {
            let known: Vec<_> = wanted.iter().map(|input| input.name.as_str()).collect();
            wrong.push(format!("the flow has no input `{name}`; it has {}", listed(&known)));
        }
    }
    let assumed_as = |name: &str| assumed.iter().find(|(assumed, _)| assumed == name).map(|(_, digest)| *digest);
    let is_assumed = |name: &str| assumed_as(name).is_some();
    let mut found = Vec::with_capacity(wanted.len());
    for input in wanted {
        let mut of_name = given.iter().enumerate().filter(|(_, (name, _))| *name == input.name);
        match (of_name.next(), of_name.next()) {
            (Some(_), Some(_)) => wrong.push(format!("input `{}` is given twice", input.name)),
            (Some((at, _)), None) => found.push(Some(at)),
            (None, _) if is_assumed(&input.name) || matches!(input.ty, Type::Option(_)) => found.push(None),
            (None, _) => wrong.push(format!("input `{}` of type {} is not given", input.name, input.ty)),
        }
    }
    if !wrong.is_empty() {
        return Err(Error::Inputs(wrong.join("\n")));
    }
    let mut looked = Vec::with_capacity(found.len());
    for (at, input) in found.into_iter().zip(wanted) {
        if let (None, Some(digest)) = (at, assumed_as(&input.name)) {
            let unnamed = onceflow_core::payload::Stored { id: Default::default(), digest, len: 0 };
            let outcome = Outcome::Value(onceflow_core::payload::Payload::Stored(unnamed));
            looked.push(Looked { data: Data::None, outcome });
            continue;
        }
        let data = at.map_or(Data::None, |at| std::mem::replace(&mut given[at].1, Data::None));
        looked.push(look(data).await?);
    }
    let names = wanted.iter().map(|input| input.name.clone()).collect();
    Ok(Inputs { names, looked })
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { String::from("none") } else { format!("`{}`", names.join("`, `")) }
}
