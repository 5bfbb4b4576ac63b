//! Kills the command at random moments while it stores a large input and runs a step on it, again and again; in the end
//! nothing is left that nothing needs.

use crate::{
    Deadline, Findings,
    bed::{Bed, pause, said},
};
use onceflow_store::testing::random::Random;
use std::process::Stdio;

const INPUT_BYTES: usize = 24 << 20;

/// Bytes a store may take beyond its objects: the log and its snapshots.
const LOG_BYTES_MAX: u64 = 8 << 20;

const FLOW: &str = "flow: crashes
store_inputs: true
inputs: { big: file, salt: int }
steps:
  copy: { run: \"cat ${{ inputs.big }} > ${{ out.o }}; echo ${{ inputs.salt }} >> ${{ out.o }}\", out: { o: file } }
  size: { run: \"wc -c < ${{ copy.o }}\", out: { n: int } }
outputs: { n: size.n }
";

pub(crate) fn attack(bed: &Bed, deadline: Deadline, random: &mut Random) -> anyhow::Result<Findings> {
    let mut found = Findings::default();
    bed.write("crashes.yaml", FLOW)?;
    for round in 0.. {
        if round > 2 && deadline.is_over() {
            break;
        }
        let byte = u8::try_from(round % 251).expect("below 256");
        bed.write("big", vec![byte; INPUT_BYTES])?;
        let salt = format!("salt={round}");
        let args = ["run", "crashes.yaml", "-i", "big=big", "-i", &salt, "--store", "st", "-q"];
        for _ in 0..4 {
            let mut child = bed.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            pause(random.below(150) as u64);
            child.kill()?;
            child.wait()?;
            found.count("kills", 1);
        }
        let output = bed.run(&args)?;
        found.count("runs", 1);
        if !output.status.success() {
            found.wrong.push(format!("after kills the run failed: {}", said(&output)));
        }
    }
    let reclaimed = bed.run(&["reclaim", "--store", "st", "-q"])?;
    if !reclaimed.status.success() {
        found.wrong.push(format!("reclaim: {}", said(&reclaimed)));
    }
    let fsck = bed.run(&["fsck", "--at-rest", "--store", "st"])?;
    if !fsck.status.success() {
        found.wrong.push(format!("fsck --at-rest: {}", said(&fsck)));
    }
    // The result is a number; the input belongs to the finished run's record, and is there once.
    let (left, most) = (bed.bytes("st")?, INPUT_BYTES as u64 + LOG_BYTES_MAX);
    if left > most {
        found.wrong.push(format!("the store takes {left} bytes; at most {most} are needed"));
    }
    found.count("bytes left", left);
    Ok(found)
}
