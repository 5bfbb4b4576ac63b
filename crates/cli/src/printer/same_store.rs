//! Adds the options that named the store to the commands that a message proposes, so that they work as they stand.

use crate::{
    args::{Cli, Common},
    location::without_password,
    verbs::ls::shell_word,
};
use clap::CommandFactory;

/// Verbs that need no store, or take the one that they are given in the same line.
const WITHOUT_STORE: [&str; 9] =
    ["check", "completions", "config", "error", "help", "import", "init", "man", "version"];

/// The words that follow the `onceflow run` of a run whose command line is not known; it named the store itself.
const AS_STARTED: &str = "run` it was started with";

/// Returns the options of this command line that named the store, each with a space in front. A password is left out.
pub(super) fn options(common: &Common, is_said: impl Fn(&str) -> bool) -> String {
    let store = common.store.as_ref().filter(|_| is_said("store")).map(|store| without_password(store));
    let profile = common.profile.clone().filter(|_| is_said("profile"));
    let option = |(name, value): (&str, Option<String>)| value.map(|value| format!(" {name} {}", shell_word(&value)));
    [("--store", store), ("--profile", profile)].into_iter().filter_map(option).collect()
}

/// The command has a verb of this name.
fn is_verb(word: &str) -> bool {
    Cli::command().get_subcommands().any(|verb| verb.get_name_and_visible_aliases().contains(&word))
}

/// Adds the options behind the verb of every command in a message that opens a store and does not name one.
pub(super) fn add(options: &str, message: &str) -> String {
    const COMMAND: &str = "onceflow ";
    if options.is_empty() {
        return message.to_owned();
    }
    let mut parts = message.split(COMMAND);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(COMMAND);
        let verb = part.find(|letter: char| !letter.is_ascii_lowercase()).map_or(part, |end| &part[..end]);
        let is_verb = is_verb(verb) && !WITHOUT_STORE.contains(&verb) && !part.starts_with(AS_STARTED);
        let arguments = part.split(['`', ';']).next().unwrap_or_default();
        let is_named = arguments.contains(" --store ");
        text.push_str(verb);
        text.push_str(if is_verb && !is_named { options } else { "" });
        text.push_str(&part[verb.len()..]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_open_a_store_get_its_options_and_others_do_not() {
        let cases = [
            ("onceflow watch k", "onceflow watch --store s k"),
            ("`onceflow ls` lists the runs", "`onceflow ls --store s` lists the runs"),
            (
                "onceflow logs k; then `onceflow run f.yaml` goes on",
                "onceflow logs --store s k; then `onceflow run --store s f.yaml` goes on",
            ),
            ("see `onceflow error OF0404`", "see `onceflow error OF0404`"),
            ("onceflow import run.tar --store DIR", "onceflow import run.tar --store DIR"),
            ("onceflow show k --store t; onceflow ls", "onceflow show k --store t; onceflow ls --store s"),
            ("the `onceflow run` it was started with goes on", "the `onceflow run` it was started with goes on"),
            ("the onceflow project", "the onceflow project"),
            ("the same command goes on", "the same command goes on"),
        ];
        for (message, expected) in cases {
            assert_eq!(add(" --store s", message), expected);
            assert_eq!(add("", message), message, "nothing named the store");
        }
    }
}
