//! The action of a leaf of a flow file, as the program carries it: the parameters of its task, in JSON.

mod scope;

use onceflow_core::model::TaskSpec;
pub(crate) use scope::OpCode;
pub use scope::{
    CallGiven, CallInput, CleanupOn, FileCall, FileCleanup, FileDelivery, FileOp, FileTask, FileTrim, FileWork,
    KeepEntries, MessageTarget, ScopeAction,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The action of a leaf: one variant for each executor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Starts a command.
    Command(Command),
    /// Runs code in an interpreter.
    Script(Script),
    /// Calls a server.
    Http(Http),
    /// Evaluates expressions.
    Expr(Expr),
    /// Waits for an event from outside.
    Wait(Wait),
    /// Enters a scope.
    Scope(ScopeAction),
    /// Runs a stream to the end of what it is given.
    Stream(StreamAction),
}

/// All executors, by the names under which programs refer to them. That of [`STREAM`] is not in this crate.
pub const EXECUTORS: [&str; 7] = ["command", "script", "http", "expr", "wait", "scope", STREAM];

/// The executor of streams.
pub const STREAM: &str = "stream";

/// Text with holes: `${{ expression }}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template(pub Vec<TemplatePart>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplatePart {
    /// The text itself.
    Text(String),
    /// An expression; its value goes here.
    Hole(String),
}

/// A command, its environment, and where its outputs are found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The text of the command.
    pub run: Template,
    /// The shell that reads the text.
    #[serde(default)]
    pub shell: Shell,
    /// Where each output is found; as many as the task has.
    #[serde(default)]
    pub outputs: Vec<Capture>,
    /// Variables of its environment, beside the few that every command gets.
    #[serde(default)]
    pub env: BTreeMap<String, Template>,
    /// Names of variables in the worker's environment that are passed to it as well; their values are masked in logs.
    #[serde(default)]
    pub secrets: Vec<String>,
}

/// The shell that reads a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// `bash -euo pipefail`.
    #[default]
    Bash,
    /// `sh -eu`.
    Sh,
    /// A program and its arguments that is given the path of a file with the text; it must be a shell of bash's or the
    /// POSIX kind, and its language is taken to be bash's if its name holds `bash`, else POSIX.
    Custom(Vec<String>),
}

/// Code for an interpreter: inputs as one JSON object on stdin, outputs as one JSON object on stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The program and its arguments; the path of the code follows.
    pub interpreter: Vec<String>,
    /// The code.
    pub code: String,
    /// Where each output is found: a file ([`Capture::Path`]), or an expression over the JSON it wrote, by the names of
    /// its fields.
    #[serde(default)]
    pub outputs: Vec<Capture>,
    /// As for a command.
    #[serde(default)]
    pub env: BTreeMap<String, Template>,
    /// As for a command.
    #[serde(default)]
    pub secrets: Vec<String>,
}

/// A call to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The address. Values in it are percent-encoded, except for a hole at its very beginning.
    pub url: Template,
    /// Headers.
    #[serde(default)]
    pub headers: Vec<(String, Template)>,
    /// The body of the request.
    #[serde(default)]
    pub body: Option<HttpBody>,
    /// The header that carries the step's key.
    #[serde(default = "key_header")]
    pub key_header: String,
    /// The statuses that count as success.
    #[serde(default = "accept")]
    pub accept: Vec<StatusRange>,
    /// Where each output is found: [`Capture::Path`] is the body as a file of that name; [`Capture::Json`] an
    /// expression over `status`, `headers`, `body`; [`Capture::Stdout`] the body itself.
    #[serde(default)]
    pub outputs: Vec<Capture>,
    /// Names of variables in the worker's environment that expressions see as `secrets.NAME`.
    #[serde(default)]
    pub secrets: Vec<String>,
}

/// The default header for the step's key.
pub fn key_header() -> String {
    String::from("Idempotency-Key")
}

/// The default success statuses: 200 to 299.
pub fn accept() -> Vec<StatusRange> {
    vec![StatusRange { from: 200, to: 299 }]
}

/// A range of statuses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRange {
    /// The first.
    pub from: u16,
    /// The last.
    pub to: u16,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpBody {
    /// JSON.
    Json(JsonTemplate),
    /// Text.
    Text(Template),
    /// The content of the file that this expression gives.
    File(String),
}

/// JSON with holes. A text that is exactly one hole becomes the value with its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonTemplate {
    /// Null, a boolean or a number, taken literally.
    Literal(serde_json::Value),
    /// A text with holes.
    Text(Template),
    /// Elements.
    List(Vec<JsonTemplate>),
    /// Fields.
    Record(Vec<(String, JsonTemplate)>),
}

/// A wait for an event from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The name of the event.
    pub event: String,
}

/// A stream: a file of its own, or a part of a flow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamAction {
    /// Its sources, steps and sinks, as a stream file has them.
    pub stream: String,
    /// The expressions that give sources and tables their files, by the names of sources and steps.
    #[serde(default)]
    pub given: BTreeMap<String, String>,
}

/// An expression for each output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expr {
    /// In the order of the task's outputs.
    pub outputs: Vec<String>,
}

/// Where an output is found. Its type is that of the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capture {
    /// A file or directory of this name, or those that match this glob: relative, and never outside. For a type that is
    /// no file, the text in the file of this name.
    Path(Template),
    /// The command's standard output.
    Stdout,
    /// An expression over the JSON that the step answered.
    Json(String),
}

impl Action {
    /// Returns the executor of this action: the name of its task.
    pub fn executor(&self) -> &'static str {
        match self {
            Action::Command(_) => EXECUTORS[0],
            Action::Script(_) => EXECUTORS[1],
            Action::Http(_) => EXECUTORS[2],
            Action::Expr(_) => EXECUTORS[3],
            Action::Wait(_) => EXECUTORS[4],
            Action::Scope(_) => EXECUTORS[5],
            Action::Stream(_) => STREAM,
        }
    }

    /// Encodes the action as the parameters of a task.
    pub fn to_params(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an action can always be written")
    }

    /// Decodes the action from the parameters of a task.
    ///
    /// # Errors
    /// If the parameters were written by a newer version of this tool and hold something unknown here.
    pub fn from_spec(spec: &TaskSpec) -> Result<Action, String> {
        serde_json::from_slice(&spec.params).map_err(|error| {
            format!("what the step does cannot be read ({error}): it was planned by another version of onceflow")
        })
    }

    /// Returns the version of the task: all that results depend on beside the inputs. `more` is the user's own version.
    pub fn version(&self, more: &str) -> String {
        let mut seen = self.clone();
        // The names of secrets do not influence results, so they are not part of the version.
        match &mut seen {
            Action::Command(Command { secrets, .. })
            | Action::Script(Script { secrets, .. })
            | Action::Http(Http { secrets, .. }) => secrets.clear(),
            Action::Expr(_) | Action::Wait(_) | Action::Stream(_) => {}
            Action::Scope(scope) => scope.clear_secrets(),
        }
        let mut hasher = blake3::Hasher::new_derive_key("onceflow action");
        hasher.update(&seen.to_params()).update(&[0]).update(more.as_bytes());
        hasher.finalize().to_hex()[..32].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(run: &str) -> Command {
        let run = Template(vec![TemplatePart::Text(run.into()), TemplatePart::Hole("a.b".into())]);
        Command { run, shell: Shell::Bash, outputs: vec![Capture::Stdout], env: BTreeMap::new(), secrets: vec![] }
    }

    #[test]
    fn an_action_comes_back_from_the_params_of_its_task() {
        let http = Http {
            method: "POST".into(),
            url: Template::default(),
            headers: vec![("a".into(), Template::default())],
            body: Some(HttpBody::Json(JsonTemplate::Record(vec![(
                "b".into(),
                JsonTemplate::List(vec![JsonTemplate::Literal(json!(1.5)), JsonTemplate::Text(Template::default())]),
            )]))),
            key_header: key_header(),
            accept: accept(),
            outputs: vec![Capture::Json("body.id".into())],
            secrets: vec!["TOKEN".into()],
        };
        for action in [Action::Command(command("x")), Action::Http(http), Action::Expr(Expr { outputs: vec![] })] {
            let mut spec = TaskSpec::new(action.executor(), vec![], vec![]);
            spec.params = action.to_params();
            assert_eq!(Action::from_spec(&spec), Ok(action));
        }
    }

    #[test]
    fn the_version_is_of_what_results_depend_on() {
        let version = |change: fn(&mut Command), more: &str| {
            let mut command = command("x");
            change(&mut command);
            Action::Command(command).version(more)
        };
        let known = version(|_| {}, "");
        assert_eq!(version(|command| command.secrets.push("S".into()), ""), known);
        assert_ne!(version(|_| {}, "2"), known);
        assert_ne!(version(|command| command.shell = Shell::Sh, ""), known);
        assert_ne!(version(|command| command.outputs.clear(), ""), known);
        assert_ne!(version(|command| command.run.0.push(TemplatePart::Text(String::new())), ""), known);
        assert_ne!(version(|command| drop(command.env.insert("A".into(), Template::default())), ""), known);
    }
}
