//! Diagnoses the machine and the store's directory by trying: every problem found comes with a fix.
//!
//! | module | what it looks at |
//! |---|---|
//! | `disk` | whether what is synced is on a disk, how fast, how much room there is |
//! | `machine` | the shell, the clock, limits of the system |

pub(crate) mod disk;
pub(crate) mod machine;

use serde_json::{Value, json};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) grade: Grade,
    pub(crate) message: String,
    pub(crate) fix: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    Ok,
    Warn,
    Fail,
}

impl Grade {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Fail => "fail",
        }
    }
}

impl Finding {
    pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Finding { check, grade: Grade::Ok, message: message.into(), fix: None }
    }

    pub(crate) fn warn(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { check, grade: Grade::Warn, message: message.into(), fix: Some(fix.into()) }
    }

    pub(crate) fn fail(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { check, grade: Grade::Fail, message: message.into(), fix: Some(fix.into()) }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"check": self.check, "status": self.grade.word(), "message": self.message, "fix": self.fix})
    }
}
