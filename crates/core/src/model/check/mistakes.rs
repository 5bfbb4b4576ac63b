//! The mistakes a flow can have: each kind with its code, its message, its address, and a hint.

use crate::model::{SourceLocation, Type};
use std::fmt;

/// Something wrong with a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The kind of mistake.
    pub what: MistakeKind,
    /// The address of the module, `/align/sort`, or of its port, `/align/sort:bam`.
    pub address: String,
    /// The place in the source file.
    pub origin: Option<SourceLocation>,
    /// How to correct it.
    pub hint: Option<String>,
}

/// All mistakes of a flow; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Mistake>);

impl std::error::Error for Errors {}

/// The role of a name in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRole {
    /// A flow.
    Flow,
    /// A module.
    Module,
    /// An arm of a choice.
    Arm,
    /// An input port.
    Input,
    /// An output port.
    Output,
}

/// The kinds of mistake. `of` and `at` are addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the sentences below say what the fields are")]
pub enum MistakeKind {
    UnknownFlow { flow: String },
    BadName { named: NameRole, name: String },
    Mismatch { port: String, of: String, takes: Type, from: String, gives: Type },
    DuplicateName { named: NameRole, name: String, of: String },
    UnknownModule { module: String, of: String },
    UnknownPort { named: NameRole, port: String, of: String },
    UnknownRequest { output: String },
    Unconnected { port: String, of: String },
    OutputUnconnected { port: String, of: String },
    ConnectedTwice { port: String, of: String },
    Cycle { modules: Vec<String> },
    CarriedUnknown { named: NameRole, port: String, of: String },
    CarriedTwice { port: String, of: String },
    CarriedMismatch { output: String, gives: Type, input: String, takes: Type, of: String },
    ConditionUnknown { condition: String, of: String },
    ConditionNotBool { condition: String, of: String, gives: Type },
    ConditionUnconnected { condition: String, of: String },
    OverNothing { of: String },
    OverUnknown { port: String, of: String },
    OverTwice { port: String, of: String },
    NoConcurrency { of: String },
    NoArms { of: String },
    GuardNotBool { guard: String, of: String, takes: Type },
    DefaultNotLast { arm: String, of: String },
    ArmsTake { port: String, of: String, one: Type, other: Type },
    ArmsGive { port: String, of: String, one: Type, other: Type },
    ErrorTaken { of: String },
    BadDepends { of: String },
    NoAttempts { of: String },
    Endless { flows: Vec<String> },
    TooMany { what: &'static str, of: String, found: u64, most: u64 },
}

impl MistakeKind {
    /// Returns the error code, which never changes: users look it up.
    pub fn code(&self) -> &'static str {
        match self {
            MistakeKind::UnknownFlow { .. } => "OF0010",
            MistakeKind::BadName { .. } => "OF0011",
            MistakeKind::Mismatch { .. } => "OF0012",
            MistakeKind::DuplicateName { .. } => "OF0013",
            MistakeKind::UnknownModule { .. } => "OF0014",
            MistakeKind::UnknownPort { .. } => "OF0015",
            MistakeKind::UnknownRequest { .. } => "OF0016",
            MistakeKind::Unconnected { .. } => "OF0017",
            MistakeKind::OutputUnconnected { .. } => "OF0018",
            MistakeKind::ConnectedTwice { .. } => "OF0019",
            MistakeKind::Cycle { .. } => "OF0020",
            MistakeKind::CarriedUnknown { .. } => "OF0021",
            MistakeKind::CarriedTwice { .. } => "OF0022",
            MistakeKind::CarriedMismatch { .. } => "OF0023",
            MistakeKind::ConditionUnknown { .. } => "OF0024",
            MistakeKind::ConditionNotBool { .. } => "OF0025",
            MistakeKind::ConditionUnconnected { .. } => "OF0026",
            MistakeKind::OverNothing { .. } => "OF0027",
            MistakeKind::OverUnknown { .. } => "OF0028",
            MistakeKind::OverTwice { .. } => "OF0029",
            MistakeKind::NoConcurrency { .. } => "OF0030",
            MistakeKind::NoArms { .. } => "OF0031",
            MistakeKind::GuardNotBool { .. } => "OF0032",
            MistakeKind::DefaultNotLast { .. } => "OF0033",
            MistakeKind::ArmsTake { .. } => "OF0034",
            MistakeKind::ArmsGive { .. } => "OF0035",
            MistakeKind::ErrorTaken { .. } => "OF0036",
            MistakeKind::BadDepends { .. } => "OF0037",
            MistakeKind::NoAttempts { .. } => "OF0038",
            MistakeKind::Endless { .. } => "OF0039",
            MistakeKind::TooMany { .. } => "OF0040",
        }
    }
}

impl fmt::Display for NameRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameRole::Flow => "flow",
            NameRole::Module => "module",
            NameRole::Arm => "arm",
            NameRole::Input => "input",
            NameRole::Output => "output",
        })
    }
}

impl fmt::Display for MistakeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MistakeKind::UnknownFlow { flow } => write!(f, "there is no flow `{flow}`"),
            MistakeKind::BadName { named: named @ (NameRole::Flow | NameRole::Module), name } => {
                write!(f, "`{name}` cannot be the name of a {named}")
            }
            MistakeKind::BadName { named, name } => write!(f, "`{name}` cannot be the name of an {named}"),
            MistakeKind::Mismatch { port, of, takes, from, gives } => {
                write!(f, "port `{port}` of {of} takes {takes}, but {from} gives {gives}")
            }
            MistakeKind::DuplicateName { named, name, of } => write!(f, "{of} has more than one {named} `{name}`"),
            MistakeKind::UnknownModule { module, of } => write!(f, "there is no module `{module}` in {of}"),
            MistakeKind::UnknownPort { named, port, of } => write!(f, "{of} has no {named} `{port}`"),
            MistakeKind::UnknownRequest { output } => write!(f, "the flow has no output `{output}` to ask for"),
            MistakeKind::Unconnected { port, of } => write!(f, "nothing is connected to input `{port}` of {of}"),
            MistakeKind::OutputUnconnected { port, of } => write!(f, "nothing gives output `{port}` of {of}"),
            MistakeKind::ConnectedTwice { port, of } => {
                write!(f, "more than one connection leads to port `{port}` of {of}")
            }
            MistakeKind::Cycle { modules } => write!(f, "these wait for each other for ever: {}", modules.join(" -> ")),
            MistakeKind::CarriedUnknown { named, port, of } => {
                write!(f, "loop {of} carries `{port}`, but its body has no such {named}")
            }
            MistakeKind::CarriedTwice { port, of } => {
                write!(f, "loop {of} carries more than one output to input `{port}`")
            }
            MistakeKind::CarriedMismatch { output, gives, input, takes, of } => {
                write!(f, "loop {of} carries `{output}`, {gives}, to `{input}`, which takes {takes}")
            }
            MistakeKind::ConditionUnknown { condition, of } => {
                write!(f, "loop {of} goes on while `{condition}`, but its body has no such output")
            }
            MistakeKind::ConditionNotBool { condition, of, gives } => {
                write!(f, "loop {of} goes on while `{condition}`, which is {gives}, not bool")
            }
            MistakeKind::ConditionUnconnected { condition, of } => {
                write!(f, "loop {of} goes on while `{condition}`, but nothing gives it")
            }
            MistakeKind::OverNothing { of } => write!(f, "each {of} goes over nothing"),
            MistakeKind::OverUnknown { port, of } => {
                write!(f, "each {of} goes over `{port}`, but its body has no such input")
            }
            MistakeKind::OverTwice { port, of } => write!(f, "each {of} names `{port}` twice"),
            MistakeKind::NoConcurrency { of } => write!(f, "each {of} lets no element run"),
            MistakeKind::NoArms { of } => write!(f, "choice {of} has no arms"),
            MistakeKind::GuardNotBool { guard, of, takes } => {
                write!(f, "guard `{guard}` of choice {of} is also an input of type {takes}, not bool")
            }
            MistakeKind::DefaultNotLast { arm, of } => {
                write!(f, "arm `{arm}` of choice {of} has no guard, so those after it are never taken")
            }
            MistakeKind::ArmsTake { port, of, one, other } => {
                write!(f, "input `{port}` of choice {of} is {one} in one arm and {other} in another")
            }
            MistakeKind::ArmsGive { port, of, one, other } => {
                write!(f, "output `{port}` of choice {of} is {one} in one arm and {other} in another")
            }
            MistakeKind::ErrorTaken { of } => {
                write!(f, "{of} is an attempt, so its output `error` is taken, but it has one of its own")
            }
            MistakeKind::BadDepends { of } => {
                write!(f, "task {of} says its outputs depend on ports that it does not have")
            }
            MistakeKind::NoAttempts { of } => write!(f, "task {of} may be tried 0 times, so it never runs"),
            MistakeKind::Endless { flows } if flows.len() == 1 => {
                write!(f, "flow `{}` calls itself for ever", flows[0])
            }
            MistakeKind::Endless { flows } => write!(f, "flows `{}` call each other for ever", flows.join("`, `")),
            MistakeKind::TooMany { what, of, found, most } => write!(f, "{of} has {found} {what}; {most} is the most"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.what.code(), self.what)?;
        if let Some(SourceLocation { file, line, column }) = &self.origin {
            write!(f, "\n  --> {file}:{line}:{column}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { "\n" };
            write!(f, "{between}{mistake}")?;
        }
        Ok(())
    }
}
