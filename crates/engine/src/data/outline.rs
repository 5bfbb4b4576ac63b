//! The structure of data without its content: every value is represented by its digest. Lists are read, values are not.

use super::elements;
use crate::{Error, task::Data};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use onceflow_core::{
    Digest,
    payload::{Outcome, Payload},
};
use onceflow_store::values::Values;

/// Data of which only the structure was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOutline {
    /// No value, where the port's type is an option.
    None,
    /// A value so small that its bytes stand in the row.
    Inline(Bytes),
    /// A value in the store, by the digest of its bytes.
    Stored(Digest),
    /// A file, by its name and the digest of its content.
    File(String, Digest),
    /// The elements of a list, in order.
    List(Vec<ValueOutline>),
}

impl ValueOutline {
    /// The outline of data in memory. A file whose digest is not known becomes `None`.
    pub fn of(data: &Data) -> Self {
        match data {
            Data::None => ValueOutline::None,
            Data::Bytes(bytes) => ValueOutline::Inline(bytes.clone()),
            Data::List(elements) => {
                ValueOutline::List(elements.iter().map(|element| ValueOutline::of(&element)).collect())
            }
            Data::File(file) => {
                file.known.map_or(ValueOutline::None, |known| ValueOutline::File(file.name.clone(), known.digest))
            }
        }
    }
}

/// The outline of a payload.
pub(crate) fn outline<'a>(values: &'a Values, payload: &'a Payload) -> BoxFuture<'a, Result<ValueOutline, Error>> {
    Box::pin(async move {
        Ok(match payload {
            Payload::Inline(bytes) => ValueOutline::Inline(Bytes::copy_from_slice(bytes)),
            Payload::Stored(stored) => ValueOutline::Stored(stored.digest),
            Payload::File { name, content } => ValueOutline::File(name.clone(), content.digest),
            Payload::List(list) => {
                let mut outlines = Vec::with_capacity(list.len());
                for element in list.iter() {
                    outlines.push(of_option(values, element.as_ref()).await?);
                }
                ValueOutline::List(outlines)
            }
            Payload::StoredList(stored) => {
                let mut outlines = Vec::new();
                for outcome in elements(values, payload, 0..stored.len as u32).await? {
                    outlines.push(of_option(values, Outcome::value(&outcome)).await?);
                }
                ValueOutline::List(outlines)
            }
        })
    })
}

async fn of_option(values: &Values, payload: Option<&Payload>) -> Result<ValueOutline, Error> {
    match payload {
        None => Ok(ValueOutline::None),
        Some(payload) => outline(values, payload).await,
    }
}
