//! Infers the type of an expression, and finds calls in it that must fail, as far as both are possible before it runs.

use super::functions::{self, CelType, WrongCall};
use cel::{
    IdedExpr, Program,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators as op},
};
use onceflow_core::model::Type;
use std::ops::Range;

/// Returns the type of a path of names that an expression refers to, if it is known.
pub type TypeLookup<'a> = &'a dyn Fn(&[String]) -> Option<Type>;

/// A part of an expression that fails for all values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeProblem {
    /// Where in the source, in bytes.
    pub span: Range<usize>,
    /// The problem, in plain words.
    pub message: String,
    /// Advice how to correct it.
    pub hint: String,
}

/// Infers the type of an expression; `None` if it cannot be inferred.
///
/// # Errors
/// All calls of functions that do not exist or do not accept their arguments. A source that does not compile has none:
/// [`super::compile`] reports its errors.
pub fn infer(source: &str, lookup: TypeLookup<'_>) -> Result<Option<Type>, Vec<TypeProblem>> {
    let Ok(program) = super::parse(source) else { return Ok(None) };
    let mut infer = Infer { source, program: &program, lookup, bound: vec![], problems: vec![] };
    let ty = infer.of(program.expression());
    if infer.problems.is_empty() { Ok(ty) } else { Err(infer.problems) }
}

/// Returns the type of a field; `None` if the type has no such field.
pub fn field(ty: &Type, name: &str) -> Option<Type> {
    match (ty, name) {
        (Type::File, "path" | "name" | "stem" | "ext") | (Type::Directory, "path" | "name") => Some(Type::Text),
        (Type::Directory, "files") => Some(Type::list(Type::File)),
        (Type::Record(fields), name) => fields.get(name).cloned(),
        (Type::Option(inner), name) => field(inner, name),
        (Type::Json, _) => Some(Type::Json),
        _ => None,
    }
}

/// Returns the names of the fields that values of a type have.
pub fn fields(ty: &Type) -> Vec<&str> {
    match ty {
        Type::File => vec!["path", "name", "stem", "ext"],
        Type::Directory => vec!["path", "name", "files"],
        Type::Record(fields) => fields.keys().map(String::as_str).collect(),
        Type::Option(inner) => self::fields(inner),
        _ => vec![],
    }
}

/// All values of the type can be written as JSON.
pub fn is_data(ty: &Type) -> bool {
    Type::Json.accepts(ty)
}

struct Infer<'a> {
    source: &'a str,
    program: &'a Program,
    lookup: TypeLookup<'a>,
    /// Variables of comprehensions.
    bound: Vec<(&'a str, Option<Type>)>,
    problems: Vec<TypeProblem>,
}

impl<'a> Infer<'a> {
    /// Infers the type of an expression. Visits all of it, so that every call is checked, also where its type does not
    /// matter.
    fn of(&mut self, expr: &'a IdedExpr) -> Option<Type> {
        match &expr.expr {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(_) | Expr::Select(_) => self.path(expr),
            Expr::Call(call) => self.call(expr.id, call),
            Expr::List(list) => {
                let elements: Vec<_> = list.elements.iter().map(|element| self.of(element)).collect();
                let first = elements.first()?.as_ref()?;
                elements.iter().all(|ty| ty.as_ref() == Some(first)).then(|| Type::list(first.clone()))
            }
            Expr::Map(map) => {
                let entries: Vec<_> = map.entries.iter().map(|ided| self.entry(&ided.expr)).collect();
                entries.into_iter().collect::<Option<_>>().map(Type::Record)
            }
            Expr::Comprehension(comprehension) => self.comprehension(expr.id, comprehension),
            Expr::Struct(made) => {
                made.entries.iter().for_each(|ided| drop(self.entry(&ided.expr)));
                let message = format!("there is no type `{}`", made.type_name);
                self.wrong(expr.id, &made.type_name, message, String::from("a record is written `{'field': value}`"));
                None
            }
            Expr::Unspecified => None,
        }
    }

    /// Returns name and type of a record's field, if the name is a literal.
    fn entry(&mut self, entry: &'a EntryExpr) -> Option<(String, Type)> {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.of(&entry.key);
                let ty = self.of(&entry.value);
                match &entry.key.expr {
                    Expr::Literal(LiteralValue::String(name)) => Some((name.inner().to_owned(), ty?)),
                    _ => None,
                }
            }
            EntryExpr::StructField(field) => {
                self.of(&field.value);
                None
            }
        }
    }

    fn path(&mut self, expr: &'a IdedExpr) -> Option<Type> {
        let mut names = Vec::new();
        let (mut inner, mut is_test) = (expr, false);
        let root = loop {
            match &inner.expr {
                Expr::Ident(root) => break Some(root),
                Expr::Select(select) => {
                    is_test |= select.test;
                    names.push(select.field.clone());
                    inner = &select.operand;
                }
                _ => break None,
            }
        };
        let start = match root {
            Some(root) => match self.bound.iter().rev().find(|(name, _)| name == root) {
                Some((_, ty)) => ty.clone(),
                None if is_test => return Some(Type::Bool),
                None => {
                    let path: Vec<_> = std::iter::once(root.clone()).chain(names.into_iter().rev()).collect();
                    return (self.lookup)(&path);
                }
            },
            None => self.of(inner),
        };
        if is_test {
            return Some(Type::Bool);
        }
        names.iter().rev().try_fold(start?, |ty, name| field(&ty, name))
    }

    fn call(&mut self, id: u64, call: &'a CallExpr) -> Option<Type> {
        let name = call.func_name.as_str();
        let family = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(family) if super::FAMILIES.contains(&family.as_str()) => Some(family.as_str()),
            _ => None,
        });
        let target = call.target.as_deref().filter(|_| family.is_none());
        let args: Vec<_> = target.into_iter().chain(&call.args).collect();
        let types: Vec<_> = args.iter().map(|arg| self.of(arg)).collect();
        if name.contains('@') && name != op::IN {
            // Part of the expansion of a macro, not written by the user.
            return None;
        }
        if let Some(symbol) = symbol(name) {
            return self.operator(id, name, symbol, &args, &types);
        }
        let full = family.map_or_else(|| name.to_owned(), |family| format!("{family}.{name}"));
        match functions::call(&full, target.is_some(), &types) {
            Ok(ty) => ty,
            Err(WrongCall { message, hint }) => {
                self.wrong(id, name, message, hint);
                None
            }
        }
    }

    fn operator(
        &mut self,
        id: u64,
        name: &str,
        symbol: &str,
        args: &[&IdedExpr],
        types: &[Option<Type>],
    ) -> Option<Type> {
        let kinds: Vec<_> = types.iter().map(|ty| CelType::of(ty.as_ref())).collect();
        if !takes(name, &kinds) {
            let given: Vec<_> = types.iter().map(functions::shown).collect();
            let wrong = match (name, &given[..]) {
                (op::CONDITIONAL, [condition, ..]) => format!("the condition of `? :` is {condition}, not bool"),
                (op::INDEX | op::OPT_INDEX, [_, index]) if kinds[0] == CelType::List => {
                    format!("an element of a list has a number, but this is {index}")
                }
                (op::INDEX | op::OPT_INDEX, [one, _]) => format!("{one} has no elements"),
                (_, [one, _]) if types[1].is_none() => format!("`{symbol}` does not take {one}"),
                (_, [_, other]) if types[0].is_none() => format!("`{symbol}` does not take {other}"),
                (_, [one]) => format!("`{symbol}` does not take {one}"),
                (_, [one, other, ..]) => format!("`{symbol}` does not take {one} and {other}"),
                _ => format!("`{symbol}` does not take this"),
            };
            self.wrong(id, symbol, wrong, operator_hint(name, &kinds));
            return None;
        }
        let of = |at: usize| types.get(at).cloned().flatten();
        match name {
            op::LOGICAL_AND
            | op::LOGICAL_OR
            | op::LOGICAL_NOT
            | op::EQUALS
            | op::NOT_EQUALS
            | op::GREATER
            | op::GREATER_EQUALS
            | op::LESS
            | op::LESS_EQUALS
            | op::IN => Some(Type::Bool),
            op::NEGATE => of(0),
            op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO => {
                of(0).filter(|a| of(1).as_ref() == Some(a) && *a != Type::Json)
            }
            op::CONDITIONAL => match (of(1), of(2)) {
                (Some(a), Some(b)) if a == b => Some(a),
                (Some(some), None) if is_null(&args[2].expr) => Some(optional(some)),
                (None, Some(some)) if is_null(&args[1].expr) => Some(optional(some)),
                _ => None,
            },
            op::INDEX => match of(0)? {
                Type::List(inner) => Some(*inner),
                Type::Json => Some(Type::Json),
                _ => None,
            },
            _ => None,
        }
    }

    /// Infers the type of a comprehension: `all` and `exists` accumulate a boolean; `map` and `filter` accumulate a
    /// list.
    fn comprehension(&mut self, id: u64, all: &'a ComprehensionExpr) -> Option<Type> {
        let range = self.of(&all.iter_range);
        let kind = CelType::of(range.as_ref());
        if !(kind.may_be(CelType::List) || kind.may_be(CelType::Map)) {
            let message =
                format!("this goes over the elements of a list or a map, but {} has none", functions::shown(&range));
            self.wrong(all.iter_range.id.max(id), &all.iter_var, message, String::new());
        }
        let element = match range {
            Some(Type::List(inner)) => Some(*inner),
            // Iterating over a map visits the names of its fields.
            Some(Type::Record(_) | Type::File | Type::Directory) => Some(Type::Text),
            _ => None,
        };
        self.of(&all.accu_init);
        let before = self.bound.len();
        self.bound.push((&all.iter_var, if all.iter_var2.is_some() { None } else { element }));
        self.bound.extend(all.iter_var2.as_deref().map(|name| (name, None)));
        self.bound.push((&all.accu_var, None));
        // The element is visited once more as a part of the step; each problem is reported only once.
        let gathered = gathered(&all.loop_step.expr).and_then(|element| self.of(element));
        self.of(&all.loop_step);
        self.of(&all.result);
        self.bound.truncate(before);
        match &all.accu_init.expr {
            Expr::Literal(LiteralValue::Boolean(_) | LiteralValue::Int(_)) => Some(Type::Bool),
            Expr::List(list) if list.elements.is_empty() => gathered.map(Type::list),
            _ => None,
        }
    }

    fn wrong(&mut self, id: u64, word: &str, message: String, hint: String) {
        let span = self.span(id, word);
        let problem = TypeProblem { span, message, hint };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Returns the occurrence of a word that is nearest to the position of a node: the position of a call is its
    /// bracket, that of an operator its symbol.
    fn span(&self, id: u64, word: &str) -> Range<usize> {
        let Some((at, _)) = self.program.source_info().offset_for(id) else { return 0..self.source.len() };
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        let found = self.source.match_indices(word).filter(|(start, _)| {
            let (before, after) = (&self.source[..*start], &self.source[start + word.len()..]);
            let is_word = word.starts_with(is_letter);
            !(is_word && (before.ends_with(is_letter) || after.starts_with(is_letter)))
        });
        let nearest = found
            .map(|(start, _)| (start.abs_diff(at as usize).min((start + word.len()).abs_diff(at as usize)), start));
        nearest.min().map_or(0..self.source.len(), |(_, start)| start..start + word.len())
    }
}

/// Returns the symbol of an operator; `None` for a function.
fn symbol(name: &str) -> Option<&'static str> {
    Some(match name {
        op::CONDITIONAL => "?",
        op::LOGICAL_AND => "&&",
        op::LOGICAL_OR => "||",
        op::LOGICAL_NOT => "!",
        op::SUBSTRACT | op::NEGATE => "-",
        op::ADD => "+",
        op::MULTIPLY => "*",
        op::DIVIDE => "/",
        op::MODULO => "%",
        op::EQUALS => "==",
        op::NOT_EQUALS => "!=",
        op::GREATER_EQUALS => ">=",
        op::LESS_EQUALS => "<=",
        op::GREATER => ">",
        op::LESS => "<",
        op::INDEX | op::OPT_INDEX => "[",
        op::OPT_SELECT => ".?",
        op::IN => "in",
        _ => return None,
    })
}

/// The operator accepts values of these types.
pub(super) fn takes(name: &str, args: &[CelType]) -> bool {
    use CelType::{Any, Bool, Bytes, Float, Int, List, Map, Text, Uint};
    let among = |ty: CelType, allowed: &[CelType]| allowed.iter().any(|one| one.may_be(ty));
    match (name, args) {
        (op::LOGICAL_AND | op::LOGICAL_OR, [a, b]) => a.may_be(Bool) && b.may_be(Bool),
        (op::LOGICAL_NOT, [a]) | (op::CONDITIONAL, [a, _, _]) => a.may_be(Bool),
        (op::NEGATE, [a]) => among(*a, &[Int, Float]),
        (op::ADD, [a, b]) => {
            a.may_be(*b)
                && among(*a, &[Int, Uint, Float, Text, Bytes, List])
                && among(*b, &[Int, Uint, Float, Text, Bytes, List])
        }
        (op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, [a, b]) => a.may_be(*b) && a.is_number() && b.is_number(),
        (op::MODULO, [a, b]) => a.may_be(*b) && among(*a, &[Int, Uint]) && among(*b, &[Int, Uint]),
        (op::GREATER | op::GREATER_EQUALS | op::LESS | op::LESS_EQUALS, [a, b]) => {
            let comparable = [Bool, Int, Uint, Float, Text, Bytes];
            let both = among(*a, &comparable) && among(*b, &comparable);
            both && (a.may_be(*b) || (a.is_number() && b.is_number()))
        }
        (op::IN, [a, Map]) => among(*a, &[Bool, Int, Uint, Float, Text]),
        (op::IN, [_, b]) => among(*b, &[List, Map]),
        (op::INDEX | op::OPT_INDEX, [a, b]) => match a {
            List => b.is_number(),
            Map | Any | CelType::Optional => true,
            _ => false,
        },
        _ => true,
    }
}

fn operator_hint(name: &str, args: &[CelType]) -> String {
    use CelType::{Float, Int, List, Text};
    match (name, args) {
        (op::ADD, [Text, Int | Float] | [Int | Float, Text]) => String::from("`string(x)` is a number as text"),
        (_, [Int, Float] | [Float, Int]) => String::from("`double(x)` is an int as float"),
        (op::ADD, [List, _] | [_, List]) => String::from("`list + [x]` adds an element"),
        _ => String::new(),
    }
}

/// Returns the element that the step of a comprehension adds to the list.
fn gathered(step: &Expr) -> Option<&IdedExpr> {
    let Expr::Call(call) = step else { return None };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (op::ADD, [_, added]) => match &added.expr {
            Expr::List(list) => list.elements.first(),
            _ => None,
        },
        (op::CONDITIONAL, [_, then, _]) => gathered(&then.expr),
        _ => None,
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(LiteralValue::Null))
}

/// Wraps a type in an option, unless it is one.
pub fn optional(ty: Type) -> Type {
    if matches!(ty, Type::Option(_)) { ty } else { Type::option(ty) }
}

fn literal_type(literal: &LiteralValue) -> Option<Type> {
    match literal {
        LiteralValue::Boolean(_) => Some(Type::Bool),
        LiteralValue::Bytes(_) => Some(Type::Bytes),
        LiteralValue::Double(_) => Some(Type::Float),
        LiteralValue::Int(_) | LiteralValue::UInt(_) => Some(Type::Int),
        LiteralValue::String(_) => Some(Type::Text),
        LiteralValue::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_expressions_are_seen_where_they_can_be() {
        let known = |path: &[String]| match path.join(".").as_str() {
            "n" => Some(Type::Int),
            "x" => Some(Type::Float),
            "files" => Some(Type::list(Type::File)),
            "s.name" => Some(Type::Text),
            "j" => Some(Type::Json),
            _ => None,
        };
        for (source, ty) in [
            ("n + 1", "int"),
            ("n > 1 && !(x == 2.0)", "bool"),
            ("s.name + '.txt'", "text"),
            ("files[0]", "file"),
            ("files[0].stem", "text"),
            ("files.map(f, f.name)", "list<text>"),
            ("files.filter(f, f.ext == 'fq')", "list<file>"),
            ("files.exists(f, f.ext == 'fq')", "bool"),
            ("size(files)", "int"),
            ("files.size()", "int"),
            ("n > 0 ? files[0] : null", "option<file>"),
            ("[1, 2]", "list<int>"),
            ("[1, 'a']", "?"),
            ("{'a': n, 'b': s.name}", "{ a: int, b: text }"),
            ("j.a.b", "?"),
            ("has(j.a)", "bool"),
            ("'a,b'.split(',')", "list<text>"),
            ("-n", "int"),
        ] {
            let found = infer(source, &known).unwrap().map_or(String::from("?"), |ty| ty.to_string());
            assert_eq!(found, ty, "{source}");
        }
    }
}
