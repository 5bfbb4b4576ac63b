//! Files that are given and do not change, such as the inputs of a step. They are known by their place in the list, so that
//! a later process goes on though it finds them at other paths.

use super::{Clock, FilePosition, TailSettings, TailedFile, Tailing};
use crate::{
    data::{self, StreamData},
    pipeline::{
        lines::LineDecoder,
        source::{SplitReader, StreamSource},
    },
};
use std::{
    io::{Error, Result},
    path::PathBuf,
    sync::Arc,
};

/// A file that a source was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenFile {
    /// Its name, for messages.
    pub name: String,
    /// The path of its content.
    pub path: PathBuf,
}

/// The lines of given files, as one split, merged by the time of their records as those of
/// [`FollowedFiles`](super::FollowedFiles) are. It ends when all of them are read.
pub struct GivenFiles<T> {
    files: Vec<GivenFile>,
    settings: TailSettings<T>,
}

impl<T> GivenFiles<T> {
    /// Returns the lines of these files. The same list must be given, in the same order, whenever a pipeline goes on.
    pub fn new(files: Vec<GivenFile>, decoder: LineDecoder<T>, clock: Clock) -> Self {
        let list = Arc::new(|| Ok(Vec::new()));
        let settings = TailSettings { list, decoder, clock, follow: false, out_of_order_ms: 0, idle_ms: 0 };
        GivenFiles { files, settings }
    }

    /// Lines may be up to this much earlier than one before them in the same file; others are late.
    #[must_use]
    pub fn out_of_order_ms(self, out_of_order_ms: i64) -> Self {
        GivenFiles { settings: TailSettings { out_of_order_ms, ..self.settings }, ..self }
    }
}

impl<T: StreamData> StreamSource for GivenFiles<T> {
    type Item = T;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> Result<Box<dyn SplitReader<T>>> {
        let positions: Option<Vec<FilePosition>> = position.map(data::decode).transpose().map_err(Error::other)?;
        if positions.as_ref().is_some_and(|positions| positions.len() != self.files.len()) {
            return Err(Error::other("other files are given than those that were read before"));
        }
        let mut files = Vec::with_capacity(self.files.len());
        for (at, given) in self.files.iter().enumerate() {
            let opened = TailedFile::open(&given.path)?;
            let mut file = match &positions {
                None => opened,
                Some(positions) => opened.resume(&positions[at])?.ok_or_else(|| {
                    Error::other(format!("{} is not the file that was read before", given.path.display()))
                })?,
            };
            file.at.path = PathBuf::from(&given.name);
            files.push(file);
        }
        let settings = self.settings.clone();
        let now_ms = (settings.clock)();
        Ok(Box::new(Tailing { settings, files, looked_ms: now_ms, now_ms, calls: 1, bytes_read: 0 }))
    }
}
