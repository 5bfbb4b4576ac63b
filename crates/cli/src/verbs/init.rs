//! `onceflow init [DIR]`: writes a small flow that works, with data to run it on.

use crate::{args, codes, exit::Exit, fault::Fault, printer::Printer};
use serde_json::json;
use std::fs;

const FLOW: &str = include_str!("init/flow.yaml");
const FILES: [(&str, &str); 4] = [
    ("flow.yaml", FLOW),
    ("data/north.csv", "day,rain\nmon,3\ntue,0\nwed,7\n"),
    ("data/south.csv", "day,rain\nmon,1\ntue,5\nwed,2\n"),
    ("data/far east.csv", "day,rain\nmon,0\ntue,0\nwed,12\n"),
];

/// Writes the files, if none of them exists.
pub(crate) fn run(args: &args::Init, printer: &Printer) -> Result<Exit, Fault> {
    let dir = &args.dir;
    if let Some((name, _)) = FILES.iter().find(|(name, _)| dir.join(name).exists()) {
        let message = format!("{} is there already, and is left as it is", dir.join(name).display());
        return Err(
            Fault::new(Exit::No, codes::NOT_NEW, message).hint("`onceflow init DIR` writes into another directory")
        );
    }
    for (name, content) in FILES {
        let path = dir.join(name);
        let above = path.parent().expect("a file is in a directory");
        fs::create_dir_all(above).map_err(Fault::unwritten("make", above))?;
        fs::write(&path, content).map_err(Fault::unwritten("write", &path))?;
    }
    let written: Vec<_> = FILES.iter().map(|(name, _)| dir.join(name).display().to_string()).collect();
    match printer.json {
        true => printer.data(&json!({"written": written})),
        false => printer.say(format!("wrote {}", written.join(", "))),
    }
    let go = if dir.as_os_str() == "." { String::new() } else { format!("cd {} && ", dir.display()) };
    printer.next(format!("{go}onceflow run flow.yaml"));
    Ok(Exit::Done)
}
