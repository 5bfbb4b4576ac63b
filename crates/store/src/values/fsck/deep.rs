//! Reads the bytes of every object that a value names, and compares them with what the value says.

use super::super::{Content, Error, Values, stored::Head, whole::wanted};
use crate::{
    blobs::{ObjectName, content},
    values::ValueId,
};
use std::collections::BTreeMap;

/// The result of reading the objects. An object is never written to again, so this stays true while it exists.
#[derive(Default)]
pub(super) struct Deep {
    /// Objects that were read.
    pub(super) read: usize,
    /// Objects that do not have the expected content, and the symptom.
    pub(super) wrong: BTreeMap<ObjectName, String>,
}

impl Values {
    pub(super) async fn read_objects(&self) -> Result<Deep, Error> {
        let mut deep = Deep::default();
        let Some(blobs) = &self.blobs else { return Ok(deep) };
        for (name, row) in self.all_rows(&self.keys.values).await? {
            let Some(id) = ValueId::checked(name.as_bytes()) else { continue };
            let Some(Content::Object { name, len }) = Head::read(&row).and_then(|head| head.content()) else {
                continue;
            };
            deep.read += 1;
            match content::verify(&**blobs, name, wanted(&id, len)?).await {
                Ok(()) => {}
                Err(error) if error.is_damage() => drop(deep.wrong.insert(name, error.to_string())),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(deep)
    }
}
