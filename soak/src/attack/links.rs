//! Steps that put links, pipes and other people's files where the engine expects its own. Whatever they do, a directory
//! outside, full of canaries, stays as it was, and no command hangs.

use crate::{Deadline, Findings, bed::Bed};
use onceflow_store::testing::random::Random;
use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Stdio, time::Duration};

/// Name and script of each trick; `$T` is the directory with the canaries. Every trick leaves some output behind where it can.
const TRICKS: [(&str, &str); 12] = [
    ("moves its work directory away and links it", "d=$PWD; cd /; mv \"$d\" \"$d.x\"; ln -s \"$T\" \"$d\""),
    ("replaces its work directory by a link", "d=$PWD; cd /; rm -rf \"$d\"; ln -s \"$T\" \"$d\""),
    ("links its inputs' directory", "rm -rf in; ln -s \"$T\" in; echo x > o"),
    ("links its temporary directory", "rm -rf .tmp; ln -s \"$T\" .tmp; echo x > o"),
    ("links an output to a file outside", "ln -s \"$T/canary\" o"),
    ("hard-links an output to a file outside", "ln \"$T/canary\" o"),
    ("links a directory on the way to an output", "ln -s \"$T\" sub; ln -s sub/canary o"),
    (
        "leaves a link to a directory outside",
        "echo x > o; ln -s \"$T\" left; mkdir -p deep/er; ln -s \"$T\" deep/er/link",
    ),
    ("links the parent of its work directory", "d=$(dirname \"$PWD\"); cd /; mv \"$d\" \"$d.x\"; ln -s \"$T\" \"$d\""),
    ("leaves a pipe for an output", "mkfifo o"),
    ("leaves a pipe beside its output", "mkfifo p; echo x > o"),
    ("makes its directory unreadable", "echo x > o; mkdir shut; echo y > shut/y; chmod 000 shut"),
];

/// How long a command may take with a hostile step before it counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(30);

pub(crate) fn attack(bed: &Bed, deadline: Deadline, random: &mut Random) -> anyhow::Result<Findings> {
    let mut found = Findings::default();
    // The first round tries every trick once, in a fixed order; later rounds draw.
    for round in 0.. {
        if round >= TRICKS.len() && deadline.is_over() {
            break;
        }
        let trick = TRICKS.get(round).unwrap_or_else(|| random.pick(&TRICKS));
        let target = fill(bed, &format!("outside{round}"))?;
        let before = look(&target)?;
        let flow = format!(
            "flow: tricks\nenv: {{ T: {:?} }}\ninputs: {{ given: file }}\nsteps:\n  trick:\n    run: |\n      {}\n    in: {{ given: inputs.given }}\n    out: {{ o: file }}\n  last:\n    run: echo done\n    after: [trick]\noutputs: {{ o: trick.o }}\n",
            target.display().to_string(),
            trick.1,
        );
        bed.write("tricks.yaml", flow)?;
        bed.write("given.txt", format!("round {round}"))?;
        // Twice, so that a directory that was kept for reuse is met again.
        for _ in 0..2 {
            if !ends(bed, &["run", "tricks.yaml", "-i", "given=given.txt", "--store", "st", "-q"])? {
                found.wrong.push(format!("a step that {} makes the command hang", trick.0));
            }
            found.count("runs", 1);
        }
        if look(&target)? != before {
            found.wrong.push(format!("a step that {} changed what is outside", trick.0));
        }
        if !ends(bed, &["reclaim", "--store", "st", "-q"])? {
            found.wrong.push(format!("after a step that {} reclaim hangs", trick.0));
        }
        if look(&target)? != before {
            found.wrong.push(format!("after a step that {} reclaim changed what is outside", trick.0));
        }
    }
    found.count("tricks", TRICKS.len() as u64);
    Ok(found)
}

/// A directory outside of every work directory, with canaries in it.
fn fill(bed: &Bed, name: &str) -> anyhow::Result<std::path::PathBuf> {
    for file in ["canary", "o", "given.txt", "deep/canary"] {
        bed.write(&format!("{name}/{file}"), format!("{file} is alive"))?;
    }
    Ok(bed.path(name))
}

/// Names, contents, inodes and modes of all that is in a directory.
fn look(dir: &Path) -> anyhow::Result<Vec<(String, Vec<u8>, u64, u32)>> {
    let mut seen = vec![];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (meta, name) = (fs::symlink_metadata(entry.path())?, entry.file_name().to_string_lossy().into_owned());
        if meta.is_dir() {
            seen.extend(look(&entry.path())?.into_iter().map(|(inner, a, b, c)| (format!("{name}/{inner}"), a, b, c)));
        }
        let content = if meta.is_file() { fs::read(entry.path())? } else { vec![] };
        seen.push((name, content, meta.ino(), meta.mode()));
    }
    seen.sort();
    Ok(seen)
}

/// Runs a command; whether it came to its end in time. One that did not is killed. A step may fail, the flow may not be wrong.
fn ends(bed: &Bed, args: &[&str]) -> anyhow::Result<bool> {
    let mut child = bed.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let late = Deadline::after(HANGS_AFTER);
    loop {
        if let Some(status) = child.try_wait()? {
            anyhow::ensure!(
                ![2, 4].contains(&status.code().unwrap_or(0)),
                "the command does not take its flow: {args:?}"
            );
            return Ok(true);
        }
        if late.is_over() {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        crate::bed::pause(10);
    }
}
