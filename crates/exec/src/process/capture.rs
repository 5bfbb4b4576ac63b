//! Captures standard output as an output: read while the process runs, kept in a file, and bounded.

use crate::{codes, output::TEXT_BYTES_MAX};
use onceflow_engine::task::Failure;
use std::{
    fs::File,
    io::{self, PipeWriter, Write},
};
use tokio::net::unix::pipe::Receiver;

/// The captured standard output of a process.
pub(super) struct StdoutCapture {
    /// None once there is nothing more to read.
    reader: Option<Receiver>,
    file: File,
    bytes: u64,
    /// The failure to keep it.
    pub(super) trouble: Option<Failure>,
}

impl StdoutCapture {
    /// Creates a capture into this file; also returns the pipe for the process to write to.
    pub(super) fn new(file: File) -> io::Result<(Self, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        let reader = Some(Receiver::from_owned_fd(reader.into())?);
        Ok((StdoutCapture { reader, file, bytes: 0, trouble: None }, writer))
    }

    pub(super) fn reader(&self) -> Option<&Receiver> {
        self.reader.as_ref()
    }

    /// Reads and keeps all available output. Returns false if the process must be ended.
    pub(super) fn take(&mut self) -> bool {
        while let Some(reader) = &self.reader {
            match super::read(reader, |bytes| keep(&mut self.file, &mut self.bytes, bytes)) {
                Some(Ok(0)) => self.reader = None,
                Some(Ok(_)) => {}
                Some(Err(failure)) => {
                    self.reader = None;
                    self.trouble = Some(failure);
                }
                None => break,
            }
        }
        self.trouble.is_none()
    }
}

fn keep(file: &mut File, before: &mut u64, bytes: &[u8]) -> Result<usize, Failure> {
    *before += bytes.len() as u64;
    if *before > TEXT_BYTES_MAX {
        let why = format!("it wrote more than {TEXT_BYTES_MAX} bytes to its standard output, which is an output");
        let failed = codes::failure(codes::OUTPUT_VALUE, why).finally();
        return Err(codes::because(failed, "hint: declare a file, and write to that: `> ${{ out.NAME }}`"));
    }
    file.write_all(bytes).map_err(|error| codes::work("standard output could not be kept", &error))?;
    Ok(bytes.len())
}
