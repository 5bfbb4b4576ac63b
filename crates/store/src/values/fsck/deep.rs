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
    /// Number of objects that were read.
    pub(super) objects_read: usize,
    /// Objects that do not have the expected content, and the symptom.
    pub(super) wrong: BTreeMap<ObjectName, String>,
}

impl Deep {
    /// Reads every object that a value names.
    pub(super) async fn read(values: &Values) -> Result<Self, Error> {
        let mut deep = Deep::default();
        let Some(blobs) = &values.blobs else { return Ok(deep) };
        for (name, row) in values.rows.all_rows(&values.rows.keys.values).await? {
            let Some(id) = ValueId::checked(name.as_bytes()) else { continue };
            let Some(Content::Object { name, len }) = Head::read(&row).and_then(|head| head.content()) else {
                continue;
            };
            deep.objects_read += 1;
            match content::verify(&**blobs, name, wanted(&id, len)?).await {
                Ok(()) => {}
                Err(error) if error.is_damage() => drop(deep.wrong.insert(name, error.to_string())),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(deep)
    }
}
