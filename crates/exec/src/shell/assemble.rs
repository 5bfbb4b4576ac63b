//! Assembles the text of a command once values are known: variables replace the holes, and the shell never parses their
//! values.
//!
//! A short value is passed in the environment, from where a shell takes it as it is; a long one, or a long list, in a
//! file. The text depends on a value only through its number of words.

use super::{Dialect, Piece, Scanned, Unfit, Use, text_of, words_of};
use crate::value::PortValue;
use std::{collections::BTreeSet, fmt::Write, path::Path};

/// A command ready for a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assembled {
    pub(crate) text: String,
    /// Variables for the environment of the shell; the shell does not pass them on.
    pub(crate) env: Vec<(String, String)>,
    /// Files to be written into the directory for temporary files: name and content.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

/// The longest value that goes through the environment: the system bounds a variable at 128 KiB.
const ENV_VALUE_BYTES_MAX: usize = 16 * 1024;

/// All values that go through the environment: the system bounds arguments and environment at 2 MiB, often less.
const ENV_BYTES_MAX: usize = 64 * 1024;

/// The longest list that goes through the environment.
const ENV_LIST_MAX: usize = 16;

/// The longest list for a shell without arrays.
const POSIX_LIST_MAX: usize = 1_000;

/// Assembles the command. `values` are those of the template's parts; `temporary` is the path of the directory for
/// temporary files, in characters that need no quotes.
pub(crate) fn assemble(
    scanned: &Scanned,
    value_of: &dyn Fn(usize) -> PortValue,
    dialect: Dialect,
    (base, temporary): (&Path, &str),
) -> Result<Assembled, (usize, Unfit)> {
    let mut build = Build { dialect, temporary, done: Assembled::default(), set: String::new(), env_bytes: 0 };
    for piece in &scanned.pieces {
        match piece {
            Piece::Text(text) => build.done.text.push_str(text),
            Piece::Hole(_, Use::Nothing) => {}
            Piece::Hole(part, used) => {
                let name = format!("_onceflow_{part}");
                build.hole(&name, &value_of(*part), *used, base).map_err(|unfit| (*part, unfit))?;
            }
        }
    }
    Ok(build.finish())
}

struct Build<'a> {
    dialect: Dialect,
    temporary: &'a str,
    done: Assembled,
    /// Shell text that sets the variables, to run first.
    set: String,
    env_bytes: usize,
}

impl Build<'_> {
    fn hole(&mut self, name: &str, value: &PortValue, used: Use, base: &Path) -> Result<(), Unfit> {
        match used {
            Use::Nothing => {}
            Use::Text => {
                let text = text_of(value, base)?;
                self.set_one(name, text);
                self.put(format_args!("${{{name}}}"));
            }
            Use::Number { index } => {
                self.set_one(name, number(value)?.to_string());
                // The space keeps a minus sign before a negative number from becoming the operator `--`.
                let space = if index { "" } else { " " };
                self.put(format_args!("{space}${{{name}}}"));
            }
            Use::Words { alone } => {
                let words = words_of(value, base)?;
                match (<[String; 1]>::try_from(words), self.dialect) {
                    (Ok([word]), _) => {
                        self.set_one(name, word);
                        self.put(format_args!("\"${{{name}}}\""));
                    }
                    (Err(words), Dialect::Bash) => self.array(name, words),
                    (Err(words), Dialect::Posix) => self.several(name, words, alone)?,
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.done.text.write_fmt(text).expect("text can be written");
    }

    /// Puts a variable into the environment; returns the value if it is too long.
    fn set_env(&mut self, name: &str, value: String) -> Result<(), String> {
        assert!(name.starts_with("_onceflow_"), "variable {name} would replace one of the user's");
        let bytes = name.len() + value.len();
        if bytes > ENV_VALUE_BYTES_MAX || self.env_bytes + bytes > ENV_BYTES_MAX {
            return Err(value);
        }
        self.env_bytes += bytes;
        self.done.env.push((name.to_owned(), value));
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: String) {
        let Err(value) = self.set_env(name, value) else { return };
        let path = format!("{}/{name}", self.temporary);
        match self.dialect {
            Dialect::Bash => self.read_array(name, &[value]),
            Dialect::Posix => {
                // Command substitution drops trailing newlines; the letter after them keeps them.
                self.set.push_str(&format!("{name}=$(cat {path}; echo x); {name}=${{{name}%x}}; "));
                self.done.files.push((name.to_owned(), value.into_bytes()));
            }
        }
    }

    fn array(&mut self, name: &str, words: Vec<String>) {
        match words.len() {
            0 => {
                self.set.push_str(&format!("{name}=(); "));
                // Bash before 4.4 treats an empty array as unset.
                return self.put(format_args!("${{{name}[@]+\"${{{name}[@]}}\"}}"));
            }
            len if len <= ENV_LIST_MAX && words.iter().map(String::len).sum::<usize>() <= ENV_VALUE_BYTES_MAX => {
                let mut elements = String::new();
                for (at, word) in words.into_iter().enumerate() {
                    let element = format!("{name}_{at}");
                    self.set_one(&element, word);
                    elements.push_str(&format!("\"${{{element}}}\" "));
                }
                self.set.push_str(&format!("{name}=({elements}); "));
            }
            _ => self.read_array(name, &words),
        }
        self.put(format_args!("\"${{{name}[@]}}\""));
    }

    /// Sets an array from a file of its elements, each terminated by NUL.
    fn read_array(&mut self, name: &str, words: &[String]) {
        let mut content = Vec::with_capacity(words.iter().map(|word| word.len() + 1).sum());
        for word in words {
            content.extend_from_slice(word.as_bytes());
            content.push(0);
        }
        self.set.push_str(&format!("mapfile -d '' -t {name} <{}/{name}; ", self.temporary));
        self.done.files.push((name.to_owned(), content));
    }

    /// Passes several words to a shell that has no arrays.
    fn several(&mut self, name: &str, words: Vec<String>, alone: bool) -> Result<(), Unfit> {
        let len = words.len();
        if !alone {
            let why = format!("it is {len} values in the midst of a word, which only bash can do: `shell: bash`");
            return Err(Unfit(why));
        }
        if len > POSIX_LIST_MAX {
            return Err(Unfit(format!("it is {len} values; more than {POSIX_LIST_MAX} need bash: `shell: bash`")));
        }
        for (at, word) in words.into_iter().enumerate() {
            let element = format!("{name}_{at}");
            self.set_one(&element, word);
            self.put(format_args!("{}\"${{{element}}}\"", if at == 0 { "" } else { " " }));
        }
        Ok(())
    }

    /// Puts the variables in front, on the line where the text begins, so that line numbers of the shell match the
    /// user's.
    fn finish(mut self) -> Assembled {
        let names: Vec<_> = self.done.env.iter().map(|(name, _)| name.as_str()).collect();
        let passed: usize = self.done.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert_eq!(passed, self.env_bytes, "the environment is not what was counted: the shell might not start");
        let distinct: BTreeSet<_> =
            names.iter().copied().chain(self.done.files.iter().map(|it| it.0.as_str())).collect();
        let all = names.len() + self.done.files.len();
        assert_eq!(distinct.len(), all, "two values of a command are passed under one name");
        let hide = match (names.is_empty(), self.dialect) {
            (true, _) => String::new(),
            (false, Dialect::Bash) => format!("export -n {}; ", names.join(" ")),
            // Variables from the environment are exported; unsetting and setting them again removes the export.
            (false, Dialect::Posix) => {
                names.iter().map(|name| format!("_onceflow=${{{name}}}; unset {name}; {name}=$_onceflow; ")).collect()
            }
        };
        self.done.text = format!("{}{hide}{}", self.set, self.done.text);
        self.done
    }
}

/// Reads a number for arithmetic, where the shell would evaluate anything else as a program.
fn number(value: &PortValue) -> Result<i64, Unfit> {
    let wrong = || {
        let found = value.describe();
        Unfit(format!("only a whole number can be part of shell arithmetic or an index, but it is {found}"))
    };
    match value {
        PortValue::Int(number) => Ok(*number),
        PortValue::Bool(yes) => Ok(i64::from(*yes)),
        // Only canonical decimals are accepted: the shell would read a leading zero as octal.
        PortValue::Text(text) => match text.parse::<i64>() {
            Ok(number) if number.to_string() == *text => Ok(number),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}
