//! What can be wrong with a flow: each kind with its code, the sentence that says it, where it is, and what may help.

use crate::model::{Origin, Type};
use std::fmt;

/// Something wrong with a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What is wrong.
    pub what: What,
    /// Where: a module `/align/sort`, or a port of it, `/align/sort:bam`.
    pub address: String,
    /// Where it was written down.
    pub origin: Option<Origin>,
    /// What may help.
    pub hint: Option<String>,
}

/// All that is wrong with a flow; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Mistake>);

impl std::error::Error for Errors {}

/// What is named by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
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
pub enum What {
    UnknownFlow { flow: String },
    BadName { named: Named, name: String },
    Mismatch { port: String, of: String, takes: Type, from: String, gives: Type },
    DuplicateName { named: Named, name: String, of: String },
    UnknownModule { module: String, of: String },
    UnknownPort { named: Named, port: String, of: String },
    UnknownRequest { output: String },
    Unconnected { port: String, of: String },
    OutputUnconnected { port: String, of: String },
    ConnectedTwice { port: String, of: String },
    Cycle { modules: Vec<String> },
    CarriedUnknown { named: Named, port: String, of: String },
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

impl What {
    /// The same for ever: what people look up.
    pub fn code(&self) -> &'static str {
        match self {
            What::UnknownFlow { .. } => "OF0010",
            What::BadName { .. } => "OF0011",
            What::Mismatch { .. } => "OF0012",
            What::DuplicateName { .. } => "OF0013",
            What::UnknownModule { .. } => "OF0014",
            What::UnknownPort { .. } => "OF0015",
            What::UnknownRequest { .. } => "OF0016",
            What::Unconnected { .. } => "OF0017",
            What::OutputUnconnected { .. } => "OF0018",
            What::ConnectedTwice { .. } => "OF0019",
            What::Cycle { .. } => "OF0020",
            What::CarriedUnknown { .. } => "OF0021",
            What::CarriedTwice { .. } => "OF0022",
            What::CarriedMismatch { .. } => "OF0023",
            What::ConditionUnknown { .. } => "OF0024",
            What::ConditionNotBool { .. } => "OF0025",
            What::ConditionUnconnected { .. } => "OF0026",
            What::OverNothing { .. } => "OF0027",
            What::OverUnknown { .. } => "OF0028",
            What::OverTwice { .. } => "OF0029",
            What::NoConcurrency { .. } => "OF0030",
            What::NoArms { .. } => "OF0031",
            What::GuardNotBool { .. } => "OF0032",
            What::DefaultNotLast { .. } => "OF0033",
            What::ArmsTake { .. } => "OF0034",
            What::ArmsGive { .. } => "OF0035",
            What::ErrorTaken { .. } => "OF0036",
            What::BadDepends { .. } => "OF0037",
            What::NoAttempts { .. } => "OF0038",
            What::Endless { .. } => "OF0039",
            What::TooMany { .. } => "OF0040",
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Named::Flow => "flow",
            Named::Module => "module",
            Named::Arm => "arm",
            Named::Input => "input",
            Named::Output => "output",
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::UnknownFlow { flow } => write!(f, "there is no flow `{flow}`"),
            What::BadName { named: named @ (Named::Flow | Named::Module), name } => {
                write!(f, "`{name}` cannot be the name of a {named}")
            }
            What::BadName { named, name } => write!(f, "`{name}` cannot be the name of an {named}"),
            What::Mismatch { port, of, takes, from, gives } => {
                write!(f, "port `{port}` of {of} takes {takes}, but {from} gives {gives}")
            }
            What::DuplicateName { named, name, of } => write!(f, "{of} has more than one {named} `{name}`"),
            What::UnknownModule { module, of } => write!(f, "there is no module `{module}` in {of}"),
            What::UnknownPort { named, port, of } => write!(f, "{of} has no {named} `{port}`"),
            What::UnknownRequest { output } => write!(f, "the flow has no output `{output}` to ask for"),
            What::Unconnected { port, of } => write!(f, "nothing is connected to input `{port}` of {of}"),
            What::OutputUnconnected { port, of } => write!(f, "nothing gives output `{port}` of {of}"),
            What::ConnectedTwice { port, of } => write!(f, "more than one connection leads to port `{port}` of {of}"),
            What::Cycle { modules } => write!(f, "these wait for each other for ever: {}", modules.join(" -> ")),
            What::CarriedUnknown { named, port, of } => {
                write!(f, "loop {of} carries `{port}`, but its body has no such {named}")
            }
            What::CarriedTwice { port, of } => write!(f, "loop {of} carries more than one output to input `{port}`"),
            What::CarriedMismatch { output, gives, input, takes, of } => {
                write!(f, "loop {of} carries `{output}`, {gives}, to `{input}`, which takes {takes}")
            }
            What::ConditionUnknown { condition, of } => {
                write!(f, "loop {of} goes on while `{condition}`, but its body has no such output")
            }
            What::ConditionNotBool { condition, of, gives } => {
                write!(f, "loop {of} goes on while `{condition}`, which is {gives}, not bool")
            }
            What::ConditionUnconnected { condition, of } => {
                write!(f, "loop {of} goes on while `{condition}`, but nothing gives it")
            }
            What::OverNothing { of } => write!(f, "each {of} goes over nothing"),
            What::OverUnknown { port, of } => write!(f, "each {of} goes over `{port}`, but its body has no such input"),
            What::OverTwice { port, of } => write!(f, "each {of} names `{port}` twice"),
            What::NoConcurrency { of } => write!(f, "each {of} lets no element run"),
            What::NoArms { of } => write!(f, "choice {of} has no arms"),
            What::GuardNotBool { guard, of, takes } => {
                write!(f, "guard `{guard}` of choice {of} is also an input of type {takes}, not bool")
            }
            What::DefaultNotLast { arm, of } => {
                write!(f, "arm `{arm}` of choice {of} has no guard, so those after it are never taken")
            }
            What::ArmsTake { port, of, one, other } => {
                write!(f, "input `{port}` of choice {of} is {one} in one arm and {other} in another")
            }
            What::ArmsGive { port, of, one, other } => {
                write!(f, "output `{port}` of choice {of} is {one} in one arm and {other} in another")
            }
            What::ErrorTaken { of } => {
                write!(f, "{of} is an attempt, so its output `error` is taken, but it has one of its own")
            }
            What::BadDepends { of } => write!(f, "task {of} says its outputs depend on ports that it does not have"),
            What::NoAttempts { of } => write!(f, "task {of} may be tried 0 times, so it never runs"),
            What::Endless { flows } if flows.len() == 1 => write!(f, "flow `{}` calls itself for ever", flows[0]),
            What::Endless { flows } => write!(f, "flows `{}` call each other for ever", flows.join("`, `")),
            What::TooMany { what, of, found, most } => write!(f, "{of} has {found} {what}; {most} is the most"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.what.code(), self.what)?;
        if let Some(Origin { file, line, column }) = &self.origin {
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
