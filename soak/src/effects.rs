//! What happened to the world, in a file to which every process appends whole lines: each effect as it happens, when each
//! process began, and when each kill began and had ended. So the order of the lines is the order of what happened.

use onceflow::prelude::*;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The file, for the tasks of this process.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Says where effects are written down, once per process.
pub(crate) fn use_file(path: PathBuf) {
    FILE.set(path).expect("a process has one file of effects");
}

/// An effect, as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Which line it was.
    pub(crate) line: usize,
    pub(crate) job: u64,
    pub(crate) verb: String,
    pub(crate) key: String,
    pub(crate) address: String,
    /// Whether the attempt fails on purpose behind it.
    pub(crate) fails: bool,
    /// The process that did it.
    pub(crate) process: u32,
}

/// Takes effect: appends a line, in one write, and tells the driver.
pub(crate) fn happen(step: &Step, job: u64, verb: &str, fails: bool) -> io::Result<()> {
    let file = FILE.get().expect("the worker has said where");
    let process = std::process::id();
    append(file, &format!("E {job} {verb} {} {} {} {process}", step.key(), step.address(), u8::from(fails)))?;
    tell("@");
    Ok(())
}

/// Tells the driver something; it may be gone.
pub(crate) fn tell(line: &str) {
    drop(io::stdout().lock().write_all(format!("{line}\n").as_bytes()));
}

pub(crate) fn append(file: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    // A reader must not see the first half of a line that crosses a page of the file.
    file.lock()?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// All that happened.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) effects: Vec<Effect>,
    /// Lines between which a process was killed.
    pub(crate) kills: Vec<(usize, usize)>,
    /// Processes, and the lines at which they began.
    pub(crate) begun: Vec<(u32, usize)>,
}

impl Story {
    /// Reads the file; the lines of one job only, if one is named.
    pub(crate) fn read(file: &Path, job: Option<u64>) -> anyhow::Result<Story> {
        let mut story = Story::default();
        let mut file = match File::open(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(story),
            file => file?,
        };
        file.lock_shared()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        for (line, text) in text.lines().enumerate() {
            let words: Vec<_> = text.split(' ').collect();
            match words[..] {
                ["E", number, verb, key, address, fails, process] => {
                    let (number, process) = (number.parse()?, process.parse()?);
                    if job.is_none_or(|job| job == number) {
                        let (verb, key, address) = (verb.to_owned(), key.to_owned(), address.to_owned());
                        let fails = fails == "1";
                        story.effects.push(Effect { line, job: number, verb, key, address, fails, process });
                    }
                }
                ["W", process] => story.begun.push((process.parse()?, line)),
                ["k"] => story.kills.push((line, usize::MAX)),
                ["K"] => {
                    let open = story.kills.iter_mut().filter(|(_, end)| *end == usize::MAX);
                    open.for_each(|(_, end)| *end = line);
                }
                _ => anyhow::bail!("line {} of the effects is torn: {text:?}", line + 1),
            }
        }
        Ok(story)
    }

    /// Whether an effect that happened at these lines may have been in flight at a kill: one was under way between them, or
    /// the first, or the second, was among the first of a process that had survived one. What a survivor had taken is
    /// forgotten when the owner of the store dies, so another, or itself, may take it again; that shows within `soon` effects.
    pub(crate) fn was_in_flight(&self, from: &Effect, to: &Effect, soon: usize) -> bool {
        let between = self.kills.iter().any(|(begun, ended)| *begun < to.line && *ended > from.line);
        between || [from, to].iter().any(|effect| self.survived_just_now(effect, soon))
    }

    fn survived_just_now(&self, effect: &Effect, soon: usize) -> bool {
        let kill = self.kills.iter().rev().find(|(_, ended)| *ended < effect.line);
        let Some((kill_begun, kill_ended)) = kill else { return false };
        // The same number may have been another process before.
        let begun = self.begun.iter().rev().find(|(process, line)| *process == effect.process && *line < effect.line);
        let since =
            |other: &&Effect| other.process == effect.process && (*kill_ended..effect.line).contains(&other.line);
        begun.is_some_and(|(_, begun)| begun < kill_begun) && self.effects.iter().filter(since).count() < soon
    }
}
