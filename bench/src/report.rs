//! What was found: a table for people, or one flat JSON object for programs.

use serde_json::{Map, Value, json};

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Shown beside the others; nothing is asked of it.
    None,
}

impl Target {
    fn met(self, figure: f64) -> Option<bool> {
        match self {
            Target::AtLeast(least) => Some(figure >= least),
            Target::AtMost(most) => Some(figure <= most),
            Target::None => None,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::AtLeast(least) => write!(f, "≥ {least}"),
            Target::AtMost(most) => write!(f, "≤ {most}"),
            Target::None => Ok(()),
        }
    }
}

/// A line of the table.
#[derive(Debug)]
pub struct Line {
    pub what: String,
    pub ours: String,
    pub theirs: String,
    pub figure: f64,
    pub target: Target,
}

/// The same with fusion on.
#[derive(Clone, Copy, Debug)]
pub struct Fused {
    pub figure: f64,
    pub target: Target,
}

/// What a bench found.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<(Line, Option<Fused>)>,
    keys: Map<String, Value>,
    detail: Map<String, Value>,
    notes: Vec<String>,
}

impl Report {
    /// A line of the table that is also a key of the JSON object.
    pub fn key(&mut self, name: &str, line: Line) {
        self.keys.insert(name.into(), json!(rounded(line.figure)));
        self.lines.push((line, None));
    }

    /// As [`Report::key`], with a second column: a figure with fusion on, which is a key of its own.
    pub fn key_fused(&mut self, name: &str, line: Line, fused_name: &str, fused: Fused) {
        self.keys.insert(name.into(), json!(rounded(line.figure)));
        self.keys.insert(fused_name.into(), json!(rounded(fused.figure)));
        self.lines.push((line, Some(fused)));
    }

    /// A line of the table only.
    pub fn line(&mut self, line: Line) {
        self.lines.push((line, None));
    }

    /// Raw figures and curves.
    pub fn detail(&mut self, name: &str, detail: Value) {
        self.detail.insert(name.into(), detail);
    }

    /// What a reader of the table should know.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// One JSON object on stdout.
    pub fn print_json(mut self) {
        self.detail.insert("notes".into(), json!(self.notes));
        self.keys.insert("detail".into(), Value::Object(self.detail));
        println!("{}", Value::Object(self.keys));
    }

    /// The table on stdout, the notes below it.
    pub fn print_table(self) {
        let with_fused = self.lines.iter().any(|(_, fused)| fused.is_some());
        let head = ["what", "ours", "theirs", "figure", "target", "met?"];
        let head =
            head.into_iter().chain(if with_fused { &["fused", "target", "met?"][..] } else { &[] }.iter().copied());
        let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
        rows.extend(self.lines.iter().map(|(line, fused)| {
            let mut row = vec![line.what.clone(), line.ours.clone(), line.theirs.clone()];
            row.extend(judged(line.figure, line.target));
            let fused = fused.map(|fused| judged(fused.figure, fused.target));
            row.extend(fused.unwrap_or_default().into_iter().take(if with_fused { 3 } else { 0 }));
            row
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        for note in &self.notes {
            println!("- {note}");
        }
    }
}

/// A figure, what it should be, and whether it is.
fn judged(figure: f64, target: Target) -> [String; 3] {
    let met = target.met(figure).map_or("", |met| if met { "yes" } else { "NO" });
    [format!("{}", rounded(figure)), target.to_string(), met.into()]
}

/// Three digits after the point say all that a clock can.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// Rounded, for `detail`.
pub fn figures(figures: &[f64]) -> Value {
    figures.iter().copied().map(rounded).collect()
}

/// A rate as people read it.
pub fn per_second(rate: f64) -> String {
    if rate >= 10_000.0 { format!("{:.1} k/s", rate / 1000.0) } else { format!("{rate:.0} /s") }
}
