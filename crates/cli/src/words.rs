//! Numbers, times and addresses as people read them.

use onceflow_core::{Digest, plan::Reason};
use onceflow_engine::task::Used;

/// Formats a duration: `0.3s`, `12s`, `3m 5s`, `2h 10m`, `4d 3h`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a duration exactly, as in a file: `0`, `90s`, `1h30m`, `7d`.
pub(crate) fn exact(ms: u64) -> String {
    const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let mut rest = ms;
    let mut text = String::new();
    for (unit, scale) in UNITS {
        if rest >= scale {
            text.push_str(&format!("{}{unit}", rest / scale));
            rest %= scale;
        }
    }
    if text.is_empty() { String::from("0") } else { text }
}

/// Formats how long ago something was.
pub(crate) fn ago(ms: u64) -> String {
    match ms / 1000 {
        0..=1 => String::from("just now"),
        s @ 2..=59 => format!("{s}s ago"),
        s @ 60..=3599 => format!("{}m ago", s / 60),
        s @ 3600..=86_399 => format!("{}h ago", s / 3600),
        s => format!("{}d ago", s / 86_400),
    }
}

/// Formats a count: `1 step`, `2 steps`.
pub(crate) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Formats a size: `512 B`, `1.5 MB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1000.0, 0);
    while value >= 999.95 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Returns a text of a line or two as it is; of a longer one the beginning, and its length.
pub(crate) fn clipped(text: &str) -> String {
    const SHOWN_MAX: usize = 400;
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} in all; --json has them)", &text[..end], bytes(text.len() as u64)),
    }
}

/// Formats the processor time and memory that were used.
pub(crate) fn used(used: Used) -> String {
    let peak = used.peak_bytes.map_or(String::new(), |peak| format!(", {} at most", bytes(peak)));
    format!("{} of processor time{peak}", duration(used.cpu_ms))
}

/// Returns a digest in hexadecimal.
pub(crate) fn hex(digest: &Digest) -> String {
    digest.to_string()
}

/// Returns an address as people write it: without the slash in front, and only with names of the flow file. Names of
/// flow files have no `-`; a helper that a step was lowered to is named by the step, `-`, and its purpose: `w-when`,
/// `w/-then`.
pub(crate) fn step(address: &str) -> String {
    let mut shown = String::with_capacity(address.len());
    for segment in address.split('/') {
        let name = segment.split('-').next().unwrap_or_default();
        if !name.is_empty() {
            shown.push_str(if shown.is_empty() { "" } else { "/" });
            shown.push_str(name);
        }
        // A segment without a name keeps the number of its element or iteration.
        if let (Some(at), true) = (segment.find(['[', '@']), segment.contains('-')) {
            shown.push_str(&segment[at..]);
        }
    }
    shown
}

/// Returns the step of the flow that an address belongs to: `/align[3]/sort` belongs to `align`.
pub(crate) fn top(address: &str) -> &str {
    let address = address.strip_prefix('/').unwrap_or(address);
    &address[..address.find(['/', '[', '@', '-']).unwrap_or(address.len())]
}

/// The address is of a helper that computes something for a step, such as whether the step runs at all, and that users
/// do not know as a step.
pub(crate) fn is_helper(address: &str) -> bool {
    let last = address.rsplit('/').next().unwrap_or_default();
    // `while` is reserved: no step of a flow file has this name.
    if last == "while" {
        return true;
    }
    match last.strip_prefix('-') {
        Some(arm) => arm.starts_with('-'),
        None => last.contains('-'),
    }
}

/// Returns a port as the flow names it: `inputs-reads` is `inputs.reads`.
pub(crate) fn port(name: &str) -> String {
    name.replace('-', ".")
}

/// Describes why a step runs or not.
pub(crate) fn reason(reason: &Reason) -> String {
    match reason {
        Reason::New => String::from("new"),
        Reason::NoValue => String::from("has no result yet"),
        Reason::CodeChanged { .. } => String::from("its code changed"),
        Reason::InputChanged { port: name } => format!("input {} changed", port(name)),
        Reason::SourceReruns { address } => format!("reads from {}", step(address)),
        Reason::Kept => String::from("kept"),
        Reason::NotNeeded => String::from("nothing needs it"),
        Reason::Damaged => String::from("its stored output is damaged"),
    }
}

/// Returns the known word that is nearest to an unknown one.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |other: &str| {
        let (a, b): (Vec<char>, Vec<char>) = (word.chars().collect(), other.chars().collect());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, left) in a.iter().enumerate() {
            let mut before = std::mem::replace(&mut row[0], i + 1);
            for (j, right) in b.iter().enumerate() {
                let cost = (before + usize::from(left != right)).min(row[j] + 1).min(row[j + 1] + 1);
                before = std::mem::replace(&mut row[j + 1], cost);
            }
        }
        row[b.len()]
    };
    let near = known.map(|other| (distance(other), other)).min()?;
    (near.0 <= 1 + word.chars().count() / 4).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_with_their_units() {
        let shown = [(340, "0.3s"), (59_999, "59s"), (185_000, "3m 5s"), (7_800_000, "2h 10m"), (90_000_000, "1d 1h")];
        for (ms, text) in shown {
            assert_eq!(duration(ms), text);
        }
        assert_eq!([bytes(999), bytes(1500), bytes(999_950_000)], ["999 B", "1.5 kB", "1.0 GB"]);
    }

    #[test]
    fn addresses_and_ports_are_shown_as_the_flow_names_them() {
        let table = [
            ("/align", "align", "align", false),
            ("/align[3]/sort", "align[3]/sort", "align", false),
            ("/x@2/run", "x@2/run", "x", false),
            ("/w-when", "w", "w", true),
            ("/w/-then", "w", "w", false),
            ("/a[1]/--when-2", "a[1]", "a", true),
            ("/a[1]/-2/deep", "a[1]/deep", "a", false),
            ("/a[1]/-[2]", "a[1][2]", "a", false),
            ("/turn@2/while", "turn@2/while", "turn", true),
        ];
        for (address, shown, of, is_none) in table {
            assert_eq!((step(address).as_str(), top(address), is_helper(address)), (shown, of, is_none), "{address}");
        }
        assert_eq!(port("inputs-reads"), "inputs.reads");
    }

    #[test]
    fn a_word_that_is_nearly_right_is_found() {
        let known = ["align", "index", "variants"];
        assert_eq!(nearest("alihn", known.into_iter()), Some("align"));
        assert_eq!(nearest("varants", known.into_iter()), Some("variants"));
        assert_eq!(nearest("sort", known.into_iter()), None);
    }
}
