//! Checks the machine: its shells, its clock, its limits.

use super::Finding;
use rustix::process::{Resource, getrlimit};
use std::{
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

/// With fewer open files, concurrent steps soon run out of them.
const FILES_MIN: u64 = 1024;

/// The oldest bash whose `-euo pipefail` does what flow files rely on.
const BASH_MIN: (u32, u32) = (4, 4);

/// A clock before this has not been set: 2025-01-01.
const YEAR_MS: u128 = 1_735_689_600_000;

/// The most that the clock of a file system may differ from ours.
const APART: Duration = Duration::from_secs(5);

/// Checks for `sh`, and for a `bash` that is recent enough.
pub(crate) fn shell() -> Finding {
    const CHECK: &str = "shell";
    let sh = Command::new("sh").args(["-c", "exit 0"]).status().is_ok_and(|status| status.success());
    if !sh {
        return Finding::fail(CHECK, "there is no `sh`", "install a shell, or set PATH");
    }
    let asked = "printf '%s %s' \"${BASH_VERSINFO[0]}\" \"${BASH_VERSINFO[1]}\"";
    let Ok(said) = Command::new("bash").args(["--norc", "--noprofile", "-c", asked]).output() else {
        let fix = "install bash, or say `shell: sh` in flow files";
        return Finding::warn(
            CHECK,
            "there is no `bash`, which reads commands of flow files unless they say otherwise",
            fix,
        );
    };
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut numbers = said.split(' ').map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let message = format!("bash {}.{}, and sh", version.0, version.1);
    match version < BASH_MIN {
        true => Finding::warn(CHECK, format!("{message}: it is old"), "install bash 4.4 or later, or say `shell: sh`"),
        false => Finding::ok(CHECK, message),
    }
}

/// Checks that the clock is set, and compares it with that of a directory's file system.
pub(crate) fn clock(directory: &Path) -> Finding {
    const CHECK: &str = "clock";
    let now = SystemTime::now();
    let ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let fix = "set the clock, and keep it right (chrony, systemd-timesyncd): retention goes by it";
    if ms < YEAR_MS {
        return Finding::fail(CHECK, "the clock has not been set", fix);
    }
    let path = directory.join(format!(".doctor-clock-{}", std::process::id()));
    let made = std::fs::write(&path, b"").and_then(|()| path.metadata()?.modified());
    let _removed = std::fs::remove_file(&path);
    let apart = made.map(|made| made.duration_since(now).unwrap_or_else(|earlier| earlier.duration()));
    let i64_ms = i64::try_from(ms).unwrap_or(0);
    let shown = jiff::Timestamp::from_millisecond(i64_ms).map(|at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    let shown = shown.unwrap_or_default();
    match apart {
        Ok(apart) if apart > APART => {
            let by = crate::words::duration(u64::try_from(apart.as_millis()).unwrap_or(u64::MAX));
            Finding::warn(CHECK, format!("{shown}; files get a time that is {by} away"), fix)
        }
        _ => Finding::ok(CHECK, shown),
    }
}

/// The most that the clock of a server may differ from ours without a warning.
const SERVER_APART_MS: u64 = 30_000;

/// Compares the clock of a server with ours, both read at the same moment.
pub(crate) fn server_clock(theirs_ms: u64, ours_ms: u64) -> Finding {
    const CHECK: &str = "time";
    let apart = theirs_ms.abs_diff(ours_ms);
    let side = if theirs_ms < ours_ms { "behind" } else { "ahead of" };
    let by = crate::words::duration(apart);
    if apart <= SERVER_APART_MS {
        return Finding::ok(CHECK, "the server's clock and ours say the same");
    }
    let message = format!("the server's clock is {by} {side} ours");
    let fix = "set the one that is wrong; nothing depends on it but times that are shown: claims and retention go by the server's";
    Finding::warn(CHECK, message, fix)
}

/// Checks the limits on open files and processes.
pub(crate) fn limits() -> Vec<Finding> {
    const CHECK: &str = "limits";
    let files = getrlimit(Resource::Nofile);
    let told = |limit: Option<u64>| limit.map_or_else(|| String::from("any number of"), |limit| limit.to_string());
    let message = format!("{} open files", told(files.current));
    let open = match files.current {
        Some(limit) if limit < FILES_MIN => {
            let fix = format!(
                "`ulimit -n {}` before you start it",
                FILES_MIN.min(files.maximum.unwrap_or(FILES_MIN)).max(limit)
            );
            Finding::warn(CHECK, format!("{message}: few for steps side by side"), fix)
        }
        _ => Finding::ok(CHECK, message),
    };
    let processes = getrlimit(Resource::Nproc).current;
    let message = format!("{} processes", told(processes));
    let processes = match processes {
        Some(limit) if limit < 256 => {
            Finding::warn(CHECK, format!("{message}: few for steps side by side"), "`ulimit -u 4096`")
        }
        _ => Finding::ok(CHECK, message),
    };
    vec![open, processes]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    #[test]
    fn a_server_whose_clock_is_far_from_ours_is_told() {
        let now = 1_800_000_000_000;
        for (theirs, grade, word) in [
            (now, Grade::Ok, "the same"),
            (now + SERVER_APART_MS, Grade::Ok, "the same"),
            (now - SERVER_APART_MS, Grade::Ok, "the same"),
            (now + 90_000, Grade::Warn, "is 1m 30s ahead of ours"),
            (now - 90_000, Grade::Warn, "is 1m 30s behind ours"),
            (0, Grade::Warn, "behind ours"),
        ] {
            let found = server_clock(theirs, now);
            assert!(found.grade == grade && found.message.contains(word), "{theirs}: {found:?}");
            assert_eq!(found.fix.is_some(), grade != Grade::Ok);
        }
    }
}
