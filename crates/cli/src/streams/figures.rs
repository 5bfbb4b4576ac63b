//! The counts of a stream's stages: as a table for people, as JSON, and as text for Prometheus.

use crate::words;
use onceflow_stream::{Counts, EventTime, StageStatus, StreamPhase, StreamStatus};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Returns a stream and its stages as JSON.
pub(super) fn json(name: &str, status: &StreamStatus) -> Value {
    let stages: Vec<Value> = status.stages.iter().map(stage_json).collect();
    let phase = phase(status.phase);
    json!({"stream": name, "phase": phase, "ended": status.has_ended, "workers": status.workers, "stages": stages})
}

/// Returns the word for a phase.
pub(super) fn phase(phase: StreamPhase) -> &'static str {
    match phase {
        StreamPhase::Running => "running",
        StreamPhase::Pausing => "pausing",
        StreamPhase::Paused => "paused",
        StreamPhase::Draining => "draining",
        StreamPhase::Cancelled => "cancelled",
        StreamPhase::Ended => "ended",
    }
}

fn stage_json(stage: &StageStatus) -> Value {
    let Counts { records_in, records_out, duplicates, remnants, client_duplicates, client_remnants, .. } = stage.counts;
    let Counts { late, skipped, lookups, false_positives, lookups_saved, bundles, bundle_bytes, .. } = stage.counts;
    json!({
        "stage": stage.name, "partitions": stage.partitions, "ended": stage.ended,
        "watermark_ms": moment(stage.watermark).map(|time| time.0), "lag_ms": stage.lag_ms,
        "system_lag_ms": stage.system_lag_ms,
        "records_in": records_in, "records_out": records_out, "duplicates": duplicates, "remnants": remnants,
        "client_duplicates": client_duplicates, "client_remnants": client_remnants, "late": late, "skipped": skipped,
        "lookups": lookups, "false_positives": false_positives, "lookups_saved": lookups_saved,
        "catalog_intervals": stage.catalog.intervals, "catalog_client_ids": stage.catalog.client_ids,
        "bundles": bundles, "bundle_bytes": bundle_bytes, "commit_ms_mean": commit_ms(&stage.counts),
    })
}

/// The mean time of a commit until it is durable; `None` before one was timed.
fn commit_ms(counts: &Counts) -> Option<f64> {
    (counts.commits_timed > 0).then(|| counts.commit_ms as f64 / counts.commits_timed as f64)
}

/// Returns the watermark if it is a time: neither the initial one, which promises nothing, nor the end of the stream.
fn moment(watermark: EventTime) -> Option<EventTime> {
    (watermark != EventTime::MIN && watermark != EventTime::MAX).then_some(watermark)
}

fn watermark(stage: &StageStatus) -> String {
    match moment(stage.watermark) {
        Some(EventTime(ms)) => match jiff::Timestamp::from_millisecond(ms) {
            Ok(time) => time.to_string(),
            Err(_) => format!("{ms} ms"),
        },
        None if stage.watermark == EventTime::MAX => String::from("end"),
        None => String::from("-"),
    }
}

/// Returns the stages as lines of a table; with the counts of an earlier look and the milliseconds since, it has the
/// records per second between the two. Where everything has ended, nothing waits and nothing is committed any more.
pub(super) fn table(status: &StreamStatus, before: Option<(&[StageStatus], u64)>) -> Vec<String> {
    let mut titles = vec!["in", "out", "copies", "remnants", "late", "skipped", "watermark", "lag"];
    let dash = || String::from("-");
    let row = |(at, stage): (usize, &StageStatus)| {
        let counts = &stage.counts;
        let mut row = vec![
            counts.records_in.to_string(),
            counts.records_out.to_string(),
            (counts.duplicates + counts.client_duplicates).to_string(),
            (counts.remnants + counts.client_remnants).to_string(),
            counts.late.to_string(),
            counts.skipped.to_string(),
            watermark(stage),
            stage.lag_ms.map_or_else(dash, |ms| words::duration(ms.unsigned_abs())),
        ];
        if !status.has_ended {
            row.push(stage.system_lag_ms.map_or_else(dash, words::duration));
            row.push(commit_ms(counts).map_or_else(dash, |ms| format!("{ms:.1} ms")));
        }
        if let Some((earlier, ms)) = before {
            let earlier = earlier.get(at).map_or(0, |stage| stage.counts.records_in);
            row.insert(1, (counts.records_in.saturating_sub(earlier) * 1000 / ms.max(1)).to_string());
        }
        row.push(stage.name.clone());
        row
    };
    if before.is_some() {
        titles.insert(1, "in/s");
    }
    if !status.has_ended {
        titles.extend(["waits", "commit"]);
    }
    titles.push("stage");
    let titles = titles.into_iter().map(String::from).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(status.stages.iter().enumerate().map(row)).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let line = |row: &Vec<String>| {
        let (stage, numbers) = row.split_last().expect("a row ends with its stage");
        let cells = numbers.iter().enumerate().map(|(at, cell)| format!("{cell:>width$}", width = width(at)));
        format!("  {}  {stage}", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
}

/// A figure of a stage for Prometheus: its name, its kind, a description, and its value, if there is one.
type Figure = (&'static str, &'static str, &'static str, fn(&StageStatus) -> Option<f64>);

const FIGURES: &[Figure] = &[
    ("records_in_total", "counter", "Records that were processed.", |s| Some(s.counts.records_in as f64)),
    ("records_out_total", "counter", "Records that were sent on.", |s| Some(s.counts.records_out as f64)),
    ("duplicates_total", "counter", "Copies between stages that were dropped.", |s| Some(s.counts.duplicates as f64)),
    ("remnants_total", "counter", "Copies between stages whose id was reclaimed.", |s| Some(s.counts.remnants as f64)),
    ("client_duplicates_total", "counter", "Records dropped because their client's id was seen.", |s| {
        Some(s.counts.client_duplicates as f64)
    }),
    ("client_remnants_total", "counter", "Records older than the horizon of their clients' ids.", |s| {
        Some(s.counts.client_remnants as f64)
    }),
    ("late_total", "counter", "Records that came after their window had expired.", |s| Some(s.counts.late as f64)),
    ("skipped_total", "counter", "Records that could not be read or computed.", |s| Some(s.counts.skipped as f64)),
    ("filter_hits_total", "counter", "Ids for which a filter answered maybe.", |s| Some(s.counts.lookups as f64)),
    ("filter_false_positives_total", "counter", "Filter hits that were wrong.", |s| {
        Some(s.counts.false_positives as f64)
    }),
    ("filter_lookups_saved_total", "counter", "Ids that all filters called new.", |s| {
        Some(s.counts.lookups_saved as f64)
    }),
    ("bundles_total", "counter", "Bundles that were committed.", |s| Some(s.counts.bundles as f64)),
    ("bundle_bytes_total", "counter", "Bytes of the records that bundles made.", |s| {
        Some(s.counts.bundle_bytes as f64)
    }),
    ("commits_timed_total", "counter", "Commits that were timed.", |s| Some(s.counts.commits_timed as f64)),
    ("commit_seconds_total", "counter", "Time of timed commits until they were durable.", |s| {
        Some(s.counts.commit_ms as f64 / 1e3)
    }),
    ("catalog_intervals", "gauge", "Intervals of ids between stages in the catalog.", |s| {
        Some(s.catalog.intervals as f64)
    }),
    ("catalog_client_ids", "gauge", "Ids of clients in the catalog.", |s| Some(s.catalog.client_ids as f64)),
    ("watermark_seconds", "gauge", "The event-time watermark.", |s| {
        moment(s.watermark).map(|time| time.0 as f64 / 1e3)
    }),
    ("watermark_lag_seconds", "gauge", "How far the watermark is behind the furthest of the stream.", |s| {
        s.lag_ms.map(|ms| ms as f64 / 1e3)
    }),
    ("system_lag_seconds", "gauge", "How long the oldest input that is not consumed has waited.", |s| {
        s.system_lag_ms.map(|ms| ms as f64 / 1e3)
    }),
    ("partitions", "gauge", "Partitions of the stage.", |s| Some(f64::from(s.partitions))),
    ("partitions_ended", "gauge", "Partitions that have ended.", |s| Some(f64::from(s.ended))),
];

/// Returns streams as text in the format that Prometheus reads.
pub(super) fn prometheus(streams: &[(String, StreamStatus)]) -> String {
    let mut text = String::new();
    let head = |name: &str, kind: &str, help: &str| {
        format!("# HELP onceflow_stream_{name} {help}\n# TYPE onceflow_stream_{name} {kind}\n")
    };
    let mut add = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("memory takes it");
    add(format_args!("{}", head("workers", "gauge", "Workers that live.")));
    for (name, status) in streams {
        add(format_args!("onceflow_stream_workers{{stream=\"{}\"}} {}\n", label(name), status.workers));
    }
    add(format_args!("{}", head("ended", "gauge", "1 if everything has ended and is written.")));
    for (name, status) in streams {
        add(format_args!("onceflow_stream_ended{{stream=\"{}\"}} {}\n", label(name), u8::from(status.has_ended)));
    }
    add(format_args!("{}", head("paused", "gauge", "1 if it is paused.")));
    for (name, status) in streams {
        let is_paused = matches!(status.phase, StreamPhase::Pausing | StreamPhase::Paused);
        add(format_args!("onceflow_stream_paused{{stream=\"{}\"}} {}\n", label(name), u8::from(is_paused)));
    }
    for (figure, kind, help, value) in FIGURES {
        add(format_args!("{}", head(figure, kind, help)));
        for (name, status) in streams {
            for stage in &status.stages {
                let Some(value) = value(stage) else { continue };
                let (name, stage) = (label(name), label(&stage.name));
                add(format_args!("onceflow_stream_{figure}{{stream=\"{name}\",stage=\"{stage}\"}} {value}\n"));
            }
        }
    }
    text
}

/// A label's value, as its format wants it.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_quotes_stay_one_label() {
        let (phase, stages) = (StreamPhase::Ended, Vec::new());
        let status = StreamStatus { phase, stages, has_ended: true, workers: 0 };
        let text = prometheus(&[(String::from("a\"b\\c\nd"), status)]);
        assert!(text.contains("onceflow_stream_ended{stream=\"a\\\"b\\\\c\\nd\"} 1\n"), "{text}");
    }
}
