//! Parts that look at memory do so in a process of their own, where no other part's memory is counted. A child says what it found
//! as one JSON value on stdout.

use super::{loops, plan};
use anyhow::{Context, bail};
use serde_json::Value;
use std::process::{Command, Stdio};

/// The hidden verb that makes this program a child.
pub(crate) const CHILD: &str = "__kernel";

/// Starts a child and waits for what it found.
pub(super) fn run(arguments: &[&str]) -> anyhow::Result<Value> {
    let child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting a child")?;
    anyhow::ensure!(child.status.success(), "the child `{}` failed: {}", arguments.join(" "), child.status);
    serde_json::from_slice(&child.stdout).with_context(|| format!("what the child `{}` said", arguments.join(" ")))
}

/// Is the child.
pub(crate) fn be(arguments: &[String]) -> anyhow::Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let found = match arguments[..] {
        ["plan-fill", directory, n] => plan::fill(directory, n.parse()?)?,
        ["plan-explain", directory, n] => plan::explain(directory, n.parse()?)?,
        ["plan-core", n] => plan::core(n.parse()?),
        ["loop", directory, durability, n] => loops::count(directory, durability, n.parse()?)?,
        _ => bail!("a child is asked for what it cannot do: {arguments:?}"),
    };
    println!("{found}");
    Ok(())
}

/// Bytes of memory this process has now.
pub(super) fn resident_bytes() -> f64 {
    status_kib("VmRSS:") * 1024.0
}

/// The most bytes it had since [`forget_peak`].
pub(super) fn resident_bytes_peak() -> f64 {
    status_kib("VmHWM:") * 1024.0
}

/// From now on the peak is counted anew.
pub(super) fn forget_peak() {
    const PEAK: &str = "5";
    // Not allowed everywhere; then the peak is that of the whole process, which is more, not less.
    let _refused = std::fs::write("/proc/self/clear_refs", PEAK);
}

fn status_kib(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}
