//! `onceflow version`: prints the version, and the formats of stores and flow files that it reads.

use crate::{exit::Exit, printer::Printer};
use serde_json::json;

/// The version of the flow file format that this program reads.
const FLOW_SCHEMA: u32 = 1;

/// Prints the version.
pub(crate) fn run(printer: &Printer) -> Exit {
    let version = env!("CARGO_PKG_VERSION");
    let store = onceflow_store::backend::journal::FORMAT;
    match printer.json {
        true => printer.data(&json!({"version": version, "store_format": store, "flow_schema": FLOW_SCHEMA})),
        false => printer.text(format!("onceflow {version} (store format {store}, flow schema {FLOW_SCHEMA})")),
    }
    Exit::Done
}
