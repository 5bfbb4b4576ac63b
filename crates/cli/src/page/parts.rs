//! The tables of a report: steps with their duration and usage, attempts, failures with the end of their logs.

use super::{logs, section};
use crate::{
    picture::{
        Scene,
        scene::{Box, is_step},
        style::escape,
    },
    pictured::Pictured,
    words,
};
use onceflow_engine::task::Used;
use std::collections::BTreeSet;

/// The most attempts that are listed.
const ATTEMPTS_MAX: usize = 2000;

/// The most failures that are shown.
const FAILURES_MAX: usize = 20;

/// Failures, each with the end of its log.
pub(super) fn failures(run: &Pictured) -> String {
    let mut inside = String::new();
    for failed in run.failures.iter().take(FAILURES_MAX) {
        let step = escape(&words::step(&failed.address));
        let attempt = if failed.attempt > 1 { format!(", attempt {}", failed.attempt) } else { String::new() };
        let causes: Vec<_> = failed.causes.iter().map(|cause| escape(cause)).collect();
        inside.push_str(&format!(
            "<div class=\"failure\">\n<h3>{step}{attempt}</h3>\n<pre>{}</pre>\n{}</div>\n",
            causes.join("\n"),
            log(run, &failed.address)
        ));
    }
    for step in &run.unknown {
        let shown = escape(&words::step(step));
        inside.push_str(&format!(
            "<div class=\"failure\">\n<h3>{shown}</h3>\n<p>Whether it took effect is not known: an operator must report its outcome.</p>\n{}</div>\n",
            log(run, step)
        ));
    }
    if run.failures.len() > FAILURES_MAX {
        inside.push_str(&format!("<p class=\"none\">and {} more</p>\n", run.failures.len() - FAILURES_MAX));
    }
    if inside.is_empty() { String::new() } else { section("failures", "Failures", &inside) }
}

fn log(run: &Pictured, address: &str) -> String {
    match logs::tail(run, address) {
        Some(text) => format!("<details open><summary>log</summary><pre>{}</pre></details>\n", escape(&text)),
        None => String::new(),
    }
}

/// Every step: its state and why, its duration, its reservation.
pub(super) fn steps(run: &Pictured, scene: Option<&Scene>) -> String {
    let Some(scene) = scene else {
        return section("steps", "Steps", "<p class=\"none\">The flow of this run is not kept any more.</p>");
    };
    let steps: Vec<&Box> = scene.boxes.iter().filter(|one| one.is_step() && !one.is_operation()).collect();
    let reserves = steps.iter().any(|one| one.reserves != (0, 0));
    let is_measured = steps.iter().any(|one| one.state.used.is_some());
    let reasons = !run.decided.is_empty();
    let mut head = String::from("<th>step</th><th>does</th><th>state</th>");
    head.push_str(if reasons { "<th>why</th>" } else { "" });
    head.push_str("<th class=\"n\">done</th><th class=\"n\">retries</th><th class=\"n\">time</th>");
    head.push_str(if is_measured { MEASURED } else { "" });
    head.push_str(if reserves { "<th class=\"n\">processors asked</th><th class=\"n\">memory asked</th>" } else { "" });
    let row = |one: &&Box| {
        let stand = &one.state;
        let id = one.id.trim_end_matches('.');
        let does = [one.repeats.word(), Some(one.word())].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let done = match stand.progress() {
            Some((settled, of)) => format!("{settled}/{of}"),
            None if stand.settled() > 0 => stand.settled().to_string(),
            None => String::new(),
        };
        let word = stand.state.word();
        let mut cells = format!("<td>{}</td><td>{}</td><td class=\"s-{word}\">{word}</td>", escape(id), escape(&does));
        if reasons {
            cells.push_str(&format!(
                "<td>{}</td>",
                run.decided.get(id).map_or(String::new(), |(_, why)| escape(&words::reason(why)))
            ));
        }
        let time = if stand.spent_ms > 0 { words::duration(stand.spent_ms) } else { String::new() };
        for cell in [done, above_zero(stand.retries), time] {
            cells.push_str(&format!("<td class=\"n\">{cell}</td>"));
        }
        let (milli, memory) = one.reserves;
        if is_measured {
            cells.push_str(&measured(stand.used, memory));
        }
        if reserves {
            let cpus = if milli > 0 { format!("{}", f64::from(milli) / 1000.0) } else { String::new() };
            let memory = if memory > 0 { words::bytes(memory) } else { String::new() };
            cells.push_str(&format!("<td class=\"n\">{cpus}</td><td class=\"n\">{memory}</td>"));
        }
        (word, cells)
    };
    let rows: Vec<_> = steps.iter().map(row).collect();
    section("steps", "Steps", &table(&head, &rows, ""))
}

/// The table heads of measured usage.
const MEASURED: &str = "<th class=\"n\">processor time</th><th class=\"n\">peak memory</th>";

/// Measured usage, in two cells. A peak above the memory that was asked for is marked.
fn measured(used: Option<Used>, asked_bytes: u64) -> String {
    let cpu = used.map_or(String::new(), |used| words::duration(used.cpu_ms));
    let peak = used.and_then(|used| used.peak_bytes);
    let is_over = asked_bytes > 0 && peak.is_some_and(|peak| peak > asked_bytes);
    let class = if is_over { "n over" } else { "n" };
    format!("<td class=\"n\">{cpu}</td><td class=\"{class}\">{}</td>", peak.map_or(String::new(), words::bytes))
}

/// Every attempt; only the longest ones where there are too many.
pub(super) fn attempts(run: &Pictured) -> String {
    let mut all: Vec<_> = run.history.all.iter().filter(|one| is_step(&one.address)).collect();
    let more = all.len().saturating_sub(ATTEMPTS_MAX);
    if more > 0 {
        all.sort_by_key(|one| std::cmp::Reverse(one.to_ms.saturating_sub(one.from_ms)));
        all.truncate(ATTEMPTS_MAX);
    }
    let is_measured = all.iter().any(|one| one.used.is_some());
    let zero = run.history.starts_ms.first().copied().unwrap_or_default();
    let row = |one: &&crate::history::Happened| {
        let word = one.how.word();
        let took = if one.attempt > 0 { words::duration(one.to_ms.saturating_sub(one.from_ms)) } else { String::new() };
        let mut cells = format!(
            "<td>{}</td><td class=\"s-{word}\">{word}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{took}</td>",
            escape(&words::step(&one.address)),
            above_zero(one.attempt as usize),
            words::duration(one.from_ms.saturating_sub(zero)),
        );
        if is_measured {
            cells.push_str(&measured(one.used, 0));
        }
        (word, cells)
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut head = String::from("<th>step</th><th>ended</th><th class=\"n\">attempt</th>");
    head.push_str("<th class=\"n\">began after</th><th class=\"n\">took</th>");
    head.push_str(if is_measured { MEASURED } else { "" });
    let note = if more > 0 {
        format!("<p class=\"none\">The {ATTEMPTS_MAX} longest; {more} more are not shown.</p>")
    } else {
        String::new()
    };
    section("attempts", "Attempts", &table(&head, &rows, &note))
}

fn above_zero(n: usize) -> String {
    if n > 0 { n.to_string() } else { String::new() }
}

/// A table whose rows can be filtered by a word and by their state.
fn table(head: &str, rows: &[(&str, String)], note: &str) -> String {
    let states: BTreeSet<_> = rows.iter().map(|(state, _)| *state).collect();
    let options: String = states.iter().map(|state| format!("<option>{state}</option>")).collect();
    let rows: String = rows.iter().map(|(state, cells)| format!("<tr data-state=\"{state}\">{cells}</tr>\n")).collect();
    format!(
        "<div class=\"filter\"><input type=\"search\" placeholder=\"filter\" aria-label=\"filter\">\
         <select aria-label=\"state\"><option value=\"\">all</option>{options}</select></div>\n\
         <div class=\"table\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n{note}"
    )
}
