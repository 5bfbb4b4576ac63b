//! `onceflow reference`: every verb and option in Markdown, generated from the command line's definition. The book has
//! it as a chapter.

use crate::{args::Cli, exit, exit::Exit, printer::Printer};
use clap::{Arg, ArgAction, Command, CommandFactory};
use serde_json::json;

/// Prints the reference.
pub(crate) fn run(printer: &Printer) -> Exit {
    let text = text();
    match printer.json {
        true => printer.data(&json!({ "markdown": text })),
        false => printer.text(text),
    }
    Exit::Done
}

/// Makes the whole text.
fn text() -> String {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut text = String::from("# CLI reference\n\n<!-- Made by `onceflow reference`. -->\n\n");
    text.push_str(&format!("{}\n\n", about(&command)));
    text.push_str("| verb | does |\n|---|---|\n");
    let verbs: Vec<_> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    for verb in &verbs {
        text.push_str(&format!("| [`{0}`](#onceflow-{0}) | {1} |\n", verb.get_name(), cell(&about(verb))));
    }
    text.push_str("\n## For every verb\n\n");
    text.push_str(&table(command.get_arguments().filter(|arg| arg.is_global_set())));
    for verb in verbs {
        text.push_str(&of_verb(verb));
    }
    text.push_str("\n## Exit codes\n\n| code | means |\n|---|---|\n");
    for (code, means) in exit::TABLE {
        text.push_str(&format!("| {} | {means} |\n", code as u8));
    }
    text
}

fn of_verb(verb: &Command) -> String {
    let mut text = format!("\n## onceflow {}\n\n{}\n\n", verb.get_name(), sentence(&about(verb)));
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).trim().to_owned();
    text.push_str(&format!("```text\n{usage}\n```\n\n"));
    let others: Vec<_> = verb.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !others.is_empty() {
        text.push_str(&format!("Also called {}.\n\n", others.join(", ")));
    }
    let shown = verb.get_arguments().filter(|arg| !arg.is_global_set());
    text.push_str(&table(shown));
    text
}

fn about(command: &Command) -> String {
    command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default()
}

fn sentence(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

/// Makes a table of arguments: their purpose, and their defaults.
fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let hidden = |arg: &&Arg| arg.is_hide_set() || matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpLong);
    let rows: Vec<_> = args.filter(|arg| !hidden(arg)).map(row).collect();
    if rows.is_empty() { String::new() } else { format!("| option | |\n|---|---|\n{}", rows.concat()) }
}

fn row(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let takes = arg.get_action().takes_values();
    let value = if takes { values.join(" ") } else { String::new() };
    let named = arg.get_short().map(|short| format!("-{short}")).into_iter();
    let named: Vec<_> = named.chain(arg.get_long().map(|long| format!("--{long}"))).collect();
    let name = match (named.is_empty(), value.is_empty()) {
        (true, _) => value,
        (false, true) => named.join(", "),
        (false, false) => format!("{} {value}", named.join(", ")),
    };
    let mut help = vec![sentence(&arg.get_help().map(ToString::to_string).unwrap_or_default())];
    let words: Vec<_> = arg.get_possible_values().iter().map(|word| format!("`{}`", word.get_name())).collect();
    if takes && !words.is_empty() {
        help.push(format!("One of {}.", words.join(", ")));
    }
    let defaults = arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    let defaults: Vec<_> = defaults.collect();
    if takes && !defaults.is_empty() {
        help.push(format!("Default: {}.", defaults.join(", ")));
    }
    if let Some(variable) = arg.get_env() {
        help.push(format!("Environment: `{}`.", variable.to_string_lossy()));
    }
    format!("| `{}` | {} |\n", cell(&name), cell(&help.join(" ")))
}

/// Escapes a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', r"\|").replace('\n', " ").replace('<', "&lt;")
}
