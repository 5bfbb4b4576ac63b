//! `onceflow du [RUN]`: the disk usage of a store: by run, by purpose, and until when.

use crate::{
    args, event_log, exit::Exit, fault::Fault, housekeeping, inventory, location::StoreLocation, printer::Printer,
    runs, session::Session, verbs::ls::shell_word, words,
};
use onceflow_engine::{RunStatus, RunUsage, Summary, Usage, UsageKind, UsagePart};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The most parts of a run that are shown in a list of runs.
const PARTS_MAX: usize = 3;

/// Prints the disk usage.
pub(crate) async fn run(args: &args::Du, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let all = runs::all(&engine).await?;
    let only = match &args.run {
        Some(word) => Some(session.run(&engine, word).await?),
        None => None,
    };
    let usage = engine.usage().await?;
    let mut known = BTreeMap::new();
    for run in all {
        known.insert(run.id, run);
    }
    engine.stop();
    let of = |run: &RunUsage| RunDiskUsage {
        usage: run.clone(),
        run: known.get(&run.run).cloned(),
        disk: housekeeping::size(&session.location.run(run.run)),
    };
    let runs: Vec<_> =
        usage.runs.iter().filter(|run| only.as_ref().is_none_or(|only| only.id == run.run)).map(of).collect();
    let files = inventory::of(&session.location);
    session.close().await?;
    match (printer.json, &only) {
        (true, Some(_)) => printer.pretty(&to_json(&usage, &runs, true)),
        (true, None) => {
            let mut data = to_json(&usage, &runs, false);
            data["files"] = files.to_json();
            printer.pretty(&data);
        }
        (false, Some(_)) => printer.text(runs.iter().map(one).collect::<String>()),
        (false, None) => printer.text(format!("{}{}", table(&usage, &runs), files.text())),
    }
    printer.next(match &only {
        Some(run) => format!("onceflow show {}", shell_word(&run.key)),
        None if usage.free.values > 0 => String::from("onceflow reclaim"),
        None => String::from("onceflow du RUN says more of one"),
    });
    Ok(Exit::Done)
}

/// The disk usage of a run.
struct RunDiskUsage {
    usage: RunUsage,
    /// The summary of the run, if it still exists.
    run: Option<Summary>,
    /// Bytes of its directory.
    disk: u64,
}

impl RunDiskUsage {
    fn summary(&self) -> Option<&Summary> {
        self.run.as_ref()
    }

    fn status(&self) -> Option<RunStatus> {
        self.run.as_ref().map(|run| run.status)
    }
}

fn name(summary: Option<&Summary>, usage: &RunUsage) -> String {
    summary.map_or_else(|| format!("({} is gone)", usage.run), |run| run.key.clone())
}

/// Describes why a part is kept, and until when.
fn keeps(part: &UsagePart, summary: Option<&Summary>) -> String {
    let now = event_log::now_ms();
    let until = part.until.map(|until| {
        let left = until.as_ms().saturating_sub(now);
        if left == 0 { String::from("now due") } else { format!("for {} more", words::duration(left)) }
    });
    let for_how_long = until.unwrap_or_else(|| match summary {
        None => String::from("until it is reclaimed"),
        Some(run) if run.status.has_ended() => String::from("as long as its history"),
        Some(_) => String::from("until the run ends"),
    });
    match part.used {
        UsageKind::Input => match part.until {
            None => String::from("until the step that reads it has committed"),
            Some(_) => for_how_long,
        },
        UsageKind::Elements => String::from("until the list is made"),
        UsageKind::Undo => String::from("until the run ends"),
        UsageKind::Kept if part.until.is_none() => String::from("by --keep, beyond the end of the run"),
        _ => for_how_long,
    }
}

fn part_json(part: &UsagePart, summary: Option<&Summary>) -> Value {
    json!({
        "kind": part.used.name(), "of": part.of.as_deref().map(words::step), "values": part.weight.values,
        "bytes": part.weight.bytes, "referenced_bytes": part.weight.referenced, "linked_bytes": part.weight.linked,
        "until_ms": part.until.map(|until| until.as_ms()), "kept": keeps(part, summary),
    })
}

fn to_json(usage: &Usage, runs: &[RunDiskUsage], is_one: bool) -> Value {
    let run = |known: &RunDiskUsage| {
        let (RunDiskUsage { usage, disk, .. }, summary) = (known, known.summary());
        json!({
            "key": summary.map(|run| &run.key), "id": usage.run.to_string(),
            "status": known.status(), "values": usage.weight.values,
            "bytes": usage.weight.bytes, "referenced_bytes": usage.weight.referenced,
            "linked_bytes": usage.weight.linked, "directory_bytes": disk, "total_bytes": usage.weight.bytes + disk,
            "parts": usage.parts.iter().map(|part| part_json(part, summary)).collect::<Vec<_>>(),
        })
    };
    let weight = |weight: onceflow_engine::Weight| {
        json!({
            "values": weight.values, "bytes": weight.bytes, "referenced_bytes": weight.referenced,
            "linked_bytes": weight.linked,
        })
    };
    let runs: Vec<_> = runs.iter().map(run).collect();
    match is_one {
        true => json!({"runs": runs}),
        false => json!({
            "total": weight(usage.total), "free": weight(usage.free), "others": weight(usage.others), "runs": runs,
        }),
    }
}

fn one(known: &RunDiskUsage) -> String {
    let (RunDiskUsage { usage, disk, .. }, summary) = (known, known.summary());
    let mut text = format!("{}  {}\n", name(summary, usage), words::bytes(usage.weight.bytes + disk));
    for part in &usage.parts {
        let of = part.of.as_deref().map_or(String::new(), |of| format!(" {}", words::step(of)));
        let bytes = words::bytes(part.weight.bytes);
        let beside = beside(part.weight);
        text.push_str(&format!("{bytes:>10}  {}{of}  ({}){beside}\n", part.used.name(), keeps(part, summary)));
    }
    text.push_str(&format!("{:>10}  its directory: work and logs  (until its history ends)\n", words::bytes(*disk)));
    text
}

fn table(usage: &Usage, runs: &[RunDiskUsage]) -> String {
    let mut text = format!("{:>10}  {:>10}  {:<14}  RUN\n", "BYTES", "DIRECTORY", "STATUS");
    for known in runs {
        let RunDiskUsage { usage, disk, .. } = known;
        let status = known.status().map_or_else(|| String::from("-"), |status| status.to_string());
        let large = usage.parts.iter().take(PARTS_MAX).filter(|part| part.weight.bytes > 0);
        let large: Vec<_> =
            large.map(|part| format!("{} {}", words::bytes(part.weight.bytes), part.used.name())).collect();
        let (bytes, disk) = (words::bytes(usage.weight.bytes), words::bytes(*disk));
        let name = name(known.summary(), usage);
        text.push_str(&format!("{bytes:>10}  {disk:>10}  {status:<14}  {name}  ({})\n", large.join(", ")));
    }
    let Usage { others, free, total, .. } = usage;
    if others.values > 0 {
        text.push_str(&format!("{:>10}  held by no run\n", words::bytes(others.bytes)));
    }
    if free.values > 0 {
        let free = format!("{:>10}  held by nothing: goes when it is reclaimed\n", words::bytes(free.bytes));
        text.push_str(&free);
    }
    let values = words::count(usize::try_from(total.values).unwrap_or(usize::MAX), "value");
    text.push_str(&format!("{:>10}  in {values}; what runs share is counted once here\n", words::bytes(total.bytes)));
    if total.linked > 0 {
        let linked = words::bytes(total.linked);
        text.push_str(&format!("{linked:>10}  of that has other names outside of the store: shared with results\n"));
    }
    if total.referenced > 0 {
        let referenced = words::bytes(total.referenced);
        text.push_str(&format!("{referenced:>10}  by reference: input files that are not in the store\n"));
    }
    text
}

/// Describes how much a part shares with results, or only refers to.
fn beside(weight: onceflow_engine::Weight) -> String {
    let mut text = String::new();
    if weight.linked > 0 {
        text.push_str(&format!(", {} shared with results", words::bytes(weight.linked)));
    }
    if weight.referenced > 0 {
        text.push_str(&format!(", {} by reference", words::bytes(weight.referenced)));
    }
    text
}
