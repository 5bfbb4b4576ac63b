//! `onceflow graph FLOW|RUN`: draws the steps of a flow and which of them reads from which; of a run, also their
//! states.

use crate::{
    args::pictures::{Format, Graph},
    exit::Exit,
    fault::Fault,
    flows,
    location::StoreLocation,
    picture::{Scene, dot, mermaid, svg, tree},
    pictured::Pictured,
    printer::Printer,
    streams,
};
use serde_json::json;
use std::path::Path;

/// Draws the flow or the run.
pub(crate) async fn run(args: &Graph, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let (scene, next) = match is_flow(&args.what) {
        true => (of_flow(Path::new(&args.what))?, format!("onceflow run {}", args.what)),
        false => {
            let run = Pictured::of(&args.what, location).await?;
            (run.must_have_scene()?, run.next)
        }
    };
    if printer.json && args.format.is_none() && args.output.is_none() {
        printer.pretty(&scene.to_json());
        return Ok(Exit::Done);
    }
    let format = match args.format {
        Some(format) => format,
        None => by_name(args.output.as_deref())?,
    };
    let text = match format {
        // Text is coloured only on a terminal.
        Format::Text => tree::document(&scene, &printer.for_stdout(args.output.is_none())),
        Format::Svg => svg::document(&scene),
        Format::Dot => dot::document(&scene),
        Format::Mermaid => mermaid::document(&scene),
    };
    give(printer, args.output.as_deref(), text)?;
    printer.next(next);
    Ok(Exit::Done)
}

/// Writes a picture to a file, or to stdout.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn give(printer: &Printer, to: Option<&Path>, text: String) -> Result<(), Fault> {
    match to.filter(|to| to.as_os_str() != "-") {
        None if printer.json => printer.data(&json!({ "text": text })),
        None => printer.exact(text),
        Some(path) => {
            std::fs::write(path, text).map_err(Fault::unwritten("write", path))?;
            match printer.json {
                true => printer.data(&json!({"written": path.to_string_lossy()})),
                false => printer.say(format!("wrote {}", path.display())),
            }
        }
    }
    Ok(())
}

/// Checks that the extension of a file is that of the format written.
///
/// # Errors
/// If the extension is another.
pub(crate) fn must_be_called(what: &str, file: Option<&Path>, ends: &[&str]) -> Result<(), Fault> {
    match file.and_then(Path::extension) {
        Some(end) if !ends.iter().any(|known| end == *known) => {
            let message = format!("{what} cannot be written as .{}", end.to_string_lossy());
            Err(Fault::usage(message).hint(format!("FILE ends with .{}", ends.join(" or ."))))
        }
        _ => Ok(()),
    }
}

/// The word is a path to a file, or has the extension of a flow file.
fn is_flow(word: &str) -> bool {
    let path = Path::new(word);
    path.is_file() || path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
}

fn of_flow(path: &Path) -> Result<Scene, Fault> {
    if let Some(stream) = streams::read(path)? {
        return Ok(streams::scene(&stream));
    }
    let flow = flows::read(path)?;
    Ok(Scene::of(flow.checked.program(), flow.name()))
}

/// Returns the format that the extension of a file asks for.
fn by_name(file: Option<&Path>) -> Result<Format, Fault> {
    match file.and_then(Path::extension).and_then(|end| end.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("dot" | "gv") => Ok(Format::Dot),
        Some("mmd" | "mermaid") => Ok(Format::Mermaid),
        None | Some("txt" | "text") => Ok(Format::Text),
        Some(other) => Err(Fault::usage(format!("a graph cannot be written as .{other}"))
            .hint("FILE ends with .svg, .dot, .mmd or .txt; or say --format")),
    }
}
