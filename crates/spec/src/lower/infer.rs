//! What type an expression has, as far as it can be seen without computing it.

use cel::{
    Program,
    common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators as op},
};
use onceflow_core::model::Type;

/// What is known about the names an expression mentions.
pub(super) type TypeLookup<'a> = &'a dyn Fn(&[String]) -> Option<Type>;

/// The type of an expression, if it can be seen.
pub(super) fn infer(source: &str, known: TypeLookup<'_>) -> Option<Type> {
    let program = Program::compile(source).ok()?;
    Infer { known, bound: vec![] }.of(&program.expression().expr)
}

/// The type of a field; `None` if there is none.
pub(super) fn field(ty: &Type, name: &str) -> Option<Type> {
    match (ty, name) {
        (Type::File, "path" | "name" | "stem" | "ext") | (Type::Directory, "path" | "name") => Some(Type::Text),
        (Type::Directory, "files") => Some(Type::list(Type::File)),
        (Type::Record(fields), name) => fields.get(name).cloned(),
        (Type::Option(inner), name) => field(inner, name),
        (Type::Json, _) => Some(Type::Json),
        _ => None,
    }
}

/// What fields values of a type have.
pub(super) fn fields(ty: &Type) -> Vec<&str> {
    match ty {
        Type::File => vec!["path", "name", "stem", "ext"],
        Type::Directory => vec!["path", "name", "files"],
        Type::Record(fields) => fields.keys().map(String::as_str).collect(),
        Type::Option(inner) => self::fields(inner),
        _ => vec![],
    }
}

/// Whether JSON can say all values of a type.
pub(super) fn is_data(ty: &Type) -> bool {
    Type::Json.accepts(ty)
}

struct Infer<'a> {
    known: TypeLookup<'a>,
    /// Variables of comprehensions.
    bound: Vec<(String, Option<Type>)>,
}

impl Infer<'_> {
    fn of(&mut self, expr: &Expr) -> Option<Type> {
        match expr {
            Expr::Literal(literal) => literal_type(literal),
            Expr::Ident(_) | Expr::Select(_) => self.path(expr),
            Expr::Call(call) => {
                let mut args =
                    call.target.iter().map(|target| &target.expr).chain(call.args.iter().map(|arg| &arg.expr));
                let (first, second, third) = (args.next(), args.next(), args.next());
                self.call(&call.func_name, first, second, third)
            }
            Expr::List(list) => {
                let elements: Option<Vec<_>> = list.elements.iter().map(|element| self.of(&element.expr)).collect();
                let elements = elements?;
                let first = elements.first()?;
                elements.iter().all(|ty| ty == first).then(|| Type::list(first.clone()))
            }
            Expr::Map(map) => {
                let entry = |entry: &EntryExpr| match entry {
                    EntryExpr::MapEntry(entry) => match &entry.key.expr {
                        Expr::Literal(LiteralValue::String(name)) => {
                            Some((name.inner().to_owned(), self.of(&entry.value.expr)?))
                        }
                        _ => None,
                    },
                    EntryExpr::StructField(_) => None,
                };
                map.entries.iter().map(|ided| &ided.expr).map(entry).collect::<Option<_>>().map(Type::Record)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => None,
        }
    }

    fn path(&mut self, expr: &Expr) -> Option<Type> {
        let mut names = Vec::new();
        let mut inner = expr;
        let root = loop {
            match inner {
                Expr::Ident(root) => break Some(root),
                Expr::Select(select) if select.test => return Some(Type::Bool),
                Expr::Select(select) => {
                    names.push(select.field.clone());
                    inner = &select.operand.expr;
                }
                _ => break None,
            }
        };
        let start = match root {
            Some(root) => match self.bound.iter().rev().find(|(name, _)| name == root) {
                Some((_, ty)) => ty.clone(),
                None => {
                    let path: Vec<_> = std::iter::once(root.clone()).chain(names.into_iter().rev()).collect();
                    return (self.known)(&path);
                }
            },
            None => self.of(inner),
        };
        names.iter().rev().try_fold(start?, |ty, name| field(&ty, name))
    }

    fn call(&mut self, name: &str, a: Option<&Expr>, b: Option<&Expr>, c: Option<&Expr>) -> Option<Type> {
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
            | op::IN
            | "has"
            | "contains"
            | "startsWith"
            | "endsWith"
            | "matches"
            | "bool" => Some(Type::Bool),
            "size" | "int" | "indexOf" | "lastIndexOf" => Some(Type::Int),
            "double" => Some(Type::Float),
            "string" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "join" | "format"
            | "charAt" => Some(Type::Text),
            "split" => Some(Type::list(Type::Text)),
            op::NEGATE | "sort" | "distinct" | "slice" | "reverse" => self.of(a?),
            op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO => {
                let (a, b) = (self.of(a?)?, self.of(b?)?);
                (a == b && a != Type::Json).then_some(a)
            }
            op::CONDITIONAL => match (self.of(b?), self.of(c?)) {
                (Some(a), Some(b)) if a == b => Some(a),
                (Some(some), None) if is_null(c?) => Some(optional(some)),
                (None, Some(some)) if is_null(b?) => Some(optional(some)),
                _ => None,
            },
            op::INDEX => match self.of(a?)? {
                Type::List(inner) => Some(*inner),
                Type::Json => Some(Type::Json),
                _ => None,
            },
            _ => None,
        }
    }

    /// `all` and `exists` gather a truth; `map` and `filter` gather a list.
    fn comprehension(&mut self, all: &ComprehensionExpr) -> Option<Type> {
        match &all.accu_init.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => Some(Type::Bool),
            Expr::Literal(LiteralValue::Int(_)) => Some(Type::Bool),
            Expr::List(list) if list.elements.is_empty() => {
                let element = match self.of(&all.iter_range.expr) {
                    Some(Type::List(inner)) => Some(*inner),
                    _ => None,
                };
                self.bound.push((all.iter_var.clone(), element));
                let gathered = gathered(&all.loop_step.expr).and_then(|element| self.of(element));
                self.bound.pop();
                gathered.map(Type::list)
            }
            _ => None,
        }
    }
}

/// The element that a step of a comprehension adds.
fn gathered(step: &Expr) -> Option<&Expr> {
    let Expr::Call(call) = step else { return None };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (op::ADD, [_, added]) => match &added.expr {
            Expr::List(list) => list.elements.first().map(|element| &element.expr),
            _ => None,
        },
        (op::CONDITIONAL, [_, then, _]) => gathered(&then.expr),
        _ => None,
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(LiteralValue::Null))
}

/// Of this or none.
pub(super) fn optional(ty: Type) -> Type {
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
            ("n + x", "?"),
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
            let found = infer(source, &known).map_or(String::from("?"), |ty| ty.to_string());
            assert_eq!(found, ty, "{source}");
        }
    }
}
