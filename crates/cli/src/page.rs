//! The report of a run as one self-contained HTML file: no external scripts, no external pictures. Its small script
//! only hides rows.

mod logs;
mod parts;

use crate::{
    picture::{
        style::{self, escape},
        svg,
    },
    pictured::Pictured,
    timeline, words,
};
use jiff::Timestamp;
use serde_json::Value;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Inputs and outputs longer than this are cut.
const VALUE_LETTERS_MAX: usize = 4000;

/// Makes the whole file.
pub(crate) fn document(run: &Pictured) -> String {
    let scene = run.scene();
    let title = escape(&format!("{}: {}", run.run.key, run.status));
    let mut body = summary(run);
    body.push_str(&parts::failures(run));
    body.push_str(&values("Outputs", run.outputs.iter().map(|(name, value)| (name.as_str(), value))));
    if let Some(scene) = &scene {
        body.push_str(&section("graph", "Graph", &format!("<div class=\"wide\">{}</div>", svg::inline(scene))));
    }
    if !run.history.is_empty() {
        let picture = timeline::inline(&run.history, "when each step was at work");
        body.push_str(&section("timeline", "Timeline", &format!("<div class=\"wide\">{picture}</div>")));
    }
    body.push_str(&parts::steps(run, scene.as_ref()));
    body.push_str(&parts::attempts(run));
    let inputs = run.asked.as_ref().and_then(|asked| asked["inputs"].as_object());
    let inputs = inputs.into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    body.push_str(&values("Inputs", inputs));
    let made = format!("onceflow {}", env!("CARGO_PKG_VERSION"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"{made}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         <footer>made by {made}</footer>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        style::rules()
    )
}

/// The head of the page: the run and its status.
fn summary(run: &Pictured) -> String {
    let it = &run.run;
    let (most, spent) = run.history.work();
    let ended = it.ended.map(|ended| ended.as_ms());
    let last = ended.unwrap_or(run.history.last_ms);
    let mut facts = vec![
        ("flow", escape(&it.flow)),
        ("id", format!("<code>{}</code>", it.id)),
        ("started", moment(it.started.as_ms())),
    ];
    facts.extend(ended.map(|ended| ("ended", moment(ended))));
    if last > it.started.as_ms() {
        let idle = match run.history.idle_ms {
            0 => String::new(),
            idle => format!("; no process worked on it for {} of that", words::duration(idle)),
        };
        facts.push(("took", format!("{}{idle}", words::duration(last - it.started.as_ms()))));
    }
    if spent > 0 {
        facts.push(("time in steps", words::duration(spent)));
        facts.push(("at a time", format!("at most {}", words::count(most, "attempt"))));
    }
    facts.extend(run.history.used().map(|used| ("used", words::used(used))));
    if run.history.starts_ms.len() > 1 {
        facts.push(("resumed", words::count(run.history.starts_ms.len() - 1, "time")));
    }
    facts.extend((it.generation > 0).then(|| ("plan", format!("{}", it.generation + 1))));
    facts.push(("history", format!("kept {}", words::exact(it.history_ms))));
    let command = run.asked.as_ref().and_then(|asked| asked["command"].as_str());
    facts.extend(command.map(|command| ("command", format!("<code>{}</code>", escape(command)))));
    facts.push(("next", escape(&run.next)));
    let rows: String = facts.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
    let class = run.status.to_string().replace(' ', "-");
    format!(
        "<header>\n<h1>{} <span class=\"badge {class}\">{}</span></h1>\n<dl>\n{rows}</dl>\n</header>\n",
        escape(&it.key),
        escape(&run.status.to_string())
    )
}

fn moment(ms: u64) -> String {
    let shown = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let shown = shown.map_or_else(|| format!("{ms} ms"), |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    format!("<time>{shown}</time>")
}

fn section(id: &str, title: &str, inside: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{inside}\n</section>\n")
}

fn values<'a>(title: &str, all: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let row = |(name, value): (&str, &Value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        format!("<dt>{}</dt><dd><pre>{}</pre></dd>\n", escape(name), escape(&style::short(&text, VALUE_LETTERS_MAX)))
    };
    let rows: String = all.map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => section(&title.to_lowercase(), title, &format!("<dl>\n{rows}</dl>")),
    }
}
