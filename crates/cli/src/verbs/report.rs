//! `onceflow report RUN`: writes the report of a run as one HTML file.

use crate::{
    args::pictures::Report, exit::Exit, fault::Fault, location::StoreLocation, page, pictured::Pictured,
    printer::Printer,
};
use std::path::PathBuf;

/// Writes the report.
pub(crate) async fn run(args: &Report, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    super::graph::must_be_called("a report", args.output.as_deref(), &["html", "htm"])?;
    let run = Pictured::of(&args.run, location).await?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("report-{}.html", name(&run.run.key))));
    super::graph::give(printer, Some(&path), page::document(&run))?;
    printer.next(if path.as_os_str() == "-" { run.next } else { format!("open {} in a browser", path.display()) });
    Ok(Exit::Done)
}

/// Makes a key fit to be part of a file's name.
fn name(key: &str) -> String {
    let plain = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    key.chars().map(plain).take(80).collect()
}
