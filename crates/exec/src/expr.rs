//! Expressions (CEL): compiled once, their references, and their evaluation.

mod budget;
mod depth;
mod functions;
pub mod infer;
mod references;
mod scope;

pub use functions::{FUNCTIONS, MACROS, OPERATORS};
pub use references::{KEYWORDS, Reference};
pub use scope::Bindings;

use crate::value::{Mismatch, PortValue};
use cel::{Context, Env, IdedExpr, Program};
use onceflow_core::model::Type;
use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

/// Names that mean something to expressions, so that nothing in a flow can be called so: types, and the families of
/// functions.
pub const RESERVED: [&str; 19] = [
    "as",
    "base64",
    "bool",
    "bytes",
    "double",
    "dyn",
    "false",
    "in",
    "int",
    "list",
    "lists",
    "map",
    "math",
    "null",
    "null_type",
    "string",
    "true",
    "type",
    "uint",
];

/// Those of [`RESERVED`] that are families of functions: `math.greatest(…)`.
const FAMILIES: [&str; 3] = ["base64", "lists", "math"];

/// An expression longer than this is refused.
pub const SOURCE_BYTES_MAX: usize = 64 * 1024;

/// Size of the cache of compiled expressions. A flow has a few hundred; when many flows fill the cache, it is emptied.
const COMPILED_MAX: usize = 10_000;

/// An expression, compiled.
#[derive(Debug)]
pub struct Compiled {
    source: String,
    /// The parsed program. For a bare reference it is parsed only on demand: most expressions are bare references,
    /// which are looked up and never evaluated.
    program: OnceLock<IdedExpr>,
    references: Vec<Reference>,
    is_plain: bool,
}

/// A text that does not parse as an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where in the source, in bytes.
    pub span: Range<usize>,
    /// The problem, in plain words.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// A failed evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    /// The expression.
    pub source: String,
    /// The reason of the failure.
    pub why: String,
    /// The references of the expression, each with the type of its value.
    pub types: Vec<(String, String)>,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` cannot be computed: {}", self.source, self.why)?;
        let types: Vec<_> = self.types.iter().map(|(name, ty)| format!("{name} is {ty}")).collect();
        if !types.is_empty() {
            write!(f, " ({})", types.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for EvalError {}

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for extension in [cel::extensions::strings, cel::extensions::lists, cel::extensions::math] {
        env.add_extension(extension).expect("the extensions have no name in common");
    }
    env.add_extension(budget::extension).expect("no other extension uses such names");
    Arc::new(env)
});

static COMPILED: Mutex<BTreeMap<String, Arc<Compiled>>> = Mutex::new(BTreeMap::new());

/// Compiles an expression, or returns it from the cache.
///
/// # Errors
/// All syntax errors, each with its place in the source.
pub fn compile(source: &str) -> Result<Arc<Compiled>, Vec<SyntaxError>> {
    let known = COMPILED.lock().unwrap_or_else(PoisonError::into_inner).get(source).cloned();
    if let Some(compiled) = known {
        return Ok(compiled);
    }
    let compiled = Arc::new(compile_fresh(source)?);
    let mut known = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= COMPILED_MAX {
        known.clear();
    }
    known.insert(source.to_owned(), compiled.clone());
    Ok(compiled)
}

fn compile_fresh(source: &str) -> Result<Compiled, Vec<SyntaxError>> {
    let wrong = |span: Range<usize>, message: String| SyntaxError { span, message };
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("an expression of {} bytes is too long: at most {SOURCE_BYTES_MAX}", source.len());
        return Err(vec![wrong(0..source.len(), message)]);
    }
    if let Some(reference) = references::plain(source) {
        let (program, references) = (OnceLock::new(), vec![reference]);
        return Ok(Compiled { source: source.to_owned(), program, references, is_plain: true });
    }
    if let Some(at) = depth::exceeded(source) {
        let len = source[at..].chars().next().map_or(0, char::len_utf8);
        return Err(vec![wrong(at..at + len, String::from("too many operators and brackets inside one another"))]);
    }
    let program = parse(source)?;
    let references = references::of(&program, source);
    let is_plain = matches!(&references[..], [only] if only.path.join(".") == source);
    let program = budget::bound(program.expression()).into();
    Ok(Compiled { source: source.to_owned(), program, references, is_plain })
}

fn parse(source: &str) -> Result<Program, Vec<SyntaxError>> {
    let wrong = |span: Range<usize>, message: String| SyntaxError { span, message };
    ENV.compile(source).map_err(|errors| {
        let error = |error: &cel::ParseError| wrong(place(source, error.pos), plain_words(&error.msg));
        let mut errors: Vec<_> = errors.errors.iter().map(error).collect();
        errors.sort_by(|a, b| (a.span.start, &a.message).cmp(&(b.span.start, &b.message)));
        errors.dedup();
        errors
    })
}

/// Returns the byte range of the token at a line and column, both counted from 1 and in characters.
fn place(source: &str, (line, column): (isize, isize)) -> Range<usize> {
    let line = usize::try_from(line - 1).unwrap_or(0);
    let column = usize::try_from(column - 1).unwrap_or(0);
    let start: usize = source.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = &source[start..];
    let at = start + rest.char_indices().nth(column).map_or(rest.trim_end().len(), |(at, _)| at);
    let token = &source[at..];
    let word = token.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(token.len());
    at..at + word.max(token.chars().next().map_or(0, char::len_utf8))
}

/// Rewords a parser message so that no knowledge of the grammar is needed.
fn plain_words(message: &str) -> String {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let message = message.split(" expecting ").next().unwrap_or(message);
    let unexpected = ["mismatched input ", "extraneous input ", "no viable alternative at input "];
    if let Some(found) = unexpected.iter().find_map(|phrase| message.strip_prefix(phrase)) {
        return match found.contains("<EOF>") {
            true => String::from("the expression is not complete"),
            false => format!("`{}` is not expected here", found.trim_matches('\'')),
        };
    }
    match message.strip_prefix("token recognition error at: ") {
        Some(found) => format!("`{}` cannot be read", found.strip_prefix('\'').unwrap_or(found).trim_end_matches('\'')),
        None => message.replace('\'', "`"),
    }
}

impl Compiled {
    /// The expression.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the names it uses but does not define, in order of appearance: the longest paths, such as `align.bam`.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// Returns the reference, if the expression is nothing but one.
    pub fn as_reference(&self) -> Option<&Reference> {
        self.is_plain.then(|| &self.references[0])
    }

    /// Evaluates the expression within a budget: an evaluation that would never end, or fill the memory, fails within
    /// seconds.
    ///
    /// # Errors
    /// If it cannot be computed.
    pub fn eval(&self, scope: &Bindings) -> Result<PortValue, EvalError> {
        if let Some(reference) = self.as_reference()
            && let Some(value) = scope.get(&reference.path)
        {
            return Ok(value);
        }
        let mut context = Context::with_env(ENV.clone());
        let mut added = Vec::new();
        for reference in &self.references {
            let root = reference.path[0].as_str();
            if !added.contains(&root)
                && let Some(value) = scope.root(root)
            {
                context.add_variable_from_value(root, value.to_cel());
                added.push(root);
            }
        }
        let program = match self.program.get() {
            Some(program) => program,
            None => {
                let parsed = parse(&self.source).map_err(|errors| self.failed(errors[0].to_string(), scope))?;
                self.program.get_or_init(|| budget::bound(parsed.expression()))
            }
        };
        let Some(given) = budget::within(|| cel::Value::resolve(program, &context)) else {
            let why = format!("it goes over, or makes, more than {} million elements", budget::UNITS_MAX / 1_000_000);
            return Err(self.failed(why, scope));
        };
        let given = given.map_err(|error| self.failed(why(&error), scope))?;
        PortValue::from_cel(&given).map_err(|wrong| self.failed(wrong.to_string(), scope))
    }

    /// Evaluates the expression as a value of a type.
    ///
    /// # Errors
    /// If it cannot be computed, or is not of the type.
    pub fn eval_as(&self, scope: &Bindings, ty: &Type) -> Result<PortValue, EvalError> {
        let value = self.eval(scope)?;
        value.conform(ty).map_err(|wrong: Mismatch| self.failed(wrong.to_string(), scope))
    }

    fn failed(&self, why: String, scope: &Bindings) -> EvalError {
        let mut types: Vec<(String, String)> = Vec::new();
        for reference in &self.references {
            let name = reference.path.join(".");
            if types.len() < 8 && !types.iter().any(|(known, _)| *known == name) {
                let ty = scope.get(&reference.path).map_or("unknown", |value| value.kind());
                types.push((name, ty.to_owned()));
            }
        }
        EvalError { source: self.source.clone(), why, types }
    }
}

/// Says why an evaluation failed, rewording the evaluator's message where it is hard to understand.
fn why(error: &cel::ExecutionError) -> String {
    use cel::ExecutionError as E;
    match error {
        E::NoSuchKey(name) => format!("there is no `{name}`"),
        E::UndeclaredReference(name) => format!("nothing is called `{name}`"),
        E::NoSuchOverload(overload) => {
            let (name, types) = (overload.function().replace('_', " "), overload.argument_types().join(", "));
            format!("`{}` does not take ({types})", name.trim())
        }
        E::UnsupportedBinaryOperator(name, a, b) => format!("`{name}` does not take {} and {}", of(a), of(b)),
        E::IndexOutOfBounds(at) => format!("there is no element {}", of(at)),
        E::DivisionByZero(_) | E::RemainderByZero(_) => String::from("division by zero"),
        E::Overflow(..) => String::from("the number is too large"),
        E::ValuesNotComparable(a, b) => format!("{} and {} cannot be compared", of(a), of(b)),
        other => other.to_string(),
    }
}

fn of(value: &cel::Value) -> String {
    PortValue::from_cel(value).map_or_else(|_| value.type_of().to_string(), |value| value.describe())
}

/// Compiles and evaluates the expression of a hole; the compiled form comes from the cache.
///
/// # Errors
/// As [`Compiled::eval`]; a source that does not compile cannot be computed.
pub fn eval(source: &str, scope: &Bindings) -> Result<PortValue, EvalError> {
    known(source)?.eval(scope)
}

/// As [`eval`], for a value of a type.
///
/// # Errors
/// As [`Compiled::eval_as`].
pub fn eval_as(source: &str, scope: &Bindings, ty: &Type) -> Result<PortValue, EvalError> {
    known(source)?.eval_as(scope, ty)
}

fn known(source: &str) -> Result<Arc<Compiled>, EvalError> {
    compile(source).map_err(|wrong| {
        let why = wrong.iter().map(|wrong| wrong.message.as_str()).collect::<Vec<_>>().join("; ");
        EvalError { source: source.to_owned(), why, types: vec![] }
    })
}

#[cfg(test)]
mod tests;
