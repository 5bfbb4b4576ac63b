//! The options of `#[task(..)]`; all mistakes are reported at once.

use crate::units;
use proc_macro2::{Ident, Span};
use syn::{
    Error, ExprLit, Lit, LitStr, Path, Result, Token, bracketed,
    meta::ParseNestedMeta,
    parse::{ParseStream, Parser},
    punctuated::Punctuated,
};

/// The options of a task or a flow.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitStr>,
    pub(crate) effect: Option<Effect>,
    pub(crate) attempts: Option<u32>,
    pub(crate) backoff_ms: Option<u64>,
    pub(crate) backoff_ms_max: Option<u64>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) class: Option<LitStr>,
    pub(crate) cpu_milli: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) undo: Option<Path>,
    pub(crate) outputs: Option<Vec<Ident>>,
    pub(crate) depends: Vec<(Ident, Vec<Ident>)>,
    pub(crate) inline: Option<Span>,
    pub(crate) abandon: Option<Span>,
}

/// The effect, as a variant of the model's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Pure,
    Idempotent,
    AtMostOnce,
    Transactional,
}

const KNOWN: [&str; 14] = [
    "name", "version", "effect", "retry", "timeout", "class", "cpus", "memory", "undo", "outputs", "depends", "inline",
    "abandon", "backoff",
];

impl Options {
    /// Reads the options of a task.
    pub(crate) fn task(options: proc_macro2::TokenStream) -> Result<Self> {
        let mut read = Options::default();
        syn::meta::parser(|meta| read.task_option(&meta)).parse2(options)?;
        Ok(read)
    }

    /// Reads those of a flow, which are fewer.
    pub(crate) fn flow(options: proc_macro2::TokenStream) -> Result<Self> {
        let mut read = Options::default();
        let parser = syn::meta::parser(|meta| match name_of(&meta).as_str() {
            "name" => once(&mut read.name, &meta, meta.value()?.parse()?),
            "outputs" => once(&mut read.outputs, &meta, names(&meta)?),
            other => Err(meta.error(format!("`{other}` is no option of a flow: there are `name` and `outputs`"))),
        });
        parser.parse2(options)?;
        Ok(read)
    }

    fn task_option(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match name_of(meta).as_str() {
            "name" => once(&mut self.name, meta, meta.value()?.parse()?),
            "version" => once(&mut self.version, meta, meta.value()?.parse()?),
            "effect" => once(&mut self.effect, meta, effect(meta.value()?)?),
            "retry" => meta.parse_nested_meta(|meta| self.retry_option(&meta)),
            "timeout" => once(&mut self.timeout_ms, meta, units::duration_ms(&meta.value()?.parse()?)?),
            "class" => once(&mut self.class, meta, meta.value()?.parse()?),
            "cpus" => once(&mut self.cpu_milli, meta, cpu_milli(meta.value()?)?),
            "memory" => once(&mut self.memory_bytes, meta, units::bytes(&meta.value()?.parse()?)?),
            "undo" => once(&mut self.undo, meta, meta.value()?.parse()?),
            "outputs" => once(&mut self.outputs, meta, names(meta)?),
            "depends" => meta.parse_nested_meta(|meta| self.dependency(&meta)),
            "inline" => once(&mut self.inline, meta, meta.path.segments[0].ident.span()),
            "abandon" => once(&mut self.abandon, meta, meta.path.segments[0].ident.span()),
            other => Err(meta.error(unknown(other))),
        }
    }

    fn retry_option(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match name_of(meta).as_str() {
            "attempts" => {
                let attempts: syn::LitInt = meta.value()?.parse()?;
                match attempts.base10_parse()? {
                    0 => Err(Error::new(attempts.span(), "a task that is never attempted does nothing: at least 1")),
                    count => once(&mut self.attempts, meta, count),
                }
            }
            "backoff" => once(&mut self.backoff_ms, meta, units::duration_ms(&meta.value()?.parse()?)?),
            "backoff_max" => once(&mut self.backoff_ms_max, meta, units::duration_ms(&meta.value()?.parse()?)?),
            other => {
                let known = "there are `attempts`, `backoff` and `backoff_max`";
                Err(meta.error(format!("`{other}` is nothing that `retry` knows: {known}")))
            }
        }
    }

    /// `output = [input, input]`
    fn dependency(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let output = meta.path.require_ident()?.clone();
        if self.depends.iter().any(|(known, _)| *known == output) {
            return Err(meta.error(format!("the dependencies of `{output}` are given twice")));
        }
        let value = meta.value()?;
        let inputs;
        bracketed!(inputs in value);
        let inputs = Punctuated::<Ident, Token![,]>::parse_terminated(&inputs)?;
        self.depends.push((output, inputs.into_iter().collect()));
        Ok(())
    }
}

fn name_of(meta: &ParseNestedMeta<'_>) -> String {
    meta.path.get_ident().map(ToString::to_string).unwrap_or_default()
}

/// Sets an option that was not set before.
fn once<T>(option: &mut Option<T>, meta: &ParseNestedMeta<'_>, value: T) -> Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(meta.error(format!("`{}` is given twice", name_of(meta)))),
    }
}

/// `(a, b)`
fn names(meta: &ParseNestedMeta<'_>) -> Result<Vec<Ident>> {
    let mut names: Vec<Ident> = Vec::new();
    meta.parse_nested_meta(|meta| {
        let name = meta.path.require_ident()?.clone();
        if names.contains(&name) {
            return Err(meta.error(format!("there is an output `{name}` already")));
        }
        if name == "error" {
            return Err(meta.error("an output cannot be called `error`: an attempt has one of that name"));
        }
        names.push(name);
        Ok(())
    })?;
    if names.is_empty() { Err(meta.error("name at least one output")) } else { Ok(names) }
}

fn effect(value: ParseStream<'_>) -> Result<Effect> {
    let effect: Ident = value.parse()?;
    match effect.to_string().as_str() {
        "pure" => Ok(Effect::Pure),
        "idempotent" => Ok(Effect::Idempotent),
        "at_most_once" => Ok(Effect::AtMostOnce),
        "transactional" => Ok(Effect::Transactional),
        other => {
            let known = "there are `pure`, `idempotent`, `at_most_once` and `transactional`";
            Err(Error::new(effect.span(), format!("`{other}` is no effect: {known}")))
        }
    }
}

fn cpu_milli(value: ParseStream<'_>) -> Result<u32> {
    let number: ExprLit = value.parse()?;
    let cpus: Option<f64> = match &number.lit {
        Lit::Int(int) => int.base10_parse().ok(),
        Lit::Float(float) => float.base10_parse().ok(),
        _ => None,
    };
    let milli = cpus.map(|cpus| (cpus * 1000.0).round()).filter(|milli| (0.0..=f64::from(u32::MAX)).contains(milli));
    let wrong = || Error::new_spanned(&number, "a number of processors, as in `2` or `0.5`");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range, as just seen")]
    milli.map(|milli| milli as u32).ok_or_else(wrong)
}

/// Makes the message for an unknown option.
fn unknown(name: &str) -> String {
    let nearest = KNOWN.iter().map(|known| (distance(name, known), known)).min();
    match nearest {
        Some((_, known)) if *known == "backoff" => {
            format!("`{name}` belongs to `retry`: `retry(attempts = 3, backoff = \"1s\")`")
        }
        Some((distance, known)) if distance <= 2 => format!("`{name}` is no option of a task; did you mean `{known}`?"),
        _ => format!("`{name}` is no option of a task: there are {}", KNOWN[..13].join(", ")),
    }
}

/// Returns the edit distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<_> = b.chars().collect();
    let mut row: Vec<_> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}
