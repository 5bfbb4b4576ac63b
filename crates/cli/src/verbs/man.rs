//! `onceflow man [DIR]`: manual pages, generated from the command line's definition.

use crate::{
    args::{Cli, tools},
    exit::Exit,
    fault::Fault,
    printer::Printer,
};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::json;
use std::{fs, path::Path};

/// Prints the first page, or writes all.
pub(crate) fn run(args: &tools::Man, printer: &Printer) -> Result<Exit, Fault> {
    let pages = pages();
    let Some(dir) = &args.dir else {
        let (name, first) = &pages[0];
        match printer.json {
            true => printer.data(&json!({"page": name, "text": first})),
            false => printer.exact(first),
        }
        return Ok(Exit::Done);
    };
    fs::create_dir_all(dir).map_err(Fault::unwritten("make", dir))?;
    for (name, text) in &pages {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Fault::unwritten("write", &path))?;
    }
    let written: Vec<_> = pages.iter().map(|(name, _)| dir.join(name).display().to_string()).collect();
    match printer.json {
        true => printer.data(&json!({"written": written})),
        false => printer.say(format!("wrote {} to {}", crate::words::count(written.len(), "page"), dir.display())),
    }
    printer.next(format!("man {}", Path::new(&written[0]).display()));
    Ok(Exit::Done)
}

/// Returns every page with its name, that of the command first.
fn pages() -> Vec<(String, String)> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let mut pages = vec![page(&command, "onceflow")];
    pages.extend(verbs.map(|verb| page(verb, &format!("onceflow-{}", verb.get_name()))));
    pages
}

fn page(command: &Command, name: &str) -> (String, String) {
    let command = command.clone().display_name(name.to_owned());
    let mut text = Vec::new();
    let man = Man::new(command).title(name.to_uppercase()).section("1").manual("onceflow");
    man.render(&mut text).expect("memory can be written");
    (format!("{name}.1"), String::from_utf8_lossy(&text).into_owned())
}
