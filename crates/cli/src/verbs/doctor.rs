//! `onceflow doctor`: diagnoses store, disk, shell and clock, and says how to fix each problem.

use crate::{
    args::tools,
    doctor::{Finding, Grade, disk, machine},
    event_log,
    exit::Exit,
    fault::Fault,
    inventory,
    location::StoreLocation,
    printer::{Ink, Printer},
    runs,
    session::Session,
    words,
};
use onceflow_store::backend::embedded::EmbeddedBackend;
use serde_json::json;
use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Instant,
};

/// A slower server is noticeable in every step.
const ANSWER_MS_MAX: u128 = 20;

/// Runs all checks.
pub(crate) async fn run(_: &tools::Doctor, location: StoreLocation, printer: &Printer) -> Result<Exit, Fault> {
    let below = nearest(&location.directory);
    let mut findings = Vec::new();
    findings.extend(owner(&location));
    let (store, worst) = store(location.clone()).await;
    findings.extend(store);
    findings.extend(left(&location));
    findings.push(disk::room("room", &below));
    findings.push(disk::sync(&below));
    findings.push(disk::room("tmp", &std::env::temp_dir()));
    findings.push(machine::shell());
    findings.push(machine::clock(&below));
    findings.extend(machine::limits());
    let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
    let (failed, warned) = (count(Grade::Fail), count(Grade::Warn));
    if printer.json {
        let all: Vec<_> = findings.iter().map(Finding::to_json).collect();
        printer.pretty(&json!({"ok": failed == 0, "failed": failed, "warned": warned, "checks": all}));
    } else {
        printer.text(text(&findings, printer));
    }
    printer.next(match (failed, warned) {
        (0, 0) => String::from("all is well"),
        (0, warned) => format!("all works; {}", words::count(warned, "warning")),
        (failed, _) => format!("fix {}", words::count(failed, "problem")),
    });
    Ok(if failed == 0 { Exit::Done } else { worst.unwrap_or(Exit::No) })
}

fn text(findings: &[Finding], printer: &Printer) -> String {
    let printer = printer.for_stdout(true);
    let mut text = String::new();
    for Finding { check, grade, message, fix } in findings {
        let ink = match grade {
            Grade::Ok => Ink::Green,
            Grade::Warn => Ink::Yellow,
            Grade::Fail => Ink::Red,
        };
        text.push_str(&format!("{}  {check:<7} {message}\n", printer.ink(ink, &format!("{:<4}", grade.word()))));
        if let Some(fix) = fix {
            text.push_str(&format!("              fix: {fix}\n"));
        }
    }
    text
}

/// Returns the nearest existing directory upwards: where a store would be made.
fn nearest(directory: &Path) -> PathBuf {
    directory.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Checks that the directory belongs to this user.
fn owner(location: &StoreLocation) -> Option<Finding> {
    if !location.is_there || location.server.is_some() {
        return None;
    }
    let ours = rustix::process::geteuid().as_raw();
    let theirs = location.directory.metadata().ok()?.uid();
    (theirs != ours).then(|| {
        let message = format!("{} belongs to user {theirs}, and we are user {ours}", location.directory.display());
        Finding::warn("owner", message, "use a store of your own (`--store DIR`), or share one on a server")
    })
}

/// Checks for unfinished uploads of large values: of processes that still store them, or were killed.
fn left(location: &StoreLocation) -> Option<Finding> {
    let unfinished = inventory::of(location).unfinished;
    (unfinished > 0).then(|| {
        let message = format!("{} are being stored, or were when a process was killed", words::bytes(unfinished));
        Finding::warn("left", message, "`onceflow reclaim` removes what the dead have left")
    })
}

/// Checks that the store opens and answers; returns the exit code if it does not.
async fn store(location: StoreLocation) -> (Vec<Finding>, Option<Exit>) {
    let check = if location.server.is_some() { "server" } else { "store" };
    if !location.is_there {
        let message = format!("there is none yet; `onceflow run` makes one at {location}");
        return (vec![Finding::ok(check, message)], None);
    }
    let shown = location.to_string();
    let accepted = location.server.as_ref().is_some_and(|server| server.url().contains("accept="));
    let backend = EmbeddedBackend::found_in(&location.directory).ok().flatten().unwrap_or_default();
    match look(location).await {
        Ok(StoreProbe { runs, interrupted, ms, clock }) => {
            let kind = match check {
                "store" => format!("{}, format {}", backend.scheme(), backend.format()),
                _ if accepted => String::from("the risks in its URL are accepted"),
                _ => String::from("its settings are safe"),
            };
            let message = format!("{shown} opens: {kind}, {}, answers in {ms} ms", words::count(runs, "run"));
            let mut found = vec![match ms > ANSWER_MS_MAX && check == "server" {
                true => Finding::warn(check, message, "move workers nearer to the server: every step asks it"),
                false => Finding::ok(check, message),
            }];
            found.extend(clock);
            if interrupted > 0 {
                let message = format!("{} to be gone on with", words::count(interrupted, "run"));
                found.push(Finding::ok("runs", message));
            }
            (found, None)
        }
        Err(fault) => {
            let code = fault.code.map_or(String::new(), |code| format!(" (`onceflow error {code}`)"));
            let fix = fault.hint.clone().unwrap_or_else(|| String::from("see the message"));
            (vec![Finding::fail(check, fault.message.clone(), format!("{fix}{code}"))], Some(fault.exit))
        }
    }
}

/// Facts about an open store.
struct StoreProbe {
    runs: usize,
    /// Runs that were interrupted and can be resumed.
    interrupted: usize,
    /// The response time of the store, in milliseconds.
    ms: u128,
    /// The comparison of a server's clock with ours.
    clock: Option<Finding>,
}

async fn look(location: StoreLocation) -> Result<StoreProbe, Fault> {
    let is_server = location.server.is_some();
    let session = Session::open(location).await?;
    let engine = session.idle().await?;
    let begun = Instant::now();
    let one = engine.runs(None, 1).await;
    let took = begun.elapsed().as_millis();
    one?;
    let all = runs::all(&engine).await?;
    let interrupted = all.iter().filter(|run| !run.status.is_at_rest()).count();
    let clock = match is_server {
        true => Some(machine::server_clock(session.store.records().now().await?.as_ms(), event_log::now_ms())),
        false => None,
    };
    engine.stop();
    session.close().await?;
    Ok(StoreProbe { runs: all.len(), interrupted, ms: took, clock })
}
